"""Stores that break one promise each, on purpose. A suite that accepts one of them is worth nothing."""

import copy
from collections.abc import Sequence

import msgspec

from seriatim.domain.chat import Chat, Role
from seriatim.domain.errors import Refused
from seriatim.domain.message import Sealed, Slot
from seriatim.engines.inprocess.wire import Wire
from seriatim.ports.catalog import Catalog, Change, Members, Roster, UserChats
from seriatim.ports.message_log import (
    Allocation,
    Cancelled,
    ChatCounter,
    CounterRepair,
    DeliveryState,
    Entry,
    KeyTaken,
    Lookup,
    MessageLog,
    PublishedAhead,
    SenderGone,
    SlotPage,
    SlotTaken,
)
from seriatim.simulation.stores.catalog import MemoryCatalog, MemoryRoster, MemoryUserChats
from seriatim.simulation.stores.message_log import MemoryDeliveryState, MemoryMessageLog
from seriatim.simulation.stores.tables import MemoryStore, TokenUse
from tests.contract.store_engines import MemoryEngine

Cause = KeyTaken | SlotTaken | SenderGone


class BrokenEngine(MemoryEngine):
    """A memory engine with one class replaced by a broken heir."""

    def __init__(
        self,
        *,
        log: type[MemoryMessageLog] = MemoryMessageLog,
        catalog: type[MemoryCatalog] = MemoryCatalog,
        roster: type[MemoryRoster] = MemoryRoster,
        user_chats: type[MemoryUserChats] = MemoryUserChats,
        delivery_state: type[MemoryDeliveryState] = MemoryDeliveryState,
        store: type[MemoryStore] = MemoryStore,
    ) -> None:
        super().__init__()
        self.store = store()
        self._log, self._catalog, self._roster, self._delivery_state = log, catalog, roster, delivery_state
        self._user_chats = user_chats

    def log(self) -> MessageLog:
        return self._log(self.store, self.wire)

    def delivery_state(self) -> DeliveryState:
        return self._delivery_state(self.store, self.wire)

    def repair(self) -> CounterRepair:
        return self._log(self.store, self.wire)

    def catalog(self) -> Catalog:
        return self._catalog(self.store, self.wire)

    def roster(self) -> Roster:
        return self._roster(self.store, self.wire)

    def user_chats(self) -> UserChats:
        return self._user_chats(self.store, self.wire)


# --- commits ----------------------------------------------------------------------------------------------------------


class AcksBeforeDurable(MemoryEngine):
    """What the last commit wrote is still in a cache when the process dies."""

    def __init__(self) -> None:
        super().__init__()
        self.wire = _CachingWire(self)
        self.on_disk = self.store

    async def reopen(self) -> None:
        self.store = self.on_disk


class _CachingWire(Wire):
    def __init__(self, engine: AcksBeforeDurable) -> None:
        self._engine = engine

    def hidden_rows(self, count: int) -> Sequence[int]:
        self._engine.on_disk = copy.deepcopy(self._engine.store)  # asked right before the rows are written
        return ()


class LosesTheLastEntry(MemoryMessageLog):
    async def persist(
        self,
        chat_id: str,
        entries: Sequence[Entry],
        senders: Sequence[str],
        *,
        token: str,
        now_s: int,
        timeout_s: float,
    ) -> Cancelled | None:
        kept = entries[:-1] if len(entries) > 1 else entries
        return await super().persist(chat_id, kept, senders, token=token, now_s=now_s, timeout_s=timeout_s)


class OverwritesAFilledSlot(MemoryMessageLog):
    def _causes(self, chat_id: str, commit: TokenUse, now_s: int) -> list[Cause]:
        return [each for each in super()._causes(chat_id, commit, now_s) if not isinstance(each, SlotTaken)]


class OverwritesAKey(MemoryMessageLog):
    def _causes(self, chat_id: str, commit: TokenUse, now_s: int) -> list[Cause]:
        return [each for each in super()._causes(chat_id, commit, now_s) if not isinstance(each, KeyTaken)]


class IgnoresTheMembershipCheck(MemoryMessageLog):
    def _causes(self, chat_id: str, commit: TokenUse, now_s: int) -> list[Cause]:
        return [each for each in super()._causes(chat_id, commit, now_s) if not isinstance(each, SenderGone)]


class NamesOnlyTheFirstCause(MemoryMessageLog):
    def _causes(self, chat_id: str, commit: TokenUse, now_s: int) -> list[Cause]:
        return super()._causes(chat_id, commit, now_s)[:1]


class NeverLetsAKeyExpire(MemoryMessageLog):
    def _causes(self, chat_id: str, commit: TokenUse, now_s: int) -> list[Cause]:
        return super()._causes(chat_id, commit, 0)


class ForgetsKeys(MemoryMessageLog):
    async def lookup(
        self, chat_id: str, client_message_ids: Sequence[str], user_ids: Sequence[str], *, timeout_s: float
    ) -> Lookup:
        found = await super().lookup(chat_id, client_message_ids, user_ids, timeout_s=timeout_s)
        return msgspec.structs.replace(found, keys={})


class SealOverwrites(MemoryMessageLog):
    async def seal(self, chat_id: str, sequence: int, *, created_at: str, timeout_s: float) -> Slot:
        await super().seal(chat_id, sequence, created_at=created_at, timeout_s=timeout_s)
        tombstone = Sealed(chat_id=chat_id, sequence=sequence, created_at=created_at)
        self._store.fill(tombstone)
        return tombstone


class SealClaimsToHaveWon(MemoryMessageLog):
    async def seal(self, chat_id: str, sequence: int, *, created_at: str, timeout_s: float) -> Slot:
        await super().seal(chat_id, sequence, created_at=created_at, timeout_s=timeout_s)
        return Sealed(chat_id=chat_id, sequence=sequence, created_at=created_at)


class ReordersSlots(MemoryMessageLog):
    async def read(self, chat_id: str, *, after: int, limit: int, timeout_s: float) -> SlotPage:
        page = await super().read(chat_id, after=after, limit=limit, timeout_s=timeout_s)
        return SlotPage(page.slots[::-1], page.more)


class EndsEarly(MemoryMessageLog):
    async def read(self, chat_id: str, *, after: int, limit: int, timeout_s: float) -> SlotPage:
        page = await super().read(chat_id, after=after, limit=limit, timeout_s=timeout_s)
        return SlotPage(page.slots, more=False)


# --- counters and watermarks ------------------------------------------------------------------------------------------


class RepeatsASequence(MemoryMessageLog):
    async def allocate(
        self,
        chat_id: str,
        count: int,
        *,
        published_through: int,
        published_message: int | None,
        now_ms: int,
        timeout_s: float,
    ) -> Allocation | PublishedAhead:
        granted = await super().allocate(
            chat_id,
            count,
            published_through=published_through,
            published_message=published_message,
            now_ms=now_ms,
            timeout_s=timeout_s,
        )
        row = self._store.counters[chat_id]
        self._store.put_counter(chat_id, msgspec.structs.replace(row, allocated=row.allocated - 1))
        return granted


class LowersPublishedThrough(MemoryMessageLog):
    async def allocate(
        self,
        chat_id: str,
        count: int,
        *,
        published_through: int,
        published_message: int | None,
        now_ms: int,
        timeout_s: float,
    ) -> Allocation | PublishedAhead:
        row = self._store.counters.get(chat_id)
        if row is not None and row.published_through > published_through:
            self._store.put_counter(chat_id, msgspec.structs.replace(row, published_through=published_through))
        return await super().allocate(
            chat_id,
            count,
            published_through=published_through,
            published_message=published_message,
            now_ms=now_ms,
            timeout_s=timeout_s,
        )


class StartsAMissingCounterAtZero(MemoryMessageLog):
    async def allocate(
        self,
        chat_id: str,
        count: int,
        *,
        published_through: int,
        published_message: int | None,
        now_ms: int,
        timeout_s: float,
    ) -> Allocation | PublishedAhead:
        if chat_id not in self._store.counters:
            row = ChatCounter(
                allocated=0, published_through=0, published_message=0, members_version=0, dirty_at_ms=None
            )
            self._store.put_counter(chat_id, row)
        return await super().allocate(
            chat_id,
            count,
            published_through=published_through,
            published_message=published_message,
            now_ms=now_ms,
            timeout_s=timeout_s,
        )


class FlushesTooEarly(MemoryMessageLog):
    async def flush(
        self, chat_id: str, *, published_through: int, published_message: int | None, timeout_s: float
    ) -> bool:
        row = self._store.counters.get(chat_id)
        end = row.allocated if row else published_through
        return await super().flush(
            chat_id, published_through=end, published_message=published_message, timeout_s=timeout_s
        )


class LowersAWatermark(MemoryMessageLog):
    async def acknowledge(self, user_id: str, chat_id: str, *, sequence: int, now_ms: int, timeout_s: float) -> bool:
        moved = await super().acknowledge(user_id, chat_id, sequence=sequence, now_ms=now_ms, timeout_s=timeout_s)
        self._store.put_watermark(user_id, chat_id, sequence)
        return moved


class RecoversOverAnExistingCounter(MemoryMessageLog):
    async def recover_counter(
        self,
        chat_id: str,
        *,
        allocated: int,
        published_through: int,
        published_message: int | None,
        members_version: int,
        now_ms: int,
        timeout_s: float,
    ) -> bool:
        self._store.lose_counter(chat_id)
        return await super().recover_counter(
            chat_id,
            allocated=allocated,
            published_through=published_through,
            published_message=published_message,
            members_version=members_version,
            now_ms=now_ms,
            timeout_s=timeout_s,
        )


# --- chats and members ------------------------------------------------------------------------------------------------


class ForgetsThePair(MemoryCatalog):
    async def create_direct(self, chat: Chat, other_id: str, *, now_ms: int, timeout_s: float) -> str:
        self._store.pairs.clear()
        return await super().create_direct(chat, other_id, now_ms=now_ms, timeout_s=timeout_s)


class CreatesAChatTwice(MemoryCatalog):
    async def create_group(self, chat: Chat, member_ids: Sequence[str], *, now_ms: int, timeout_s: float) -> None:
        self._store.chats.pop(chat.chat_id, None)
        self._store.lose_counter(chat.chat_id)
        await super().create_group(chat, member_ids, now_ms=now_ms, timeout_s=timeout_s)


class IgnoresTheCap(MemoryCatalog):
    async def add_member(
        self, chat_id: str, user_id: str, role: Role, *, by: str, now_ms: int, timeout_s: float
    ) -> Change:
        chat = self._store.chats.get(chat_id)
        if chat is not None:
            self._store.chats[chat_id] = msgspec.structs.replace(chat, member_count=0)
        return await super().add_member(chat_id, user_id, role, by=by, now_ms=now_ms, timeout_s=timeout_s)


class WritesBeforeItRefuses(MemoryCatalog):
    async def add_member(
        self, chat_id: str, user_id: str, role: Role, *, by: str, now_ms: int, timeout_s: float
    ) -> Change:
        try:
            return await super().add_member(chat_id, user_id, role, by=by, now_ms=now_ms, timeout_s=timeout_s)
        except Refused:
            row = self._store.counters.get(chat_id)
            if row is not None:
                raised = msgspec.structs.replace(row, members_version=row.members_version + 1)
                self._store.put_counter(chat_id, raised)
            raise


class TrustsTheCaller(MemoryCatalog):
    async def remove_member(self, chat_id: str, user_id: str, *, by: str, now_ms: int, timeout_s: float) -> Change:
        owner = self._store.chats[chat_id].created_by
        return await super().remove_member(chat_id, user_id, by=owner, now_ms=now_ms, timeout_s=timeout_s)


class KeepsTheVersion(MemoryStore):
    def put_counter(self, chat_id: str, counter: ChatCounter) -> None:
        row = self.counters.get(chat_id)
        version = row.members_version if row else counter.members_version
        super().put_counter(chat_id, msgspec.structs.replace(counter, members_version=version))


class ReadsTheListFirst(MemoryRoster):
    async def members(self, chat_id: str, *, timeout_s: float) -> Members:
        older = await super().members(chat_id, timeout_s=timeout_s)
        newer = await super().members(chat_id, timeout_s=timeout_s)
        return Members(newer.version, older.user_ids)

"""`MessageLog` and `CounterRepair` in memory: the conditions of W1-W4, W20 and W21.

Stricter than a real store where the port leaves room: all failed conditions are named, a query may see half a commit,
the dirty index lags, and a request that a real store would reject as malformed is a bug (`InternalError`).
"""

from collections.abc import Mapping, Sequence

import msgspec

from seriatim.domain import limits
from seriatim.domain.chat import Role
from seriatim.domain.errors import CounterMissing, InternalError
from seriatim.domain.message import Sealed, Slot
from seriatim.engines.inprocess.wire import Wire
from seriatim.engines.shared import store_rules as rules
from seriatim.ports.message_log import (
    Allocation,
    Cancelled,
    ChatCounter,
    CounterRepair,
    DeliveryState,
    DirtyChat,
    Entry,
    KeyTaken,
    Lookup,
    MessageLog,
    PublishedAhead,
    SenderGone,
    SlotPage,
    SlotTaken,
    Watermark,
)
from seriatim.simulation.stores.tables import MemoryStore, Recovery, TokenUse


class MemoryDeliveryState(DeliveryState):
    """The REST edge's handle: it has nothing to write with."""

    def __init__(self, store: MemoryStore, wire: Wire) -> None:
        self._store = store
        self._wire = wire

    async def newest_message(self, chat_id: str, *, at_most: int, timeout_s: float) -> int:
        store = self._store
        return await self._wire.call(
            "newest_message",
            lambda: store.slots(chat_id).newest(at_most=at_most, messages_only=True),
            timeout_s=timeout_s,
        )

    async def watermarks(
        self, pairs: Sequence[tuple[str, str]], *, timeout_s: float
    ) -> Mapping[tuple[str, str], Watermark]:
        asked, store = tuple(pairs), self._store
        rules.check_batch(len(asked))
        rules.check_distinct("pairs of a batch", asked)

        def apply() -> Mapping[tuple[str, str], Watermark]:
            return {
                pair: Watermark(store.watermarks[pair], store.watermarks_since_ms[pair])
                for pair in asked
                if pair in store.watermarks
            }

        return await self._wire.call("watermarks", apply, timeout_s=timeout_s)


class MemoryMessageLog(MemoryDeliveryState, MessageLog, CounterRepair):
    """One process's handle on the messages of a `MemoryStore`."""

    @property
    def transaction_items_max(self) -> int:
        return limits.TRANSACTION_ITEMS_MAX

    async def lookup(
        self, chat_id: str, client_message_ids: Sequence[str], user_ids: Sequence[str], *, timeout_s: float
    ) -> Lookup:
        ids, users, store = tuple(client_message_ids), tuple(user_ids), self._store
        rules.check_batch(len(ids) + len(users) + 1)
        rules.check_distinct("keys of a lookup", ids)
        rules.check_distinct("users of a lookup", users)

        def apply() -> Lookup:
            members = store.members(chat_id)
            return Lookup(
                keys={each: key for each in ids if (key := store.key(chat_id, each)) is not None},
                roles={each: members[each].role for each in users if each in members},
                counter=store.counter(chat_id),
            )

        return await self._wire.call("lookup", apply, timeout_s=timeout_s)

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
        rules.check_allocation(count)
        store = self._store

        def apply() -> Allocation | PublishedAhead:
            row = store.counter(chat_id)
            if row is None:
                raise CounterMissing(chat_id)
            if row.published_through > published_through:
                return PublishedAhead(published_through=row.published_through, published_message=row.published_message)
            first, last = row.allocated + 1, row.allocated + count
            grown = rules.allocated(
                row, count, published_through=published_through, published_message=published_message, now_ms=now_ms
            )
            store.put_counter(chat_id, grown)
            store.observer.allocated(chat_id, first, last)
            return Allocation(first=first, last=last, members_version=row.members_version)

        return await self._wire.call("allocate", apply, timeout_s=timeout_s, finish=lambda: store.index_dirty(chat_id))

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
        commit = TokenUse(tuple(entries), tuple(senders), written=True, at_s=now_s)
        rules.check_commit(chat_id, commit.entries, commit.senders, token, items_max=limits.TRANSACTION_ITEMS_MAX)
        store = self._store
        hidden: list[int] = []

        def apply() -> Cancelled | None:
            if _is_repeat(store.commits.get(token), commit):
                return None
            causes = self._causes(chat_id, commit, now_s)
            store.remember_commit(token, msgspec.structs.replace(commit, written=not causes))
            if causes:
                return Cancelled(tuple(causes))
            hidden.extend(
                commit.entries[index].message.sequence for index in self._wire.hidden_rows(len(commit.entries))
            )
            store.slots(chat_id).hide(hidden)
            for entry in commit.entries:
                store.keys[chat_id, entry.message.client_message_id] = rules.key_of(entry)
                store.fill(entry.message)
            return None

        return await self._wire.call(
            "persist", apply, timeout_s=timeout_s, finish=lambda: store.slots(chat_id).show(hidden)
        )

    def _causes(self, chat_id: str, commit: TokenUse, now_s: int) -> list[KeyTaken | SlotTaken | SenderGone]:
        """Every failed condition, not only the first: a caller that decides by the wrong one fails its tests."""
        slots, members = self._store.slots(chat_id), self._store.members(chat_id)
        causes: list[KeyTaken | SlotTaken | SenderGone] = []
        for index, entry in enumerate(commit.entries):
            key = self._store.key(chat_id, entry.message.client_message_id)
            if key is not None and key.expires_at_s > now_s:
                causes.append(KeyTaken(index, key))
            holder = slots.holder(entry.message.sequence)
            if holder is not None:
                causes.append(SlotTaken(index, holder))
        causes.extend(SenderGone(each) for each in commit.senders if each not in members)
        return causes

    async def seal(self, chat_id: str, sequence: int, *, created_at: str, timeout_s: float) -> Slot:
        rules.check_slot(sequence)
        store = self._store

        def apply() -> Slot:
            holder = store.slots(chat_id).holder(sequence)
            if holder is not None:
                return holder
            tombstone = Sealed(chat_id=chat_id, sequence=sequence, created_at=created_at)
            store.fill(tombstone)
            return tombstone

        return await self._wire.call("seal", apply, timeout_s=timeout_s)

    async def read(self, chat_id: str, *, after: int, limit: int, timeout_s: float) -> SlotPage:
        rules.check_page(limit)
        store = self._store
        return await self._wire.call("read", lambda: store.slots(chat_id).above(after, limit), timeout_s=timeout_s)

    async def read_back(self, chat_id: str, *, before: int, limit: int, timeout_s: float) -> SlotPage:
        rules.check_page(limit)
        store = self._store
        return await self._wire.call(
            "read_back", lambda: store.slots(chat_id).below(before, limit), timeout_s=timeout_s
        )

    async def counters(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, ChatCounter]:
        ids, store = tuple(chat_ids), self._store
        rules.check_batch(len(ids))
        rules.check_distinct("chats of a batch", ids)

        def apply() -> Mapping[str, ChatCounter]:
            return {each: row for each in ids if (row := store.counter(each)) is not None}

        return await self._wire.call("counters", apply, timeout_s=timeout_s)

    async def flush(
        self, chat_id: str, *, published_through: int, published_message: int | None, timeout_s: float
    ) -> bool:
        store = self._store

        def apply() -> bool:
            clean = rules.flushed(
                store.counter(chat_id), published_through=published_through, published_message=published_message
            )
            if clean is not None:
                store.put_counter(chat_id, clean)
            return clean is not None

        return await self._wire.call("flush", apply, timeout_s=timeout_s, finish=lambda: store.index_dirty(chat_id))

    async def dirty(self, *, before_ms: int, limit: int, timeout_s: float) -> Sequence[DirtyChat]:
        index = self._store.dirty_index

        def apply() -> Sequence[DirtyChat]:
            oldest_first = sorted((since, chat_id) for chat_id, since in index.items() if since < before_ms)
            return [DirtyChat(chat_id, since) for since, chat_id in oldest_first[:limit]]

        return await self._wire.call("dirty", apply, timeout_s=timeout_s)

    async def role(self, chat_id: str, user_id: str, *, timeout_s: float) -> Role | None:
        def apply() -> Role | None:
            row = self._store.members(chat_id).get(user_id)
            return row.role if row else None

        return await self._wire.call("role", apply, timeout_s=timeout_s)

    async def acknowledge(self, user_id: str, chat_id: str, *, sequence: int, now_ms: int, timeout_s: float) -> bool:
        store = self._store

        def apply() -> bool:
            moves = sequence > store.watermarks.get((user_id, chat_id), 0)
            if moves:
                store.put_watermark(user_id, chat_id, sequence, now_ms)
            return moves

        return await self._wire.call("acknowledge", apply, timeout_s=timeout_s)

    async def watermark(self, user_id: str, chat_id: str, *, timeout_s: float) -> int:
        watermarks = self._store.watermarks
        return await self._wire.call("watermark", lambda: watermarks.get((user_id, chat_id), 0), timeout_s=timeout_s)

    async def newest_slot(self, chat_id: str, *, timeout_s: float) -> int:
        store = self._store
        return await self._wire.call(
            "newest_slot", lambda: store.slots(chat_id).newest(messages_only=False), timeout_s=timeout_s
        )

    async def highest_watermark(self, chat_id: str, *, timeout_s: float) -> int:
        watermarks = self._store.watermarks

        def apply() -> int:
            return max((sequence for (_, chat), sequence in watermarks.items() if chat == chat_id), default=0)

        return await self._wire.call("highest_watermark", apply, timeout_s=timeout_s)

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
        store = self._store

        def apply() -> bool:
            if store.counter(chat_id) is not None:
                return False
            row = rules.recovered(
                allocated=allocated,
                published_through=published_through,
                published_message=published_message,
                members_version=members_version,
                now_ms=now_ms,
            )
            store.put_counter(chat_id, row)
            store.recoveries.append(Recovery(chat_id=chat_id, recovered_at_ms=now_ms, recovered_from=allocated))
            return True

        return await self._wire.call(
            "recover_counter", apply, timeout_s=timeout_s, finish=lambda: store.index_dirty(chat_id)
        )

    async def raise_counter(self, chat_id: str, *, allocated: int, now_ms: int, timeout_s: float) -> bool:
        store = self._store

        def apply() -> bool:
            row = store.counter(chat_id)
            if row is None or row.allocated >= allocated:
                return False
            store.put_counter(chat_id, rules.grown(row, allocated, now_ms))
            return True

        return await self._wire.call(
            "raise_counter", apply, timeout_s=timeout_s, finish=lambda: store.index_dirty(chat_id)
        )


def _is_repeat(first: TokenUse | None, commit: TokenUse) -> bool:
    """A request that succeeded succeeds again without effect; one that was cancelled is tried again."""
    if first is None:
        return False
    if (first.entries, first.senders) != (commit.entries, commit.senders):
        raise InternalError("persist: this token belongs to another transaction")
    return first.written

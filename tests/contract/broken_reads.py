"""Stores that break one promise each of those that the REST edge rests on: names, quiet, lists, history, watermarks."""

from collections.abc import Mapping, Sequence

import msgspec

from seriatim.domain.chat import Chat, ChatType, Membership, Role
from seriatim.ports.catalog import Change
from seriatim.ports.message_log import ChatCounter, DeliveryState, SlotPage, Watermark
from seriatim.simulation.stores.catalog import MemoryCatalog, MemoryUserChats
from seriatim.simulation.stores.message_log import MemoryDeliveryState, MemoryMessageLog
from seriatim.simulation.stores.tables import MemoryStore
from tests.contract.store_engines import MemoryEngine

# --- names and quiet --------------------------------------------------------------------------------------------------


class AnyoneNamesAGroup(MemoryCatalog):
    async def rename(self, chat_id: str, name: str | None, *, by: str, now_ms: int, timeout_s: float) -> Chat:
        owner = self._store.chats[chat_id].created_by if by in self._store.members(chat_id) else by
        return await super().rename(chat_id, name, by=owner, now_ms=now_ms, timeout_s=timeout_s)


class NamesADirectChat(MemoryCatalog):
    async def rename(self, chat_id: str, name: str | None, *, by: str, now_ms: int, timeout_s: float) -> Chat:
        chat = self._store.chats.get(chat_id)
        if chat is None or chat.chat_type is not ChatType.DIRECT:
            return await super().rename(chat_id, name, by=by, now_ms=now_ms, timeout_s=timeout_s)
        self._store.chats[chat_id] = renamed = msgspec.structs.replace(chat, name=name)
        return renamed


class NamesWithoutADate(MemoryCatalog):
    async def rename(self, chat_id: str, name: str | None, *, by: str, now_ms: int, timeout_s: float) -> Chat:
        renamed = await super().rename(chat_id, name, by=by, now_ms=now_ms, timeout_s=timeout_s)
        self._store.chats[chat_id] = msgspec.structs.replace(renamed, updated_at=renamed.created_at)
        return renamed


class CountsANameAsAChange(MemoryCatalog):
    async def rename(self, chat_id: str, name: str | None, *, by: str, now_ms: int, timeout_s: float) -> Chat:
        renamed = await super().rename(chat_id, name, by=by, now_ms=now_ms, timeout_s=timeout_s)
        _raise_version(self._store, chat_id)
        return renamed


class CountsQuietAsAChange(MemoryCatalog):
    async def mute(self, chat_id: str, user_id: str, until: str | None, *, timeout_s: float) -> Membership:
        muted = await super().mute(chat_id, user_id, until, timeout_s=timeout_s)
        _raise_version(self._store, chat_id)
        return muted


class MutesOutsidersIn(MemoryCatalog):
    async def mute(self, chat_id: str, user_id: str, until: str | None, *, timeout_s: float) -> Membership:
        if user_id not in self._store.members(chat_id):
            row = Membership(chat_id=chat_id, user_id=user_id, role=Role.MEMBER, joined_at="", added_by=user_id)
            self._store.put_member(row, 1)
        return await super().mute(chat_id, user_id, until, timeout_s=timeout_s)


class ForgetsQuiet(MemoryCatalog):
    async def mute(self, chat_id: str, user_id: str, until: str | None, *, timeout_s: float) -> Membership:
        muted = await super().mute(chat_id, user_id, until, timeout_s=timeout_s)
        self._store.note_member(msgspec.structs.replace(muted, muted_until=None))
        return muted


# --- members ----------------------------------------------------------------------------------------------------------


class MiscountsAfterARemoval(MemoryCatalog):
    async def remove_member(self, chat_id: str, user_id: str, *, by: str, now_ms: int, timeout_s: float) -> Change:
        change = await super().remove_member(chat_id, user_id, by=by, now_ms=now_ms, timeout_s=timeout_s)
        return Change(change.membership, change.member_count + 1)


class NamesTheRoleBefore(MemoryCatalog):
    async def change_role(
        self, chat_id: str, user_id: str, role: Role, *, by: str, now_ms: int, timeout_s: float
    ) -> Change:
        before = self._store.members(chat_id).get(user_id)
        change = await super().change_role(chat_id, user_id, role, by=by, now_ms=now_ms, timeout_s=timeout_s)
        return Change(before or change.membership, change.member_count)


class ListsByArrival(MemoryCatalog):
    async def memberships(self, chat_id: str, *, timeout_s: float) -> Sequence[Membership]:
        await super().memberships(chat_id, timeout_s=timeout_s)
        return list(self._store.members(chat_id).values())


class ListsWithoutRoles(MemoryCatalog):
    async def memberships(self, chat_id: str, *, timeout_s: float) -> Sequence[Membership]:
        found = await super().memberships(chat_id, timeout_s=timeout_s)
        return [msgspec.structs.replace(row, role=Role.MEMBER) for row in found]


class ListsNoDirectChats(MemoryCatalog):
    async def memberships_of(self, user_id: str, *, timeout_s: float) -> Sequence[Membership]:
        found = await super().memberships_of(user_id, timeout_s=timeout_s)
        return [row for row in found if self._store.chats[row.chat_id].chat_type is ChatType.GROUP]


class ListsChatsByLength(MemoryCatalog):
    async def memberships_of(self, user_id: str, *, timeout_s: float) -> Sequence[Membership]:
        found = await super().memberships_of(user_id, timeout_s=timeout_s)
        return sorted(found, key=lambda row: (len(row.chat_id), row.chat_id))


class ListsWhatWasJoinedLongAgo(MemoryUserChats):
    async def joined(self, since: Mapping[str, str], *, timeout_s: float) -> Mapping[str, Sequence[str]]:
        return await super().joined(dict.fromkeys(since, ""), timeout_s=timeout_s)


class ListsNothingJoinedLater(MemoryUserChats):
    """As if only the creation of a chat counted."""

    async def joined(self, since: Mapping[str, str], *, timeout_s: float) -> Mapping[str, Sequence[str]]:
        found = await super().joined(since, timeout_s=timeout_s)
        return {
            user_id: [each for each in chat_ids if self._store.chats[each].created_at >= since[user_id]]
            for user_id, chat_ids in found.items()
        }


# --- history and watermarks -------------------------------------------------------------------------------------------


class ReadsBackAscending(MemoryMessageLog):
    async def read_back(self, chat_id: str, *, before: int, limit: int, timeout_s: float) -> SlotPage:
        page = await super().read_back(chat_id, before=before, limit=limit, timeout_s=timeout_s)
        return SlotPage(page.slots[::-1], page.more)


class ReadsBackTheOldest(MemoryMessageLog):
    async def read_back(self, chat_id: str, *, before: int, limit: int, timeout_s: float) -> SlotPage:
        page = await super().read_back(chat_id, before=before, limit=500, timeout_s=timeout_s)
        return SlotPage(page.slots[-limit:], page.more)


class ReadsBackTheBoundToo(MemoryMessageLog):
    async def read_back(self, chat_id: str, *, before: int, limit: int, timeout_s: float) -> SlotPage:
        return await super().read_back(chat_id, before=before + 1, limit=limit, timeout_s=timeout_s)


class EndsEarlyGoingBack(MemoryMessageLog):
    async def read_back(self, chat_id: str, *, before: int, limit: int, timeout_s: float) -> SlotPage:
        page = await super().read_back(chat_id, before=before, limit=limit, timeout_s=timeout_s)
        return SlotPage(page.slots, more=False)


class InventsWatermarks(MemoryMessageLog):
    async def watermarks(
        self, pairs: Sequence[tuple[str, str]], *, timeout_s: float
    ) -> Mapping[tuple[str, str], Watermark]:
        found = await super().watermarks(pairs, timeout_s=timeout_s)
        return {pair: found.get(pair, Watermark(0, 0)) for pair in pairs}


class DatesAWatermarkByEveryAck(MemoryMessageLog):
    async def acknowledge(self, user_id: str, chat_id: str, *, sequence: int, now_ms: int, timeout_s: float) -> bool:
        moved = await super().acknowledge(user_id, chat_id, sequence=sequence, now_ms=now_ms, timeout_s=timeout_s)
        self._store.watermarks_since_ms[user_id, chat_id] = now_ms
        return moved


class TakesADamagedCounterForAMissingOne(MemoryMessageLog):
    async def counters(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, ChatCounter]:
        readable = [each for each in chat_ids if each not in self._store.unreadable]
        return await super().counters(readable, timeout_s=timeout_s)


class ForgetsWhoLeft(MemoryMessageLog):
    async def highest_watermark(self, chat_id: str, *, timeout_s: float) -> int:
        members = self._store.members(chat_id)
        return max([0, *(self._store.watermarks.get((user_id, chat_id), 0) for user_id in members)])


class LooksTooFar(MemoryDeliveryState):
    async def newest_message(self, chat_id: str, *, at_most: int, timeout_s: float) -> int:
        return await super().newest_message(chat_id, at_most=at_most + 1, timeout_s=timeout_s)


class HandsOutTheLog(MemoryEngine):
    def delivery_state(self) -> DeliveryState:
        return self.log()


def _raise_version(store: MemoryStore, chat_id: str) -> None:
    row = store.counters.get(chat_id)
    if row is not None:
        store.put_counter(chat_id, msgspec.structs.replace(row, members_version=row.members_version + 1))

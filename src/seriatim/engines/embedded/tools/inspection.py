"""`StoredRows` and `StoredRecords` of a data folder. Between two refreshes every call shows the same moment."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from seriatim.domain import limits
from seriatim.domain.account import Code, Session, User
from seriatim.domain.chat import Chat, Membership
from seriatim.domain.message import Message, Slot
from seriatim.engines.embedded.event_log import record_of
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.secondary import SecondaryStore
from seriatim.ports.event_log import Partition, Record
from seriatim.ports.inspection import (
    Counter,
    Filled,
    Pair,
    Phone,
    StoredKey,
    StoredRecords,
    StoredRows,
    StoredWatermark,
    UserChat,
    UserSession,
)
from seriatim.ports.message_log import ChatCounter, Key, Watermark

Row = tuple[bytes, bytes]


class EmbeddedInspection(StoredRows, StoredRecords):
    def __init__(self, secondary: SecondaryStore) -> None:
        self._secondary = secondary
        self._read = 0

    async def refresh(self) -> None:
        self._secondary.refresh()

    async def estimated_rows(self) -> int:
        return self._secondary.property_number("rocksdb.estimate-num-keys")

    # --- every row ----------------------------------------------------------------------------------------------------

    async def chats(self) -> AsyncIterator[Chat]:
        async for _, value in self._table("chats"):
            yield rows.CHAT.decode(value)

    async def counters(self) -> AsyncIterator[Counter]:
        async for key, value in self._table("chat_counters"):
            (chat_id,) = rows.texts(key)
            yield Counter(chat_id, rows.COUNTER.decode(value).counter)

    async def chats_with_slots(self) -> AsyncIterator[str]:
        """Skips from chat to chat: their messages are not read."""
        start, end = rows.TABLES["messages"], rows.after(rows.TABLES["messages"])
        while (found := next(self._secondary.scan(start, end), None)) is not None:
            chat_id = rows.first_text(found[0])
            start = rows.after(rows.slots_prefix(chat_id))
            yield chat_id

    async def memberships(self) -> AsyncIterator[Membership]:
        async for _, value in self._table("chat_memberships"):
            yield rows.MEMBERSHIP.decode(value)

    async def user_chats(self) -> AsyncIterator[UserChat]:
        async for key, _ in self._table("user_chats_index"):
            user_id, chat_id = rows.texts(key)
            yield UserChat(user_id, chat_id)

    async def pairs(self) -> AsyncIterator[Pair]:
        async for key, value in self._table("direct_chat_index"):
            (pair,) = rows.texts(key)
            yield Pair(pair, rows.TEXT.decode(value))

    async def keys(self) -> AsyncIterator[StoredKey]:
        async for key, value in self._table("idempotency_keys"):
            chat_id, client_message_id = rows.texts(key)
            yield StoredKey(chat_id, client_message_id, rows.KEY.decode(value))

    async def watermarks(self) -> AsyncIterator[StoredWatermark]:
        async for key, value in self._table("delivery_state"):
            user_id, chat_id = rows.texts(key)
            row = rows.WATERMARK.decode(value)
            yield StoredWatermark(user_id, chat_id, Watermark(row.sequence, row.updated_at_ms))

    async def users(self) -> AsyncIterator[User]:
        async for _, value in self._table("users"):
            yield rows.USER.decode(value)

    async def phones(self) -> AsyncIterator[Phone]:
        async for key, value in self._table("phones"):
            (phone_hash,) = rows.texts(key)
            yield Phone(phone_hash, rows.TEXT.decode(value))

    async def sessions(self) -> AsyncIterator[Session]:
        async for _, value in self._table("sessions"):
            yield rows.SESSION.decode(value)

    async def user_sessions(self) -> AsyncIterator[UserSession]:
        async for key, _ in self._table("user_sessions_index"):
            user_id, session_id = rows.texts(key)
            yield UserSession(user_id, session_id)

    async def codes(self) -> AsyncIterator[Code]:
        async for _, value in self._table("otp_requests"):
            yield rows.CODE.decode(value)

    async def slots(self, chat_id: str, *, after: int = -1) -> AsyncIterator[Filled]:
        prefix = rows.slots_prefix(chat_id)
        async for key, value in self._range(rows.slot_key(prefix, after + 1), rows.after(prefix)):
            yield Filled(rows.last_number(key), rows.decode_slot(value))

    async def members(self, chat_id: str) -> AsyncIterator[Membership]:
        prefix = rows.members_prefix(chat_id)
        async for _, value in self._range(prefix, rows.after(prefix)):
            yield rows.MEMBERSHIP.decode(value)

    async def records(self, topic: str) -> AsyncIterator[Record]:
        for number in range((await self.topics())[topic]):
            partition = Partition(topic, number)
            prefix = rows.events_prefix(partition)
            async for key, value in self._range(prefix, rows.after(prefix)):
                yield record_of(partition, key, value)

    # --- one row ------------------------------------------------------------------------------------------------------

    async def topics(self) -> Mapping[str, int]:
        prefix = rows.TABLES["topics"]
        found = self._secondary.scan(prefix, rows.after(prefix))
        return {rows.first_text(key): rows.NUMBER.decode(value) for key, value in found}

    async def chat(self, chat_id: str) -> Chat | None:
        return rows.CHAT.found(self._secondary.get(rows.chat_key(chat_id)))

    async def counter(self, chat_id: str) -> ChatCounter | None:
        row = rows.COUNTER.found(self._secondary.get(rows.counter_key(chat_id)))
        return None if row is None else row.counter

    async def is_listed_dirty(self, chat_id: str, *, dirty_at_ms: int) -> bool:
        return self._secondary.get(rows.dirty_key(dirty_at_ms, chat_id)) is not None

    async def membership(self, chat_id: str, user_id: str) -> Membership | None:
        return rows.MEMBERSHIP.found(self._secondary.get(rows.member_key(chat_id, user_id)))

    async def has_user_chat(self, user_id: str, chat_id: str) -> bool:
        return self._secondary.get(rows.user_chat_key(user_id, chat_id)) is not None

    async def pair(self, pair_key: str) -> str | None:
        return rows.TEXT.found(self._secondary.get(rows.pair_row_key(pair_key)))

    async def slot(self, chat_id: str, sequence: int) -> Slot | None:
        value = self._secondary.get(rows.slot_key(rows.slots_prefix(chat_id), sequence))
        return None if value is None else rows.decode_slot(value)

    async def newest_slot(self, chat_id: str) -> int:
        prefix = rows.slots_prefix(chat_id)
        found = next(self._secondary.scan_down(rows.slot_key(prefix, rows.NUMBER_MAX), prefix), None)
        return 0 if found is None else rows.last_number(found[0])

    async def newest_message(self, chat_id: str, *, at_most: int) -> Message | None:
        prefix = rows.slots_prefix(chat_id)
        for _, value in self._secondary.scan_down(rows.slot_key(prefix, at_most), prefix):
            slot = rows.decode_slot(value)
            if isinstance(slot, Message):
                return slot
        return None

    async def key(self, chat_id: str, client_message_id: str) -> Key | None:
        return rows.KEY.found(self._secondary.get(rows.idempotency_key(rows.keys_prefix(chat_id), client_message_id)))

    async def user(self, user_id: str) -> User | None:
        return rows.USER.found(self._secondary.get(rows.user_key(user_id)))

    async def phone(self, phone_hash: str) -> str | None:
        return rows.TEXT.found(self._secondary.get(rows.phone_key(phone_hash)))

    async def session(self, session_id: str) -> Session | None:
        return rows.SESSION.found(self._secondary.get(rows.session_key(session_id)))

    async def has_user_session(self, user_id: str, session_id: str) -> bool:
        return self._secondary.get(rows.user_session_key(user_id, session_id)) is not None

    def _table(self, name: str) -> AsyncIterator[Row]:
        return self._range(rows.TABLES[name], rows.after(rows.TABLES[name]))

    async def _range(self, start: bytes, end: bytes) -> AsyncIterator[Row]:
        for row in self._secondary.scan(start, end):
            self._read += 1
            if self._read % limits.INSPECTED_AT_ONCE_ROWS == 0:
                await asyncio.sleep(0)  # others of this process must run, too
            yield row

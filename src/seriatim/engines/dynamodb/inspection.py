"""All rows of the eleven tables, for checkers, beside servers that go on working: reads only, by Scan where need be.

Each read is of its own moment. Rows that never change once written are read ahead in batches; a row that was not found
in a batch is read once more by itself when it is asked for.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import islice
from typing import Generic, TypeVar

import msgspec

from seriatim.domain import limits
from seriatim.domain.account import Code, Session, User
from seriatim.domain.chat import Chat, Membership
from seriatim.domain.errors import InternalError
from seriatim.domain.message import Message, Slot
from seriatim.domain.times import iso
from seriatim.engines.dynamodb import store as tables
from seriatim.engines.dynamodb.rows import chats, messages, people
from seriatim.engines.dynamodb.rows.attributes import RowDecoder, S, n
from seriatim.engines.dynamodb.table_reader import TableReader
from seriatim.engines.dynamodb.transport.client import Request
from seriatim.ports.inspection import (
    Counter,
    Filled,
    Pair,
    Phone,
    StoredKey,
    StoredRows,
    StoredWatermark,
    UserChat,
    UserSession,
)
from seriatim.ports.message_log import ChatCounter, Key

Item = TypeVar("Item")
T = TypeVar("T")
K = TypeVar("K")

_PHONE = people.phone_key("")
_BEYOND = 10**30  # above every sequence, and still a number to DynamoDB
_TABLES = (
    *(tables.USERS, tables.CHATS, tables.MEMBERSHIPS, tables.MESSAGES, tables.COUNTERS, tables.KEYS),
    *(tables.DELIVERY, tables.SESSIONS, tables.CODES, tables.PAIRS),
)


class DynamoInspection(StoredRows):
    def __init__(self, reader: TableReader) -> None:
        self._reader = reader
        self._slots: _ReadAheadCache[tuple[str, int], Slot] = _ReadAheadCache()
        self._keys: _ReadAheadCache[tuple[str, str], Key] = _ReadAheadCache()

    async def refresh(self) -> None:
        """Every read is of its own moment anyway; what was read ahead is forgotten."""
        self._slots, self._keys = _ReadAheadCache(), _ReadAheadCache()

    async def estimated_rows(self) -> int:
        """Amazon counts every six hours."""
        return sum([await self._reader.count(table) for table in _TABLES])

    # --- every row ----------------------------------------------------------------------------------------------------

    async def chats(self) -> AsyncIterator[Chat]:
        async for chat in self._all(tables.CHATS, chats.CHAT, chats.chat_from):
            yield chat

    async def counters(self) -> AsyncIterator[Counter]:
        async for counter in self._all(tables.COUNTERS, messages.COUNTER, _counter):
            yield counter

    async def chats_with_slots(self) -> AsyncIterator[str]:
        """Skips from chat to chat: of each one slot is read."""
        after: Request | None = None
        while (chat_id := await self._first_chat(after)) is not None:
            after = {"chat_id": S(chat_id), "sequence": n(_BEYOND)}
            yield chat_id

    async def _first_chat(self, after: Request | None) -> str | None:
        items = await self._reader.scan_one(tables.MESSAGES, after)
        return messages.SLOT.decode(items[0]).chat_id.S if items else None

    async def memberships(self) -> AsyncIterator[Membership]:
        async for member in self._all(tables.MEMBERSHIPS, chats.MEMBERSHIP, chats.membership_from):
            yield member

    async def user_chats(self) -> AsyncIterator[UserChat]:
        async for row in self._all(tables.MEMBERSHIPS, chats.MEMBERSHIP, _user_chat, index=tables.CHATS_OF_USER):
            yield row

    async def pairs(self) -> AsyncIterator[Pair]:
        async for pair in self._all(tables.PAIRS, chats.PAIR, _pair):
            yield pair

    async def keys(self) -> AsyncIterator[StoredKey]:
        async for items in self._reader.scan(tables.KEYS):
            found = [_read(tables.KEYS, messages.KEY, _stored_key, raw) for raw in items]
            self._slots.expect([(row.chat_id, row.key.sequence) for row in found])
            for row in found:
                yield row

    async def watermarks(self) -> AsyncIterator[StoredWatermark]:
        async for row in self._all(tables.DELIVERY, messages.WATERMARK, _watermark):
            yield row

    async def users(self) -> AsyncIterator[User]:
        async for raw in self._user_rows(are_phones=False):
            yield _read(tables.USERS, people.USER, people.user_from, raw)

    async def phones(self) -> AsyncIterator[Phone]:
        async for raw in self._user_rows(are_phones=True):
            yield _read(tables.USERS, people.PHONE, _phone, raw)

    async def _user_rows(self, *, are_phones: bool) -> AsyncIterator[msgspec.Raw]:
        async for items in self._reader.scan(tables.USERS):
            for raw in items:
                if _USER_ID.decode(raw).user_id.S.startswith(_PHONE) is are_phones:
                    yield raw

    async def sessions(self) -> AsyncIterator[Session]:
        async for session in self._all(tables.SESSIONS, people.SESSION, people.session_from):
            yield session

    async def user_sessions(self) -> AsyncIterator[UserSession]:
        index = tables.SESSIONS_OF_USER
        async for row in self._all(tables.SESSIONS, people.SESSION, _user_session, index=index):
            yield row

    async def codes(self) -> AsyncIterator[Code]:
        async for code in self._all(tables.CODES, people.CODE, people.code_from):
            yield code

    async def slots(self, chat_id: str, *, after: int = -1) -> AsyncIterator[Filled]:
        # Slots below 0 are included: there should be none, and the checker reports them.
        edge = after if after >= 0 else -_BEYOND
        query = messages.slots_query(chat_id, "#seq > :edge", edge, limits.INSPECTED_AHEAD_ROWS, ascending=True)
        async for items in self._reader.query(tables.MESSAGES, query):
            slots = [_slot(raw) for raw in items]
            self._keys.expect([(chat_id, slot.client_message_id) for slot in slots if isinstance(slot, Message)])
            for slot in slots:
                yield Filled(slot.sequence, slot)

    async def members(self, chat_id: str) -> AsyncIterator[Membership]:
        async for items in self._reader.query(tables.MEMBERSHIPS, chats.members_query(chat_id)):
            for raw in items:
                yield _read(tables.MEMBERSHIPS, chats.MEMBERSHIP, chats.membership_from, raw)

    async def _all(
        self, table: str, row: RowDecoder[Item], of: Callable[[Item], T], *, index: str | None = None
    ) -> AsyncIterator[T]:
        async for items in self._reader.scan(table, index=index):
            for raw in items:
                yield _read(table, row, of, raw)

    # --- one row ------------------------------------------------------------------------------------------------------

    async def chat(self, chat_id: str) -> Chat | None:
        return await self._one(tables.CHATS, {"chat_id": S(chat_id)}, chats.CHAT, chats.chat_from)

    async def counter(self, chat_id: str) -> ChatCounter | None:
        key = {"chat_id": S(chat_id)}
        return await self._one(tables.COUNTERS, key, messages.COUNTER, messages.counter_of)

    async def is_listed_dirty(self, chat_id: str, *, dirty_at_ms: int) -> bool:
        """By the attributes from which DynamoDB builds the index: the index itself lags behind them.

        Any bucket counts that a sweep reads: earlier releases had fewer (docs/decisions/0062).
        """
        row = await self._reader.get(tables.COUNTERS, {"chat_id": S(chat_id)}, messages.COUNTER)
        if row is None or row.dirty_bucket is None:
            return False
        return int(row.dirty_bucket.N) in range(limits.DIRTY_BUCKETS) and row.dirty_at == S(iso(dirty_at_ms))

    async def membership(self, chat_id: str, user_id: str) -> Membership | None:
        key = chats.member_key(chat_id, user_id)
        return await self._one(tables.MEMBERSHIPS, key, chats.MEMBERSHIP, chats.membership_from)

    async def has_user_chat(self, user_id: str, chat_id: str) -> bool:
        query = {
            "IndexName": tables.CHATS_OF_USER,
            "KeyConditionExpression": "user_id = :user AND chat_id = :chat",
            "ExpressionAttributeValues": {":user": S(user_id), ":chat": S(chat_id)},
        }
        return any([bool(items) async for items in self._reader.query(tables.MEMBERSHIPS, query)])

    async def pair(self, pair_key: str) -> str | None:
        found = await self._reader.get(tables.PAIRS, {"pair_key": S(pair_key)}, chats.PAIR)
        return None if found is None else found.chat_id.S

    async def slot(self, chat_id: str, sequence: int) -> Slot | None:
        """Filled once, and never changed."""
        place = chat_id, sequence
        if self._slots.get(place) is None:
            await self._read_ahead_slots(chat_id, sequence)
        if (found := self._slots.get(place)) is not None:
            return found
        key = {"chat_id": S(chat_id), "sequence": n(sequence)}
        return await self._one(tables.MESSAGES, key, messages.SLOT, messages.slot_of)

    async def _read_ahead_slots(self, chat_id: str, sequence: int) -> None:
        """The slots of the next keys, or those that follow in the chat: its next events are about them."""
        expected = self._slots.take_expected((chat_id, sequence))
        if expected:
            keys = [{"chat_id": S(chat), "sequence": n(number)} for chat, number in expected]
            items = await self._reader.get_all(tables.MESSAGES, keys)
        else:
            query = messages.slots_query(
                chat_id, "#seq >= :edge", sequence, limits.INSPECTED_AHEAD_ROWS, ascending=True
            )
            items = await self._reader.first(tables.MESSAGES, query)
        self._slots.keep({(slot.chat_id, slot.sequence): slot for slot in map(_slot, items)})

    async def newest_slot(self, chat_id: str) -> int:
        query = messages.slots_query(chat_id, "#seq > :edge", 0, 1, ascending=False)
        items = await self._reader.first(tables.MESSAGES, query)
        return _slot(items[0]).sequence if items else 0

    async def newest_message(self, chat_id: str, *, at_most: int) -> Message | None:
        """Mostly it is the first, but a run of tombstones may be long."""
        wanted = 1
        while True:
            query = messages.slots_query(chat_id, "#seq <= :edge", at_most, wanted, ascending=False)
            slots = [_slot(raw) for raw in await self._reader.first(tables.MESSAGES, query)]
            for slot in slots:
                if isinstance(slot, Message):
                    return slot
            if not slots:
                return None
            at_most, wanted = slots[-1].sequence - 1, limits.INSPECTED_AHEAD_ROWS

    async def key(self, chat_id: str, client_message_id: str) -> Key | None:
        """Stored once, and never changed before it expires."""
        place = chat_id, client_message_id
        expected = [] if self._keys.get(place) else self._keys.take_expected(place)
        if expected:
            keys = [{"chat_id": S(chat), "client_message_id": S(id)} for chat, id in expected]
            items = await self._reader.get_all(tables.KEYS, keys)
            found = [_read(tables.KEYS, messages.KEY, _stored_key, raw) for raw in items]
            self._keys.keep({(row.chat_id, row.client_message_id): row.key for row in found})
        if (kept := self._keys.get(place)) is not None:
            return kept
        where = {"chat_id": S(chat_id), "client_message_id": S(client_message_id)}
        return await self._one(tables.KEYS, where, messages.KEY, messages.key_from)

    async def user(self, user_id: str) -> User | None:
        return await self._one(tables.USERS, {"user_id": S(user_id)}, people.USER, people.user_from)

    async def phone(self, phone_hash: str) -> str | None:
        key = {"user_id": S(people.phone_key(phone_hash))}
        found = await self._reader.get(tables.USERS, key, people.PHONE)
        return None if found is None else found.canonical_user_id.S

    async def session(self, session_id: str) -> Session | None:
        key = {"session_id": S(session_id)}
        return await self._one(tables.SESSIONS, key, people.SESSION, people.session_from)

    async def has_user_session(self, user_id: str, session_id: str) -> bool:
        query = {
            "IndexName": tables.SESSIONS_OF_USER,
            "KeyConditionExpression": "user_id = :user",
            "FilterExpression": "session_id = :session",
            "ExpressionAttributeValues": {":user": S(user_id), ":session": S(session_id)},
        }
        return any([bool(items) async for items in self._reader.query(tables.SESSIONS, query)])

    async def _one(self, table: str, key: Request, row: RowDecoder[Item], of: Callable[[Item], T]) -> T | None:
        found = await self._reader.get(table, key, row)
        return None if found is None else _translated(table, of, found)


class _ReadAheadCache(Generic[K, T]):
    """Rows that were read before they were asked for, and the keys of those that will be asked for next."""

    def __init__(self) -> None:
        self._kept: dict[K, T] = {}
        self._expected: dict[K, None] = {}

    def expect(self, places: Sequence[K]) -> None:
        self._expected = dict.fromkeys(places)

    def take_expected(self, place: K) -> list[K]:
        """All that are expected, if this is one of them."""
        if place not in self._expected:
            return []
        taken, self._expected = list(self._expected), {}
        return taken

    def get(self, place: K) -> T | None:
        return self._kept.get(place)

    def keep(self, rows: Mapping[K, T]) -> None:
        """Full: the oldest leave."""
        self._kept.update(rows)
        for place in list(islice(self._kept, max(0, len(self._kept) - limits.INSPECTED_KEPT_ROWS))):
            del self._kept[place]


class _UserIdItem(msgspec.Struct, frozen=True):
    user_id: S


_USER_ID = RowDecoder(_UserIdItem)


def _read(table: str, row: RowDecoder[Item], of: Callable[[Item], T], raw: msgspec.Raw) -> T:
    return _translated(table, of, row.decode(raw))


def _translated(table: str, of: Callable[[Item], T], item: Item) -> T:
    try:
        return of(item)
    except ValueError as error:
        raise InternalError(f"a row of {table} is not what this release writes") from error


def _slot(raw: msgspec.Raw) -> Slot:
    return _read(tables.MESSAGES, messages.SLOT, messages.slot_of, raw)


def _counter(item: messages.CounterItem) -> Counter:
    return Counter(item.chat_id.S, messages.counter_of(item))


def _user_chat(item: chats.MembershipItem) -> UserChat:
    return UserChat(item.user_id.S, item.chat_id.S)


def _pair(item: chats.PairItem) -> Pair:
    return Pair(item.pair_key.S, item.chat_id.S)


def _stored_key(item: messages.KeyItem) -> StoredKey:
    return StoredKey(item.chat_id.S, item.client_message_id.S, messages.key_from(item))


def _watermark(item: messages.WatermarkItem) -> StoredWatermark:
    return StoredWatermark(item.user_id.S, item.chat_id.S, messages.watermark_of(item))


def _phone(item: people.PhoneItem) -> Phone:
    return Phone(item.user_id.S.removeprefix(_PHONE), item.canonical_user_id.S)


def _user_session(item: people.SessionItem) -> UserSession:
    return UserSession(item.user_id.S, item.session_id.S)

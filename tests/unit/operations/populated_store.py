"""A small store, written by real engines and a real Ingest: users, a group, a direct chat, messages, acks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

from seriatim.domain.account import Code, Session, User, phone_hash
from seriatim.domain.chat import Chat, ChatType, Membership, Role
from seriatim.domain.errors import SeriatimError
from seriatim.domain.events import ChatCreated, chat_created, headers
from seriatim.domain.message import Draft, Receipt
from seriatim.domain.times import iso
from seriatim.domain.tokens import refresh_digest
from seriatim.durability.ingest import Ingest
from seriatim.engines.embedded.accounts import EmbeddedAccounts
from seriatim.engines.embedded.catalog import EmbeddedCatalog
from seriatim.engines.embedded.event_log import EmbeddedEventLog, EmbeddedEventWriter
from seriatim.engines.embedded.message_log import EmbeddedMessageLog
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.ports.accounts import Accounts
from seriatim.ports.catalog import Catalog
from seriatim.ports.event_log import CHATS, DEAD_LETTERS, MEMBERSHIPS, MESSAGES, Event, EventWriter
from seriatim.ports.message_log import MessageLog

TOPICS = {MESSAGES: 4, MEMBERSHIPS: 2, CHATS: 2, DEAD_LETTERS: 2}
ANN, BOB, CID = "user_ann", "user_bob", "user_cid"
PEOPLE = (ANN, BOB, CID)
PHONES = {ANN: "+4915112345601", BOB: "+4915112345602", CID: "+4915112345603"}
GROUP, DIRECT, EMPTY = "chat_group", "chat_direct", "chat_empty"
T_S = 5.0


class PopulatedStore:
    """Open engines, and an ingest on them."""

    def __init__(self, log: MessageLog, catalog: Catalog, accounts: Accounts, events: EventWriter) -> None:
        self.clock = SystemClock()
        self.log = log
        self.catalog = catalog
        self.accounts = accounts
        self.events = events
        self.ingest = Ingest(log=log, events=events, clock=self.clock, producer_id="ingest-1")
        self._sent = 0

    async def populate(self, messages: int = 5) -> None:
        now_ms = self.clock.now_ms()
        for user_id in PEOPLE:
            await self.accounts.add_user(user_of(user_id, now_ms, PHONES[user_id]), timeout_s=T_S)
            await self.accounts.open_session(session_of(user_id, now_ms), timeout_s=T_S)
        await self.accounts.issue_code(_code(now_ms), now_ms=now_ms, timeout_s=T_S)
        await self.add_group(GROUP)
        await self.add_group(EMPTY)
        direct = chat_of(DIRECT, ChatType.DIRECT, now_ms)
        await self.catalog.create_direct(direct, BOB, now_ms=now_ms, timeout_s=T_S)
        for _ in range(messages):
            await self.send(GROUP, ANN)
            await self.send(DIRECT, BOB)
        await self.ingest.acknowledge(BOB, GROUP, sequence=messages, timeout_s=T_S)

    async def add_group(self, chat_id: str) -> None:
        now_ms = self.clock.now_ms()
        chat = chat_of(chat_id, ChatType.GROUP, now_ms)
        await self.catalog.create_group(chat, [BOB, CID], now_ms=now_ms, timeout_s=T_S)
        value = chat_created(
            chat,
            event_id=f"evt_{chat_id}",
            initial_members=PEOPLE,
            producer_id="api-1",
            trace_id="",
            event_time=iso(now_ms),
        )
        event = Event(key=chat_id, value=value, headers=headers(ChatCreated, ""))
        await self.events.append(CHATS, [event], timeout_s=T_S)

    async def send(self, chat_id: str, sender_id: str, content: str = "the secret text") -> Receipt:
        self._sent += 1
        name = str(UUID(int=(self._sent << 64) | self.clock.random_bits(62), version=4))
        draft = Draft(chat_id=chat_id, sender_id=sender_id, client_message_id=name, content=content)
        answered: asyncio.Future[Receipt | SeriatimError] = asyncio.get_running_loop().create_future()
        self.ingest.submit(draft, deadline=self.clock.monotonic() + T_S, answer=answered.set_result)
        outcome = await answered
        assert isinstance(outcome, Receipt), outcome
        return outcome


class PopulatedFolder(PopulatedStore):
    def __init__(self, folder: Folder, events: EmbeddedEventLog) -> None:
        writer = EmbeddedEventWriter(events, SystemClock())
        super().__init__(EmbeddedMessageLog(folder), EmbeddedCatalog(folder), EmbeddedAccounts(folder), writer)
        self.folder = folder


@asynccontextmanager
async def embedded_store(path: Path) -> AsyncIterator[PopulatedFolder]:
    folder = Folder.open(path)
    populated = PopulatedFolder(folder, await EmbeddedEventLog.open(folder, TOPICS))
    try:
        yield populated
    finally:
        await populated.ingest.drain()
        await folder.close()


async def make_populated(path: Path, messages: int = 5) -> None:
    """A populated folder whose server has stopped."""
    async with embedded_store(path) as populated:
        await populated.populate(messages)


def user_of(user_id: str, now_ms: int, phone_number: str) -> User:
    at = iso(now_ms)
    return User(user_id=user_id, phone_number=phone_number, display_name=user_id[5:], created_at=at, updated_at=at)


def session_of(user_id: str, now_ms: int, *, session_id: str = "", device_id: str = "") -> Session:
    return Session(
        session_id=session_id or f"sess_{user_id}",
        user_id=user_id,
        device_id=device_id or f"device_{user_id}",
        refresh_digest=refresh_digest(user_id),
        created_at_ms=now_ms,
        expires_at_ms=now_ms + 10**9,
        last_active_at_ms=now_ms,
    )


def _code(now_ms: int) -> Code:
    return Code(
        phone_hash=phone_hash(PHONES[ANN]),
        mac=refresh_digest("000000"),
        sealed=bytes(40),
        created_at_ms=now_ms,
        expires_at_ms=now_ms + 300_000,
    )


def chat_of(chat_id: str, chat_type: ChatType, now_ms: int, *, created_by: str = ANN) -> Chat:
    at = iso(now_ms)
    return Chat(
        chat_id=chat_id,
        chat_type=chat_type,
        name=None if chat_type is ChatType.DIRECT else chat_id,
        created_by=created_by,
        created_at=at,
        updated_at=at,
        member_count=0,
    )


def membership(chat_id: str, user_id: str, role: Role) -> Membership:
    return Membership(chat_id=chat_id, user_id=user_id, role=role, joined_at=iso(0), added_by=ANN)

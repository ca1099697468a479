"""Rows and steps that the store suites share: a group of ann (owner), bob and cid, and messages in it."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from seriatim.domain import limits
from seriatim.domain.chat import Chat, ChatType, Membership
from seriatim.domain.errors import SeriatimError
from seriatim.domain.message import TEXT, Message, Slot, content_digest
from seriatim.domain.times import iso
from seriatim.ports.message_log import Allocation, Cancelled, ChatCounter, Entry, Key, MessageLog, PublishedAhead
from tests.contract.store_engines import StoreEngine

T_S = 5.0
NOW_S = 2_000_000_000  # in 2033: a store that removes expired rows by the real clock leaves ours alone
NOW_MS = NOW_S * 1000
LATER_MS = NOW_MS + 1000
CHAT = "chat_1"
ANN, BOB, CID, DAN = "user_ann", "user_bob", "user_cid", "user_dan"

_TOKENS = itertools.count(1)

T = TypeVar("T")


class Rows(msgspec.Struct, frozen=True):
    """All that a change of a chat may touch."""

    chat: Chat | None
    members: dict[str, Membership | None]
    counter: ChatCounter | None


def group(chat_id: str = CHAT, created_by: str = ANN) -> Chat:
    return _chat(chat_id, ChatType.GROUP, "a group", created_by)


def direct(chat_id: str, created_by: str) -> Chat:
    return _chat(chat_id, ChatType.DIRECT, None, created_by)


async def found_group(store: StoreEngine, chat_id: str = CHAT, members: Sequence[str] = (BOB, CID)) -> None:
    await store.catalog().create_group(group(chat_id), members, now_ms=NOW_MS, timeout_s=T_S)


def message(
    sequence: int, *, key: str | None = None, sender: str = BOB, content: str = "hello", chat_id: str = CHAT
) -> Message:
    return Message(
        message_id=f"msg_{chat_id}_{sequence}_{sender}",
        chat_id=chat_id,
        sequence=sequence,
        sender_id=sender,
        client_message_id=key or f"key-{sequence}",
        content=content,
        content_type=TEXT,
        created_at=iso(NOW_MS + sequence),
    )


def entry(stored: Message, *, expires_at_s: int = NOW_S + limits.KEY_LIFETIME_S) -> Entry:
    return Entry(message=stored, content_sha256=content_digest(stored.content), expires_at_s=expires_at_s)


def key_of(stored: Message, *, expires_at_s: int = NOW_S + limits.KEY_LIFETIME_S) -> Key:
    return Key(
        client_message_id=stored.client_message_id,
        message_id=stored.message_id,
        sequence=stored.sequence,
        sender_id=stored.sender_id,
        content_sha256=content_digest(stored.content),
        created_at=stored.created_at,
        expires_at_s=expires_at_s,
    )


async def persist(log: MessageLog, *entries: Entry, token: str | None = None, now_s: int = NOW_S) -> Cancelled | None:
    """One transaction whose senders are checked; with a token of its own, unless one is given."""
    first = entries[0].message
    return await log.persist(
        first.chat_id,
        entries,
        list(dict.fromkeys(each.message.sender_id for each in entries)),
        token=token or f"token-{next(_TOKENS)}",
        now_s=now_s,
        timeout_s=T_S,
    )


async def store_messages(store: StoreEngine, *stored: Message) -> None:
    assert await persist(store.log(), *[entry(each) for each in stored]) is None


async def write_something(store: StoreEngine) -> None:
    """Another write, answered after all that was written before it."""
    assert await store.log().acknowledge("user_else", "chat_else", sequence=1, now_ms=NOW_MS, timeout_s=T_S)


async def seal(log: MessageLog, sequence: int, *, at_ms: int = NOW_MS) -> Slot:
    return await log.seal(CHAT, sequence, created_at=iso(at_ms), timeout_s=T_S)


async def allocate(
    log: MessageLog,
    count: int = 1,
    *,
    chat_id: str = CHAT,
    through: int = 0,
    last: int | None = 0,
    now_ms: int = NOW_MS,
) -> Allocation | PublishedAhead:
    return await log.allocate(
        chat_id, count, published_through=through, published_message=last, now_ms=now_ms, timeout_s=T_S
    )


async def all_slots(store: StoreEngine, chat_id: str = CHAT) -> list[Slot]:
    """Everything the chat holds, by as many reads as it takes."""
    log, found, more = store.log(), list[Slot](), True
    while more:
        after = found[-1].sequence if found else 0
        page = await log.read(chat_id, after=after, limit=limits.READ_SLOTS_MAX, timeout_s=T_S)
        assert page.slots or not page.more, "a page without slots that claims more would never end"
        found += page.slots
        more = page.more
    return found


async def counter(store: StoreEngine, chat_id: str = CHAT) -> ChatCounter | None:
    return (await store.log().counters([chat_id], timeout_s=T_S)).get(chat_id)


async def rows_of(store: StoreEngine) -> Rows:
    handle = store.catalog()
    members = {each: await handle.membership(CHAT, each, timeout_s=T_S) for each in (ANN, BOB, CID, DAN)}
    return Rows(await handle.chat(CHAT, timeout_s=T_S), members, await counter(store))


async def version_and_count(store: StoreEngine) -> tuple[int, int]:
    members = await store.roster().members(CHAT, timeout_s=T_S)
    chat = await store.catalog().chat(CHAT, timeout_s=T_S)
    assert chat is not None
    return members.version, chat.member_count


async def error_of(attempt: Callable[[], Awaitable[object]]) -> type[SeriatimError] | None:
    """What kind of error the attempt ends in, None if it succeeds."""
    try:
        await attempt()
    except SeriatimError as error:
        return type(error)
    return None


async def eventually(look: Callable[[], Awaitable[T]], expected: T) -> None:
    """For what may lag: looks again and again, for about a second."""
    for _ in range(50):
        if await look() == expected:
            return
        await asyncio.sleep(0.02)
    assert await look() == expected


def _chat(chat_id: str, chat_type: ChatType, name: str | None, created_by: str) -> Chat:
    return Chat(
        chat_id=chat_id,
        chat_type=chat_type,
        name=name,
        created_by=created_by,
        created_at=iso(NOW_MS),
        updated_at=iso(NOW_MS),
        member_count=0,
    )

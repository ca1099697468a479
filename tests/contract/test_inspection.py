"""The promises of `StoredRows` and `StoredRecords`: what the ordinary ports wrote is shown, each row once, as it is."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

import pytest

from seriatim.domain.account import phone_hash
from seriatim.domain.chat import ChatType, Role, pair_key
from seriatim.domain.message import Message, Sealed
from seriatim.domain.sharding import partition as partition_of
from seriatim.ports.event_log import CHATS, MESSAGES, Event
from seriatim.ports.inspection import Pair, Phone, StoredRecords, StoredRows, UserChat, UserSession
from tests.contract.inspection_engines import ENGINES, Inspected
from tests.unit.operations.populated_store import (
    ANN,
    BOB,
    CID,
    DIRECT,
    EMPTY,
    GROUP,
    PEOPLE,
    PHONES,
    T_S,
    TOPICS,
    chat_of,
    session_of,
    user_of,
)

T = TypeVar("T")
UNKNOWN = "unknown"


@pytest.fixture(params=list(ENGINES))
async def inspected(request: pytest.FixtureRequest) -> AsyncIterator[Inspected]:
    """A populated store, and its rows and records as of this moment."""
    async with ENGINES[request.param]() as (populated, rows, log):
        await populated.populate()
        await rows.refresh()
        yield populated, rows, log


async def every(rows: AsyncIterator[T]) -> list[T]:
    return [row async for row in rows]


# --- every row, each once ---------------------------------------------------------------------------------------------


async def test_chats_their_members_and_counters_are_shown_once(inspected: Inspected) -> None:
    populated, rows, _ = inspected
    chats = sorted(await every(rows.chats()), key=lambda chat: chat.chat_id)
    assert [(chat.chat_id, chat.member_count) for chat in chats] == [(DIRECT, 2), (EMPTY, 3), (GROUP, 3)]
    assert chats[2] == await populated.catalog.chat(GROUP, timeout_s=T_S)
    members = {(row.chat_id, row.user_id): row for row in await every(rows.memberships())}
    belonging = [(GROUP, each) for each in PEOPLE] + [(EMPTY, each) for each in PEOPLE] + [(DIRECT, ANN), (DIRECT, BOB)]
    assert sorted(members) == sorted(belonging)
    assert [members[GROUP, ANN]] == [row for row in await every(rows.members(GROUP)) if row.role is Role.OWNER]
    listed = [UserChat(user_id, chat_id) for chat_id, user_id in belonging]
    assert sorted(await every(rows.user_chats()), key=str) == sorted(listed, key=str)
    assert await every(rows.pairs()) == [Pair(pair_key(ANN, BOB), DIRECT)]
    counters = {row.chat_id: row.counter for row in await every(rows.counters())}
    assert counters == await populated.log.counters([GROUP, DIRECT, EMPTY], timeout_s=T_S)


async def test_messages_their_keys_and_watermarks_are_shown_once(inspected: Inspected) -> None:
    populated, rows, _ = inspected
    stored = (await populated.log.read(GROUP, after=0, limit=100, timeout_s=T_S)).slots
    assert [filled.slot for filled in await every(rows.slots(GROUP))] == list(stored)
    assert [filled.sequence for filled in await every(rows.slots(GROUP, after=2))] == [3, 4, 5]
    assert sorted(await every(rows.chats_with_slots())) == [DIRECT, GROUP]
    keys = [(row.chat_id, row.key.sequence, row.client_message_id) for row in await every(rows.keys())]
    messages = [filled.slot for chat in (DIRECT, GROUP) for filled in await every(rows.slots(chat))]
    message_keys = [(row.chat_id, row.sequence, row.client_message_id) for row in messages if isinstance(row, Message)]
    assert sorted(keys) == sorted(message_keys)
    watermarks = [(row.user_id, row.chat_id, row.watermark.sequence) for row in await every(rows.watermarks())]
    assert watermarks == [(BOB, GROUP, 5)]


async def test_people_their_phones_sessions_and_codes_are_shown_once(inspected: Inspected) -> None:
    populated, rows, _ = inspected
    users = {user.user_id: user for user in await every(rows.users())}
    assert users == await populated.accounts.users(PEOPLE, timeout_s=T_S)
    phones = [Phone(phone_hash(PHONES[each]), each) for each in PEOPLE]
    assert sorted(await every(rows.phones()), key=str) == sorted(phones, key=str)
    sessions = [await populated.accounts.session(f"sess_{each}", timeout_s=T_S) for each in PEOPLE]
    assert sorted(await every(rows.sessions()), key=str) == sorted(sessions, key=str)
    listed = [UserSession(each, f"sess_{each}") for each in PEOPLE]
    assert sorted(await every(rows.user_sessions()), key=str) == sorted(listed, key=str)
    assert await every(rows.codes()) == [await populated.accounts.code(phone_hash(PHONES[ANN]), timeout_s=T_S)]


async def test_records_are_shown_by_partition_in_the_order_of_their_offsets(inspected: Inspected) -> None:
    _, _, log = inspected
    assert await log.topics() == TOPICS
    records = await every(log.records(MESSAGES))
    assert [(each.partition, each.offset) for each in records] == sorted((r.partition, r.offset) for r in records)
    for chat_id in (GROUP, DIRECT):
        found = [record for record in records if record.key == chat_id.encode()]
        assert len(found) == 5
        assert {record.partition.number for record in found} == {partition_of(chat_id, TOPICS[MESSAGES])}
        assert all(record.value and record.headers and record.timestamp_ms for record in found)
    assert sorted(str(record.key) for record in await every(log.records(CHATS))) == [
        str(chat_id.encode()) for chat_id in (EMPTY, GROUP)
    ]


async def test_a_topic_of_many_records_is_shown_to_its_end_again_and_again(inspected: Inspected) -> None:
    populated, rows, log = inspected
    for key in ("chat_a", "chat_b", "chat_c"):
        await populated.events.append(CHATS, [Event(key=key, value=b"x" * 5000)] * 200, timeout_s=30)
    await rows.refresh()
    for _ in range(2):
        await log.topics()
        assert len(await every(log.records(CHATS))) == 602


async def test_a_chat_of_more_than_a_megabyte_is_shown_to_its_end(inspected: Inspected) -> None:
    populated, rows, _ = inspected
    await asyncio.gather(*(populated.send(EMPTY, ANN, f"{number} {'x' * 4000}") for number in range(300)))
    await rows.refresh()
    assert [filled.sequence for filled in await every(rows.slots(EMPTY))] == list(range(1, 301))
    keys = [row.client_message_id for row in await every(rows.keys())]
    assert len(keys) == len(set(keys)) == 310
    found = [await rows.slot(EMPTY, sequence) for sequence in range(1, 301)]
    assert all(isinstance(each, Message) and each.sequence == at for at, each in enumerate(found, start=1))


async def test_many_rows_of_every_kind_are_shown_once_and_those_that_belong_together_follow_each_other(
    inspected: Inspected,
) -> None:
    populated, rows, _ = inspected
    now_ms = populated.clock.now_ms()
    names = [f"user_{number:03}" for number in range(120)]

    async def come(number: int, name: str) -> None:
        await populated.accounts.add_user(user_of(name, now_ms, f"+49151{number:08}"), timeout_s=T_S)
        for device in ("laptop", "phone"):
            session = session_of(name, now_ms, session_id=f"sess_{device}_{name}", device_id=device)
            await populated.accounts.open_session(session, timeout_s=T_S)
        group = chat_of(f"chat_{name}", ChatType.GROUP, now_ms, created_by=name)
        await populated.catalog.create_group(group, [ANN], now_ms=now_ms, timeout_s=T_S)

    for start in range(0, len(names), 20):
        await asyncio.gather(*(come(number, names[number]) for number in range(start, start + 20)))
    await rows.refresh()
    assert sorted(user.user_id for user in await every(rows.users())) == sorted([*PEOPLE, *names])
    assert len(await every(rows.phones())) == 123
    members = [row.chat_id for row in await every(rows.memberships())]
    assert (len(members), runs(members)) == (8 + 240, 3 + 120)
    listed = [row.user_id for row in await every(rows.user_sessions())]
    assert (len(listed), runs(listed)) == (3 + 240, 3 + 120)
    assert len({row.session_id for row in await every(rows.sessions())}) == 243


# --- one row ----------------------------------------------------------------------------------------------------------


async def test_one_row_is_what_the_iteration_shows(inspected: Inspected) -> None:
    _, rows, _ = inspected
    for chat in await every(rows.chats()):
        assert await rows.chat(chat.chat_id) == chat
    for row in await every(rows.counters()):
        assert await rows.counter(row.chat_id) == row.counter
    for member in await every(rows.memberships()):
        assert await rows.membership(member.chat_id, member.user_id) == member
        assert await rows.has_user_chat(member.user_id, member.chat_id)
    for pair in await every(rows.pairs()):
        assert await rows.pair(pair.pair_key) == pair.chat_id
    for filled in await every(rows.slots(GROUP)):
        assert await rows.slot(GROUP, filled.sequence) == filled.slot
    for key in await every(rows.keys()):
        assert await rows.key(key.chat_id, key.client_message_id) == key.key
    for user in await every(rows.users()):
        assert await rows.user(user.user_id) == user
        assert await rows.phone(phone_hash(user.phone_number)) == user.user_id
    for session in await every(rows.sessions()):
        assert await rows.session(session.session_id) == session
        assert await rows.has_user_session(session.user_id, session.session_id)


async def test_what_is_not_there_is_not_shown(inspected: Inspected) -> None:
    _, rows, _ = inspected
    assert await rows.chat(UNKNOWN) is None
    assert await rows.counter(UNKNOWN) is None
    assert await rows.membership(DIRECT, CID) is None
    assert not await rows.has_user_chat(CID, DIRECT)
    assert await rows.pair(pair_key(ANN, CID)) is None
    assert await rows.slot(GROUP, 6) is None
    assert await rows.slot(UNKNOWN, 1) is None
    assert await rows.key(GROUP, UNKNOWN) is None
    assert await rows.user(UNKNOWN) is None
    assert await rows.phone(phone_hash("+4930123456")) is None
    assert await rows.session(UNKNOWN) is None
    assert not await rows.has_user_session(BOB, f"sess_{CID}")
    assert await rows.newest_slot(UNKNOWN) == 0
    assert await rows.newest_message(UNKNOWN, at_most=9) is None
    assert await every(rows.slots(UNKNOWN)) == []
    assert await every(rows.members(UNKNOWN)) == []


async def test_the_newest_message_is_found_below_however_many_tombstones(inspected: Inspected) -> None:
    populated, rows, _ = inspected
    for start in range(6, 126, 20):
        sealing = [populated.log.seal(GROUP, at, created_at="", timeout_s=T_S) for at in range(start, start + 20)]
        await asyncio.gather(*sealing)
    await rows.refresh()
    newest = await rows.newest_message(GROUP, at_most=200)
    assert newest is not None
    assert newest.sequence == 5
    assert await rows.newest_slot(GROUP) == 125
    assert isinstance(await rows.slot(GROUP, 125), Sealed)
    third = await rows.newest_message(GROUP, at_most=3)
    assert third is not None
    assert third.sequence == 3


async def test_a_chat_is_listed_as_dirty_since_its_time_and_no_other(inspected: Inspected) -> None:
    populated, rows, _ = inspected
    now_ms = populated.clock.now_ms()
    await populated.log.allocate(EMPTY, 1, published_through=0, published_message=None, now_ms=now_ms, timeout_s=T_S)
    await populated.log.seal(EMPTY, 1, created_at="", timeout_s=T_S)  # an allocation may wait for what rests on it
    await rows.refresh()
    assert await rows.is_listed_dirty(EMPTY, dirty_at_ms=now_ms)
    assert not await rows.is_listed_dirty(EMPTY, dirty_at_ms=now_ms - 1)
    assert not await rows.is_listed_dirty(UNKNOWN, dirty_at_ms=now_ms)


# --- as of when -------------------------------------------------------------------------------------------------------


async def test_after_a_refresh_all_that_was_committed_before_is_seen(inspected: Inspected) -> None:
    populated, rows, log = inspected
    await look_everywhere(rows, log)
    await populated.send(GROUP, ANN)
    await populated.catalog.leave(GROUP, CID, now_ms=populated.clock.now_ms(), timeout_s=T_S)
    await populated.accounts.revoke(f"sess_{CID}", timeout_s=T_S)
    await rows.refresh()
    assert isinstance(await rows.slot(GROUP, 6), Message)
    assert await rows.membership(GROUP, CID) is None
    assert await rows.session(f"sess_{CID}") is None
    assert len(await every(rows.members(GROUP))) == 2
    assert len([r for r in await every(log.records(MESSAGES)) if r.key == GROUP.encode()]) == 6


async def look_everywhere(rows: StoredRows, log: StoredRecords) -> None:
    """Whatever an engine may remember of this, it must forget."""
    await log.topics()
    assert [await rows.slot(GROUP, sequence) for sequence in range(5, 8)][1:] == [None, None]
    for filled in await every(rows.slots(GROUP)):
        if isinstance(filled.slot, Message):
            assert await rows.key(GROUP, filled.slot.client_message_id) is not None


def runs(names: list[str]) -> int:
    """How many there are if neighbours of the same name count as one."""
    return sum(name != before for name, before in zip(names, ["", *names], strict=False))

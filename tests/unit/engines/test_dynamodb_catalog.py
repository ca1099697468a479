"""Changes of chats on DynamoDB when others are faster, and groups that do not fit into one transaction."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from seriatim.domain import limits
from seriatim.domain.chat import Role
from seriatim.domain.errors import (
    AlreadyAMember,
    AlreadyExists,
    ChatFull,
    CounterMissing,
    Forbidden,
    NotAMember,
    NotFound,
    OutcomeUnknown,
    SeriatimError,
)
from seriatim.engines.dynamodb.catalog import DynamoCatalog
from seriatim.engines.dynamodb.rows.chats import members_query
from seriatim.engines.dynamodb.rows.messages import members_sum
from seriatim.ports.catalog import Catalog
from tests.contract.store_data import (
    ANN,
    BOB,
    CHAT,
    CID,
    DAN,
    LATER_MS,
    NOW_MS,
    T_S,
    error_of,
    found_group,
    group,
    rows_of,
    version_and_count,
)
from tests.support.real_dynamodb import PREFIX
from tests.unit.engines.faulty_dynamodb import FaultyDynamoEngine, faulty_engine

Change = Callable[[Catalog], Awaitable[object]]


@pytest.fixture
async def engine() -> AsyncIterator[FaultyDynamoEngine]:
    async with faulty_engine() as opened:
        yield opened


def add(user_id: str, by: str) -> Change:
    return lambda catalog: catalog.add_member(CHAT, user_id, Role.MEMBER, by=by, now_ms=LATER_MS, timeout_s=T_S)


def remove(user_id: str, by: str) -> Change:
    return lambda catalog: catalog.remove_member(CHAT, user_id, by=by, now_ms=LATER_MS, timeout_s=T_S)


def leave(user_id: str) -> Change:
    return lambda catalog: catalog.leave(CHAT, user_id, now_ms=LATER_MS, timeout_s=T_S)


def change_role(user_id: str, role: Role, by: str = ANN) -> Change:
    return lambda catalog: catalog.change_role(CHAT, user_id, role, by=by, now_ms=LATER_MS, timeout_s=T_S)


def rename(by: str) -> Change:
    return lambda catalog: catalog.rename(CHAT, "new", by=by, now_ms=LATER_MS, timeout_s=T_S)


@pytest.mark.parametrize(
    ("change", "meanwhile", "error"),
    [
        (add(DAN, by=CID), change_role(CID, Role.MEMBER), Forbidden),
        (add(DAN, by=CID), remove(CID, by=ANN), NotAMember),
        (add(DAN, by=ANN), add(DAN, by=CID), AlreadyAMember),
        (remove(BOB, by=CID), change_role(CID, Role.MEMBER), Forbidden),
        (remove(BOB, by=CID), change_role(BOB, Role.ADMIN), Forbidden),
        (remove(BOB, by=ANN), leave(BOB), NotFound),
        (leave(BOB), remove(BOB, by=ANN), NotAMember),
        (change_role(BOB, Role.ADMIN), leave(BOB), NotFound),
        (rename(by=CID), change_role(CID, Role.MEMBER), Forbidden),
        (rename(by=CID), leave(CID), NotAMember),
    ],
)
async def test_a_change_that_is_overtaken_is_judged_again(
    engine: FaultyDynamoEngine, change: Change, meanwhile: Change, error: type[SeriatimError]
) -> None:
    await found_group(engine)
    catalog = engine.catalog()
    await change_role(CID, Role.ADMIN)(catalog)
    others = DynamoCatalog(engine.client.store())
    engine.faults.meanwhile["TransactWriteItems"] = lambda: meanwhile(others)
    assert await error_of(lambda: change(catalog)) is error
    after = await rows_of(engine)
    assert after.chat is not None
    assert after.chat.name == "a group"
    assert after.chat.member_count == sum(row is not None for row in after.members.values())


@pytest.mark.parametrize(
    ("change", "meanwhile"),
    [
        (add(DAN, by=ANN), leave(BOB)),
        (add(DAN, by=ANN), rename(by=ANN)),
        (remove(BOB, by=ANN), add(DAN, by=ANN)),
        (leave(BOB), add(DAN, by=ANN)),
        (rename(by=ANN), add(DAN, by=ANN)),
        (change_role(BOB, Role.ADMIN), change_role(CID, Role.ADMIN)),
    ],
)
async def test_a_change_that_is_overtaken_and_still_allowed_succeeds_with_the_right_count(
    engine: FaultyDynamoEngine, change: Change, meanwhile: Change
) -> None:
    await found_group(engine)
    catalog, others = engine.catalog(), DynamoCatalog(engine.client.store())
    engine.faults.meanwhile["TransactWriteItems"] = lambda: meanwhile(others)
    await change(catalog)
    after = await rows_of(engine)
    assert after.chat is not None
    assert after.chat.member_count == sum(row is not None for row in after.members.values())


async def test_a_counter_lost_while_a_member_is_added_halts_the_change(engine: FaultyDynamoEngine) -> None:
    await found_group(engine)
    before = await rows_of(engine)
    engine.faults.meanwhile["TransactWriteItems"] = lambda: engine.lose_counter(CHAT)
    assert await error_of(lambda: add(DAN, by=ANN)(engine.catalog())) is CounterMissing
    after = await rows_of(engine)
    assert (after.chat, after.members) == (before.chat, before.members)


async def test_the_last_place_is_given_once(engine: FaultyDynamoEngine) -> None:
    await found_group(engine, members=_others(limits.GROUP_MEMBERS_MAX - 2))
    others = DynamoCatalog(engine.client.store())
    engine.faults.meanwhile["TransactWriteItems"] = lambda: add(CID, by=ANN)(others)
    assert await error_of(lambda: add(DAN, by=ANN)(engine.catalog())) is ChatFull
    assert (await version_and_count(engine))[1] == limits.GROUP_MEMBERS_MAX


# --- the list and its version -----------------------------------------------------------------------------------------


async def test_the_sum_of_the_members_follows_every_change(engine: FaultyDynamoEngine) -> None:
    await found_group(engine)
    catalog = engine.catalog()
    for change in (
        add(DAN, by=ANN),
        change_role(BOB, Role.ADMIN),
        remove(CID, by=BOB),
        leave(DAN),
        add(CID, by=ANN),
        leave(BOB),
    ):
        await change(catalog)
        members = await engine.roster().members(CHAT, timeout_s=T_S)
        counter = await engine.row("chat_counters", chat_id=CHAT)
        assert counter["members_sum"]["N"] == str(members_sum(members.user_ids))
        assert str(members.version) == counter["members_version"]["N"]


async def test_the_members_of_a_recovered_counter_are_its_members(engine: FaultyDynamoEngine) -> None:
    await found_group(engine)
    await engine.lose_counter(CHAT)
    assert await engine.repair().recover_counter(
        CHAT, allocated=0, published_through=0, published_message=0, members_version=9, now_ms=NOW_MS, timeout_s=T_S
    )
    found = await engine.roster().members(CHAT, timeout_s=T_S)
    assert (found.version, sorted(found.user_ids)) == (9, [ANN, BOB, CID])


async def test_a_list_read_in_the_middle_of_a_commit_is_read_again(engine: FaultyDynamoEngine) -> None:
    """The store may show the new version and, for a moment, the old members."""
    await found_group(engine)
    others = DynamoCatalog(engine.client.store())
    old = await engine.client.plain.call("Query", _members_request(), until=engine.client.until(T_S))
    await remove(BOB, by=ANN)(others)
    engine.faults.answers["Query"] = [old]
    found = await engine.roster().members(CHAT, timeout_s=T_S)
    assert (found.version, sorted(found.user_ids)) == (2, [ANN, CID])


async def test_a_list_that_never_agrees_with_its_version_has_none(engine: FaultyDynamoEngine) -> None:
    await found_group(engine)
    old = await engine.client.plain.call("Query", _members_request(), until=engine.client.until(T_S))
    await remove(BOB, by=ANN)(engine.catalog())
    engine.faults.answers["Query"] = [old] * 10
    found = await engine.roster().members(CHAT, timeout_s=T_S)
    assert (found.version, sorted(found.user_ids)) == (0, [ANN, BOB, CID])
    assert len(engine.faults.answers["Query"]) == 8, "it was believed after the second look"


def _members_request() -> dict[str, object]:
    return {"TableName": f"{PREFIX}chat_memberships", **members_query(CHAT)}


# --- more members than a transaction takes ----------------------------------------------------------------------------


async def test_a_group_that_fits_takes_one_transaction(engine: FaultyDynamoEngine) -> None:
    await found_group(engine, members=_others(limits.CREATED_MEMBERS_MAX - 1))
    assert engine.faults.operations == ["TransactWriteItems"]
    assert await version_and_count(engine) == (1, limits.CREATED_MEMBERS_MAX)


async def test_a_full_group_takes_two(engine: FaultyDynamoEngine) -> None:
    await found_group(engine, members=_others(limits.GROUP_MEMBERS_MAX - 1))
    assert engine.faults.operations == ["TransactWriteItems"] * 2
    assert await version_and_count(engine) == (2, limits.GROUP_MEMBERS_MAX)
    assert len((await engine.roster().members(CHAT, timeout_s=T_S)).user_ids) == limits.GROUP_MEMBERS_MAX


async def test_a_creation_that_was_interrupted_half_way_is_completed_by_its_retry(engine: FaultyDynamoEngine) -> None:
    members = _others(limits.GROUP_MEMBERS_MAX - 1)
    engine.faults.deaf_after["TransactWriteItems"] = 0
    with pytest.raises(OutcomeUnknown):
        await found_group(engine, members=members)
    engine.faults.deaf_after.clear()
    assert await version_and_count(engine) == (1, limits.CREATED_MEMBERS_MAX)
    stranger = engine.catalog().create_group(group(created_by=DAN), members, now_ms=NOW_MS, timeout_s=T_S)
    with pytest.raises(AlreadyExists):
        await stranger
    await found_group(engine, members=members)
    assert await version_and_count(engine) == (2, limits.GROUP_MEMBERS_MAX)
    found = await engine.roster().members(CHAT, timeout_s=T_S)
    assert sorted(found.user_ids) == sorted([ANN, *members])
    with pytest.raises(AlreadyExists):
        await found_group(engine, members=members)
    assert await version_and_count(engine) == (2, limits.GROUP_MEMBERS_MAX)


async def test_a_retry_brings_no_removed_member_back(engine: FaultyDynamoEngine) -> None:
    members = _others(limits.GROUP_MEMBERS_MAX - 1)
    await found_group(engine, members=members)
    await remove(members[-1], by=ANN)(engine.catalog())
    await leave(members[-2])(engine.catalog())
    before = await version_and_count(engine)
    with pytest.raises(AlreadyExists):
        await found_group(engine, members=members)
    assert await version_and_count(engine) == before
    assert await engine.log().role(CHAT, members[-1], timeout_s=T_S) is None


async def test_a_member_who_leaves_between_the_two_halves_does_not_keep_the_last_members_out(
    engine: FaultyDynamoEngine,
) -> None:
    members = _others(limits.GROUP_MEMBERS_MAX - 1)
    others = DynamoCatalog(engine.client.store())

    async def then() -> None:
        """Before the first half nothing can be left; so the next call is waited for."""

        async def quit_early() -> None:
            await leave(members[0])(others)

        engine.faults.meanwhile["TransactWriteItems"] = quit_early

    engine.faults.meanwhile["TransactWriteItems"] = then
    await found_group(engine, members=members)
    found = await engine.roster().members(CHAT, timeout_s=T_S)
    assert sorted(found.user_ids) == sorted([ANN, *members[1:]])
    assert (await version_and_count(engine))[1] == limits.GROUP_MEMBERS_MAX - 1


def _others(count: int) -> list[str]:
    return [f"user_{number:03}" for number in range(count)]

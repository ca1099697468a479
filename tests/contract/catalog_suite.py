"""What every catalog promises: changes are whole or refused, one chat per pair, and a version that counts changes."""

import asyncio
from functools import partial

import msgspec
import pytest

from seriatim.domain import limits
from seriatim.domain.chat import Membership, Role
from seriatim.domain.errors import (
    AlreadyExists,
    ChatFull,
    Forbidden,
    InvalidOperation,
    NotAMember,
    OutcomeUnknown,
)
from seriatim.domain.times import iso
from seriatim.ports.catalog import Members
from seriatim.ports.message_log import Allocation
from tests.contract.store_data import (
    ANN,
    BOB,
    CHAT,
    CID,
    DAN,
    LATER_MS,
    NOW_MS,
    T_S,
    Rows,
    allocate,
    counter,
    direct,
    error_of,
    eventually,
    found_group,
    group,
    rows_of,
    version_and_count,
)
from tests.contract.store_engines import StoreEngine

# --- creation ---------------------------------------------------------------------------------------------------------


async def a_group_appears_whole(store: StoreEngine) -> None:
    """Chat, counter at 0 and memberships (creator as owner) appear together."""
    creation = asyncio.create_task(store.catalog().create_group(group(), [BOB], now_ms=NOW_MS, timeout_s=T_S))
    visible = False
    while not visible:
        finished = creation.done()
        visible = await store.catalog().chat(CHAT, timeout_s=T_S) is not None
        assert visible or not finished
    seen = await rows_of(store)
    await creation
    assert seen == await rows_of(store)
    assert seen.chat == msgspec.structs.replace(group(), member_count=2)
    assert {user: row and (row.role, row.added_by, row.joined_at) for user, row in seen.members.items()} == {
        ANN: (Role.OWNER, ANN, iso(NOW_MS)),
        BOB: (Role.MEMBER, ANN, iso(NOW_MS)),
        CID: None,
        DAN: None,
    }
    assert await allocate(store.log()) == Allocation(
        first=1, last=1, members_version=(await store.roster().members(CHAT, timeout_s=T_S)).version
    )


async def a_taken_chat_id_is_refused_and_its_counter_goes_on(store: StoreEngine) -> None:
    """A taken id raises `AlreadyExists`. A refused change raises the reason and leaves every row as it
    was.
    """
    await found_group(store)
    await allocate(store.log(), 3)
    before = await rows_of(store)
    with pytest.raises(AlreadyExists):
        await store.catalog().create_group(group(created_by=DAN), [CID], now_ms=LATER_MS, timeout_s=T_S)
    with pytest.raises(AlreadyExists):
        await store.catalog().create_direct(direct(CHAT, DAN), CID, now_ms=LATER_MS, timeout_s=T_S)
    assert await rows_of(store) == before
    assert await store.catalog().create_direct(direct("chat_2", DAN), CID, now_ms=LATER_MS, timeout_s=T_S) == "chat_2"


async def a_chat_id_stays_taken_when_its_counter_is_lost(store: StoreEngine) -> None:
    """A taken id raises `AlreadyExists`."""
    await found_group(store)
    await store.lose_counter(CHAT)
    before = await rows_of(store)
    with pytest.raises(AlreadyExists):
        await found_group(store)
    assert await rows_of(store) == before


async def of_concurrent_creations_of_one_id_one_wins(store: StoreEngine) -> None:
    """A taken id raises `AlreadyExists`."""
    founders = [ANN, BOB, CID, DAN]
    outcomes = await asyncio.gather(
        *(store.catalog().create_group(group(created_by=each), [], now_ms=NOW_MS, timeout_s=T_S) for each in founders),
        return_exceptions=True,
    )
    winner = founders[outcomes.index(None)]
    assert [type(each) for each in outcomes if each is not None] == [AlreadyExists] * 3
    assert (await store.roster().members(CHAT, timeout_s=T_S)).user_ids == (winner,)


async def a_group_is_created_up_to_the_cap_and_not_beyond(store: StoreEngine) -> None:
    """A refused change raises the reason and leaves every row as it was."""
    others = [f"user_{number:03}" for number in range(limits.GROUP_MEMBERS_MAX)]
    with pytest.raises(ChatFull):
        await found_group(store, members=others)
    assert await rows_of(store) == Rows(None, dict.fromkeys((ANN, BOB, CID, DAN)), None)
    await found_group(store, members=others[1:])
    members = await store.roster().members(CHAT, timeout_s=T_S)
    assert sorted(members.user_ids) == sorted([ANN, *others[1:]])


async def a_pair_has_one_chat_for_ever(store: StoreEngine) -> None:
    """One chat per unordered pair, for ever. Returns the id of the pair's chat: this one, or the first."""
    ids = await asyncio.gather(
        *(
            store.catalog().create_direct(direct(f"chat_{number}", one), other, now_ms=NOW_MS, timeout_s=T_S)
            for number, (one, other) in enumerate([(ANN, BOB), (BOB, ANN)] * 5)
        )
    )
    assert len(dict.fromkeys(ids)) == 1
    await store.reopen()
    again = await store.catalog().create_direct(direct("chat_x", BOB), ANN, now_ms=LATER_MS, timeout_s=T_S)
    assert again == ids[0]
    for number in range(10):
        found = await store.catalog().chat(f"chat_{number}", timeout_s=T_S)
        assert (found is not None) == (f"chat_{number}" == ids[0])
    assert await store.catalog().chat("chat_x", timeout_s=T_S) is None
    other_pair = await store.catalog().create_direct(direct("chat_y", ANN), CID, now_ms=LATER_MS, timeout_s=T_S)
    assert other_pair == "chat_y"


async def a_direct_chat_has_two_equals_and_never_changes(store: StoreEngine) -> None:
    """Raises `AlreadyAMember`, `ChatFull`, `InvalidOperation` (direct), `Forbidden`, `NotAMember` (caller).

    Raises `InvalidOperation` (direct), `Forbidden`, `NotAMember` (caller).
    """
    await store.catalog().create_direct(direct(CHAT, ANN), BOB, now_ms=NOW_MS, timeout_s=T_S)
    before = await rows_of(store)
    assert before.chat == msgspec.structs.replace(direct(CHAT, ANN), member_count=2)
    assert {user: row.role for user, row in before.members.items() if row} == {ANN: Role.MEMBER, BOB: Role.MEMBER}
    handle = store.catalog()
    for change in (
        lambda: handle.add_member(CHAT, CID, Role.MEMBER, by=ANN, now_ms=LATER_MS, timeout_s=T_S),
        lambda: handle.remove_member(CHAT, BOB, by=ANN, now_ms=LATER_MS, timeout_s=T_S),
        lambda: handle.leave(CHAT, ANN, now_ms=LATER_MS, timeout_s=T_S),
        lambda: handle.change_role(CHAT, BOB, Role.ADMIN, by=ANN, now_ms=LATER_MS, timeout_s=T_S),
        lambda: handle.rename(CHAT, "ours", by=ANN, now_ms=LATER_MS, timeout_s=T_S),
        lambda: handle.create_direct(direct("chat_2", ANN), ANN, now_ms=LATER_MS, timeout_s=T_S),
    ):
        assert await error_of(change) is InvalidOperation
    assert await rows_of(store) == before


# --- names and quiet --------------------------------------------------------------------------------------------------


async def owner_and_admins_name_a_group(store: StoreEngine) -> None:
    """Owner and admins name a group."""
    await found_group(store)
    handle = store.catalog()
    await handle.change_role(CHAT, BOB, Role.ADMIN, by=ANN, now_ms=NOW_MS, timeout_s=T_S)
    before = await rows_of(store)
    assert before.chat is not None
    for by, name, now_ms in ((ANN, "first", LATER_MS), (BOB, None, LATER_MS + 1), (BOB, "last", LATER_MS + 2)):
        renamed = msgspec.structs.replace(before.chat, name=name, updated_at=iso(now_ms))
        assert await handle.rename(CHAT, name, by=by, now_ms=now_ms, timeout_s=T_S) == renamed
        assert await rows_of(store) == msgspec.structs.replace(before, chat=renamed), "members and version stay"
    await store.reopen()
    found = await store.catalog().chat(CHAT, timeout_s=T_S)
    assert found is not None
    assert (found.name, found.member_count) == ("last", 3)


async def others_do_not_name_a_group(store: StoreEngine) -> None:
    """Raises `InvalidOperation` (direct), `Forbidden`, `NotAMember` (caller)."""
    await found_group(store)
    before, handle = await rows_of(store), store.catalog()
    for by, chat_id, error in ((BOB, CHAT, Forbidden), (DAN, CHAT, NotAMember), (ANN, "chat_none", NotAMember)):
        rename = partial(handle.rename, chat_id, "mine", by=by, now_ms=LATER_MS, timeout_s=T_S)
        assert await error_of(rename) is error
        assert await rows_of(store) == before


async def a_name_and_a_change_of_members_at_once_are_both_kept(store: StoreEngine) -> None:
    """A refused change raises the reason and leaves every row as it was."""
    await found_group(store)
    for number in range(8):
        await asyncio.gather(
            store.catalog().rename(CHAT, f"name {number}", by=ANN, now_ms=LATER_MS, timeout_s=T_S),
            store.catalog().add_member(CHAT, f"user_{number}", Role.MEMBER, by=ANN, now_ms=LATER_MS, timeout_s=T_S),
            store.catalog().mute(CHAT, BOB, iso(LATER_MS + number), timeout_s=T_S),
        )
    chat, bob = (await rows_of(store)).chat, await store.catalog().membership(CHAT, BOB, timeout_s=T_S)
    assert chat is not None
    assert bob is not None
    assert (chat.name, chat.member_count, bob.muted_until) == ("name 7", 11, iso(LATER_MS + 7))


async def a_member_is_quiet_until_the_noted_time(store: StoreEngine) -> None:
    """Notes until when a member wants quiet, None for not at all."""
    await found_group(store)
    handle = store.catalog()
    plain = await handle.membership(CHAT, BOB, timeout_s=T_S)
    assert plain is not None
    assert plain.muted_until is None
    for until in (iso(LATER_MS), None, "9999-12-31T23:59:59.999Z"):
        expected = msgspec.structs.replace(plain, muted_until=until)
        assert await handle.mute(CHAT, BOB, until, timeout_s=T_S) == expected
        assert await handle.membership(CHAT, BOB, timeout_s=T_S) == expected
    muted = msgspec.structs.replace(plain, muted_until="9999-12-31T23:59:59.999Z")
    await store.reopen()
    assert await store.catalog().membership(CHAT, BOB, timeout_s=T_S) == muted
    changed = await store.catalog().change_role(CHAT, BOB, Role.ADMIN, by=ANN, now_ms=LATER_MS, timeout_s=T_S)
    assert changed.membership == msgspec.structs.replace(muted, role=Role.ADMIN), "a new role does not end the quiet"


async def quiet_is_not_a_change_of_membership(store: StoreEngine) -> None:
    """Raises `NotAMember`. Not a membership change."""
    await found_group(store)
    handle = store.catalog()
    before = await rows_of(store)
    for chat_id, user_id in ((CHAT, DAN), ("chat_none", ANN)):
        assert await error_of(partial(handle.mute, chat_id, user_id, None, timeout_s=T_S)) is NotAMember
        assert await rows_of(store) == before
    await handle.mute(CHAT, BOB, iso(LATER_MS), timeout_s=T_S)
    after = await rows_of(store)
    assert (after.chat, after.counter) == (before.chat, before.counter)
    await store.lose_counter(CHAT)
    assert (await handle.mute(CHAT, BOB, None, timeout_s=T_S)).muted_until is None, "it needs no counter"
    await handle.create_direct(direct("chat_2", ANN), BOB, now_ms=NOW_MS, timeout_s=T_S)
    assert (await handle.mute("chat_2", BOB, iso(LATER_MS), timeout_s=T_S)).muted_until == iso(LATER_MS)


# --- reads ------------------------------------------------------------------------------------------------------------


async def members_are_as_of_now_and_nobody_is_in_an_unknown_chat(store: StoreEngine) -> None:
    """Version, then all members, each as of now. An unknown chat has version 0 and no members."""
    assert await store.roster().members(CHAT, timeout_s=T_S) == Members(0, ())
    await found_group(store)
    for handle in (store.roster(), store.catalog()):
        members = await handle.members(CHAT, timeout_s=T_S)
        assert sorted(members.user_ids) == [ANN, BOB, CID]
        row = await counter(store)
        assert row is not None
        assert members.version == row.members_version


async def a_list_of_members_is_never_older_than_its_version(store: StoreEngine) -> None:
    """`version` was read before the list: the list may be newer, never older."""
    await found_group(store, members=[])
    version, _ = await version_and_count(store)
    newcomers = [f"user_{number:03}" for number in range(40)]

    async def add_all() -> None:
        for user_id in newcomers:
            await store.catalog().add_member(CHAT, user_id, Role.MEMBER, by=ANN, now_ms=NOW_MS, timeout_s=T_S)

    adding, seen = asyncio.create_task(add_all()), list[Members]()
    while not adding.done():
        seen.append(await store.roster().members(CHAT, timeout_s=T_S))
    await adding
    for members in seen:
        known = newcomers[: members.version - version]
        assert [each for each in known if each not in members.user_ids] == []


async def a_roster_cannot_write(store: StoreEngine) -> None:
    """All that fanout may read of the authority; a handle of this type cannot write."""
    roster = store.roster()
    writes = ("create_group", "create_direct", "add_member", "remove_member", "leave", "change_role", "rename", "mute")
    assert [name for name in writes if hasattr(roster, name)] == []
    assert [name for name in writes if not hasattr(store.catalog(), name)] == []


async def a_membership_is_as_of_now(store: StoreEngine) -> None:
    """As of now."""
    await found_group(store)
    handle = store.catalog()
    assert await handle.membership(CHAT, DAN, timeout_s=T_S) is None
    assert await handle.membership("chat_none", BOB, timeout_s=T_S) is None
    present = await handle.membership(CHAT, BOB, timeout_s=T_S)
    assert present is not None
    assert present.role is Role.MEMBER
    await store.catalog().leave(CHAT, BOB, now_ms=LATER_MS, timeout_s=T_S)
    assert await handle.membership(CHAT, BOB, timeout_s=T_S) is None


async def all_memberships_of_a_chat_are_as_of_now(store: StoreEngine) -> None:
    """All members of a chat by user id, as of now."""
    handle = store.catalog()
    assert list(await handle.memberships(CHAT, timeout_s=T_S)) == []
    await found_group(store, members=("user_b", CID, "user_aaaa", BOB))
    await found_group(store, "chat_11", members=(DAN,))
    await handle.change_role(CHAT, CID, Role.ADMIN, by=ANN, now_ms=LATER_MS, timeout_s=T_S)
    await handle.mute(CHAT, CID, iso(LATER_MS), timeout_s=T_S)
    await handle.leave(CHAT, BOB, now_ms=LATER_MS, timeout_s=T_S)
    found = await store.catalog().memberships(CHAT, timeout_s=T_S)
    assert [row.user_id for row in found] == sorted([ANN, "user_b", CID, "user_aaaa"])
    assert list(found) == [await handle.membership(CHAT, row.user_id, timeout_s=T_S) for row in found]


async def the_memberships_of_a_user_are_found_in_time(store: StoreEngine) -> None:
    """The user's memberships by chat id. May lag behind."""
    handle = store.catalog()
    for chat_id in ("chat_3", "chat_10", "chat_1"):
        await found_group(store, chat_id)
    await handle.create_direct(direct("chat_2", DAN), BOB, now_ms=NOW_MS, timeout_s=T_S)
    await handle.mute("chat_2", BOB, iso(LATER_MS), timeout_s=T_S)
    await handle.change_role("chat_3", BOB, Role.ADMIN, by=ANN, now_ms=LATER_MS, timeout_s=T_S)
    await handle.leave("chat_1", BOB, now_ms=LATER_MS, timeout_s=T_S)

    async def found() -> list[Membership]:
        return list(await handle.memberships_of(BOB, timeout_s=T_S))

    rows = [await handle.membership(chat_id, BOB, timeout_s=T_S) for chat_id in ("chat_10", "chat_2", "chat_3")]
    await eventually(found, [row for row in rows if row is not None])
    assert [row and (row.chat_id, row.role, row.muted_until) for row in rows] == [
        ("chat_10", Role.MEMBER, None),
        ("chat_2", Role.MEMBER, iso(LATER_MS)),
        ("chat_3", Role.ADMIN, None),
    ]
    assert list(await handle.memberships_of("user_none", timeout_s=T_S)) == []


async def the_chats_of_a_user_are_found_in_time(store: StoreEngine) -> None:
    """The user's chats by id. May lag behind the memberships."""
    handle = store.catalog()
    for chat_id in ("chat_3", "chat_1"):
        await found_group(store, chat_id)
    await handle.create_direct(direct("chat_2", DAN), BOB, now_ms=NOW_MS, timeout_s=T_S)

    async def found(user_id: str) -> list[str]:
        return list(await handle.chats_of(user_id, timeout_s=T_S))

    await eventually(lambda: found(BOB), ["chat_1", "chat_2", "chat_3"])
    await eventually(lambda: found(DAN), ["chat_2"])
    await handle.leave("chat_1", BOB, now_ms=LATER_MS, timeout_s=T_S)
    await handle.add_member("chat_3", DAN, Role.MEMBER, by=ANN, now_ms=LATER_MS, timeout_s=T_S)
    await eventually(lambda: found(BOB), ["chat_2", "chat_3"])
    await eventually(lambda: found(DAN), ["chat_2", "chat_3"])


async def a_call_of_the_catalog_without_time_left_ends_at_once(store: StoreEngine) -> None:
    """Every call that leaves the process takes `timeout_s` and promises: it answers within that time or raises
    `OutcomeUnknown`; `Throttled` and `Conflict` mean that nothing was applied.
    """
    await found_group(store)
    handle = store.catalog()
    for call in (
        lambda: handle.create_group(group("chat_2"), [], now_ms=LATER_MS, timeout_s=0),
        lambda: handle.create_direct(direct("chat_2", ANN), BOB, now_ms=LATER_MS, timeout_s=0),
        lambda: handle.add_member(CHAT, DAN, Role.MEMBER, by=ANN, now_ms=LATER_MS, timeout_s=0),
        lambda: handle.remove_member(CHAT, BOB, by=ANN, now_ms=LATER_MS, timeout_s=0),
        lambda: handle.leave(CHAT, BOB, now_ms=LATER_MS, timeout_s=0),
        lambda: handle.change_role(CHAT, BOB, Role.ADMIN, by=ANN, now_ms=LATER_MS, timeout_s=0),
        lambda: handle.rename(CHAT, None, by=ANN, now_ms=LATER_MS, timeout_s=0),
        lambda: handle.mute(CHAT, BOB, None, timeout_s=0),
        lambda: handle.chat(CHAT, timeout_s=0),
        lambda: handle.membership(CHAT, BOB, timeout_s=0),
        lambda: handle.memberships(CHAT, timeout_s=0),
        lambda: handle.memberships_of(BOB, timeout_s=0),
        lambda: handle.chats_of(BOB, timeout_s=0),
        lambda: handle.members(CHAT, timeout_s=0),
    ):
        assert await error_of(call) is OutcomeUnknown

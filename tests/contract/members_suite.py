"""What every catalog promises about changes of membership: whole or refused, under the caller's role, each counted."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from seriatim.domain import limits
from seriatim.domain.chat import Membership, Role
from seriatim.domain.errors import (
    AlreadyAMember,
    CounterMissing,
    Forbidden,
    InvalidOperation,
    NotAMember,
    NotFound,
    OutcomeUnknown,
    Refused,
)
from seriatim.domain.times import iso
from seriatim.ports.catalog import Change
from seriatim.ports.message_log import Cancelled, SenderGone
from tests.contract.store_data import (
    ANN,
    BOB,
    CHAT,
    CID,
    DAN,
    LATER_MS,
    NOW_MS,
    T_S,
    all_slots,
    entry,
    error_of,
    eventually,
    found_group,
    message,
    persist,
    rows_of,
    version_and_count,
)
from tests.contract.store_engines import StoreEngine


async def each_change_raises_the_version_with_it(store: StoreEngine) -> None:
    """Each membership change raises the chat's `members_version` with it.

    A membership as it is now, or as it was until it ended, and the number of members after the change.
    """
    await found_group(store)
    handle, version = store.catalog(), (await store.roster().members(CHAT, timeout_s=T_S)).version
    assert version > 0
    added = await handle.add_member(CHAT, DAN, Role.MEMBER, by=ANN, now_ms=LATER_MS, timeout_s=T_S)
    newcomer = Membership(chat_id=CHAT, user_id=DAN, role=Role.MEMBER, joined_at=iso(LATER_MS), added_by=ANN)
    assert added == Change(newcomer, 4)
    assert await handle.membership(CHAT, DAN, timeout_s=T_S) == newcomer
    assert await version_and_count(store) == (version + 1, 4)
    changed = await handle.change_role(CHAT, DAN, Role.ADMIN, by=ANN, now_ms=LATER_MS, timeout_s=T_S)
    promoted = msgspec.structs.replace(newcomer, role=Role.ADMIN)
    assert changed == Change(promoted, 4)
    assert await handle.membership(CHAT, DAN, timeout_s=T_S) == promoted
    assert await version_and_count(store) == (version + 2, 4)
    ended = [await handle.membership(CHAT, each, timeout_s=T_S) for each in (BOB, CID)]
    removed = await handle.remove_member(CHAT, BOB, by=DAN, now_ms=LATER_MS, timeout_s=T_S)
    assert (removed.membership, removed.member_count) == (ended[0], 3)
    assert await version_and_count(store) == (version + 3, 3)
    left = await handle.leave(CHAT, CID, now_ms=LATER_MS, timeout_s=T_S)
    assert (left.membership, left.member_count) == (ended[1], 2)
    assert await version_and_count(store) == (version + 4, 2)
    await store.reopen()
    members = await store.roster().members(CHAT, timeout_s=T_S)
    assert (members.version, sorted(members.user_ids)) == (version + 4, [ANN, DAN])


async def refused_changes_leave_every_row_as_it_was(store: StoreEngine) -> None:
    """A refused change raises the reason and leaves every row as it was.

    Raises `AlreadyAMember`, `ChatFull`, `InvalidOperation` (direct), `Forbidden`, `NotAMember` (caller).

    The owner cannot be removed. The owner cannot leave.

    The owner makes members admins and back; never the owner's own role.
    """
    await found_group(store)
    handle = store.catalog()
    await handle.change_role(CHAT, CID, Role.ADMIN, by=ANN, now_ms=NOW_MS, timeout_s=T_S)
    before = await rows_of(store)

    def add(user_id: str, by: str, role: Role = Role.MEMBER, chat_id: str = CHAT) -> Awaitable[object]:
        return handle.add_member(chat_id, user_id, role, by=by, now_ms=LATER_MS, timeout_s=T_S)

    def remove(user_id: str, by: str) -> Awaitable[object]:
        return handle.remove_member(CHAT, user_id, by=by, now_ms=LATER_MS, timeout_s=T_S)

    def leave(user_id: str) -> Awaitable[object]:
        return handle.leave(CHAT, user_id, now_ms=LATER_MS, timeout_s=T_S)

    def change(user_id: str, by: str, role: Role) -> Awaitable[object]:
        return handle.change_role(CHAT, user_id, role, by=by, now_ms=LATER_MS, timeout_s=T_S)

    refusals: list[tuple[type[Refused], Callable[[], Awaitable[object]]]] = [
        (AlreadyAMember, lambda: add(BOB, by=ANN)),
        (AlreadyAMember, lambda: add(ANN, by=CID)),
        (InvalidOperation, lambda: add(DAN, by=ANN, role=Role.OWNER)),
        (Forbidden, lambda: add(DAN, by=BOB)),
        (Forbidden, lambda: add(DAN, by=CID, role=Role.ADMIN)),
        (NotAMember, lambda: add(DAN, by=DAN)),
        (NotAMember, lambda: add(DAN, by=ANN, chat_id="chat_none")),
        (InvalidOperation, lambda: remove(ANN, by=CID)),
        (InvalidOperation, lambda: remove(ANN, by=ANN)),
        (Forbidden, lambda: remove(CID, by=BOB)),
        (Forbidden, lambda: remove(DAN, by=BOB)),
        (NotFound, lambda: remove(DAN, by=ANN)),
        (NotAMember, lambda: remove(BOB, by=DAN)),
        (InvalidOperation, lambda: leave(ANN)),
        (NotAMember, lambda: leave(DAN)),
        (InvalidOperation, lambda: change(ANN, by=ANN, role=Role.MEMBER)),
        (InvalidOperation, lambda: change(BOB, by=ANN, role=Role.OWNER)),
        (Forbidden, lambda: change(BOB, by=CID, role=Role.ADMIN)),
        (NotFound, lambda: change(DAN, by=ANN, role=Role.ADMIN)),
        (NotAMember, lambda: change(BOB, by=DAN, role=Role.ADMIN)),
    ]
    for number, (error, attempt) in enumerate(refusals):
        assert await error_of(attempt) is error, f"refusal {number}"
        assert await rows_of(store) == before, f"refusal {number}"


async def an_admin_does_not_remove_an_admin(store: StoreEngine) -> None:
    """A refused change raises the reason and leaves every row as it was."""
    await found_group(store)
    handle = store.catalog()
    for user_id in (BOB, CID):
        await handle.change_role(CHAT, user_id, Role.ADMIN, by=ANN, now_ms=NOW_MS, timeout_s=T_S)
    with pytest.raises(Forbidden):
        await handle.remove_member(CHAT, BOB, by=CID, now_ms=LATER_MS, timeout_s=T_S)
    assert await store.log().role(CHAT, BOB, timeout_s=T_S) is Role.ADMIN
    await handle.change_role(CHAT, BOB, Role.MEMBER, by=ANN, now_ms=LATER_MS, timeout_s=T_S)
    await handle.remove_member(CHAT, BOB, by=CID, now_ms=LATER_MS, timeout_s=T_S)
    assert await store.log().role(CHAT, BOB, timeout_s=T_S) is None


async def concurrent_additions_stop_at_the_cap(store: StoreEngine) -> None:
    """Raises `AlreadyAMember`, `ChatFull`, `InvalidOperation` (direct), `Forbidden`, `NotAMember` (caller)."""
    await found_group(store, members=[f"user_{number:03}" for number in range(limits.GROUP_MEMBERS_MAX - 6)])
    version, count = await version_and_count(store)
    assert count == limits.GROUP_MEMBERS_MAX - 5
    outcomes = await asyncio.gather(
        *(
            store.catalog().add_member(CHAT, f"new_{number}", Role.MEMBER, by=ANN, now_ms=LATER_MS, timeout_s=T_S)
            for number in range(10)
        ),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in outcomes) == ["Change"] * 5 + ["ChatFull"] * 5
    assert await version_and_count(store) == (version + 5, limits.GROUP_MEMBERS_MAX)
    assert len((await store.roster().members(CHAT, timeout_s=T_S)).user_ids) == limits.GROUP_MEMBERS_MAX


async def a_removed_user_sends_nothing_more(store: StoreEngine) -> None:
    """Once it returns no message of the removed user is accepted. As `remove_member`, by oneself."""
    await found_group(store)
    handle = store.catalog()
    departures: dict[str, Callable[[], Awaitable[Change]]] = {
        BOB: lambda: handle.remove_member(CHAT, BOB, by=ANN, now_ms=LATER_MS, timeout_s=T_S),
        CID: lambda: handle.leave(CHAT, CID, now_ms=LATER_MS, timeout_s=T_S),
    }
    for number, (user_id, departure) in enumerate(departures.items(), start=1):
        early = message(number, key=f"key-early-{number}", sender=user_id)
        await asyncio.gather(departure(), persist(store.log(), entry(early)))
        before = await all_slots(store)
        late = message(number + 10, key=f"key-late-{number}", sender=user_id)
        assert await persist(store.log(), entry(late)) == Cancelled((SenderGone(user_id),))
        assert await all_slots(store) == before


async def without_a_counter_row_no_membership_changes(store: StoreEngine) -> None:
    """Each membership change raises the chat's `members_version` with it."""
    await found_group(store)
    await store.lose_counter(CHAT)
    before, handle = await rows_of(store), store.catalog()
    for change in (
        lambda: handle.add_member(CHAT, DAN, Role.MEMBER, by=ANN, now_ms=LATER_MS, timeout_s=T_S),
        lambda: handle.remove_member(CHAT, BOB, by=ANN, now_ms=LATER_MS, timeout_s=T_S),
        lambda: handle.leave(CHAT, BOB, now_ms=LATER_MS, timeout_s=T_S),
        lambda: handle.change_role(CHAT, BOB, Role.ADMIN, by=ANN, now_ms=LATER_MS, timeout_s=T_S),
    ):
        assert await error_of(change) is CounterMissing
    assert await rows_of(store) == before


async def the_chats_that_users_joined_lately_are_found_in_time(store: StoreEngine) -> None:
    """The chats that each user joined at or after the time given for them, by id, and is in.

    Users without any are left out. May lag behind the memberships by seconds.
    """
    catalog, handle = store.catalog(), store.user_chats()
    for chat_id in ("chat_1", "chat_2"):
        await found_group(store, chat_id)
    for chat_id in ("chat_2", "chat_1"):
        await catalog.add_member(chat_id, DAN, Role.MEMBER, by=ANN, now_ms=LATER_MS, timeout_s=T_S)
    await catalog.leave("chat_2", BOB, now_ms=LATER_MS, timeout_s=T_S)
    first, later, never = iso(NOW_MS), iso(LATER_MS), iso(LATER_MS + 1)

    async def found(since: dict[str, str]) -> dict[str, list[str]]:
        joined = await handle.joined(since, timeout_s=T_S)
        return {user_id: list(chat_ids) for user_id, chat_ids in joined.items()}

    both = ["chat_1", "chat_2"]
    await eventually(lambda: found({ANN: first, BOB: first, DAN: later}), {ANN: both, BOB: ["chat_1"], DAN: both})
    assert await found({ANN: later, BOB: later, DAN: never, "user_none": first}) == {}
    assert await found({}) == {}
    many = {f"user_{number}": first for number in range(40)}
    assert await found({**many, CID: first}) == {CID: both}
    assert await error_of(lambda: handle.joined({ANN: first}, timeout_s=0)) is OutcomeUnknown


async def who_lists_chats_of_users_cannot_write(store: StoreEngine) -> None:
    """All that the durability plane may read of the authority by user; a handle of this type cannot write."""
    methods = [name for name in dir(store.user_chats()) if not name.startswith("_")]
    assert methods == ["joined"]

"""Who may do what in a chat: the permission matrix of docs/spec/rest.md#permissions, cell by cell."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.domain.chat import (
    ChatType,
    Role,
    check_group,
    check_may_add,
    check_may_change_role,
    check_may_leave,
    check_may_remove,
    check_may_rename,
    pair_key,
)
from seriatim.domain.errors import Forbidden, InvalidOperation, NotFound, Refused

OWNER, ADMIN, MEMBER = Role.OWNER, Role.ADMIN, Role.MEMBER
Answer = type[Refused] | None


def _answer(check: Callable[[], None]) -> Answer:
    try:
        check()
    except Refused as refusal:
        return type(refusal)
    return None


@pytest.mark.parametrize(
    ("caller", "role", "answer"),
    [
        (OWNER, MEMBER, None),
        (ADMIN, MEMBER, None),
        (MEMBER, MEMBER, Forbidden),
        (OWNER, ADMIN, None),
        (ADMIN, ADMIN, Forbidden),
        (MEMBER, ADMIN, Forbidden),
        (OWNER, OWNER, InvalidOperation),
    ],
)
def test_who_may_add_whom(caller: Role, role: Role, answer: Answer) -> None:
    assert _answer(lambda: check_may_add(caller, role)) is answer


@pytest.mark.parametrize(
    ("caller", "target", "answer"),
    [
        (OWNER, MEMBER, None),
        (OWNER, ADMIN, None),
        (ADMIN, MEMBER, None),
        (ADMIN, ADMIN, Forbidden),
        (ADMIN, OWNER, InvalidOperation),
        (MEMBER, MEMBER, Forbidden),
        (MEMBER, OWNER, Forbidden),
        (OWNER, None, NotFound),
        (ADMIN, None, NotFound),
        (MEMBER, None, Forbidden),  # who may not remove does not learn who is a member
    ],
)
def test_who_may_remove_whom(caller: Role, target: Role | None, answer: Answer) -> None:
    assert _answer(lambda: check_may_remove("user_1", caller, "user_2", target)) is answer


@pytest.mark.parametrize("caller", Role)
def test_no_member_removes_themselves_whatever_their_role(caller: Role) -> None:
    assert _answer(lambda: check_may_remove("user_1", caller, "user_1", caller)) is InvalidOperation


@pytest.mark.parametrize(("role", "answer"), [(OWNER, InvalidOperation), (ADMIN, None), (MEMBER, None)])
def test_everyone_but_the_owner_may_leave(role: Role, answer: Answer) -> None:
    assert _answer(lambda: check_may_leave(role)) is answer


@pytest.mark.parametrize(
    ("caller", "target", "role", "answer"),
    [
        (OWNER, MEMBER, ADMIN, None),
        (OWNER, ADMIN, MEMBER, None),
        (OWNER, MEMBER, OWNER, InvalidOperation),
        (OWNER, None, ADMIN, NotFound),
        (ADMIN, MEMBER, ADMIN, Forbidden),
        (ADMIN, None, ADMIN, Forbidden),
        (MEMBER, MEMBER, ADMIN, Forbidden),
    ],
)
def test_only_the_owner_changes_roles(caller: Role, target: Role | None, role: Role, answer: Answer) -> None:
    assert _answer(lambda: check_may_change_role("user_1", caller, "user_2", target, role)) is answer


@pytest.mark.parametrize("caller", Role)
def test_no_member_changes_their_own_role(caller: Role) -> None:
    assert _answer(lambda: check_may_change_role("user_1", caller, "user_1", caller, MEMBER)) is InvalidOperation


@pytest.mark.parametrize(("role", "answer"), [(OWNER, None), (ADMIN, None), (MEMBER, Forbidden)])
def test_owner_and_admins_name_a_group(role: Role, answer: Answer) -> None:
    assert _answer(lambda: check_may_rename(role)) is answer


def test_a_forbidden_caller_learns_which_role_it_takes() -> None:
    with pytest.raises(Forbidden) as caught:
        check_may_add(MEMBER, ADMIN)
    assert caught.value.details == {"required_role": "owner", "your_role": "member"}


def test_only_groups_change() -> None:
    check_group(ChatType.GROUP)
    with pytest.raises(InvalidOperation):
        check_group(ChatType.DIRECT)


USERS = st.text("abcAB019_-", min_size=1)


@given(USERS, USERS, USERS, USERS)
def test_a_pair_has_one_name_in_either_order_and_shares_it_with_no_other(a: str, b: str, c: str, d: str) -> None:
    if a == b or c == d:
        return
    assert pair_key(a, b) == pair_key(b, a)
    assert (pair_key(a, b) == pair_key(c, d)) == (sorted([a, b]) == sorted([c, d]))


def test_a_pair_takes_two_different_people() -> None:
    with pytest.raises(InvalidOperation):
        pair_key("user_1", "user_1")

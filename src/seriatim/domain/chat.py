"""Chats, roles and permissions. The conditions of the catalog's transactions repeat these rules against races."""

from enum import StrEnum

import msgspec

from seriatim.domain.errors import Forbidden, InvalidOperation, NotFound


class ChatType(StrEnum):
    DIRECT = "direct"
    GROUP = "group"


class Role(StrEnum):
    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: str
    chat_type: ChatType
    name: str | None
    created_by: str
    created_at: str
    updated_at: str
    member_count: int


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: str
    user_id: str
    role: Role
    joined_at: str
    added_by: str
    muted_until: str | None = None


def check_group(chat_type: ChatType) -> None:
    """Direct chats keep exactly their two members, and have no owner and no name."""
    if chat_type is not ChatType.GROUP:
        raise InvalidOperation("a direct chat keeps its two members and has no name or roles to change")


def check_may_add(caller: Role, role: Role) -> None:
    if role is Role.OWNER:
        raise InvalidOperation("a group has one owner for life")
    _require(caller, Role.OWNER if role is Role.ADMIN else Role.ADMIN)


def check_may_remove(caller_id: str, caller: Role, target_id: str, target: Role | None) -> None:
    if caller_id == target_id:
        raise InvalidOperation("leave the chat instead of removing yourself")
    _require(caller, Role.ADMIN)
    if target is None:
        raise NotFound("that user is not a member of this chat")
    if target is Role.OWNER:
        raise InvalidOperation("the owner cannot be removed")
    if target is Role.ADMIN:
        _require(caller, Role.OWNER)


def check_may_leave(role: Role) -> None:
    if role is Role.OWNER:
        raise InvalidOperation("the owner cannot leave")


def check_may_change_role(caller_id: str, caller: Role, target_id: str, target: Role | None, role: Role) -> None:
    if caller_id == target_id:
        raise InvalidOperation("you cannot change your own role")
    _require(caller, Role.OWNER)
    if role is Role.OWNER:
        raise InvalidOperation("a group has one owner for life")
    if target is None:
        raise NotFound("that user is not a member of this chat")


def check_may_rename(caller: Role) -> None:
    _require(caller, Role.ADMIN)


def pair_key(one: str, other: str) -> str:
    """Names an unordered pair of users."""
    if one == other:
        raise InvalidOperation("a direct chat needs two different people")
    return f"{min(one, other)}#{max(one, other)}"


_RANK = {Role.MEMBER: 0, Role.ADMIN: 1, Role.OWNER: 2}


def _require(caller: Role, needed: Role) -> None:
    if _RANK[caller] < _RANK[needed]:
        raise Forbidden(
            f"this needs the role {needed}", details={"required_role": needed.value, "your_role": caller.value}
        )

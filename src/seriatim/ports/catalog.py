"""The authority for chats and memberships. Each membership change raises the chat's `members_version` with it."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from seriatim.domain.chat import Chat, Membership, Role


class Members(msgspec.Struct, frozen=True):
    """Who is in a chat. `version` was read before the list: the list may be newer, never older."""

    version: int
    user_ids: tuple[str, ...]


class Change(msgspec.Struct, frozen=True):
    """A membership as it is now, or as it was until it ended, and the number of members after the change."""

    membership: Membership
    member_count: int


class Roster(Protocol):
    """All that fanout may read of the authority; a handle of this type cannot write."""

    async def members(self, chat_id: str, *, timeout_s: float) -> Members:
        """Version, then all members, each as of now. An unknown chat has version 0 and no members."""
        ...


class UserChats(Protocol):
    """All that the durability plane may read of the authority by user; a handle of this type cannot write."""

    async def joined(self, since: Mapping[str, str], *, timeout_s: float) -> Mapping[str, Sequence[str]]:
        """The chats that each user joined at or after the time given for them, by id, and is in.

        Users without any are left out. May lag behind the memberships by seconds.
        """
        ...


class Catalog(Roster, Protocol):
    """A refused change raises the reason and leaves every row as it was."""

    async def create_group(self, chat: Chat, member_ids: Sequence[str], *, now_ms: int, timeout_s: float) -> None:
        """Chat, counter at 0 and memberships (creator as owner) appear together. A taken id raises `AlreadyExists`.

        Of more than 98 members the last may follow the others.
        """
        ...

    async def create_direct(self, chat: Chat, other_id: str, *, now_ms: int, timeout_s: float) -> str:
        """One chat per unordered pair, for ever. Returns the id of the pair's chat: this one, or the first."""
        ...

    async def add_member(
        self, chat_id: str, user_id: str, role: Role, *, by: str, now_ms: int, timeout_s: float
    ) -> Change:
        """Raises `AlreadyAMember`, `ChatFull`, `InvalidOperation` (direct), `Forbidden`, `NotAMember` (caller)."""
        ...

    async def remove_member(self, chat_id: str, user_id: str, *, by: str, now_ms: int, timeout_s: float) -> Change:
        """Once it returns no message of the removed user is accepted. The owner cannot be removed."""
        ...

    async def leave(self, chat_id: str, user_id: str, *, now_ms: int, timeout_s: float) -> Change:
        """As `remove_member`, by oneself. The owner cannot leave."""
        ...

    async def change_role(
        self, chat_id: str, user_id: str, role: Role, *, by: str, now_ms: int, timeout_s: float
    ) -> Change:
        """The owner makes members admins and back; never the owner's own role."""
        ...

    async def rename(self, chat_id: str, name: str | None, *, by: str, now_ms: int, timeout_s: float) -> Chat:
        """Owner and admins name a group. Raises `InvalidOperation` (direct), `Forbidden`, `NotAMember` (caller)."""
        ...

    async def mute(self, chat_id: str, user_id: str, until: str | None, *, timeout_s: float) -> Membership:
        """Notes until when a member wants quiet, None for not at all. Raises `NotAMember`. Not a membership change."""
        ...

    async def chat(self, chat_id: str, *, timeout_s: float) -> Chat | None: ...

    async def membership(self, chat_id: str, user_id: str, *, timeout_s: float) -> Membership | None:
        """As of now."""
        ...

    async def memberships(self, chat_id: str, *, timeout_s: float) -> Sequence[Membership]:
        """All members of a chat by user id, as of now."""
        ...

    async def memberships_of(self, user_id: str, *, timeout_s: float) -> Sequence[Membership]:
        """The user's memberships by chat id. May lag behind."""
        ...

    async def chats_of(self, user_id: str, *, timeout_s: float) -> Sequence[str]:
        """The user's chats by id. May lag behind the memberships."""
        ...

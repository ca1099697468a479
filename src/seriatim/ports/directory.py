"""The connections of users and the members of chats, for routing only. Everything here may be lost at any moment."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    connection_id: str
    user_id: str
    device_id: str
    session_id: str
    gateway_id: str
    connected_at: str


class CachedMembers(msgspec.Struct, frozen=True):
    """The members of a chat as read at `version` or later."""

    version: int
    user_ids: tuple[str, ...]


class Directory(Protocol):
    async def register(self, registrations: Sequence[Registration], *, timeout_s: float) -> None:
        """Writes or renews each registration whole; it is found for `REGISTRATION_TTL_S` from now on."""
        ...

    async def unregister(self, registration: Registration, *, timeout_s: float) -> None:
        """The connection is not found any more; the user's other connections are.

        A `register` of the same connection that is applied later, within `REGISTRATION_TTL_S`, changes nothing.
        """
        ...

    async def connections(self, user_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, Sequence[Registration]]:
        """Live connections of each user; users without any are left out. Expired ones are removed when found."""
        ...

    async def cached_members(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, CachedMembers]:
        """What was cached last of each chat, with its version; left out after `MEMBER_CACHE_TTL_S` or a loss."""
        ...

    async def cache_members(self, chat_id: str, members: CachedMembers, *, timeout_s: float) -> None:
        """Replaces list and version together, never one without the other. An empty list is not cached."""
        ...

    async def forget_members(self, chat_id: str, *, timeout_s: float) -> None:
        """The next `cached_members` finds nothing."""
        ...

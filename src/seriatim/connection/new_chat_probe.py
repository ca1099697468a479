"""Finds chats that connected users have joined and not synced: the push of a chat's first message may be lost.

The probe asks for the heads of synced chats only. Here each user's new chats are asked for every NEW_CHATS_EVERY_S, so
that the first message of a chat is seen within the bound of the probe (PROBE_INTERVAL_MAX_S).
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from seriatim.connection.observer import GatewayObserver
from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError
from seriatim.domain.times import iso
from seriatim.ports.clock import Clock
from seriatim.ports.durability import Durability


class NewChatWatcher(Protocol):
    """A connection of a user."""

    def unsynced(self, chat_ids: Sequence[str]) -> Sequence[str]:
        """Those of which this connection promises nothing."""
        ...

    def joined(self, chat_id: str, head: int) -> None:
        """The user joined this chat lately, and it is published up to here."""
        ...


class NewChatProbe:
    """Asks once per user, however many devices are connected, for NEW_CHATS_USERS_MAX of them in one call."""

    def __init__(self, durability: Durability, clock: Clock, observe: GatewayObserver) -> None:
        self._durability = durability
        self._clock = clock
        self._observe = observe
        self._users: dict[str, _WatchedUser] = {}

    def watch(self, user_id: str, member: NewChatWatcher) -> None:
        user = self._users.get(user_id)
        if user is None:
            user = self._users[user_id] = _WatchedUser(self._next_at())
        user.members[member] = self._clock.now_ms()

    def unwatch(self, user_id: str, member: NewChatWatcher) -> None:
        user = self._users.get(user_id)
        if user is not None and user.members.pop(member, None) is not None and not user.members:
            del self._users[user_id]

    @property
    def members(self) -> Sequence[NewChatWatcher]:
        return [member for user in self._users.values() for member in user.members]

    async def look(self) -> None:
        """Asks about the users whose time has come. After a failure the rest waits for the next look."""
        now = self._clock.monotonic()
        due = [user_id for user_id, user in self._users.items() if user.due_at <= now]
        for first in range(0, len(due), limits.NEW_CHATS_USERS_MAX):
            try:
                await self._ask(due[first : first + limits.NEW_CHATS_USERS_MAX])
            except SeriatimError as error:
                self._observe.fill_failed(error.code)
                return

    async def _ask(self, user_ids: Sequence[str]) -> None:
        users = {user_id: self._users[user_id] for user_id in user_ids if user_id in self._users}
        since = {user_id: _since(user) for user_id, user in users.items()}
        joined = await self._durability.joined(since, timeout_s=limits.PERSIST_DEADLINE_S)
        wanted = [
            (users[user_id], member, chat_id)
            for user_id, chat_ids in joined.items()
            for member in users[user_id].members
            for chat_id in member.unsynced(chat_ids)
        ]
        heads = await self._heads(list(dict.fromkeys([chat_id for _, _, chat_id in wanted])))
        for user, member, chat_id in wanted:
            if (head := heads.get(chat_id, 0)) > 0 and member in user.members:
                member.joined(chat_id, head)
        for user in users.values():
            user.due_at = self._next_at()

    async def _heads(self, chat_ids: Sequence[str]) -> Mapping[str, int]:
        heads: dict[str, int] = {}
        for first in range(0, len(chat_ids), limits.PROBE_CHATS_MAX):
            some = chat_ids[first : first + limits.PROBE_CHATS_MAX]
            heads.update(await self._durability.heads(some, timeout_s=limits.PERSIST_DEADLINE_S))
        return heads

    def _next_at(self) -> float:
        spread_s = limits.NEW_CHATS_SPREAD_S * self._clock.random()
        return self._clock.monotonic() + limits.NEW_CHATS_EVERY_S + spread_s


class _WatchedUser:
    """`members`: each with the wall clock of its arrival."""

    __slots__ = ("due_at", "members")

    def __init__(self, due_at: float) -> None:
        self.due_at = due_at
        self.members: dict[NewChatWatcher, int] = {}


def _since(user: _WatchedUser) -> str:
    """A little before its first connection: what was joined earlier is in the list that its client has read."""
    return iso(min(user.members.values()) - int(limits.NEW_CHATS_BEFORE_S * 1000))

"""Finds chats that connected users have joined and not synced: the push of a chat's first message may be lost.

The head probe reads the heads of synced chats only. This one reads each user's new chats every NEW_CHATS_EVERY_S, so
that the first message of a chat is seen within the bound of the head probe (PROBE_INTERVAL_MAX_S).
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
        """Those of the chats that are not synced on this connection."""
        ...

    def joined(self, chat_id: str, head: int) -> None:
        """The user joined this chat lately, and it is published up to here."""
        ...


class NewChatProbe:
    """Reads once per user, however many devices are connected; NEW_CHATS_USERS_MAX users per call."""

    def __init__(self, durability: Durability, clock: Clock, observe: GatewayObserver) -> None:
        self._durability = durability
        self._clock = clock
        self._observe = observe
        self._users: dict[str, _WatchedUser] = {}

    def watch(self, user_id: str, watcher: NewChatWatcher) -> None:
        user = self._users.get(user_id)
        if user is None:
            user = self._users[user_id] = _WatchedUser(self._next_at())
        user.watchers[watcher] = self._clock.now_ms()

    def unwatch(self, user_id: str, watcher: NewChatWatcher) -> None:
        user = self._users.get(user_id)
        if user is not None and user.watchers.pop(watcher, None) is not None and not user.watchers:
            del self._users[user_id]

    @property
    def watchers(self) -> Sequence[NewChatWatcher]:
        return [watcher for user in self._users.values() for watcher in user.watchers]

    async def probe(self) -> None:
        """Reads the new chats of the users that are due. After a failure the rest waits for the next probe."""
        now = self._clock.monotonic()
        due = [user_id for user_id, user in self._users.items() if user.due_at <= now]
        for first in range(0, len(due), limits.NEW_CHATS_USERS_MAX):
            try:
                await self._probe_users(due[first : first + limits.NEW_CHATS_USERS_MAX])
            except SeriatimError as error:
                self._observe.fill_failed(error)
                return

    async def _probe_users(self, user_ids: Sequence[str]) -> None:
        users = {user_id: self._users[user_id] for user_id in user_ids if user_id in self._users}
        since = {user_id: _since(user) for user_id, user in users.items()}
        joined = await self._durability.joined(since, timeout_s=limits.PERSIST_DEADLINE_S)
        wanted = [
            (users[user_id], watcher, chat_id)
            for user_id, chat_ids in joined.items()
            for watcher in users[user_id].watchers
            for chat_id in watcher.unsynced(chat_ids)
        ]
        heads = await self._heads(list(dict.fromkeys([chat_id for _, _, chat_id in wanted])))
        for user, watcher, chat_id in wanted:
            if (head := heads.get(chat_id, 0)) > 0 and watcher in user.watchers:
                watcher.joined(chat_id, head)
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
    """`watchers`: each with the wall clock time at which it came, in ms."""

    __slots__ = ("due_at", "watchers")

    def __init__(self, due_at: float) -> None:
        self.due_at = due_at
        self.watchers: dict[NewChatWatcher, int] = {}


def _since(user: _WatchedUser) -> str:
    """A little before its first connection: chats joined earlier are in the list that its client has read."""
    return iso(min(user.watchers.values()) - int(limits.NEW_CHATS_BEFORE_S * 1000))

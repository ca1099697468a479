"""Looks for losses nobody noticed: a lost last push leaves no gap, so the heads of synced chats are asked for.

This bounds how long any message can stay unseen on an open socket (PROBE_INTERVAL_MAX_S).
"""

from collections.abc import Mapping
from typing import Protocol

from seriatim.connection.observer import GatewayObserver
from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError
from seriatim.ports.durability import Durability


class HeadWatcher(Protocol):
    """A connection that promises a chat to be complete."""

    def head(self, chat_id: str, sequence: int) -> None:
        """The chat is published up to here."""
        ...


class HeadProbe:
    """Which connections watch which chat; asks PROBE_CHATS_MAX heads at a time."""

    def __init__(self, durability: Durability, observe: GatewayObserver) -> None:
        self._durability = durability
        self._observe = observe
        self._watchers: dict[str, dict[HeadWatcher, None]] = {}

    def watch(self, chat_id: str, watcher: HeadWatcher) -> None:
        self._watchers.setdefault(chat_id, {})[watcher] = None

    def unwatch(self, chat_id: str, watcher: HeadWatcher) -> None:
        watchers = self._watchers.get(chat_id)
        if watchers is not None and watchers.pop(watcher, watcher) is None and not watchers:
            del self._watchers[chat_id]

    async def look(self) -> None:
        """Tells every watcher the head of its chats. What cannot be asked now is asked next time."""
        chats = list(self._watchers)
        for first in range(0, len(chats), limits.PROBE_CHATS_MAX):
            try:
                heads = await self._durability.heads(
                    chats[first : first + limits.PROBE_CHATS_MAX], timeout_s=limits.PERSIST_DEADLINE_S
                )
            except SeriatimError as error:
                self._observe.fill_failed(error.code)
            else:
                self._tell(heads)

    def _tell(self, heads: Mapping[str, int]) -> None:
        for chat_id, head in heads.items():
            for watcher in list(self._watchers.get(chat_id, ())):
                watcher.head(chat_id, head)

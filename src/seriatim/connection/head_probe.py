"""Finds pushes that were lost without a gap: reads the heads of all synced chats and reports them to connections.

A lost last push leaves no gap. The probe bounds how long such a message stays unseen on an open socket
(PROBE_INTERVAL_MAX_S).
"""

from collections.abc import Mapping
from typing import Protocol

from seriatim.connection.observer import GatewayObserver
from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError
from seriatim.ports.durability import Durability


class HeadWatcher(Protocol):
    """A connection on which a chat is synced."""

    def head(self, chat_id: str, sequence: int) -> None:
        """The chat is published up to here."""
        ...


class HeadProbe:
    """Which connections watch which chat. Reads PROBE_CHATS_MAX heads per call."""

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

    async def probe(self) -> None:
        """Reports to every watcher the heads of its chats. Heads that cannot be read now are read next time."""
        chats = list(self._watchers)
        for first in range(0, len(chats), limits.PROBE_CHATS_MAX):
            try:
                heads = await self._durability.heads(
                    chats[first : first + limits.PROBE_CHATS_MAX], timeout_s=limits.PERSIST_DEADLINE_S
                )
            except SeriatimError as error:
                self._observe.fill_failed(error)
            else:
                self._report_heads(heads)

    def _report_heads(self, heads: Mapping[str, int]) -> None:
        for chat_id, head in heads.items():
            for watcher in list(self._watchers.get(chat_id, ())):
                watcher.head(chat_id, head)

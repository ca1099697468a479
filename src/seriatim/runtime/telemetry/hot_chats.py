"""Which chats are written to most: a line in the log once a minute, since a metric would need a label for each chat."""

import logging
from collections.abc import Mapping
from heapq import nlargest

from seriatim.domain import limits
from seriatim.runtime.telemetry.logs import log_event

_log = logging.getLogger("seriatim")
MINUTE_S = 60.0


class HotChats:
    """`note` every batch of messages, and `tick` now and then: each minute begins a new count."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._since: float | None = None

    def note(self, stored: Mapping[str, int]) -> None:
        counts = self._counts
        for chat_id, messages in stored.items():
            if chat_id in counts:
                counts[chat_id] += messages
            elif len(counts) < limits.HOT_CHATS_COUNTED_MAX:
                counts[chat_id] = messages

    def tick(self, now: float) -> None:
        if self._since is None:
            self._since = now
        seconds = now - self._since
        if seconds < MINUTE_S:
            return
        counts, self._counts, self._since = self._counts, {}, now
        per_minute = {chat_id: round(count * MINUTE_S / seconds) for chat_id, count in counts.items()}
        hot = [(rate, chat_id) for chat_id, rate in per_minute.items() if rate > limits.HOT_CHAT_PER_MINUTE_MESSAGES]
        if hot:
            log_event(
                _log,
                logging.INFO,
                "hot_chats",
                chats=len(hot),
                messages_per_chat_per_minute={
                    chat_id: rate for rate, chat_id in nlargest(limits.HOT_CHATS_LOGGED_MAX, hot)
                },
                next_step="one process writes each chat: beyond some hundreds a minute its members should split it",
            )

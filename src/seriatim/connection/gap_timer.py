"""Gaps that may close by themselves: a moment later each is looked at again, with one timer for a whole gateway.

On a busy chat nearly every ack arrives before the pushes that precede it, so a gap must cost next to nothing.
A gateway that is late itself is patient: what is missing waits most likely in its own queue, and to read it back
would make it later still.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from seriatim.connection.task_group import report
from seriatim.domain import limits


class GapTimer:
    """All wait equally long, so the first to come is the first to be due."""

    __slots__ = ("_handle", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, int, Callable[[], None]]] = deque()
        self._handle: asyncio.TimerHandle | None = None

    def wait(self, look: Callable[[], None]) -> None:
        """Calls `look` after GAP_WAIT_S, or later if the loop is late by then."""
        loop = asyncio.get_running_loop()
        due = loop.time() + limits.GAP_WAIT_S
        self._waiting.append((due, 1, look))
        if self._handle is None:
            self._handle = loop.call_at(due, self._look)

    def close(self) -> None:
        self._waiting.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._waiting and self._waiting[0][0] <= now:
            due, waits, look = self._waiting.popleft()
            if now - due > limits.GAP_LATE_S and waits < limits.GAP_WAITS_MAX:
                self._waiting.append((now + limits.GAP_WAIT_S, waits + 1, look))
                continue
            try:
                look()
            except Exception as failure:
                report(failure)  # otherwise one bug would leave everybody's gaps open: the timer would not be set again
        self._handle = loop.call_at(self._waiting[0][0], self._look) if self._waiting else None

"""Checks each gap again after GAP_WAIT_S, since most gaps close by themselves. One timer serves a whole gateway.

On a busy chat nearly every ack arrives before the pushes that precede it, so a gap must cost next to nothing. If the
event loop is late, the check waits longer: the missing pushes are most likely in the loop's own queue, and to read them
back would make it later still.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from seriatim.connection.task_group import report
from seriatim.domain import limits


class GapTimer:
    """All checks wait equally long, so they are due in the order in which they came."""

    __slots__ = ("_handle", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, int, Callable[[], None]]] = deque()
        self._handle: asyncio.TimerHandle | None = None

    def check_later(self, check: Callable[[], None]) -> None:
        """Calls `check` after GAP_WAIT_S, or later if the loop is late by then."""
        loop = asyncio.get_running_loop()
        due = loop.time() + limits.GAP_WAIT_S
        self._waiting.append((due, 1, check))
        if self._handle is None:
            self._handle = loop.call_at(due, self._run_due)

    def close(self) -> None:
        self._waiting.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run_due(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._waiting and self._waiting[0][0] <= now:
            due, waits, check = self._waiting.popleft()
            if now - due > limits.GAP_LATE_S and waits < limits.GAP_WAITS_MAX:
                self._waiting.append((now + limits.GAP_WAIT_S, waits + 1, check))
                continue
            try:
                check()
            except Exception as failure:
                report(failure)  # and set the timer again: one failing check must not leave all other gaps open
        self._handle = loop.call_at(self._waiting[0][0], self._run_due) if self._waiting else None

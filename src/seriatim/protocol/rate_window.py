"""Counts events in a sliding window."""

from collections import deque


class RateWindow:
    """Keeps the times of the last `count` events, so it knows exactly whether they all lie within `seconds`."""

    __slots__ = ("_seconds", "_times")

    def __init__(self, count: int, seconds: float) -> None:
        self._times: deque[float] = deque(maxlen=count)
        self._seconds = seconds

    def add(self, now: float) -> bool:
        """Counts one more. True: this is the `count`th within the window."""
        self._times.append(now)
        return len(self._times) == self._times.maxlen and now - self._times[0] <= self._seconds

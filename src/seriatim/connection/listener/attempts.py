"""How often somebody tried lately. In process memory: a limit against stampedes and guessing, not a promise."""

import math
from collections import OrderedDict

from seriatim.domain import limits


class FixedWindowLimiter:
    """At most `limit` per key within a window that begins with the first. Full: the oldest window is forgotten."""

    __slots__ = ("_limit", "_windows")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # [end, count] per key. All windows are equally long, so ends ascend. Not a dict: those are slow at their front.
        self._windows: OrderedDict[str, list[float]] = OrderedDict()

    def add(self, key: str, now: float) -> int | None:
        """Counts one. None: go ahead. Otherwise it was not counted, and this many seconds remain."""
        self._forget_ended(now)
        window = self._windows.get(key)
        if window is None:
            if len(self._windows) >= limits.ATTEMPT_KEYS_MAX:
                self._windows.popitem(last=False)
            self._windows[key] = [now + limits.ATTEMPTS_WINDOW_S, 1]
            return None
        if window[1] >= self._limit:
            return max(1, math.ceil(window[0] - now))
        window[1] += 1
        return None

    def _forget_ended(self, now: float) -> None:
        while self._windows:
            oldest = next(iter(self._windows))
            if self._windows[oldest][0] > now:
                return
            del self._windows[oldest]

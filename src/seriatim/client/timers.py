"""Timers by key, at most one per key, due in order of time.

The state machines have no clock: they return the time of their next timer, and their driver calls them then.
"""

import heapq
from typing import Generic, TypeVar

Key = TypeVar("Key")

_STALE_ENTRIES_MAX = 64  # replaced timers stay in the heap until there are this many more than live ones


class TimerQueue(Generic[Key]):
    def __init__(self) -> None:
        self._set: dict[Key, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._number = 0  # equal times are due in the order they were set, and keys are never compared

    def set(self, key: Key, at: float) -> None:
        """Replaces the key's earlier timer."""
        self._number += 1
        self._set[key] = (at, self._number)
        heapq.heappush(self._heap, (at, self._number, key))
        if len(self._heap) > 2 * len(self._set) + _STALE_ENTRIES_MAX:
            self._heap = [(at, number, key) for key, (at, number) in self._set.items()]
            heapq.heapify(self._heap)

    def cancel(self, key: Key) -> None:
        self._set.pop(key, None)

    def clear(self) -> None:
        self._set.clear()
        self._heap.clear()

    def __contains__(self, key: Key) -> bool:
        return key in self._set

    def next(self) -> float | None:
        while self._heap:
            at, number, key = self._heap[0]
            if self._set.get(key) == (at, number):
                return at
            heapq.heappop(self._heap)
        return None

    def due(self, now: float) -> list[Key]:
        """Removes and returns the keys of all timers that are due, earliest first."""
        due: list[Key] = []
        while (at := self.next()) is not None and at <= now:
            key = heapq.heappop(self._heap)[2]
            del self._set[key]
            due.append(key)
        return due


def earliest(*times: float | None) -> float | None:
    return min((at for at in times if at is not None), default=None)

"""`Quotas` within one process. Counters are lost with the process, and when there are more than `QUOTAS_MAX`."""

import heapq
import math
from collections import deque
from typing import Generic, TypeVar

import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown
from seriatim.ports.clock import Clock
from seriatim.ports.quotas import Quotas, Tally

T = TypeVar("T")


class InProcessQuotas(Quotas):
    def __init__(self, clock: Clock, *, entries_max: int = limits.QUOTAS_MAX) -> None:
        self._clock = clock
        self._windows: _ExpiringMap[_Window] = _ExpiringMap(entries_max)
        self._slides: _ExpiringMap[deque[float]] = _ExpiringMap(entries_max)
        self._locks: _ExpiringMap[float] = _ExpiringMap(entries_max)

    async def hit(self, bucket: str, *, window_s: int, timeout_s: float) -> Tally:
        now = self._now(timeout_s)
        window = self._windows.get(bucket, now)
        if window is None:
            window = _Window(ends=now + window_s)
            self._windows.put(bucket, window, window.ends, now)
        window.count += 1
        return Tally(window.count, math.ceil(window.ends - now))

    async def slide(self, bucket: str, *, limit: int, window_s: int, timeout_s: float) -> Tally:
        now = self._now(timeout_s)
        times = self._slides.get(bucket, now) or deque()
        while times and times[0] + window_s <= now:
            times.popleft()
        count = min(len(times), limit) + 1
        if count <= limit:
            times.append(now)
            self._slides.put(bucket, times, now + window_s, now)
        return Tally(count, math.ceil(times[0] + window_s - now))

    async def lock(self, name: str, *, seconds: int, timeout_s: float) -> None:
        now = self._now(timeout_s)
        self._locks.put(name, now + seconds, now + seconds, now)

    async def locked_for_s(self, name: str, *, timeout_s: float) -> int:
        now = self._now(timeout_s)
        ends = self._locks.get(name, now)
        return 0 if ends is None else math.ceil(ends - now)

    def __len__(self) -> int:
        return len(self._windows) + len(self._slides) + len(self._locks)

    def _now(self, timeout_s: float) -> float:
        if timeout_s <= 0:
            raise OutcomeUnknown("no time left to count this; try again")
        return self._clock.monotonic()


class _Window(msgspec.Struct):
    ends: float
    count: int = 0


class _ExpiringMap(Generic[T]):
    """A bounded map whose entries expire. When it is full, the entry that expires first is dropped."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._entries: dict[str, tuple[float, T]] = {}
        self._order: list[
            tuple[float, str]
        ] = []  # a heap with one item per entry; the entry may have been renewed since

    def get(self, name: str, now: float) -> T | None:
        ends, found = self._entries.get(name, (now, None))
        return found if now < ends else None

    def put(self, name: str, value: T, ends: float, now: float) -> None:
        if name not in self._entries:
            self._make_room(now)
            heapq.heappush(self._order, (ends, name))
        self._entries[name] = (ends, value)

    def _make_room(self, now: float) -> None:
        for _ in range(limits.QUOTAS_SWEPT_MAX):
            if self._order and self._order[0][0] <= now:
                self._pop()
        while len(self._entries) >= self._entries_max:
            self._pop()

    def _pop(self) -> None:
        """Drops the entry that expires first, unless it was renewed: then it gets its new place in the heap."""
        supposed, name = self._order[0]
        ends, _ = self._entries[name]
        if ends > supposed:
            heapq.heapreplace(self._order, (ends, name))
        else:
            heapq.heappop(self._order)
            del self._entries[name]

    def __len__(self) -> int:
        return len(self._entries)

"""Counters with a window, for rate limits and lock-outs of the REST edge. They may be lost at any moment."""

from typing import Protocol

import msgspec


class Tally(msgspec.Struct, frozen=True):
    """How often within the window, this time included, and in how many seconds the window ends."""

    count: int
    resets_in_s: int


class Quotas(Protocol):
    async def hit(self, bucket: str, *, window_s: int, timeout_s: float) -> Tally:
        """Counts one. The first hit of a bucket begins its window; after the window it counts from 1 again."""
        ...

    async def slide(self, bucket: str, *, limit: int, window_s: int, timeout_s: float) -> Tally:
        """Counts one unless there were `limit` within the last `window_s`; then the count is `limit` + 1.

        `resets_in_s` is when the oldest of them leaves the window.
        """
        ...

    async def lock(self, name: str, *, seconds: int, timeout_s: float) -> None:
        """Locked from now on for that long; locking again starts the time again."""
        ...

    async def locked_for_s(self, name: str, *, timeout_s: float) -> int:
        """How many seconds it is still locked, 0 if it is not."""
        ...

"""One deadline rules every wait: how long a call may take, and which refusals are worth repeating (ADR-009)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from seriatim.domain import limits
from seriatim.domain.errors import Conflict, ServiceUnavailable, Throttled
from seriatim.durability.observe import DurabilityObserver
from seriatim.ports.clock import Clock

T = TypeVar("T")


class Deadline:
    """A moment on the monotonic clock after which nobody waits for us any more."""

    __slots__ = ("_clock", "at")

    def __init__(self, clock: Clock, at: float) -> None:
        self._clock = clock
        self.at = at

    def room(self, most_s: float = limits.STORE_TIMEOUT_S) -> float:
        """Seconds the next call may take. Raises when too little is left to begin one."""
        left = self.at - self._clock.monotonic()
        if left < limits.ATTEMPT_ROOM_S:
            raise ServiceUnavailable("the deadline leaves no room for another attempt; retry with the same id")
        return min(left, most_s)

    async def pause(self, seconds: float) -> None:
        """Sleeps, if there is still room for an attempt afterwards."""
        self.room()
        if self._clock.monotonic() + seconds > self.at - limits.ATTEMPT_ROOM_S:
            raise ServiceUnavailable("the deadline leaves no room for another attempt; retry with the same id")
        await asyncio.sleep(seconds)

    def allows(self, pause_s: float) -> bool:
        """Whether after such a pause there is still room for an attempt."""
        return self._clock.monotonic() + pause_s <= self.at - limits.ATTEMPT_ROOM_S


async def persistently(
    call: Callable[[float], Awaitable[T]], *, deadline: Deadline, clock: Clock, observe: DurabilityObserver
) -> T:
    """Repeats a call that the store refused without applying it, with ADR-009's pauses, while the deadline allows.

    What may have been applied (`OutcomeUnknown`) is never repeated here: only the caller can look.
    """
    throttles = conflicts = 0
    while True:
        try:
            return await call(deadline.room())
        except Throttled:
            observe.refused_by_store("throttled")
            if throttles == limits.THROTTLE_RETRIES_MAX:
                raise
            pause = min(limits.THROTTLE_BACKOFF_S * 2**throttles, limits.THROTTLE_BACKOFF_MAX_S)
            throttles += 1
        except Conflict:
            observe.refused_by_store("conflict")
            if conflicts == limits.CONFLICT_RETRIES_MAX:
                raise
            pause = min(limits.CONFLICT_BACKOFF_S * 2**conflicts, limits.CONFLICT_BACKOFF_MAX_S)
            conflicts += 1
        await deadline.pause(pause * (0.5 + clock.random() / 2))

"""One deadline rules every wait: how long a call may take, and which refusals are worth repeating (ADR-009)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from seriatim.domain import limits
from seriatim.domain.backoff import RefusalBackoff
from seriatim.domain.errors import Conflict, OutcomeUnknown, OutOfTime, Throttled
from seriatim.durability.observer import DurabilityObserver
from seriatim.ports.clock import Clock

T = TypeVar("T")


class Deadline:
    """A moment on the monotonic clock after which no caller waits any more."""

    __slots__ = ("_clock", "at")

    def __init__(self, clock: Clock, at: float) -> None:
        self._clock = clock
        self.at = at

    def room(self, most_s: float = limits.STORE_TIMEOUT_S) -> float:
        """Seconds the next call may take. Raises when too little is left to begin one."""
        left = self.at - self._clock.monotonic()
        if left < limits.ATTEMPT_ROOM_S:
            raise _out_of_time()
        return min(left, most_s)

    async def pause(self, seconds: float) -> None:
        """Sleeps, if there is still room for an attempt afterwards."""
        self.room()
        if self._clock.monotonic() + seconds > self.at - limits.ATTEMPT_ROOM_S:
            raise _out_of_time()
        await asyncio.sleep(seconds)

    def allows(self, pause_s: float) -> bool:
        """Whether after such a pause there is still room for an attempt."""
        return self._clock.monotonic() + pause_s <= self.at - limits.ATTEMPT_ROOM_S


def cut_short(room_s: float, began: float, clock: Clock) -> bool:
    """The deadline ended this call before its own time was up."""
    return room_s < limits.STORE_TIMEOUT_S and clock.monotonic() - began >= room_s


def _out_of_time() -> OutOfTime:
    return OutOfTime("the deadline leaves no room for another attempt; retry with the same id")


async def retry_refused(
    call: Callable[[float], Awaitable[T]],
    *,
    deadline: Deadline,
    clock: Clock,
    observe: DurabilityObserver,
    reads: bool = False,
) -> T:
    """Repeats a call that the store refused without applying it, with ADR-009's pauses, while the deadline allows.

    What may have been applied (`OutcomeUnknown`) is never repeated here: only the caller can find out. A call that only
    `reads` applies nothing: without an answer it is asked once more, at once, for a reset connection is not a store
    that is down. A call that had less than its usual time, and used it up, says nothing about the store: `OutOfTime`.
    """
    backoff = RefusalBackoff(clock.random)
    unanswered = 0
    while True:
        room, began = deadline.room(), clock.monotonic()
        try:
            return await call(room)
        except (Throttled, Conflict) as refusal:
            observe.refused_by_store("throttled" if isinstance(refusal, Throttled) else "conflict")
            pause = backoff.pause_s(refusal)
            if pause is None:
                raise
        except OutcomeUnknown as error:
            if cut_short(room, began, clock):
                raise _out_of_time() from error
            if not reads or unanswered == limits.READ_REPEATS_MAX:
                raise
            unanswered += 1
            continue
        await deadline.pause(pause)

"""The engines of the durability plane behind a breaker each (ADR-009): a failure is a call, not a draft.

What one chat lacks, be it time, a counter or a readable row, is an answer of the engine, and no failure of it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from seriatim.domain import limits
from seriatim.domain.circuit_breaker import BreakerState, CircuitBreaker
from seriatim.domain.errors import BreakerOpen, SeriatimError
from seriatim.durability.deadline import cut_short
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import Event, EventWriter

T = TypeVar("T")


class GuardedWriter:
    """The event log behind a breaker: its failures stop admission before messages pile up unpublished.

    The probe of a half-open breaker is taken here, where its outcome is known, and not by a draft that may be refused.
    """

    def __init__(self, events: EventWriter, breaker: CircuitBreaker, clock: Clock) -> None:
        self._events = events
        self._breaker = breaker
        self._clock = clock

    async def append(self, topic: str, events: Sequence[Event], *, timeout_s: float) -> None:
        began = self._clock.monotonic()
        wait = self._breaker.admit(began)
        if wait is not None:
            raise events_refused(_soon(self._breaker, wait, began))
        try:
            await self._events.append(topic, events, timeout_s=timeout_s)
        except SeriatimError as error:
            if error.trips_breaker:
                self._breaker.failed(self._clock.monotonic(), since=began, reason=error.log_reason)
            else:
                self._breaker.withdrawn()  # an answer, which proves nothing
            raise
        self._breaker.succeeded(self._clock.monotonic())


class StoreGuard:
    """The calls of the send path to the store, behind a breaker. Only a write proves that the store can write.

    One chat alone does not open the breaker for the others: among the failures that open it is one of another chat.
    The probe of a half-open breaker is a lookup, the first call of every send: while it is out no other send begins.
    `breaker` is None for a store that is one engine with the event log, whose appends prove as much.
    """

    def __init__(self, breaker: CircuitBreaker | None, clock: Clock) -> None:
        self._breaker = breaker
        self._clock = clock
        self._failing: dict[str, None] = {}  # chats, since the last write
        self._failures = 0

    async def read(self, chat_id: str, call: Callable[[], Awaitable[T]]) -> T:
        """A read with its repetition. Raises `BreakerOpen`, or what the call raises."""
        breaker = self._breaker
        if breaker is None:
            return await call()
        began = self._clock.monotonic()
        wait = breaker.admit(began)
        if wait is not None:
            raise store_refused(_soon(breaker, wait, began))
        found = await self._counted(chat_id, call(), breaker, began)
        breaker.withdrawn()
        return found

    async def write(self, chat_id: str, call: Awaitable[T], *, room_s: float = limits.STORE_TIMEOUT_S) -> T:
        """Goes on with what a lookup began. `room_s`: the time it has. Say `wrote` when it changed the store."""
        breaker = self._breaker
        if breaker is None:
            return await call
        return await self._counted(chat_id, call, breaker, self._clock.monotonic(), room_s)

    def wrote(self) -> None:
        if self._breaker is not None:
            self._breaker.succeeded(self._clock.monotonic())
            self._failing.clear()
            self._failures = 0

    async def _counted(
        self,
        chat_id: str,
        call: Awaitable[T],
        breaker: CircuitBreaker,
        began: float,
        room_s: float = limits.STORE_TIMEOUT_S,
    ) -> T:
        try:
            return await call
        except SeriatimError as error:
            if not error.trips_breaker:
                breaker.withdrawn()  # an answer, which proves nothing
            elif not cut_short(room_s, began, self._clock):
                self._failed(chat_id, breaker, began, error)
            raise

    def _failed(self, chat_id: str, breaker: CircuitBreaker, began: float, error: SeriatimError) -> None:
        if len(self._failing) < 2:
            self._failing[chat_id] = None
        if breaker.closed and len(self._failing) == 1 and self._failures >= limits.BREAKER_FAILURES_MAX - 1:
            return
        self._failures += 1
        breaker.failed(self._clock.monotonic(), since=began, reason=error.log_reason)


def _soon(breaker: CircuitBreaker, wait_s: float, now: float) -> float:
    """While a probe is out it is worth asking again soon: a probe is one call."""
    return wait_s if breaker.state(now) is BreakerState.OPEN else min(wait_s, limits.BREAKER_PROBE_RETRY_S)


def events_refused(wait_s: float | None) -> BreakerOpen:
    return BreakerOpen("the event log is failing; retry later with the same id", retry_after_seconds=wait_s)


def store_refused(wait_s: float | None) -> BreakerOpen:
    return BreakerOpen("the store is failing; retry later with the same id", retry_after_seconds=wait_s)

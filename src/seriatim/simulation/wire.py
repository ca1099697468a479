"""A wire that can do everything a network does: each leg late or lost, and what was applied stays applied.

The whole fate of a call is drawn when it begins, so it costs one future and two or three timers, and no task.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from seriatim.domain.errors import Conflict, OutcomeUnknown, SeriatimError, ServiceUnavailable, Throttled
from seriatim.engines.inprocess.wire import Wire
from seriatim.simulation.faults.plan import Fault, Faults
from seriatim.simulation.faults.profiles import WireKind
from seriatim.simulation.process import Process
from seriatim.simulation.trace import Trace

T = TypeVar("T")

_NEVER_ANSWERED = (Fault.REQUEST_LOST, Fault.RESPONSE_LOST, Fault.LATE)
_NEVER_APPLIED = (Fault.REQUEST_LOST, Fault.THROTTLED, Fault.CONFLICT, Fault.UNAVAILABLE)


class SimulatedWire(Wire):
    """One life of one process's way to one kind of store."""

    def __init__(
        self,
        process: Process,
        kind: WireKind,
        faults: Faults,
        trace: Trace,
        *,
        crash: Callable[[], None] | None = None,
    ) -> None:
        """`crash` makes the world crash and later restart this process; without it no call kills its caller."""
        self._process = process
        self._loop = process.loop
        self._kind = kind
        self._faults = faults
        self._trace = trace
        self._crash = crash
        self._arrivals: deque[Callable[[], None]] = deque()
        self._last_arrival = 0.0

    async def call(
        self,
        operation: str,
        apply: Callable[[], T],
        *,
        timeout_s: float,
        finish: Callable[[], None] | None = None,
    ) -> T:
        if timeout_s <= 0:
            raise OutcomeUnknown(f"{operation}: no time left")
        loop, faults, kind = self._loop, self._faults, self._kind
        now = loop.time()
        fault = faults.draw_fault(kind, operation, now)
        applied_at = now + faults.delay(kind)
        answered_at = applied_at + faults.delay(kind)
        applies = True
        gap = 0.0
        if finish is not None:
            gap = faults.commit_gap()
            answered_at += gap
        refusal: SeriatimError | None = None
        if fault is not None:
            refusal = _refusal(fault, operation)
            if fault in _NEVER_APPLIED or (fault is Fault.RESET and faults.even_chance()):
                applies = False
            elif fault is Fault.RESET and faults.even_chance():
                applied_at = answered_at + faults.delay_past_answer()
            elif fault is Fault.LATE:
                applied_at = now + timeout_s + faults.delay_past_answer()
            if self._trace.on:
                self._note(operation, fault.value)
        give_up_at = now + timeout_s
        if answered_at >= give_up_at or fault in _NEVER_ANSWERED:
            answered_at = give_up_at
            refusal = OutcomeUnknown(f"{operation}: no answer within {timeout_s:g} s")

        future: asyncio.Future[T] = loop.create_future()
        call = _WireCall(self, operation, apply, finish, gap, refusal, future)
        if applies:
            call.kills = fault is Fault.CRASH
            loop.call_at(applied_at, call.apply, context=loop.world.context)
        loop.call_at(answered_at, call.answer, context=self._process.context)
        return await future

    def hidden_rows(self, count: int) -> Sequence[int]:
        return self._faults.hidden_rows(count)

    def events_kept(self, count: int) -> int:
        return self._faults.events_kept(count)

    def caller_alive(self) -> bool:
        return self._process.alive and not self._process.paused

    def deliver(self, receive: Callable[[], None], *, lossy: bool = False) -> None:
        if lossy and self._faults.loses_push():
            if self._trace.on:
                self._note("deliver", "push lost")
            return
        arrival = max(self._loop.time() + self._faults.delay(self._kind), self._last_arrival)
        self._last_arrival = arrival
        self._arrivals.append(receive)
        self._loop.call_at(arrival, self._arrive, context=self._process.context)

    def deliver_all(self, receive: Callable[[Sequence[T]], None], things: Sequence[T]) -> None:
        """Each may be lost; those that are left arrive in runs of any length."""
        runs: list[list[T]] = []
        for thing in things:
            if self._faults.loses_push():
                if self._trace.on:
                    self._note("deliver", "push lost")
            elif runs and self._faults.coalesces():
                runs[-1].append(thing)
            else:
                runs.append([thing])
        for run in runs:
            self.deliver(partial(receive, run))

    def _arrive(self) -> None:
        """Whichever timer fires first hands out what was sent first: order holds even when timers are shuffled."""
        self._arrivals.popleft()()

    def _note(self, operation: str, text: str) -> None:
        self._trace.note(self._loop.time(), self._process.lane, f"{self._kind}.{operation}: {text}")

    def _kill(self) -> None:
        if self._crash is not None and self._process.alive:
            self._crash()


class _WireCall(Generic[T]):
    """A call on its way."""

    __slots__ = (
        "_apply",
        "_error",
        "_finish",
        "_future",
        "_gap",
        "_operation",
        "_refusal",
        "_result",
        "_wire",
        "kills",
    )

    def __init__(
        self,
        wire: SimulatedWire,
        operation: str,
        apply: Callable[[], T],
        finish: Callable[[], None] | None,
        gap: float,
        refusal: SeriatimError | None,
        future: asyncio.Future[T],
    ) -> None:
        self._wire = wire
        self._operation = operation
        self._apply = apply
        self._finish = finish
        self._gap = gap
        self._refusal = refusal
        self._result: list[T] = []
        self._error: Exception | None = None
        self._future = future
        self.kills = False

    def apply(self) -> None:
        """Runs at the store, whether or not the caller still waits."""
        wire = self._wire
        try:
            self._result.append(self._apply())
        except Exception as error:
            self._error = error
        if wire._trace.on:
            outcome = "applied" if self._error is None else f"refused, {type(self._error).__name__}"
            wire._note(self._operation, outcome if self._wire._process.alive else f"{outcome} (its caller is dead)")
        if self._finish is not None:
            loop = wire._loop
            loop.call_at(loop.time() + self._gap, self._finish, context=loop.world.context)
        if self.kills:
            wire._kill()

    def answer(self) -> None:
        """Runs at the caller, if it is alive and still waits."""
        future = self._future
        if future.done():
            return
        error = self._refusal or self._error
        if error is None:
            future.set_result(self._result[0])
            return
        if self._wire._trace.on:
            self._wire._note(self._operation, f"-> {type(error).__name__}")
        future.set_exception(error)


def _refusal(fault: Fault, operation: str) -> SeriatimError | None:
    """The error that the caller gets at once; None for faults that it does not notice."""
    if fault is Fault.THROTTLED:
        return Throttled(f"{operation}: throttled")
    if fault is Fault.CONFLICT:
        return Conflict(f"{operation}: conflict")
    if fault is Fault.UNAVAILABLE:
        return ServiceUnavailable(f"{operation}: unavailable")
    if fault is Fault.RESET:
        return OutcomeUnknown(f"{operation}: connection reset")
    return None

"""A wire on which the test decides the outcome of each call: late, lost on either leg, refused, or as usual.

Only for the simulated loop. What reaches the store is applied there, whether or not its caller still waits.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import msgspec

from seriatim.domain.errors import Conflict, OutcomeUnknown, SeriatimError, ServiceUnavailable, Throttled
from seriatim.engines.inprocess.wire import Wire
from seriatim.simulation.loop import SimulatedLoop

T = TypeVar("T")

LATENCY_S = 0.002  # each call takes a little, so that things can happen meanwhile


class CallOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one call. `before` runs at the store just before the call is applied there.

    `request_s` and `response_s` are delays of the two legs, infinite when that leg is lost; a refused call is never
    applied; `partial_s` is how long a commit is visible only in part.
    """

    request_s: float = 0.0
    response_s: float = 0.0
    partial_s: float = 0.0
    refusal: type[SeriatimError] | None = None
    before: Callable[[], None] | None = None


APPLIED = CallOutcome()
LOST_REQUEST = CallOutcome(request_s=math.inf)
LOST_RESPONSE = CallOutcome(response_s=math.inf)
THROTTLED = CallOutcome(refusal=Throttled)
CONFLICT = CallOutcome(refusal=Conflict)
UNAVAILABLE = CallOutcome(refusal=ServiceUnavailable)


def late(seconds: float) -> CallOutcome:
    """Applied that much later, even if the caller gave up in between."""
    return CallOutcome(request_s=seconds)


def with_before(before: Callable[[], None]) -> CallOutcome:
    return CallOutcome(before=before)


class ScriptedWire(Wire):
    """One process's way to one store. `calls` is every call that left, `times` when it left."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.times: list[float] = []
        self.hides: Sequence[int] = ()  # rows of the next commits that queries do not see until their finish
        self.cuts: deque[int] = deque()  # how many events the next appends keep
        self._next: dict[str, deque[CallOutcome]] = {}
        self._always: dict[str, CallOutcome] = {}

    def on(self, operation: str, *outcomes: CallOutcome) -> None:
        """The next calls of this operation have these outcomes, one each; later calls are applied as usual."""
        self._next.setdefault(operation, deque()).extend(outcomes)

    def always(self, operation: str, outcome: CallOutcome) -> None:
        """Every call of this operation ("*": of any) has this outcome, until `heal`."""
        self._always[operation] = outcome

    def heal(self) -> None:
        self._always.clear()

    def count(self, operation: str) -> int:
        return self.calls.count(operation)

    async def call(
        self,
        operation: str,
        apply: Callable[[], T],
        *,
        timeout_s: float,
        finish: Callable[[], None] | None = None,
    ) -> T:
        loop = cast(SimulatedLoop, asyncio.get_running_loop())
        outcome = self.next_outcome(operation)
        if outcome.refusal is not None:
            await asyncio.sleep(LATENCY_S)
            raise outcome.refusal(f"{operation}: {outcome.refusal.__name__}")
        answer: asyncio.Future[T] = loop.create_future()

        def fail(error: Exception) -> None:
            if not answer.done():
                answer.set_exception(error)

        def succeed(result: T) -> None:
            if not answer.done():
                answer.set_result(result)

        def at_the_store() -> None:
            if outcome.before is not None:
                outcome.before()
            respond_after_s = outcome.partial_s + outcome.response_s
            try:
                result = apply()
            except Exception as error:
                loop.call_later(respond_after_s, fail, error, context=loop.world.context)
            else:
                loop.call_later(respond_after_s, succeed, result, context=loop.world.context)
            if finish is not None and outcome.partial_s:
                loop.call_later(outcome.partial_s, finish, context=loop.world.context)
            elif finish is not None:
                finish()

        loop.call_later(LATENCY_S + outcome.request_s, at_the_store, context=loop.world.context)
        give_up = loop.call_later(timeout_s, fail, OutcomeUnknown(f"{operation}: no answer within {timeout_s:g} s"))
        try:
            return await answer
        finally:
            give_up.cancel()

    def hidden_rows(self, count: int) -> Sequence[int]:
        return [index for index in self.hides if index < count]

    def events_kept(self, count: int) -> int:
        return min(self.cuts.popleft(), count) if self.cuts else count

    def next_outcome(self, operation: str) -> CallOutcome:
        """The outcome of a call that leaves now."""
        self.calls.append(operation)
        self.times.append(asyncio.get_running_loop().time())
        queued = self._next.get(operation)
        if queued:
            return queued.popleft()
        return self._always.get(operation) or self._always.get("*") or APPLIED

"""A wire that does to each call what the test says: late, lost on either leg, refused, or with something in between.

Only for the simulated loop. What reaches the store is applied there, whether or not its caller still lives or waits.
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


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one call. `before` runs at the store just before the call is applied there.

    `request_s` and `response_s` are delays of the two legs, infinite when that leg is lost; a refused call is never
    applied; `half_way_s` is how long a commit is visible only in part.
    """

    request_s: float = 0.0
    response_s: float = 0.0
    half_way_s: float = 0.0
    refusal: type[SeriatimError] | None = None
    before: Callable[[], None] | None = None


GO = Fate()
LOST_REQUEST = Fate(request_s=math.inf)
LOST_RESPONSE = Fate(response_s=math.inf)
THROTTLED = Fate(refusal=Throttled)
CONFLICT = Fate(refusal=Conflict)
UNAVAILABLE = Fate(refusal=ServiceUnavailable)


def late(seconds: float) -> Fate:
    """Applied that much later, even if the caller gave up in between."""
    return Fate(request_s=seconds)


def with_before(before: Callable[[], None]) -> Fate:
    return Fate(before=before)


class ScriptedWire(Wire):
    """One process's way to one store. `calls` is every call that left, `times` when it left."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.times: list[float] = []
        self.hides: Sequence[int] = ()  # rows of the next commits that queries do not see until their finish
        self.cuts: deque[int] = deque()  # how many events the next appends keep
        self._next: dict[str, deque[Fate]] = {}
        self._always: dict[str, Fate] = {}

    def on(self, operation: str, *fates: Fate) -> None:
        """The next calls of this operation meet these fates, one each; calls after them are undisturbed."""
        self._next.setdefault(operation, deque()).extend(fates)

    def always(self, operation: str, fate: Fate) -> None:
        """Every call of this operation ("*": of any) meets this fate, until `heal`."""
        self._always[operation] = fate

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
        fate = self.fate_of(operation)
        if fate.refusal is not None:
            await asyncio.sleep(LATENCY_S)
            raise fate.refusal(f"{operation}: {fate.refusal.__name__}")
        answer: asyncio.Future[T] = loop.create_future()

        def fail(error: Exception) -> None:
            if not answer.done():
                answer.set_exception(error)

        def succeed(result: T) -> None:
            if not answer.done():
                answer.set_result(result)

        def at_the_store() -> None:
            if fate.before is not None:
                fate.before()
            respond_after_s = fate.half_way_s + fate.response_s
            try:
                result = apply()
            except Exception as error:
                loop.call_later(respond_after_s, fail, error, context=loop.world.context)
            else:
                loop.call_later(respond_after_s, succeed, result, context=loop.world.context)
            if finish is not None and fate.half_way_s:
                loop.call_later(fate.half_way_s, finish, context=loop.world.context)
            elif finish is not None:
                finish()

        loop.call_later(LATENCY_S + fate.request_s, at_the_store, context=loop.world.context)
        give_up = loop.call_later(timeout_s, fail, OutcomeUnknown(f"{operation}: no answer within {timeout_s:g} s"))
        try:
            return await answer
        finally:
            give_up.cancel()

    def half_way(self, count: int) -> Sequence[int]:
        return [index for index in self.hides if index < count]

    def cut(self, count: int) -> int:
        return min(self.cuts.popleft(), count) if self.cuts else count

    def fate_of(self, operation: str) -> Fate:
        """A call leaves now."""
        self.calls.append(operation)
        self.times.append(asyncio.get_running_loop().time())
        queued = self._next.get(operation)
        if queued:
            return queued.popleft()
        return self._always.get(operation) or self._always.get("*") or GO

"""The circuit breaker of ADR-009: stops calling a dependency that keeps failing, then tries it with one probe.

Synchronous, with the time handed in (seconds that only grow). One per process and dependency.
"""

from collections import deque
from collections.abc import Callable
from enum import StrEnum

from seriatim.domain import limits


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """Call `admit` before every call and report every admitted call's end, once.

    It opens when the dependency fails and goes on failing: BREAKER_FAILURES_MAX failures within BREAKER_WINDOW_S and no
    success among them. One event that fails many calls at once is one failure (`since`).

    Answers are not matched with calls: every call ends well within BREAKER_OPEN_S, so none from before the breaker
    opened is left when it is half open, and an answer that comes then decides.

    `changed` is called with each new state and why: half open when the probe is admitted.
    """

    def __init__(self, changed: "Changed | None" = None) -> None:
        self._changed = changed or _ignore
        self.closed = True  # then everything is admitted
        self._failed_at: deque[float] = deque(maxlen=limits.BREAKER_FAILURES_MAX)
        self._opened_at: float | None = None  # None while closed
        self._probed_at: float | None = None  # None while no probe is out

    def admit(self, now: float) -> float | None:
        """None: go ahead. A number: refused; seconds until it is worth asking again, always above 0."""
        if self._opened_at is None:
            return None  # nearly always
        wait = _left(self._opened_at, limits.BREAKER_OPEN_S, now)
        if wait is not None:
            return wait
        wait = _left(self._probed_at, limits.BREAKER_PROBE_S, now)
        if wait is None:
            self._probed_at = now
            self._changed(BreakerState.HALF_OPEN, "its pause is over: one call is tried")
        return wait

    def succeeded(self, now: float) -> None:
        """The dependency answered, with whatever: a refusal of one request is not a failure of the dependency."""
        if self._opened_at is None:
            self._failed_at.clear()
        elif self.state(now) is BreakerState.HALF_OPEN:
            self._opened_at = self._probed_at = None
            self.closed = True
            self._changed(BreakerState.CLOSED, "a call succeeded")

    def failed(self, now: float, *, since: float | None = None, reason: str = "") -> None:
        """The dependency failed (`error.trips_breaker`).

        `since`: when the call began. If that was before the failure counted last, the same event may have failed both:
        it counts once. `reason`: what the call said.
        """
        if self._opened_at is None:
            if since is not None and self._failed_at and since < self._failed_at[-1]:
                return
            self._failed_at.append(now)
            if (
                len(self._failed_at) == limits.BREAKER_FAILURES_MAX
                and now - self._failed_at[0] <= limits.BREAKER_WINDOW_S
            ):
                self._open(now, reason)
        elif self.state(now) is BreakerState.HALF_OPEN:
            self._open(now, reason)

    def withdrawn(self) -> None:
        """An admitted call was not made after all: it proves nothing, and another may be the probe."""
        self._probed_at = None

    def state(self, now: float) -> BreakerState:
        if self._opened_at is None:
            return BreakerState.CLOSED
        waiting = _left(self._opened_at, limits.BREAKER_OPEN_S, now) is not None
        return BreakerState.OPEN if waiting else BreakerState.HALF_OPEN

    def _open(self, now: float, reason: str) -> None:
        self._failed_at.clear()
        self._opened_at, self._probed_at = now, None
        self.closed = False
        self._changed(BreakerState.OPEN, reason)


Changed = Callable[[BreakerState, str], None]


def _ignore(state: BreakerState, reason: str) -> None:
    """No one wants to know."""


def _left(since: float | None, duration_s: float, now: float) -> float | None:
    """What is left of a span of time; None when it is over or never began."""
    if since is None:
        return None
    left = since + duration_s - now
    return left if left > 0 else None

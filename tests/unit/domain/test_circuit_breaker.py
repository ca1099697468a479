"""The circuit breaker of ADR-009 (S28), first by example, then against a slow and obvious model."""

from hypothesis import given
from hypothesis import strategies as st

from seriatim.domain import limits
from seriatim.domain.circuit_breaker import BreakerState, CircuitBreaker


def test_s28_a_new_breaker_is_closed_and_admits_everything() -> None:
    breaker = CircuitBreaker()
    assert [breaker.admit(0.0) for _ in range(1000)] == [None] * 1000
    assert breaker.state(0.0) is BreakerState.CLOSED


def test_s28_four_failures_leave_it_closed_and_the_fifth_in_30_seconds_opens_it() -> None:
    breaker = CircuitBreaker()
    _fail(breaker, 0.0, 10.0, 20.0, 29.0)
    assert breaker.admit(29.0) is None
    breaker.failed(30.0)
    assert breaker.state(30.0) is BreakerState.OPEN
    assert breaker.admit(30.0) == 30.0


def test_s28_five_failures_over_more_than_30_seconds_leave_it_closed() -> None:
    breaker = CircuitBreaker()
    _fail(breaker, 0.0, 10.0, 20.0, 30.0, 30.1)
    assert breaker.state(30.1) is BreakerState.CLOSED


def test_s28_failures_that_left_the_window_make_room_for_later_ones() -> None:
    breaker = CircuitBreaker()
    _fail(breaker, 0.0, 31.0, 32.0, 33.0, 34.0)
    assert breaker.state(34.0) is BreakerState.CLOSED
    breaker.failed(35.0)
    assert breaker.state(35.0) is BreakerState.OPEN


def test_b2_failures_among_successes_open_nothing_however_many_they_are() -> None:
    """ADR-009 looks for sustained failure: five bad calls among thousands of good ones close nothing."""
    breaker = CircuitBreaker()
    for number in range(100):
        _fail(breaker, number / 10, number / 10, number / 10, number / 10)
        breaker.succeeded(number / 10)
    assert breaker.state(10.0) is BreakerState.CLOSED
    _fail(breaker, 10.0, 10.1, 10.2, 10.3, 10.4)
    assert breaker.state(10.4) is BreakerState.OPEN


def test_b2_one_event_that_fails_many_calls_at_once_is_one_failure() -> None:
    breaker = CircuitBreaker()
    for moment in (1.0, 2.0, 3.0, 4.0):
        for _ in range(40):
            breaker.failed(moment, since=moment - 0.5)  # all were under way when the first of them failed
    assert breaker.state(4.0) is BreakerState.CLOSED
    breaker.failed(5.0, since=4.0)
    assert breaker.state(5.0) is BreakerState.OPEN


def test_a_refusal_tells_the_open_time_that_is_left() -> None:
    breaker = _opened(at=100.0)
    assert breaker.admit(100.0) == 30.0
    assert breaker.admit(129.5) == 0.5


def test_s28_after_30_seconds_exactly_one_probe_is_admitted() -> None:
    breaker = _opened(at=0.0)
    assert breaker.state(30.0) is BreakerState.HALF_OPEN
    assert breaker.admit(30.0) is None
    assert breaker.admit(30.0) == limits.BREAKER_PROBE_S
    assert breaker.admit(31.0) == limits.BREAKER_PROBE_S - 1


def test_s28_a_successful_probe_closes_it_and_the_past_is_forgotten() -> None:
    breaker = _opened(at=0.0)
    breaker.admit(30.0)
    breaker.succeeded(30.0)
    assert breaker.state(30.0) is BreakerState.CLOSED
    _fail(breaker, 30.0, 30.0, 30.0, 30.0)
    assert breaker.admit(30.0) is None


def test_closed_says_the_same_as_the_state_after_each_change() -> None:
    breaker = CircuitBreaker()
    said = [breaker.closed]
    for _ in range(limits.BREAKER_FAILURES_MAX):
        breaker.failed(0)
    said.append(breaker.closed)
    assert breaker.admit(limits.BREAKER_OPEN_S) is None
    breaker.succeeded(limits.BREAKER_OPEN_S)
    said.append(breaker.closed)
    assert said == [True, False, True]


def test_s28_a_failed_probe_opens_it_for_30_seconds_more() -> None:
    breaker = _opened(at=0.0)
    breaker.admit(40.0)
    breaker.failed(42.0)
    assert breaker.admit(42.0) == 30.0
    assert breaker.admit(71.9) is not None
    assert breaker.admit(72.0) is None


def test_answers_of_calls_from_before_it_opened_neither_close_nor_prolong_it() -> None:
    breaker = _opened(at=0.0)
    breaker.succeeded(1.0)
    assert breaker.state(1.0) is BreakerState.OPEN
    _fail(breaker, 2.0, 3.0, 4.0, 5.0, 6.0)
    assert breaker.state(30.0) is BreakerState.HALF_OPEN


def test_a_failed_probe_takes_the_verdict_of_later_answers_away() -> None:
    breaker = _opened(at=0.0)
    breaker.admit(30.0)
    breaker.failed(31.0)
    breaker.succeeded(32.0)
    breaker.failed(33.0)
    assert breaker.admit(60.9) is not None
    assert breaker.admit(61.0) is None


def test_an_answer_while_no_probe_is_out_decides_a_half_open_breaker_too() -> None:
    """Some calls go on with what a probe began, and do not ask."""
    breaker = _opened(at=0.0)
    breaker.failed(30.0)
    assert breaker.state(30.0) is BreakerState.OPEN
    breaker.succeeded(60.0)
    assert breaker.state(60.0) is BreakerState.CLOSED


def test_a_probe_whose_answer_never_comes_frees_the_slot() -> None:
    breaker = _opened(at=0.0)
    breaker.admit(30.0)
    assert breaker.admit(39.9) is not None
    assert breaker.admit(40.0) is None
    assert breaker.admit(40.0) == limits.BREAKER_PROBE_S


def test_a_probe_that_was_not_made_after_all_frees_the_slot_at_once_and_proves_nothing() -> None:
    breaker = _opened(at=0.0)
    breaker.admit(30.0)
    breaker.withdrawn()
    assert breaker.state(30.0) is BreakerState.HALF_OPEN
    assert breaker.admit(30.0) is None


def test_calls_end_before_the_breaker_could_take_their_answer_for_a_probes() -> None:
    slowest_call_s = max(limits.PERSIST_DEADLINE_S, limits.PUBLISH_TIMEOUT_S)
    assert slowest_call_s < limits.BREAKER_PROBE_S < limits.BREAKER_OPEN_S


class Model:
    """The same rules with the whole history kept and no cleverness."""

    def __init__(self) -> None:
        self.failures: list[float] = []  # since the last success
        self.opened: float | None = None
        self.probes: list[float] = []  # since the breaker opened last

    def admits(self, now: float) -> bool:
        if self.opened is None:
            return True
        if now < self.opened + 30 or any(now < each + 10 for each in self.probes):
            return False
        self.probes.append(now)
        return True

    def ends(self, now: float, *, well: bool) -> None:
        if self.opened is None:
            self.failures = [] if well else [*self.failures, now]
        half_open = self.opened is not None and now >= self.opened + 30
        if half_open and well:
            self.opened, self.failures, self.probes = None, [], []
        elif half_open or (self.opened is None and sum(each >= now - 30 for each in self.failures) >= 5):
            self.opened, self.failures, self.probes = now, [], []


# Seconds since the event before, and the event. Half of the histories begin with a probe on its way.
EVENTS = st.tuples(st.sampled_from([0, 1, 5, 7, 10, 29, 30, 31]), st.sampled_from(["admit", "succeeded", "failed"]))
BEGINNINGS = st.sampled_from([[], [*[(0, "failed")] * 5, (30, "admit")]])
HISTORIES = st.builds(lambda start, rest: start + rest, BEGINNINGS, st.lists(EVENTS, max_size=60))


@given(HISTORIES)
def test_s28_for_any_history_it_decides_as_the_record_says(history: list[tuple[int, str]]) -> None:
    breaker, model, now = CircuitBreaker(), Model(), 0.0
    for later, event in history:
        now += later
        if event == "admit":
            wait = breaker.admit(now)
            assert (wait is None) == model.admits(now)
            assert wait is None or 0 < wait <= 30
        else:
            (breaker.succeeded if event == "succeeded" else breaker.failed)(now)
            model.ends(now, well=event == "succeeded")
        assert (breaker.state(now) is BreakerState.CLOSED) == (model.opened is None)


@given(HISTORIES)
def test_a_caller_that_waits_as_long_as_asked_and_asks_alone_is_admitted(history: list[tuple[int, str]]) -> None:
    breaker, now = CircuitBreaker(), 0.0
    for later, event in history:
        now += later
        if event == "admit":
            breaker.admit(now)
        else:
            (breaker.succeeded if event == "succeeded" else breaker.failed)(now)
    wait = breaker.admit(now)
    assert wait is None or breaker.admit(now + wait) is None


def _fail(breaker: CircuitBreaker, *times: float) -> None:
    for now in times:
        breaker.failed(now)


def _opened(*, at: float) -> CircuitBreaker:
    breaker = CircuitBreaker()
    _fail(breaker, *[at] * limits.BREAKER_FAILURES_MAX)
    return breaker

"""A call on a bad wire: applied once or never, also if its caller is gone, and the caller never waits too long."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random

import pytest

from seriatim.domain.errors import Conflict, OutcomeUnknown, ServiceUnavailable, Throttled
from seriatim.simulation.faults.plan import Fault, Faults
from seriatim.simulation.faults.profiles import PROFILES, FaultProfile, IncidentKind, WireKind, WireRates, mixture
from seriatim.simulation.loop import CallbackOrder, SimulatedLoop
from seriatim.simulation.process import Process
from seriatim.simulation.trace import Trace
from seriatim.simulation.wire import SimulatedWire


class WireHarness:
    """One caller, one wire, one store that counts what it applied."""

    def __init__(
        self, rates: WireRates | None = None, *, seed: int = 1, kind: WireKind = WireKind.STORE, push_loss: float = 0.0
    ) -> None:
        wires = {kind: rates or WireRates()}
        profile = FaultProfile(
            name="test", summary="", wires=wires, push_loss=push_loss, partial_visibility=1.0, partial_append=1.0
        )
        self.loop = SimulatedLoop(Random(seed), order=CallbackOrder.SHUFFLED)
        self.process = Process(self.loop, "caller", random=Random(seed))
        self.faults = Faults(Random(seed), profile, duration_s=10.0)
        self.wire = SimulatedWire(self.process, kind, self.faults, Trace(), crash=self.process.crash)
        self.applied_at: list[float] = []

    def apply(self) -> str:
        self.applied_at.append(self.loop.time())
        return "done"

    def call(self, *, finish: Callable[[], None] | None = None, timeout_s: float = 1.0) -> asyncio.Task[str]:
        return self.process.spawn(self.wire.call("persist", self.apply, timeout_s=timeout_s, finish=finish))

    def ended_at(self, task: asyncio.Task[str]) -> float:
        self.loop.run_until(100.0, task.done)
        return self.loop.time()


def test_a_healthy_call_is_applied_once_and_answered_within_milliseconds() -> None:
    harness = WireHarness()
    task = harness.call()
    assert 0.002 <= harness.ended_at(task) <= 0.02
    assert task.result() == "done"
    assert len(harness.applied_at) == 1


def test_a_lost_request_is_never_applied_and_the_caller_gives_up_exactly_in_time() -> None:
    harness = WireHarness(WireRates(lost_request=1.0))
    task = harness.call()
    assert harness.ended_at(task) == 1.0
    assert isinstance(task.exception(), OutcomeUnknown)
    harness.loop.run_until(100.0)
    assert harness.applied_at == []


def test_a_lost_response_leaves_the_caller_ignorant_of_what_was_applied() -> None:
    harness = WireHarness(WireRates(lost_response=1.0))
    task = harness.call()
    assert harness.ended_at(task) == 1.0
    assert isinstance(task.exception(), OutcomeUnknown)
    assert len(harness.applied_at) == 1


def test_a_late_request_is_applied_after_the_caller_gave_up() -> None:
    harness = WireHarness(WireRates(late=1.0))
    task = harness.call()
    assert harness.ended_at(task) == 1.0
    assert isinstance(task.exception(), OutcomeUnknown)
    harness.loop.run_until(100.0)
    assert [at > 1.0 for at in harness.applied_at] == [True]


def test_a_reset_connection_tells_at_once_and_was_applied_before_after_or_never() -> None:
    whens = set[str]()
    for seed in range(30):
        harness = WireHarness(WireRates(reset=1.0), seed=seed)
        task = harness.call()
        ended = harness.ended_at(task)
        assert ended < 1.0
        assert isinstance(task.exception(), OutcomeUnknown)
        harness.loop.run_until(100.0)
        whens.add("never" if not harness.applied_at else "before" if harness.applied_at[0] < ended else "after")
    assert whens == {"never", "before", "after"}


@pytest.mark.parametrize(
    ("rates", "error"),
    [
        (WireRates(throttled=1.0), Throttled),
        (WireRates(conflict=1.0), Conflict),
        (WireRates(unavailable=1.0), ServiceUnavailable),
    ],
)
def test_a_refused_call_is_not_applied(rates: WireRates, error: type[Exception]) -> None:
    harness = WireHarness(rates)
    task = harness.call()
    assert harness.ended_at(task) < 1.0
    assert type(task.exception()) is error
    assert harness.applied_at == []


def test_a_call_without_time_left_fails_before_anything_is_sent() -> None:
    harness = WireHarness()
    task = harness.call(timeout_s=0.0)
    assert harness.ended_at(task) == 0.0
    assert isinstance(task.exception(), OutcomeUnknown)


def test_what_was_sent_is_applied_although_the_caller_crashed() -> None:
    harness = WireHarness()
    task = harness.call()
    harness.loop.run_until(0.0005)
    harness.process.crash()
    harness.loop.run_until(10.0)
    assert len(harness.applied_at) == 1
    assert not task.done()
    harness.loop.close()


def test_what_was_sent_is_applied_although_the_caller_was_cancelled() -> None:
    harness = WireHarness()
    task = harness.call()
    harness.loop.run_until(0.0005)
    task.cancel()
    harness.loop.run_until(10.0)
    assert len(harness.applied_at) == 1
    assert (task.cancelled(), harness.loop.failures) == (True, [])


def test_a_crash_in_a_call_comes_after_it_was_applied() -> None:
    harness = WireHarness()
    profile = FaultProfile(name="test", summary="", crash_in_call=1.0)
    faults = Faults(Random(1), profile, duration_s=10.0)
    wire = SimulatedWire(harness.process, WireKind.STORE, faults, Trace(), crash=harness.process.crash)
    task = harness.process.spawn(wire.call("persist", harness.apply, timeout_s=1.0))
    harness.loop.run_until(10.0)
    assert (len(harness.applied_at), harness.process.alive, task.done()) == (1, False, False)
    harness.loop.close()


def test_the_end_of_a_commit_comes_after_its_beginning_and_before_the_answer() -> None:
    harness, finished = WireHarness(), list[float]()
    task = harness.call(finish=lambda: finished.append(harness.loop.time()))
    ended = harness.ended_at(task)
    assert harness.applied_at[0] < finished[0] < ended


def test_what_the_store_refuses_reaches_the_caller_and_the_commit_still_ends() -> None:
    harness, finished = WireHarness(), list[str]()

    def refuse() -> str:
        raise Conflict("taken")

    call = harness.wire.call("persist", refuse, timeout_s=1.0, finish=lambda: finished.append("yes"))
    task = harness.process.spawn(call)
    harness.ended_at(task)
    assert isinstance(task.exception(), Conflict)
    assert finished == ["yes"]


def test_deliveries_keep_their_order_whatever_their_delays() -> None:
    harness, seen = WireHarness(WireRates(tail=0.5), kind=WireKind.PUSH), list[int]()
    for number in range(50):
        harness.wire.deliver(lambda number=number: seen.append(number))  # type: ignore[misc]
    harness.loop.run_until(100.0)
    assert seen == list(range(50))


def test_a_slow_delivery_holds_up_those_behind_it() -> None:
    harness, arrivals = WireHarness(WireRates(tail=0.5), kind=WireKind.PUSH), list[float]()
    for _ in range(50):
        harness.wire.deliver(lambda: arrivals.append(harness.loop.time()))
    harness.loop.run_until(100.0)
    assert len(arrivals) == 50
    assert len(set(arrivals)) < 25


def test_only_what_may_be_lost_is_lost() -> None:
    for lossy in (True, False):
        harness, seen = WireHarness(kind=WireKind.PUSH, push_loss=1.0), list[int]()
        harness.wire.deliver(lambda seen=seen: seen.append(1), lossy=lossy)  # type: ignore[misc]
        harness.loop.run_until(1.0)
        assert seen == ([] if lossy else [1])


def test_nothing_is_delivered_to_the_dead() -> None:
    harness, seen = WireHarness(), list[int]()
    harness.wire.deliver(lambda: seen.append(1))
    harness.process.crash()
    harness.loop.run_until(1.0)
    assert seen == []


def test_in_an_outage_no_call_succeeds_and_afterwards_all_do() -> None:
    harness = WireHarness()
    harness.faults.begin_outage(WireKind.STORE, 2.0)
    task = harness.call()
    harness.loop.run_until(2.0)
    assert isinstance(task.exception(), ServiceUnavailable)
    task = harness.call()
    harness.ended_at(task)
    assert task.result() == "done"


def test_once_faults_have_stopped_everything_works() -> None:
    rates = WireRates(lost_request=0.5, unavailable=0.5, tail=1.0)
    harness, seen = WireHarness(rates, kind=WireKind.PUSH, push_loss=1.0), list[int]()
    harness.faults.begin_outage(WireKind.PUSH, 50.0)
    harness.faults.stop()
    task = harness.call()
    harness.wire.deliver(lambda: seen.append(1), lossy=True)
    assert harness.ended_at(task) < 0.05
    harness.loop.run_until(1.0)
    assert (task.result(), seen, harness.wire.hidden_rows(9), harness.wire.events_kept(9)) == ("done", [1], [], 9)
    assert harness.faults.counts == {}


def test_reads_meet_no_conflicts() -> None:
    faults = WireHarness(WireRates(conflict=1.0)).faults
    assert faults.draw_fault(WireKind.STORE, "read", 0.0) is Fault.THROTTLED
    assert faults.draw_fault(WireKind.STORE, "persist", 0.0) is Fault.CONFLICT
    assert faults.counts == {"throttled": 1, "conflict": 1}


def test_pushes_arrive_in_their_order_and_in_runs_of_any_length() -> None:
    lengths: set[int] = set()
    for seed in range(20):
        harness = WireHarness(seed=seed)
        arrived: list[Sequence[int]] = []
        harness.wire.deliver_all(arrived.append, range(6))
        harness.loop.run_until(100.0)
        assert [each for run in arrived for each in run] == list(range(6))
        lengths.update(map(len, arrived))
    assert {1, 2, 3} <= lengths


def test_a_cut_append_loses_at_least_its_last_event() -> None:
    cuts = {WireHarness(seed=seed).wire.events_kept(3) for seed in range(40)}
    assert cuts == {0, 1, 2}


def test_incidents_come_in_order_within_the_time_of_faults_and_repeat_with_the_seed() -> None:
    profile = FaultProfile(name="busy", summary="", per_minute={IncidentKind.CRASH: 60.0, IncidentKind.OUTAGE: 60.0})

    def profile_of_seed(seed: int) -> Faults:
        return Faults(Random(seed), profile, duration_s=20.0)

    incidents = profile_of_seed(1).incidents
    assert len(incidents) == 40
    assert [incident.at for incident in incidents] == sorted(incident.at for incident in incidents)
    assert all(0.0 < incident.at < 20.0 and 0.0 <= incident.target < 1.0 for incident in incidents)
    assert all((incident.wire is not None) == (incident.kind is IncidentKind.OUTAGE) for incident in incidents)
    assert profile_of_seed(1).incidents == incidents != profile_of_seed(2).incidents


def test_each_seed_has_its_own_mixture() -> None:
    summaries = [mixture(Random(seed)).summary for seed in range(50)]
    assert len(set(summaries)) > 40
    assert summaries == [mixture(Random(seed)).summary for seed in range(50)]


def test_the_embedded_worlds_meet_the_same_mixtures_on_a_store_of_whole_sends() -> None:
    for seed in range(20):
        mixed, embedded = (Faults(Random(seed), PROFILES[name], duration_s=10.0) for name in ("mixed", "embedded"))
        assert (mixed.profile.summary, mixed.incidents) == (embedded.profile.summary, embedded.incidents)
        assert (mixed.profile.atomic_store, embedded.profile.atomic_store) == (False, True)
        assert embedded.profile.partial_append >= 0.05


def test_a_dead_or_paused_process_decides_nothing_at_the_store() -> None:
    harness = WireHarness()
    heard = [harness.wire.caller_alive()]
    harness.process.pause()
    heard.append(harness.wire.caller_alive())
    harness.process.resume()
    heard.append(harness.wire.caller_alive())
    harness.process.crash()
    assert [*heard, harness.wire.caller_alive()] == [True, False, True, False]

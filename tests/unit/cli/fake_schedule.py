"""A schedule without a simulation: every tenth seed breaks a promise, seed 666 breaks the simulator itself."""

from seriatim.simulation.results import ScheduleResult, Violation
from seriatim.simulation.trace import Trace


def run_schedule(seed: int, *, profile: str, mutant: str | None, trace: Trace | None) -> ScheduleResult:
    if seed == 666:
        raise RuntimeError("the world fell over")
    broken = seed % 10 == 0 and mutant != "harmless"
    if trace is not None:
        trace.note(0.5, "gateway", f"hello from seed {seed} in {profile}")
        trace.note(1.5, "gateway.1", "hello again")
    violation = Violation(invariant="client_order", explanation="bob saw 2 before 1", at=1.5)
    return ScheduleResult(
        seed=seed,
        virtual_seconds=36.0,
        sends=10,
        acks=9,
        faults={"crash": 2, "request lost": 1},
        violations=(violation,) if broken else (),
        events_run=1000,
    )

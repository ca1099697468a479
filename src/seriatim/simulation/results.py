"""The results of a schedule, of a run of many, and of a hunt for a mutant. Plain data: it is sent between processes."""

from collections.abc import Iterable

import msgspec


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A broken promise. `explanation` is the shortest story that shows it."""

    invariant: str
    explanation: str
    at: float


class ScheduleResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one world."""

    seed: int
    virtual_seconds: float
    sends: int
    acks: int
    faults: dict[str, int]
    violations: tuple[Violation, ...]
    events_run: int
    digest: str = ""  # of the trace, or the loop's fingerprint when no trace was kept


class SeedViolation(msgspec.Struct, frozen=True, kw_only=True):
    """A violation and the seed that shows it."""

    seed: int
    violation: Violation


class RunSummary(msgspec.Struct, kw_only=True):
    """Many schedules added up. `cpu_s` is the processor time that they took."""

    profile: str
    schedules: int = 0
    virtual_seconds: float = 0.0
    sends: int = 0
    acks: int = 0
    events_run: int = 0
    faults: dict[str, int] = {}
    broken: list[SeedViolation] = []
    cpu_s: float = 0.0
    wall_s: float = 0.0
    first_seed: int | None = None
    last_seed: int | None = None
    interrupted: bool = False
    baseline_events_per_s: float = 0.0

    def add(self, results: Iterable[ScheduleResult], cpu_s: float) -> None:
        for result in results:
            self.schedules += 1
            self.virtual_seconds += result.virtual_seconds
            self.sends += result.sends
            self.acks += result.acks
            self.events_run += result.events_run
            for kind, count in result.faults.items():
                self.faults[kind] = self.faults.get(kind, 0) + count
            self.broken += [SeedViolation(seed=result.seed, violation=each) for each in result.violations]
            self.first_seed = result.seed if self.first_seed is None else self.first_seed
            self.last_seed = result.seed
        self.cpu_s += cpu_s

    @property
    def broken_seeds(self) -> int:
        return len({broken.seed for broken in self.broken})

    @property
    def schedules_per_core_s(self) -> float:
        return self.schedules / self.cpu_s if self.cpu_s else 0.0

    @property
    def baseline_schedules_per_core_s(self) -> float:
        """As many events per schedule, none of which does anything: the difference is the cost of the system itself."""
        return self.baseline_events_per_s * self.schedules / self.events_run if self.events_run else 0.0


class MutantResult(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the checks noticed that a rule was removed from the system."""

    name: str
    removes: str
    profile: str
    seeds_tried: int
    caught_by: SeedViolation | None

    @property
    def caught(self) -> bool:
        return self.caught_by is not None

"""What goes wrong in one schedule: rates per call, and a list of timed incidents, all drawn from the seed.

Only `random()` is used, and only plain arithmetic on it: both give the same floats on every machine and Python.
"""

from collections.abc import Mapping
from enum import StrEnum
from random import Random

import msgspec

from seriatim.simulation.faults.profiles import (
    PROFILES,
    FaultProfile,
    Incident,
    IncidentKind,
    WireKind,
    WireRates,
    profile_of_seed,
)

_QUIET = WireRates()
# Transactions and updates collide with each other; reads do not.
_WRITES = frozenset(
    {"allocate", "persist", "seal", "flush", "acknowledge", "recover_counter", "raise_counter"}
    | {"create_group", "create_direct", "add_member", "remove_member", "leave", "change_role"}
)


class Fault(StrEnum):
    """What may happen to one call."""

    REQUEST_LOST = "request lost"  # never applied; the caller waits in vain
    RESPONSE_LOST = "response lost"  # applied; the caller waits in vain
    LATE = "applied late"  # applied after the caller gave up
    RESET = "connection reset"  # the caller learns at once that it will not learn; applied before, after or never
    THROTTLED = "throttled"  # refused, not applied
    CONFLICT = "conflict"  # refused, not applied
    UNAVAILABLE = "unavailable"  # refused, not applied
    CRASH = "crash in call"  # applied, and the caller's process dies in that moment


class Faults:
    """The plan for one seed. After `stop` every draw is healthy."""

    def __init__(self, random: Random, profile: FaultProfile, *, duration_s: float) -> None:
        self._random = random
        self.profile = profile_of_seed(profile, random)
        self.active = True
        self.counts: dict[str, int] = {}
        self.shuffled = random.random() < self.profile.shuffled
        self.incidents = _draw_incidents(random, self.profile, duration_s)
        self._thresholds: Mapping[WireKind, _FaultThresholds] = {
            kind: _thresholds(self.profile.wires.get(kind, _QUIET), self.profile.crash_in_call) for kind in WireKind
        }
        self._tails = {kind: self.profile.wires.get(kind, _QUIET).tail for kind in WireKind}
        self._outage_until: dict[WireKind, float] = {}

    def stop(self) -> None:
        """The world heals: requests in flight stay late, and there are no new faults."""
        self.active = False

    def count(self, kind: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def draw_fault(self, kind: WireKind, operation: str, now: float) -> Fault | None:
        """What happens to this call; None for most."""
        if not self.active:
            return None
        chance = self._random.random()
        if self._outage_until and now < self._outage_until.get(kind, 0.0):
            fault = _in_outage(chance)
        else:
            thresholds = self._thresholds[kind]
            if chance >= thresholds.total:
                return None
            fault = next(each for bound, each in thresholds.bounds if chance < bound)
        if fault is Fault.CONFLICT and operation not in _WRITES:
            fault = Fault.THROTTLED
        self.count(fault.value)
        return fault

    def delay(self, kind: WireKind) -> float:
        """Seconds for one leg: mostly milliseconds, at times much longer."""
        low, span = _LEGS_S[kind]
        chance = self._random.random()
        if self.active and chance < self._tails[kind]:
            return low + self.profile.tail_s * self._random.random() * self._random.random()
        return low + span * chance * chance

    def delay_past_answer(self) -> float:
        """Seconds by which a late request misses its caller."""
        return 0.001 + self.profile.late_s * self._random.random() * self._random.random()

    def commit_gap(self) -> float:
        """Seconds between the first and the last row of a commit becoming visible."""
        chance = self._random.random()
        return 0.001 + (self.profile.partial_visibility_s if self.active else 0.003) * chance * chance

    def hidden_rows(self, count: int) -> list[int]:
        """The rows of a commit that become visible late."""
        if not self.active or not self._happens(self.profile.partial_visibility):
            return []
        hidden = [index for index in range(count) if self._random.random() < 0.5]
        if hidden:
            self.count("half visible commit")
        return hidden

    def events_kept(self, count: int) -> int:
        """How many of `count` events an append keeps."""
        if not self.active or not self._happens(self.profile.partial_append):
            return count
        self.count("append cut")
        return int(self._random.random() * count)

    def loses_push(self) -> bool:
        lost = self.active and self._happens(self.profile.push_loss)
        if lost:
            self.count("push lost")
        return lost

    def coalesces(self) -> bool:
        """Whether a push arrives together with the one before it. Not a fault: networks do so."""
        return self._happens(0.5)

    def misroutes(self) -> bool:
        """Whether this send goes to an ingest process that does not own the chat."""
        wrong = self.active and self._happens(self.profile.misroute)
        if wrong:
            self.count("misrouted")
        return wrong

    def skew_s(self) -> float:
        """How wrong a process's wall clock is from its start."""
        return self.profile.skew_s * (2 * self._random.random() - 1)

    def begin_outage(self, kind: WireKind, until: float) -> None:
        """Until then most calls of that kind are refused or lost."""
        if self.active:
            self._outage_until[kind] = max(until, self._outage_until.get(kind, 0.0))

    def even_chance(self) -> bool:
        return self._random.random() < 0.5

    def _happens(self, rate: float) -> bool:
        return rate > 0.0 and self._random.random() < rate


def profile_named(name: str) -> FaultProfile:
    """Raises KeyError for an unknown name."""
    return PROFILES[name]


# How long one healthy leg takes: the least, and the span above it.
_LEGS_S: Mapping[WireKind, tuple[float, float]] = {
    WireKind.STORE: (0.001, 0.009),
    WireKind.EVENTS: (0.001, 0.014),
    WireKind.DIRECTORY: (0.0003, 0.003),
    WireKind.PUSH: (0.0003, 0.004),
    WireKind.RPC: (0.0003, 0.003),
}


class _FaultThresholds(msgspec.Struct, frozen=True):
    """Cumulated rates, so that one draw decides among all faults."""

    bounds: tuple[tuple[float, Fault], ...]
    total: float


def _thresholds(rates: WireRates, crash: float) -> _FaultThresholds:
    bounds: list[tuple[float, Fault]] = []
    total = 0.0
    for rate, fault in (
        (rates.lost_request, Fault.REQUEST_LOST),
        (rates.lost_response, Fault.RESPONSE_LOST),
        (rates.late, Fault.LATE),
        (rates.reset, Fault.RESET),
        (rates.throttled, Fault.THROTTLED),
        (rates.conflict, Fault.CONFLICT),
        (rates.unavailable, Fault.UNAVAILABLE),
        (crash, Fault.CRASH),
    ):
        if rate > 0.0:
            total += rate
            bounds.append((total, fault))
    return _FaultThresholds(tuple(bounds), total)


def _in_outage(chance: float) -> Fault:
    if chance < 0.5:
        return Fault.UNAVAILABLE
    if chance < 0.8:
        return Fault.REQUEST_LOST
    return Fault.LATE if chance < 0.9 else Fault.RESPONSE_LOST


_LATER_KINDS = (IncidentKind.SYNC, IncidentKind.NEW_CHAT, IncidentKind.UNREADABLE)


def _draw_incidents(random: Random, profile: FaultProfile, duration_s: float) -> tuple[Incident, ...]:
    incidents = []
    for kind in IncidentKind:
        expected = profile.per_minute.get(kind, 0.0) * duration_s / 60.0
        if kind in _LATER_KINDS and not expected:
            continue  # no draw: a world without it is the one that its seed gave before there was this kind
        for _ in range(int(expected + random.random())):
            low, high = kind.duration_s
            incidents.append(
                Incident(
                    at=duration_s * (0.02 + 0.93 * random.random()),
                    kind=kind,
                    target=random.random(),
                    duration_s=low + (high - low) * random.random() * random.random(),
                    amount=2.0 * random.random() - 1.0,
                    wire=_outage_wire(profile, random.random()) if kind is IncidentKind.OUTAGE else None,
                )
            )
    return tuple(sorted(incidents, key=lambda incident: incident.at))


def _outage_wire(profile: FaultProfile, chance: float) -> WireKind:
    kinds = profile.outages or tuple(WireKind)
    return kinds[int(chance * len(kinds))]

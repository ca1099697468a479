"""The named fault profiles: rates per call, and how often larger things happen.

`mixed` is not a profile but a recipe: each seed draws its own mixture of all the others. `embedded` is the same recipe
for another system: one ingest process whose store takes a send in one atomic commit.
"""

from collections.abc import Mapping
from enum import StrEnum
from random import Random

import msgspec

MIXED = "mixed"
EMBEDDED = "embedded"


class WireKind(StrEnum):
    """What lies at the other end of a wire."""

    STORE = "store"
    EVENTS = "events"
    DIRECTORY = "directory"
    PUSH = "push"
    RPC = "rpc"


class WireRates(msgspec.Struct, frozen=True, kw_only=True):
    """Chances per call (`tail`: per leg)."""

    lost_request: float = 0.0
    lost_response: float = 0.0
    late: float = 0.0
    reset: float = 0.0
    throttled: float = 0.0
    conflict: float = 0.0
    unavailable: float = 0.0
    tail: float = 0.0


class IncidentKind(StrEnum):
    """Larger things, which the world carries out at their time."""

    CRASH = "crash"
    PAUSE = "pause"
    OUTAGE = "outage"
    WIPE = "directory wiped"
    INTERRUPT = "subscription interrupted"
    REBALANCE = "rebalance"
    COUNTER_LOSS = "counter lost"
    MEMBERSHIP = "membership change"
    SLOW_READER = "slow reader"
    RECONNECT = "reconnect"
    CLOCK_JUMP = "clock jump"
    SYNC = "periodic sync"
    NEW_CHAT = "chat created"
    UNREADABLE = "row unreadable"

    @property
    def duration_s(self) -> tuple[float, float]:
        """Shortest and longest; the shorter ones are more frequent."""
        return _DURATIONS_S.get(self, (0.0, 0.0))


_DURATIONS_S = {
    IncidentKind.CRASH: (0.05, 6.0),  # until the restart
    IncidentKind.PAUSE: (0.2, 6.0),  # longer than a slot lease and the sealing age, now and then
    IncidentKind.OUTAGE: (0.3, 10.0),
    IncidentKind.INTERRUPT: (0.05, 4.0),
    IncidentKind.COUNTER_LOSS: (0.5, 5.0),  # until the operator repairs it
    IncidentKind.SLOW_READER: (0.5, 14.0),  # around the grace period of slow consumers, and beyond
    IncidentKind.RECONNECT: (0.0, 4.0),  # offline
    IncidentKind.UNREADABLE: (0.5, 8.0),  # until the operator mends the row
}


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """Something to do at a time. `target` in [0, 1) picks one of whatever it applies to; `amount` is in [-1, 1)."""

    at: float
    kind: IncidentKind
    target: float
    duration_s: float
    amount: float
    wire: WireKind | None = None


class FaultProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Chances and frequencies. What is left out does not happen."""

    name: str
    summary: str
    wires: Mapping[WireKind, WireRates] = {}
    per_minute: Mapping[IncidentKind, float] = {}
    outages: tuple[WireKind, ...] = ()  # which wires an OUTAGE may take; none named: any
    shuffled: float = 0.3  # chance that this schedule runs ready callbacks in any order
    crash_in_call: float = 0.0  # per call
    partial_visibility: float = 0.2  # per commit: readers see it half done
    partial_visibility_s: float = 0.05
    partial_append: float = 0.0  # per append: only a prefix of the events arrives
    push_loss: float = 0.0  # per envelope
    misroute: float = 0.0  # per send: a process that does not own the chat gets it
    tail_s: float = 1.0  # the longest leg
    late_s: float = 4.0  # how far beyond its caller's patience a request may arrive
    power_loss: float = 0.0  # per write of a device's store
    skew_s: float = 0.0  # wall clocks are wrong by up to this
    local: bool = False  # one part fails, and nothing else: see `local_faults`
    atomic_store: bool = False  # one ingest process, on a store with atomic commits


_CALM_WIRES = {kind: WireRates(tail=0.002) for kind in WireKind}
_LOSSY = WireRates(lost_request=0.01, lost_response=0.015, late=0.01, reset=0.01, tail=0.03)

PROFILES: Mapping[str, FaultProfile] = {
    profile.name: profile
    for profile in (
        FaultProfile(name="calm", summary="nothing fails", wires=_CALM_WIRES, shuffled=0.5),
        FaultProfile(
            name="network",
            summary="requests, answers and pushes are late or lost; sends reach the wrong process; clients reconnect",
            wires=dict.fromkeys(WireKind, _LOSSY),
            per_minute={IncidentKind.RECONNECT: 12.0, IncidentKind.INTERRUPT: 2.0},
            push_loss=0.05,
            misroute=0.05,
            tail_s=3.0,
        ),
        FaultProfile(
            name="crashes",
            summary="processes crash between any two steps, freeze, and restart",
            wires=_CALM_WIRES,
            per_minute={IncidentKind.CRASH: 10.0, IncidentKind.PAUSE: 6.0},
            crash_in_call=0.002,
            power_loss=0.01,
        ),
        FaultProfile(
            name="store",
            summary="the store throttles, conflicts, times out, shows commits half done, and has rows it cannot read",
            wires={
                **_CALM_WIRES,
                WireKind.STORE: WireRates(
                    lost_request=0.01,
                    lost_response=0.03,
                    late=0.02,
                    reset=0.02,
                    throttled=0.04,
                    conflict=0.04,
                    unavailable=0.02,
                    tail=0.06,
                ),
            },
            per_minute={IncidentKind.OUTAGE: 2.0, IncidentKind.UNREADABLE: 6.0},
            outages=(WireKind.STORE,),
            partial_visibility=0.6,
            partial_visibility_s=0.3,
            misroute=0.05,
            tail_s=2.0,
        ),
        FaultProfile(
            name="events",
            summary="the event log is down at times, keeps only part of an append, and rebalances",
            wires={
                **_CALM_WIRES,
                WireKind.EVENTS: WireRates(
                    lost_request=0.02, lost_response=0.05, late=0.03, reset=0.03, unavailable=0.03, tail=0.06
                ),
            },
            per_minute={IncidentKind.OUTAGE: 4.0, IncidentKind.REBALANCE: 8.0},
            outages=(WireKind.EVENTS,),
            partial_append=0.05,
            tail_s=4.0,
        ),
        FaultProfile(
            name="redis",
            summary="the directory is wiped, pushes are lost, subscriptions break; a chat is created meanwhile",
            wires={
                **_CALM_WIRES,
                WireKind.DIRECTORY: WireRates(lost_request=0.02, lost_response=0.02, unavailable=0.04, tail=0.03),
                WireKind.PUSH: WireRates(lost_request=0.02, lost_response=0.02, unavailable=0.04, tail=0.03),
            },
            per_minute={
                IncidentKind.WIPE: 4.0,
                IncidentKind.INTERRUPT: 6.0,
                IncidentKind.OUTAGE: 2.0,
                IncidentKind.NEW_CHAT: 3.0,
            },
            outages=(WireKind.DIRECTORY, WireKind.PUSH),
            push_loss=0.15,
        ),
        FaultProfile(
            name="members",
            summary="users join and leave chats while messages are in flight",
            wires={kind: WireRates(lost_response=0.005, late=0.005, tail=0.05) for kind in WireKind},
            per_minute={IncidentKind.MEMBERSHIP: 40.0, IncidentKind.RECONNECT: 6.0, IncidentKind.WIPE: 1.0},
            tail_s=2.0,
        ),
        FaultProfile(
            name="churn",
            summary="memberships change all the time, clients reconnect often, and the store is slow to answer",
            wires={**_CALM_WIRES, WireKind.STORE: WireRates(tail=0.15)},
            per_minute={IncidentKind.MEMBERSHIP: 80.0, IncidentKind.RECONNECT: 20.0},
        ),
        FaultProfile(
            name="regret",
            summary="memberships change, answers are late, clients send again soon, users discard what was refused",
            wires={
                **_CALM_WIRES,
                WireKind.STORE: WireRates(tail=0.1),
                WireKind.PUSH: WireRates(tail=0.25),
                WireKind.RPC: WireRates(tail=0.1),
            },
            per_minute={IncidentKind.MEMBERSHIP: 120.0},
            push_loss=0.2,
            tail_s=3.0,
        ),
        FaultProfile(
            name="slow",
            summary="clients stop reading for a while",
            wires=_CALM_WIRES,
            per_minute={IncidentKind.SLOW_READER: 12.0, IncidentKind.RECONNECT: 4.0},
            push_loss=0.02,
        ),
        FaultProfile(
            name="counter",
            summary="a chat's counter row is lost and repaired",
            wires={kind: WireRates(lost_response=0.005, late=0.005, tail=0.02) for kind in WireKind},
            per_minute={IncidentKind.COUNTER_LOSS: 4.0, IncidentKind.CRASH: 2.0},
        ),
        FaultProfile(
            name="restore",
            summary="chats lose their counter and newest messages while clients sync and the event log repeats itself",
            wires={**_CALM_WIRES, WireKind.PUSH: WireRates(tail=0.2), WireKind.STORE: WireRates(tail=0.1)},
            per_minute={
                IncidentKind.COUNTER_LOSS: 9.0,
                IncidentKind.SYNC: 60.0,
                IncidentKind.REBALANCE: 20.0,
                IncidentKind.SLOW_READER: 6.0,
            },
            tail_s=2.0,
        ),
        FaultProfile(
            name="clocks",
            summary="wall clocks disagree and jump, processes freeze",
            wires={kind: WireRates(late=0.005, tail=0.03) for kind in WireKind},
            per_minute={IncidentKind.CLOCK_JUMP: 6.0, IncidentKind.PAUSE: 6.0},
            skew_s=1.5,
            misroute=0.05,
            tail_s=2.0,
        ),
        FaultProfile(
            name="local",
            summary="one ingest process, one chat or one row fails and nothing else, while many clients write to it",
            wires=_CALM_WIRES,
            local=True,
        ),
        FaultProfile(name=MIXED, summary="each seed draws its own mixture of all the others"),
        FaultProfile(
            name=EMBEDDED,
            summary="as mixed, with one ingest process whose store takes a send in one atomic commit, and loses some",
            partial_append=0.05,
            atomic_store=True,
        ),
    )
}

_INTENSITIES = (0.25, 0.5, 1.0, 1.0, 2.0)
_RECIPES = (MIXED, EMBEDDED)
# No part of any mixture: more of what another profile has, or nothing else beside it.
_NARROW = ("churn", "local", "regret", "restore")
_MIXED_IN = 0.4  # chance of one profile to be part of a mixture
_RATE_MAX = 0.2  # of one fault on one wire: beyond this nothing gets done, and nothing is learned


def profile_of_seed(profile: FaultProfile, random: Random) -> FaultProfile:
    """The profile itself, or what this seed makes of a recipe."""
    if profile.name not in _RECIPES:
        return profile
    mixed = mixture(random)
    return msgspec.structs.replace(
        mixed,
        name=profile.name,
        partial_append=max(mixed.partial_append, profile.partial_append),
        atomic_store=profile.atomic_store,
    )


def mixture(random: Random) -> FaultProfile:
    """One seed's own profile: some of the named ones, each with its own intensity, added up."""
    parts = [
        (profile, _INTENSITIES[int(random.random() * len(_INTENSITIES))])
        for profile in PROFILES.values()
        if profile.name not in (*_RECIPES, *_NARROW) and random.random() < _MIXED_IN
    ]
    if not parts:
        parts = [(PROFILES["calm"], 1.0)]

    profiles = [profile for profile, _ in parts]
    return FaultProfile(
        name=MIXED,
        summary=" + ".join(f"{profile.name} x{intensity:g}" for profile, intensity in parts),
        wires={kind: _added_wires([(profile.wires[kind], by) for profile, by in parts]) for kind in WireKind},
        per_minute={
            kind: _sum([(profile.per_minute.get(kind, 0.0), by) for profile, by in parts]) for kind in IncidentKind
        },
        outages=tuple(kind for kind in WireKind if any(kind in profile.outages for profile in profiles)),
        shuffled=0.3,
        crash_in_call=_rate([(profile.crash_in_call, by) for profile, by in parts]),
        partial_visibility=max(profile.partial_visibility for profile in profiles),
        partial_visibility_s=max(profile.partial_visibility_s for profile in profiles),
        partial_append=_rate([(profile.partial_append, by) for profile, by in parts]),
        push_loss=_rate([(profile.push_loss, by) for profile, by in parts]),
        misroute=_rate([(profile.misroute, by) for profile, by in parts]),
        power_loss=_rate([(profile.power_loss, by) for profile, by in parts]),
        tail_s=max(profile.tail_s for profile in profiles),
        late_s=max(profile.late_s for profile in profiles),
        skew_s=max(profile.skew_s for profile in profiles),
    )


def _added_wires(parts: list[tuple[WireRates, float]]) -> WireRates:
    fields = WireRates.__struct_fields__
    return WireRates(**{field: _rate([(getattr(rates, field), by) for rates, by in parts]) for field in fields})


def _rate(parts: list[tuple[float, float]]) -> float:
    return min(_RATE_MAX, _sum(parts))


def _sum(parts: list[tuple[float, float]]) -> float:
    """By hand: the built-in sum() rounds floats differently from Python 3.12 on, and a seed must not care."""
    total = 0.0
    for value, intensity in parts:
        total += value * intensity
    return total

"""The promise itself: everyone in a chat sees every message, once, in the same order, whatever fails."""

import pytest

from seriatim.simulation.faults.profiles import MIXED, PROFILES
from seriatim.simulation.runner import run_one

MIXED_CHUNKS, CHUNK_SEEDS = 16, 50
SEEDS_PER_PROFILE = 30


def broken_promises(seeds: range, profile: str) -> list[str]:
    return [
        f"{violation.invariant}: {violation.explanation} (seriatim simulate --seed {seed} --profile {profile} --trace)"
        for seed in seeds
        for violation in run_one(seed, profile=profile).violations
    ]


@pytest.mark.parametrize("chunk", range(MIXED_CHUNKS))
def test_no_promise_is_broken_in_any_mixture_of_faults(chunk: int) -> None:
    first = 1 + chunk * CHUNK_SEEDS
    assert broken_promises(range(first, first + CHUNK_SEEDS), MIXED) == []


@pytest.mark.parametrize("profile", [name for name in PROFILES if name != MIXED])
def test_no_promise_is_broken_under_one_kind_of_fault(profile: str) -> None:
    assert broken_promises(range(1, 1 + SEEDS_PER_PROFILE), profile) == []


def test_schedules_do_what_they_are_for() -> None:
    """Messages are sent and acked, faults happen, time passes: an empty world keeps every promise too."""
    results = [run_one(seed, profile=MIXED) for seed in range(1, 41)]
    assert sum(result.acks for result in results) > 200
    assert sum(sum(result.faults.values()) for result in results) > 400
    kinds = {kind for result in results for kind in result.faults}
    assert {"crash", "applied late", "response lost", "misrouted", "membership change", "counter lost"} <= kinds

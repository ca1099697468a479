"""Small limits belong to a schedule, take effect in it, and leave with it."""

from collections.abc import Sequence
from random import Random

import pytest

from seriatim.domain import limits
from seriatim.simulation import tight_limits as tight
from seriatim.simulation.runner import run_one
from seriatim.simulation.tight_limits import (
    LIMIT_SETS,
    PROFILE_LIMITS,
    Number,
    limit_set,
    limits_chance,
    tight_limits,
    tightened,
)

WORLDS_MAX = 60  # in which a tightened limit has to change something


def test_every_set_of_limits_is_met_within_a_few_dozen_seeds() -> None:
    drawn = [limit_set(Random(seed).random()) for seed in range(100)]
    assert sorted(dict.fromkeys(drawn)) == sorted(LIMIT_SETS)
    assert drawn.count("usual") > 30


def test_the_ends_of_the_range_of_chance_name_a_set() -> None:
    assert limit_set(0.0) == "usual"
    assert limit_set(1.0 - 2**-53) == list(LIMIT_SETS)[-1]


def test_a_schedule_leaves_every_limit_as_it_was() -> None:
    before = [getattr(limits, name) for name in tightened()]
    for chance in (0.0, 0.55, 0.7, 0.8, 0.95):
        with tight_limits(chance):
            pass
    assert [getattr(limits, name) for name in tightened()] == before


def test_a_number_of_the_chosen_set_overrides_the_usual_one() -> None:
    with tight_limits(0.5):
        assert (limits.CLIENT_SYNC_SLOTS, limits.FILL_SLOTS_MAX, limits.HELD_MESSAGES_MAX) == (1, 1, 1)


@pytest.mark.parametrize("name", tightened())
def test_each_tightened_limit_takes_effect(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some world of a few dozen takes another course when this one limit keeps its usual value."""
    profile = next((each for each, numbers in PROFILE_LIMITS.items() if name in dict(numbers)), "mixed")
    for seed in worlds_with(name, profile):
        tightened_run = run_one(seed, profile=profile)
        with monkeypatch.context() as patch:
            patch.setattr(tight, "_ALWAYS", without(name, tight._ALWAYS))
            patch.setattr(tight, "LIMIT_SETS", {key: without(name, each) for key, each in LIMIT_SETS.items()})
            patch.setattr(tight, "PROFILE_LIMITS", {key: without(name, each) for key, each in PROFILE_LIMITS.items()})
            if run_one(seed, profile=profile).digest != tightened_run.digest:
                return
    pytest.fail(f"{name} makes no difference in {WORLDS_MAX} worlds")


def worlds_with(name: str, profile: str) -> list[int]:
    """The first seeds whose worlds tighten this limit."""
    found: list[int] = []
    seed = 0
    while len(found) < WORLDS_MAX:
        seed += 1
        numbers = (*tight._ALWAYS, *LIMIT_SETS[limit_set(limits_chance(seed))], *PROFILE_LIMITS.get(profile, ()))
        if name in dict(numbers):
            found.append(seed)
    return found


def without(name: str, numbers: Sequence[Number]) -> Sequence[Number]:
    return [number for number in numbers if number[0] != name]

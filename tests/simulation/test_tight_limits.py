"""Small limits belong to a schedule, and leave with it."""

from random import Random

from seriatim.domain import limits
from seriatim.simulation import tight_limits as tight
from seriatim.simulation.tight_limits import LIMIT_SETS, limit_set, tight_limits


def test_every_set_of_limits_is_met_within_a_few_dozen_seeds() -> None:
    profile_of_seed = [limit_set(Random(seed).random()) for seed in range(100)]
    assert sorted(dict.fromkeys(profile_of_seed)) == sorted(LIMIT_SETS)
    assert profile_of_seed.count("usual") > 30


def test_the_ends_of_the_range_of_chance_name_a_set() -> None:
    assert limit_set(0.0) == "usual"
    assert limit_set(1.0 - 2**-53) == list(LIMIT_SETS)[-1]


def test_a_schedule_leaves_every_limit_as_it_was() -> None:
    everything = [*tight._ALWAYS, *[number for numbers in LIMIT_SETS.values() for number in numbers]]
    before = [getattr(limits, name) for name, _ in everything]
    for chance in (0.0, 0.55, 0.7, 0.8, 0.95):
        with tight_limits(chance):
            pass
    assert [getattr(limits, name) for name, _ in everything] == before


def test_a_number_of_the_chosen_set_wins_over_the_usual_one() -> None:
    with tight_limits(0.5):
        assert (limits.CLIENT_SYNC_SLOTS, limits.FILL_SLOTS_MAX, limits.HELD_MESSAGES_MAX) == (1, 1, 1)

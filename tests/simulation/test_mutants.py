"""A rule whose loss no checker notices is no rule: every mutant of the real code is caught by a checker."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from seriatim.simulation.mutants.catalogue import MUTANTS
from seriatim.simulation.runner import hunt, run_one
from tests.support.soak import SOAK

# The first seed that catches a mutant, where that is not one of the first five: it is tried before all others. When the
# simulated worlds change, another seed catches it; the hunt then takes longer, until `make golden` writes these again.
SEEDS = Path(__file__).with_name("mutant_seeds.json")
KNOWN_SEEDS: Mapping[str, int] = {} if SOAK else json.loads(SEEDS.read_text(encoding="utf-8"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MUTANTS)
def test_the_loss_of_a_rule_is_noticed(name: str) -> None:
    mutant = MUTANTS[name]
    if name in KNOWN_SEEDS and hunt(mutant, seeds=[KNOWN_SEEDS[name]]).caught:
        return
    result = hunt(mutant, seeds=range(1, mutant.seeds + 1))
    assert result.caught, f"{name} ({mutant.removes}) survived {result.seeds_tried} seeds of {result.profile}"


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_leaves_the_code_as_it_was(name: str) -> None:
    mutant = MUTANTS[name]
    before = [(owner, attribute, getattr(owner, attribute)) for owner, attribute, _ in mutant.patches()]
    with mutant.apply():
        assert any(getattr(owner, attribute) is not original for owner, attribute, original in before)
    assert all(getattr(owner, attribute) is original for owner, attribute, original in before)


def test_the_seed_that_catches_a_mutant_is_clean_without_it() -> None:
    mutant = MUTANTS["naive-gateway"]
    caught = hunt(mutant, seeds=range(1, mutant.seeds + 1)).caught_by
    assert caught is not None
    assert run_one(caught.seed, profile=mutant.profile).violations == ()


def write_known_seeds() -> None:
    """`make golden` calls it."""
    caught = {name: hunt(each, seeds=range(1, each.seeds + 1)).caught_by for name, each in MUTANTS.items()}
    found = {name: result.seed for name, result in sorted(caught.items()) if result is not None and result.seed > 5}
    SEEDS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_known_seeds()

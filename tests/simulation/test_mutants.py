"""A rule whose loss nobody notices is no rule: every mutant of the real code is caught by a checker."""

import pytest

from seriatim.simulation.mutants.catalogue import MUTANTS
from seriatim.simulation.runner import hunt, run_one


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MUTANTS)
def test_the_loss_of_a_rule_is_noticed(name: str) -> None:
    mutant = MUTANTS[name]
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

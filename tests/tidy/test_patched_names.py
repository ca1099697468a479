"""A mutant, or a rule that a test of a hole removes, patches names of the source: each of them exists."""

import pytest

from seriatim.simulation.mutants.catalogue import MUTANTS
from seriatim.simulation.mutants.mutant import RemovedRule
from tests.holes import delivery_rules, durability_rules

RULES = {
    **MUTANTS,
    **{
        rule.name: rule
        for module in (delivery_rules, durability_rules)
        for rule in vars(module).values()
        if isinstance(rule, RemovedRule)
    },
}


@pytest.mark.parametrize("name", RULES)
def test_every_patched_name_exists(name: str) -> None:
    missing = [f"{owner}.{attribute}" for owner, attribute, _ in RULES[name].patches() if not hasattr(owner, attribute)]
    assert missing == [], "renamed? then rename it in the patch as well"

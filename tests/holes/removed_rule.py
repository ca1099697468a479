"""A rule that is removed by a test of its hole: a mutant of the simulator by its name, or a rule declared here."""

from collections.abc import Callable, Sequence

from seriatim.simulation.mutants.catalogue import MUTANTS
from seriatim.simulation.mutants.mutant import Patch, RemovedRule


def removes(rule: str, *, hole: str) -> Callable[[Callable[[], Sequence[Patch]]], RemovedRule]:
    """Declares a rule for which there is no mutant. The function returns the patches that remove it."""

    def declare(patches: Callable[[], Sequence[Patch]]) -> RemovedRule:
        return RemovedRule(name=patches.__name__.replace("_", "-"), removes=rule, hole=hole, patches=patches)

    return declare


def removed_rule(rule: str | RemovedRule) -> RemovedRule:
    return MUTANTS[rule] if isinstance(rule, str) else rule

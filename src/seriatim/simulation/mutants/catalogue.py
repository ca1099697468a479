"""Every mutant by name: the system with one rule removed. A check that notices none of them would prove nothing.

`seriatim simulate --mutant all` hunts all of them and shows which invariant catches each. `make spec` writes their
table in docs/simulation.md.
"""

from collections.abc import Mapping
from types import ModuleType

from seriatim.simulation.mutants import atomic_commit, breakers, client, connection, durability, fanout
from seriatim.simulation.mutants.mutant import Mutant

PLANES: tuple[ModuleType, ...] = (durability, atomic_commit, breakers, connection, fanout, client)


def _declared(plane: ModuleType) -> list[Mutant]:
    return [each for each in vars(plane).values() if isinstance(each, Mutant)]


MUTANTS: Mapping[str, Mutant] = {mutant.name: mutant for plane in PLANES for mutant in _declared(plane)}

"""The system with one rule taken out, once per rule. A check that notices none of them would prove nothing.

A mutant replaces named functions of the real code for the length of a schedule. It must be caught within `budget`
seeds of its profile; `seriatim simulate --mutant all` shows by which invariant.
"""

from collections.abc import Mapping

from seriatim.simulation.mutants import delivery, durability
from seriatim.simulation.mutants.mutant import Mutant

MUTANTS: Mapping[str, Mutant] = {mutant.name: mutant for mutant in (*durability.ALL, *delivery.ALL)}

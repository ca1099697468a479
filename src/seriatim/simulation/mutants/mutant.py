"""One rule taken out of the system, for the length of a schedule."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from seriatim.simulation.mutants.removed_rules import Patch


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """`hole`: the story of docs/spec/delivery.md#the-holes that it retells."""

    name: str
    removes: str
    hole: str
    patches: Callable[[], Sequence[Patch]]
    profile: str = "mixed"
    budget: int = 2000

    @contextmanager
    def apply(self) -> Iterator[None]:
        before: list[Patch] = []
        try:
            for owner, name, replacement in self.patches():
                before.append((owner, name, getattr(owner, name)))
                setattr(owner, name, replacement)
            yield
        finally:
            for owner, name, original in reversed(before):
                setattr(owner, name, original)

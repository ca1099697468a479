"""One rule removed from the system, for the length of a schedule."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

Patch = tuple[object, str, object]  # an owner, the name of its attribute, and the value that replaces it
SEEDS_MAX = 2000


class RemovedRule(msgspec.Struct, frozen=True, kw_only=True):
    """`removes` is the rule that the patches remove. `hole` is the row of docs/spec/delivery.md#the-holes it closes."""

    name: str
    removes: str
    hole: str
    patches: Callable[[], Sequence[Patch]]

    @contextmanager
    def apply(self) -> Iterator[None]:
        """Replaces named functions of the real code, and puts them back at the end."""
        before: list[Patch] = []
        try:
            for owner, name, replacement in self.patches():
                before.append((owner, name, getattr(owner, name)))
                setattr(owner, name, replacement)
            yield
        finally:
            for owner, name, original in reversed(before):
                setattr(owner, name, original)


class Mutant(RemovedRule, frozen=True, kw_only=True):
    """The checks of the simulator must notice the loss of the rule within `seeds` seeds of the profile."""

    profile: str
    seeds: int

    @property
    def plane(self) -> str:
        """Named by the module that declares it."""
        return self.patches.__module__.rpartition(".")[2].replace("_", " ")


def removes(
    rule: str, *, hole: str, profile: str = "mixed", seeds: int = SEEDS_MAX
) -> Callable[[Callable[[], Sequence[Patch]]], Mutant]:
    """Declares the mutant whose patches the function returns. `no_sealing` is the mutant `no-sealing`."""

    def declare(patches: Callable[[], Sequence[Patch]]) -> Mutant:
        name = patches.__name__.replace("_", "-")
        return Mutant(name=name, removes=rule, hole=hole, patches=patches, profile=profile, seeds=seeds)

    return declare

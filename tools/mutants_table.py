"""Part of `make spec`: writes the table of mutants in docs/simulation.md from the catalogue.

A test compares the page that is committed with what this would write.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from seriatim.simulation.mutants.catalogue import MUTANTS
from seriatim.simulation.mutants.mutant import Mutant

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "simulation.md"
BEGIN, END = "<!-- mutants: begin -->\n", "<!-- mutants: end -->"


def main() -> None:
    before = PAGE.read_text(encoding="utf-8")
    after = written(before, MUTANTS.values())
    if after != before:
        PAGE.write_text(after, encoding="utf-8")
        print(f"{PAGE.relative_to(ROOT)}: written", file=sys.stderr)


def written(page: str, mutants: Iterable[Mutant]) -> str:
    """The page with the table between its marks replaced. Raises `ValueError` if a mark is missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no place for the mutants")
    return before + begin + table(mutants) + end + after


def table(mutants: Iterable[Mutant]) -> str:
    """One row per mutant, with the plane whose module declares it."""
    lines = ["| mutant | plane | rule it removes | hole | profile | seeds |", "|---|---|---|---|---|---|"]
    lines += [
        f"| `{each.name}` | {each.plane} | {each.removes} | {each.hole} | `{each.profile}` | {each.seeds} |"
        for each in mutants
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

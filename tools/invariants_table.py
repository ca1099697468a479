"""`make spec`: writes the table of invariants in docs/spec/data.md from the registry of the code.

A test compares the page that is committed with what this would write.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from seriatim.operations.check.invariants import INVARIANTS, Invariant

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "spec" / "data.md"
BEGIN, END = "<!-- invariants: begin -->\n", "<!-- invariants: end -->"


def main() -> None:
    before = PAGE.read_text(encoding="utf-8")
    after = written(before, INVARIANTS.values())
    if after != before:
        PAGE.write_text(after, encoding="utf-8")
        print(f"{PAGE.relative_to(ROOT)}: written", file=sys.stderr)


def written(page: str, invariants: Iterable[Invariant]) -> str:
    """The page with the table between its marks replaced. Raises `ValueError` if a mark is missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no place for the invariants")
    return before + begin + table(invariants) + end + after


def table(invariants: Iterable[Invariant]) -> str:
    """One row per invariant, which begins with its identifier in bold: that is where a citation leads."""
    lines = ["| | name | from | what holds | shown by |", "|---|---|---|---|---|"]
    lines += [
        f"| **{each.id}** | `{each.name}` | {each.source} | {each.statement} | {_shown_by(each)} |"
        for each in invariants
    ]
    return "\n".join(lines) + "\n"


def _shown_by(invariant: Invariant) -> str:
    return "<br>".join(map(_test, invariant.shown_by)) or "`seriatim check`"


def _test(name: str) -> str:
    path, _, function = name.partition("::")
    return f"[{function.removeprefix('test_').replace('_', ' ')}](../../tests/{path})"


if __name__ == "__main__":
    main()

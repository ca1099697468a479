"""The table of invariants in docs/spec/data.md is the one that the registry writes."""

import pytest

from seriatim.operations.check.invariants import INVARIANTS, Invariant
from tools.invariants_table import BEGIN, END, PAGE, table, written

CHECKED = Invariant(id="I4", name="bounded", source="ADR-001", statement="no mark lies above the end", advice="repair")
TESTED = Invariant(
    id="D1",
    name="marked",
    source="delivery",
    statement="a chat is marked",
    shown_by=("unit/test_a.py::test_one_thing", "contract/suite.py::another"),
)


def test_the_page_is_as_the_registry_writes_it() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page, INVARIANTS.values()), "run `make spec`"


def test_a_row_begins_with_the_identifier_and_names_what_shows_the_invariant() -> None:
    _, _, checked, tested = table([CHECKED, TESTED]).splitlines()
    assert checked == "| **I4** | `bounded` | ADR-001 | no mark lies above the end | `seriatim check` |"
    tests = "[one thing](../../tests/unit/test_a.py)<br>[another](../../tests/contract/suite.py)"
    assert tested == f"| **D1** | `marked` | delivery | a chat is marked | {tests} |"


def test_the_table_is_written_between_its_marks_and_the_rest_of_the_page_stays() -> None:
    page = written(f"before\n{BEGIN}an older table\n{END}\nafter\n", [CHECKED])
    assert page == f"before\n{BEGIN}{table([CHECKED])}{END}\nafter\n"


@pytest.mark.parametrize("page", ["", BEGIN, END])
def test_a_page_without_a_place_for_the_table_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="no place"):
        written(page, [CHECKED])

"""The table of mutants in docs/simulation.md is the one that the catalogue writes."""

import pytest

from seriatim.simulation.mutants.catalogue import MUTANTS
from tools.mutants_table import BEGIN, END, PAGE, table, written

NO_SEALING = MUTANTS["no-sealing"]


def test_the_page_is_as_the_catalogue_writes_it() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page, MUTANTS.values()), "run `make spec`"


def test_a_row_names_the_mutant_its_plane_its_rule_its_hole_and_where_it_is_hunted() -> None:
    _, _, row = table([NO_SEALING]).splitlines()
    rule = "a hole that stays open is closed with a tombstone"
    assert row == f"| `no-sealing` | durability | {rule} | H1 | `store` | 2000 |"


def test_the_table_is_written_between_its_marks_and_the_rest_of_the_page_stays() -> None:
    page = written(f"before\n{BEGIN}an older table\n{END}\nafter\n", [NO_SEALING])
    assert page == f"before\n{BEGIN}{table([NO_SEALING])}{END}\nafter\n"


@pytest.mark.parametrize("page", ["", BEGIN, END])
def test_a_page_without_a_place_for_the_table_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="no place"):
        written(page, [NO_SEALING])

"""The page about faults keeps up with the tests: each fault has its measured row, each scenario its tests."""

import re
from pathlib import Path

import pytest

from tests.system.faults.fault_list import all_faults
from tests.system.scenario_list import SCENARIOS
from tools.faults_table import PAGE, Row, scenario_table, written

TESTS = Path(__file__).parents[2]


def row(name: str, seconds: float = 1.0) -> Row:
    return Row(
        fault=name,
        lasted_s=2.0,
        first_ack_s=seconds,
        all_acks_s=seconds,
        first_delivery_s=0.01,
        all_deliveries_s=seconds,
        ready_s=seconds,
        longest_wait_s=30.0,
        errors={"SERVICE_UNAVAILABLE": 3, "connection lost": 1},
        rest_errors={"503": 2},
        messages=50,
    )


def test_the_page_has_a_measured_row_for_every_fault_that_is_tried() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("faults: begin")[2].partition("faults: end")[0]
    assert [each.name for each in all_faults() if f"\n| {each.name} | {each.users}<br>" not in table] == []
    assert len(re.findall(r"everyone reads (?:[\d.]+ s|at once)", table)) == len(list(all_faults()))


def test_the_page_lists_the_scenarios_as_they_are_known() -> None:
    assert scenario_table() in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("number", range(16, 42))
def test_every_scenario_names_tests_that_are_there_or_says_why_not(number: int) -> None:
    scenario = SCENARIOS[number]
    assert scenario.note or (scenario.simulated and scenario.real)
    for test in scenario.tests():
        path, _, name = test.partition("::")
        source = (TESTS / path).read_text(encoding="utf-8")
        assert not name or re.search(rf"^(?:async )?def {name}\(", source, re.MULTILINE), test


def test_names_of_faults_are_unique() -> None:
    names = [each.name for each in all_faults()]
    assert len(dict.fromkeys(names)) == len(names)


def test_a_table_is_written_between_its_marks_with_medians_of_all_runs() -> None:
    faults = list(all_faults())
    rows = [row(each.name, seconds) for each in faults for seconds in (1.0, 9.0, 2.04)]
    page = written("a\n<!-- faults: begin -->\nyesterday\n<!-- faults: end -->\nb\n" + SCENARIO_MARKS, faults, rows)
    assert page.startswith("a\n<!-- faults: begin -->\n| fault |")
    assert "<!-- faults: end -->\nb\n" in page
    assert "yesterday" not in page
    line = next(each for each in page.splitlines() if faults[0].name in each)
    assert "first ack 2.0 s<br>everyone writes 2.0 s<br>first delivery at once" in line
    assert "*errors: `SERVICE_UNAVAILABLE`, connection lost; REST: `503`; longest wait for an ack 30.0 s*" in line


def test_a_fault_that_was_not_measured_leaves_the_page_alone() -> None:
    faults = list(all_faults())
    with pytest.raises(ValueError, match=re.escape(faults[-1].name)):
        written("", faults, [row(each.name) for each in faults[:-1]])


SCENARIO_MARKS = "<!-- scenarios: begin -->\n<!-- scenarios: end -->\n"

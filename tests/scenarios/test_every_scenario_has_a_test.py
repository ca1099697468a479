"""No scenario of docs/spec/data.md#scenarios that the kernel can show is forgotten: each number has a test."""

import re
from pathlib import Path

import pytest

SCENARIOS = (
    *range(1, 10),  # sending
    *range(14, 20),  # retrying and catching up
    *range(26, 32),  # too much, too broken
    *range(33, 38),  # the event log
    *range(39, 44),  # ours
)


@pytest.mark.parametrize("number", SCENARIOS)
def test_every_scenario_has_a_test(number: int) -> None:
    assert number in covered_numbers(), f"there is no test_s{number}_... in tests"


def covered_numbers() -> list[int]:
    sources = [path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parents[1].rglob("test_*.py"))]
    return [int(number) for source in sources for number in re.findall(r"^(?:async )?def test_s(\d+)_", source, re.M)]

"""No hole of delivery.md section 1 is forgotten: each has at least one story of its own in this folder."""

import re
from pathlib import Path

import pytest

HOLES = tuple(range(1, 26))  # H1 to H25


@pytest.mark.parametrize("number", HOLES)
def test_every_hole_has_a_test(number: int) -> None:
    assert number in told(), f"there is no test_h{number}_... in tests/holes"


def told() -> list[int]:
    sources = [path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("test_*.py"))]
    return [int(number) for source in sources for number in re.findall(r"^(?:async )?def test_h(\d+)_", source, re.M)]

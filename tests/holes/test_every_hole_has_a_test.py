"""No hole of docs/spec/delivery.md#the-holes is forgotten: each has at least one story of its own in this folder."""

import re
from pathlib import Path

import pytest

from tests.support.durability_harness import DurabilityHarness, draft
from tests.support.embedded_harness import EmbeddedDurabilityHarness
from tests.support.virtual_time import opened, run_in_virtual_time

HOLES = tuple(range(1, 26))  # H1 to H25


@pytest.mark.parametrize("number", HOLES)
def test_every_hole_has_a_test(number: int) -> None:
    assert number in covered_numbers(), f"there is no test_h{number}_... in tests/holes"


def test_a_story_on_a_folder_sends_by_an_atomic_commit() -> None:
    async def schedule(harness: DurabilityHarness) -> None:
        node = harness.node()
        await node.stored(draft(1))
        assert node.wire.calls == ["transaction"]
        assert isinstance(harness, EmbeddedDurabilityHarness)
        assert len(list(harness.folder.rows("messages"))) == 1

    for harness in opened(EmbeddedDurabilityHarness):
        run_in_virtual_time(harness, schedule(harness))


def covered_numbers() -> list[int]:
    return [int(name.split("_")[1].removeprefix("h")) for name in stories()]


def stories() -> list[str]:
    sources = [path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("test_*.py"))]
    return [name for source in sources for name in re.findall(r"^(?:async )?def (test_h\d+_\w+)", source, re.M)]

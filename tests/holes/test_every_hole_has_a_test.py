"""No hole of docs/spec/delivery.md#the-holes is forgotten: each has at least one story of its own in this folder."""

import re
from pathlib import Path

import pytest

from tests.holes.ways import ONLY_THE_LONG_WAY
from tests.support.bench import Bench, draft, simulate
from tests.support.embedded_bench import EmbeddedBench, embedded

HOLES = tuple(range(1, 26))  # H1 to H25


@pytest.mark.parametrize("number", HOLES)
def test_every_hole_has_a_test(number: int) -> None:
    assert number in told(), f"there is no test_h{number}_... in tests/holes"


def test_the_list_of_stories_that_cannot_take_the_short_way_names_stories_only() -> None:
    assert [name for name in ONLY_THE_LONG_WAY if name not in stories()] == []


def test_a_story_by_the_short_way_sends_in_one_step_to_a_real_folder() -> None:
    async def schedule(bench: Bench) -> None:
        node = bench.node()
        await node.stored(draft(1))
        assert node.wire.calls == ["step"]
        assert isinstance(bench, EmbeddedBench)
        assert len(list(bench.folder.rows("messages"))) == 1

    simulate(schedule, on=embedded)


def told() -> list[int]:
    return [int(name.split("_")[1].removeprefix("h")) for name in stories()]


def stories() -> list[str]:
    sources = [path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("test_*.py"))]
    return [name for source in sources for name in re.findall(r"^(?:async )?def (test_h\d+_\w+)", source, re.M)]

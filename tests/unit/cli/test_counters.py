"""`seriatim counters repair` on a folder without a server: it says what it found, and changes nothing on a dry run."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from seriatim.cli.main import main
from seriatim.domain import limits
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.disk import Disk
from seriatim.operations.topics import PARTITIONS
from tests.unit.operations import populated_store
from tests.unit.operations.populated_store import ANN, BOB, GROUP, embedded_store, make_populated
from tests.unit.operations.violations import Rows


@pytest.fixture
def halted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A populated store without a server, with all topics, whose group has lost its counter."""
    monkeypatch.setattr(populated_store, "TOPICS", PARTITIONS)
    monkeypatch.setattr(limits, "RECOVERY_QUIET_S", 0.01)
    asyncio.run(make_populated(tmp_path / "data"))
    disk = Disk(tmp_path / "data" / "store", create=False)
    Rows(disk).drop(rows.counter_key(GROUP))
    disk.close()
    return tmp_path / "data"


def run(data: Path, *arguments: str, chat: str = GROUP) -> Result:
    return CliRunner().invoke(main, ["counters", "repair", "--data", str(data), "--chat", chat, *arguments])


async def _next_sequence(data: Path) -> int:
    async with embedded_store(data) as populated:
        return (await populated.send(GROUP, ANN)).sequence


def test_a_dry_run_says_what_would_be_done_and_does_nothing(halted: Path) -> None:
    for _ in range(2):
        result = run(halted, "--dry-run")
        assert result.exit_code == 0
        assert "highest slot 5, highest event 5, highest watermark 5" in result.stdout
        assert "would set the counter to 5" in result.stdout


def test_after_a_repair_the_next_message_has_the_next_number(halted: Path) -> None:
    result = run(halted)
    assert result.exit_code == 0
    assert "the next message is number 6" in result.stdout
    assert asyncio.run(_next_sequence(halted)) == 6
    assert CliRunner().invoke(main, ["check", "--data", str(halted), "--recheck-seconds", "0"]).exit_code == 0


def test_a_published_event_without_its_row_is_counted_too(halted: Path) -> None:
    disk = Disk(halted / "store", create=False)
    disk.write({rows.slot_key(rows.slots_prefix(GROUP), 5): None, rows.watermark_key(BOB, GROUP): None})
    disk.close()
    done = json.loads(run(halted, "--margin", "2", "--json").stdout)["repair"]
    assert (done["newest_slot"], done["published"], done["allocated"], done["sealed"]) == (4, 5, 7, [5, 6, 7])


@pytest.mark.parametrize(
    ("chat", "why"), [("chat_nowhere", "has no members"), ("chat_direct", "exists"), ("?", "no id")]
)
def test_what_needs_no_repair_is_refused(halted: Path, chat: str, why: str) -> None:
    result = run(halted, chat=chat)
    assert (result.exit_code, result.stdout) == (2, "")
    assert why in result.stderr


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    result = run(tmp_path / "nowhere")
    assert result.exit_code == 2
    assert not (tmp_path / "nowhere").exists()

"""Whatever was acknowledged is there after `kill -9`, and after a loss of power that keeps only what was synced."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seriatim.domain.message import Message
from seriatim.engines.embedded.event_log import EmbeddedEventLog
from seriatim.engines.embedded.message_log import EmbeddedMessageLog
from seriatim.engines.embedded.storage.disk import Disk
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.ports.event_log import MESSAGES
from tests.unit.engines.embedded_load import PARTITIONS

SCRIPT = Path(__file__).with_name("embedded_load.py")
LIVES = 5


async def test_everything_acknowledged_before_a_kill_is_there_afterwards(tmp_path: Path) -> None:
    path, acked = tmp_path / "data", list[str]()
    for life in range(LIVES):
        # Each life is killed a little later in its group commits than the one before.
        acked += _live_and_die(path, f"life{life}", lines=100 + 37 * life)
    folder = Folder.open(path, create=False)
    try:
        await _check(folder, acked)
    finally:
        await folder.close()
    assert len(acked) > 100 * LIVES


async def test_a_loss_of_power_loses_nothing_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sync copies the files, as the disk has them from then on. What was not synced is not in any copy."""
    folder = Folder.open(tmp_path / "data")
    acked: list[int] = []
    survivors: list[tuple[Path, int]] = []

    def sync(disk: Disk = folder.disk) -> None:
        copy = tmp_path / f"copy-{len(survivors)}"
        Disk.sync(disk)
        shutil.copytree(folder.path, copy)
        survivors.append((copy, len(acked)))

    monkeypatch.setattr(folder.disk, "sync", sync)
    log = EmbeddedMessageLog(folder)

    async def acknowledge(number: int) -> None:
        for sequence in range(1, 4):
            await log.acknowledge(f"user_{number}", "chat", sequence=sequence, now_ms=0, timeout_s=30)
            acked.append(number)

    await asyncio.gather(*(acknowledge(number) for number in range(10)))
    moment = [(copy, acked[:count]) for copy, count in survivors]
    await folder.close()
    # Between two syncs the power may fail at any time: then the earlier copy is what is left.
    promised = [*[known for _, known in moment[1:]], acked]
    for (copy, _), known in zip(moment, promised, strict=True):
        left = Folder.open(copy, create=False)
        try:
            for number in range(10):
                found = await EmbeddedMessageLog(left).watermark(f"user_{number}", "chat", timeout_s=5)
                assert found >= known.count(number)
        finally:
            await left.close()
    assert len(moment) >= 3


def _live_and_die(path: Path, life: str, *, lines: int) -> list[str]:
    process = subprocess.Popen([sys.executable, str(SCRIPT), str(path), life], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process, process.stdout:
        printed = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        printed += process.stdout.readlines()
    assert process.returncode == -9, "it ended by itself"
    return [line.strip() for line in printed if line.endswith("\n")]


async def _check(folder: Folder, acked: list[str]) -> None:
    log = EmbeddedMessageLog(folder)
    events = await EmbeddedEventLog.open(folder, PARTITIONS)
    published = {record.value for record in events.records(MESSAGES)}
    for line in acked:
        chat_id, sequence, message_id = line.split()
        page = await log.read(chat_id, after=int(sequence) - 1, limit=1, timeout_s=5)
        message = page.slots[0]
        assert isinstance(message, Message)
        assert (message.sequence, message.message_id) == (int(sequence), message_id)
        key = message.client_message_id
        found = await log.lookup(chat_id, [key], [], timeout_s=5)
        assert found.keys[key].message_id == message_id
        assert found.counter is not None
        assert found.counter.allocated >= int(sequence)
        assert message_id.encode() in published

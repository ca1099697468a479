"""What is answered before its sync: who hears of it, when, and what becomes of it when the disk fails."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown, Refused, ServiceUnavailable, Throttled
from seriatim.engines.embedded.storage.disk import Disk, DiskError
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.storage.snapshot import WriteTransaction
from tests.support.log_reasons import because
from tests.unit.engines.slow_disk import (
    OTHER,
    READS,
    ROW,
    SOON_S,
    THIRD,
    SlowDisk,
    begun,
    changed,
    commit_early,
    put,
    until,
)


async def test_what_is_built_upon_is_answered_at_once_and_what_comes_after_it_is_not(
    folder: Folder, slow: SlowDisk
) -> None:
    await commit_early(folder, b"1")
    seen = await folder.writer.commit_early("see", lambda transaction: seen_and_put(transaction), timeout_s=SOON_S)
    outward = asyncio.ensure_future(
        folder.writer.commit("see", lambda transaction: transaction.get(OTHER), timeout_s=SOON_S)
    )
    await begun(slow)
    await asyncio.sleep(0.02)
    assert (seen, outward.done()) == (b"1", False)
    slow.may_end.set()
    assert await outward == b"1"
    assert slow.syncs == 1


def seen_and_put(transaction: WriteTransaction) -> bytes | None:
    found = transaction.get(ROW)
    transaction.put(OTHER, found or b"")
    return found


async def test_an_early_commit_is_synced_even_if_no_further_request_follows(folder: Folder, slow: SlowDisk) -> None:
    slow.may_end.set()
    await commit_early(folder, b"1")
    await folder.writer.idle()
    assert (slow.syncs, folder.disk.get(ROW)) == (1, b"1")


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_request_that_changes_nothing_is_not_answered_early(
    folder: Folder, slow: SlowDisk, refuses: bool
) -> None:
    """A refusal reaches a client, which must not learn of a row that a loss of power can undo."""

    def decide(transaction: WriteTransaction) -> bytes | None:
        if refuses:
            raise Refused("taken")
        return transaction.get(ROW)

    await commit_early(folder, b"1")
    asked = asyncio.ensure_future(folder.writer.commit_early("look", decide, timeout_s=SOON_S))
    await begun(slow)
    await asyncio.sleep(0.02)
    assert not asked.done()
    slow.may_end.set()
    assert [type(each) for each in await asyncio.gather(asked, return_exceptions=True)] == [
        Refused if refuses else bytes
    ]


@pytest.mark.parametrize("change", ["put", "delete"])
@pytest.mark.parametrize("read", [*READS, "get_all"])
async def test_a_read_sees_what_was_answered_early_and_waits_for_its_sync(
    folder: Folder, slow: SlowDisk, read: str, change: str
) -> None:
    slow.may_end.set()
    await put(folder, b"old")
    slow.may_end.clear()
    slow.begun.clear()
    in_the_way = asyncio.ensure_future(put(folder, b"", row=b"Dother"))
    await begun(slow)
    value = b"new" if change == "put" else None
    await folder.writer.commit_early("w", lambda transaction: changed(transaction, value), timeout_s=SOON_S)
    reading = READS.get(read, lambda snapshot: snapshot.get_all([ROW])[0])
    seen = asyncio.ensure_future(folder.writer.read("read", reading, timeout_s=SOON_S))
    await asyncio.sleep(0.02)
    assert not seen.done()
    slow.may_end.set()
    rows = [(ROW, value)] if value else []
    assert await seen == (value if read.startswith("get") else rows)
    assert slow.syncs == 3
    await in_the_way


async def test_a_read_that_waited_does_not_show_what_was_written_meanwhile_before_that_is_synced(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = [threading.Event() for _ in range(3)]
    begun_syncs: list[int] = []

    def sync() -> None:
        begun_syncs.append(len(begun_syncs))
        assert may_end[begun_syncs[-1]].wait(SOON_S), "the test did not let the sync end"
        Disk.sync(folder.disk)

    monkeypatch.setattr(folder.disk, "sync", sync)
    waiting = [asyncio.ensure_future(put(folder, b"", row=b"Dother"))]
    await until(lambda: len(begun_syncs) == 1)
    await commit_early(folder, b"1")
    seen = asyncio.ensure_future(folder.writer.read("read", READS["scan"], timeout_s=SOON_S))
    await asyncio.sleep(0.01)
    may_end[0].set()
    await until(lambda: len(begun_syncs) == 2)
    waiting.append(asyncio.ensure_future(put(folder, b"2", row=THIRD)))
    await asyncio.sleep(0)
    may_end[1].set()
    await until(lambda: len(begun_syncs) == 3)
    await asyncio.sleep(0.01)
    assert not seen.done()
    may_end[2].set()
    assert await seen == [(ROW, b"1"), (THIRD, b"2")]
    await asyncio.gather(*waiting)


async def test_many_rows_are_read_as_one_by_one(folder: Folder) -> None:
    await put(folder, b"1")
    await put(folder, b"2", row=OTHER)

    def decide(transaction: WriteTransaction) -> tuple[list[bytes | None], list[bytes | None]]:
        before = transaction.get_all([ROW, THIRD, OTHER])
        transaction.delete(ROW)
        transaction.put(THIRD, b"3")
        return before, transaction.get_all([ROW, THIRD, OTHER])

    await commit_early(folder, b"decided before", row=OTHER)
    found = await folder.writer.commit("read", decide, timeout_s=SOON_S)
    assert found == ([b"1", None, b"decided before"], [None, b"3", b"decided before"])


async def test_requests_answered_early_count_as_waiting(
    folder: Folder, slow: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WRITES_WAITING_MAX", 2)
    first = asyncio.ensure_future(put(folder, b""))
    await begun(slow)
    for number in (1, 2):
        await commit_early(folder, b"", row=b"C%d" % number)
    with pytest.raises(Throttled):
        await commit_early(folder, b"", row=b"C3")
    slow.may_end.set()
    await first


# --- when the disk is broken ------------------------------------------------------------------------------------------


async def test_after_a_failed_sync_the_outcome_is_unknown_and_all_that_was_decided_is_done_again(
    folder: Folder, slow: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.sleep(0)
    room = threading.Event()

    def failing() -> None:
        slow.begun.set()
        assert slow.may_end.wait(SOON_S)
        raise DiskError("IO error: no space left on device")

    def not_yet() -> None:
        if not room.is_set():
            raise DiskError("still no space")
        monkeypatch.setattr(folder.disk, "sync", lambda: Disk.sync(folder.disk))
        Disk.reopen(folder.disk)

    monkeypatch.setattr(limits, "REOPEN_RETRY_S", 0.01)
    monkeypatch.setattr(folder.disk, "sync", failing)
    monkeypatch.setattr(folder.disk, "reopen", not_yet)
    first = asyncio.ensure_future(put(folder, b"1"))
    await begun(slow)
    second = asyncio.ensure_future(put(folder, b"2", row=OTHER))
    await commit_early(folder, b"3", row=THIRD)
    slow.may_end.set()
    for each in (first, second):
        with pytest.raises(OutcomeUnknown, check=because("no space")):
            await each
    with pytest.raises(ServiceUnavailable, check=because("the disk has room")):
        await put(folder, b"refused")
    mended: list[int] = []
    folder.writer.mended.append(lambda: mended.append(1))
    room.set()
    await until(lambda: bool(mended))
    assert [folder.disk.get(row) for row in (ROW, OTHER, THIRD)] == [b"1", b"2", b"3"]
    await put(folder, b"4")
    assert folder.disk.get(ROW) == b"4"


async def test_a_failed_write_is_done_again_after_what_was_answered_before_it(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be in the log all the same: to write only the earlier change again would put an old value over it."""

    def failing(changes: dict[bytes, bytes | None]) -> None:
        Disk.write(folder.disk, changes)
        monkeypatch.setattr(folder.disk, "write", lambda each: Disk.write(folder.disk, each))
        raise DiskError("IO error")

    monkeypatch.setattr(folder.disk, "write", failing)
    await commit_early(folder, b"answered")
    with pytest.raises(OutcomeUnknown):
        await put(folder, b"unknown")
    mended: list[int] = []
    folder.writer.mended.append(lambda: mended.append(1))
    await until(lambda: bool(mended))
    assert folder.disk.get(ROW) == b"unknown"


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from seriatim.domain.errors import OutcomeUnknown, ServiceUnavailable
from seriatim.domain import limits
from seriatim.engines.embedded.storage.folder import Folder

def room(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def main():
    limits.REOPEN_RETRY_S = 0.05
    folder = Folder.open(Path(sys.argv[1]))
    acked, number = [], 0
    async def put():
        nonlocal number
        number += 1
        key = b"C%06d" % number
        await folder.writer.commit("put", lambda transaction: transaction.put(key, bytes(1000)), timeout_s=5)
        acked.append(key)
    room(200_000)
    try:
        while True:
            await put()
    except OutcomeUnknown:
        pass
    room(resource.RLIM_INFINITY)
    for _ in range(200):
        try:
            await put()
            break
        except ServiceUnavailable:
            await asyncio.sleep(0.05)
    await put()
    there = {key for key, _ in folder.rows("chats")}
    assert len(acked) > 100 and set(acked) <= there, (len(acked), len(there))
    await folder.close()
    print("went on", len(acked))

asyncio.run(main())
"""


def test_after_the_disk_was_full_the_engine_goes_on_and_has_all_that_it_acknowledged(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk: the kernel refuses the write in the same place."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "data")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("went on")

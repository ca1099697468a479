"""Group commit: who waits for what, what is seen when, and what happens when the disk is slow, full or broken."""

import asyncio
from pathlib import Path

import pytest
import rocksdict

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown, Refused, ServiceUnavailable, Throttled
from seriatim.engines.embedded.storage import disk as disk_module
from seriatim.engines.embedded.storage.disk import Disk, DiskError, Stalled
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.storage.snapshot import WriteTransaction
from tests.support.log_reasons import because
from tests.unit.engines.slow_disk import OTHER, READS, ROW, SOON_S, SlowDisk, begun, changed, put, until

# --- when an answer comes ---------------------------------------------------------------------------------------------


async def test_rocksdb_itself_counts_a_sync_for_every_write_that_was_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[rocksdict.Options] = []

    def counting(raw_mode: bool) -> rocksdict.Options:
        made.append(rocksdict.Options(raw_mode))
        made[-1].enable_statistics()
        return made[-1]

    monkeypatch.setattr(disk_module, "Options", counting)
    folder = Folder.open(tmp_path / "data")
    for number in range(3):
        await put(folder, b"%d" % number)
    counted = made[-1].get_statistics() or ""
    assert "rocksdb.wal.synced COUNT : 3\n" in counted
    await folder.close()


async def test_nothing_is_answered_before_its_sync_has_ended(folder: Folder, slow: SlowDisk) -> None:
    asked = asyncio.ensure_future(put(folder, b"1"))
    await begun(slow)
    await asyncio.sleep(0.02)
    assert not asked.done()
    slow.may_end.set()
    await asked


@pytest.mark.parametrize("change", ["put", "delete"])
@pytest.mark.parametrize("read", READS)
async def test_a_read_that_meets_a_row_on_its_way_waits_for_the_sync(
    folder: Folder, slow: SlowDisk, read: str, change: str
) -> None:
    slow.may_end.set()
    await put(folder, b"old")
    slow.may_end.clear()
    slow.begun.clear()
    value = b"new" if change == "put" else None
    asked = asyncio.ensure_future(
        folder.writer.commit("w", lambda transaction: changed(transaction, value), timeout_s=SOON_S)
    )
    await begun(slow)
    seen = asyncio.ensure_future(folder.writer.read("read", READS[read], timeout_s=SOON_S))
    await asyncio.sleep(0.02)
    assert not seen.done()
    slow.may_end.set()
    rows = [(ROW, value)] if value else []
    assert await seen == (value if read == "get" else rows)
    await asked


@pytest.mark.parametrize("read", READS)
async def test_a_read_of_other_rows_does_not_wait(folder: Folder, slow: SlowDisk, read: str) -> None:
    slow.may_end.set()
    await put(folder, b"old")
    slow.may_end.clear()
    slow.begun.clear()
    asked = asyncio.ensure_future(put(folder, b"", row=b"Dother"))
    await begun(slow)
    gathering = asyncio.ensure_future(put(folder, b"decided, not written"))
    seen = await folder.writer.read("read", READS[read], timeout_s=SOON_S)
    assert seen == (b"old" if read == "get" else [(ROW, b"old")])
    assert not asked.done()
    slow.may_end.set()
    await asyncio.gather(asked, gathering)


async def test_a_read_fails_with_the_sync_of_what_it_met(
    folder: Folder, slow: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> None:
        slow.begun.set()
        assert slow.may_end.wait(SOON_S)
        raise DiskError("IO error")

    monkeypatch.setattr(folder.disk, "sync", failing)
    asked = asyncio.ensure_future(put(folder, b"new"))
    await begun(slow)
    seen = asyncio.ensure_future(folder.writer.read("read", READS["get"], timeout_s=SOON_S))
    await asyncio.sleep(0.02)
    slow.may_end.set()
    for each in (asked, seen):
        with pytest.raises(OutcomeUnknown):
            await each


async def test_all_that_waits_shares_one_sync(folder: Folder, slow: SlowDisk) -> None:
    first = asyncio.gather(*(put(folder, b"", row=b"C%d" % number) for number in range(50)))
    await begun(slow)
    second = asyncio.gather(*(put(folder, b"", row=b"D%d" % number) for number in range(50)))
    await asyncio.sleep(0)
    slow.may_end.set()
    await asyncio.gather(first, second)
    assert slow.syncs == 2


async def test_a_refusal_waits_for_the_sync_of_what_it_rests_on(folder: Folder, slow: SlowDisk) -> None:
    def refuse_if_there(transaction: WriteTransaction) -> None:
        if transaction.get(ROW) is not None:
            raise Refused("taken")

    first = asyncio.ensure_future(put(folder, b"1"))
    second = asyncio.ensure_future(folder.writer.commit("try", refuse_if_there, timeout_s=SOON_S))
    await begun(slow)
    third = asyncio.ensure_future(folder.writer.commit("try", refuse_if_there, timeout_s=SOON_S))
    await asyncio.sleep(0.02)
    assert [each.done() for each in (first, second, third)] == [False] * 3
    slow.may_end.set()
    await first
    for refused in (second, third):
        with pytest.raises(Refused):
            await refused


async def test_a_request_sees_what_was_decided_before_it_and_leaves_nothing_when_it_raises(folder: Folder) -> None:
    def spoil(transaction: WriteTransaction) -> None:
        assert transaction.get(ROW) == b"first"
        transaction.put(ROW, b"spoilt")
        transaction.delete(OTHER)
        raise Refused("no")

    await put(folder, b"kept", row=OTHER)
    outcomes = await asyncio.gather(
        put(folder, b"first"), folder.writer.commit("spoil", spoil, timeout_s=SOON_S), return_exceptions=True
    )
    assert isinstance(outcomes[1], Refused)
    assert (folder.disk.get(ROW), folder.disk.get(OTHER)) == (b"first", b"kept")


async def test_a_deleted_row_is_gone_for_the_next_request(folder: Folder) -> None:
    await put(folder, b"1")
    _, found = await asyncio.gather(
        folder.writer.commit("delete", lambda transaction: transaction.delete(ROW), timeout_s=SOON_S),
        folder.writer.commit("look", lambda transaction: transaction.get(ROW), timeout_s=SOON_S),
    )
    assert found is None


# --- when the disk is slow --------------------------------------------------------------------------------------------


async def test_a_write_whose_time_is_up_is_unknown_and_may_still_come(folder: Folder, slow: SlowDisk) -> None:
    applied: list[int] = []
    with pytest.raises(OutcomeUnknown):
        await folder.writer.commit(
            "put", lambda transaction: transaction.put(ROW, b"1"), timeout_s=0.02, applied=lambda: applied.append(1)
        )
    assert applied == []
    slow.may_end.set()
    await folder.writer.idle()
    assert (folder.disk.get(ROW), applied) == (b"1", [1])


async def test_everyone_waits_as_long_as_they_said_and_no_longer(folder: Folder, slow: SlowDisk) -> None:
    patient = asyncio.ensure_future(put(folder, b"1", timeout_s=60))
    hasty = [asyncio.ensure_future(put(folder, b"2", timeout_s=timeout_s)) for timeout_s in (0.04, 0.01)]
    await begun(slow)
    hasty.append(asyncio.ensure_future(put(folder, b"3", timeout_s=0.02)))
    for each in hasty:
        with pytest.raises(OutcomeUnknown):
            await asyncio.wait_for(each, SOON_S)
    assert not patient.done()
    slow.may_end.set()
    await patient


async def test_a_caller_that_goes_away_leaves_the_others_their_answers(folder: Folder, slow: SlowDisk) -> None:
    gone, stays = asyncio.ensure_future(put(folder, b"1")), asyncio.ensure_future(put(folder, b"2", row=OTHER))
    await begun(slow)
    gone.cancel()
    slow.may_end.set()
    await stays
    assert folder.disk.get(ROW) == b"1"


async def test_too_many_waiting_are_refused_and_nothing_of_theirs_is_applied(
    folder: Folder, slow: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WRITES_WAITING_MAX", 2)
    first = asyncio.ensure_future(put(folder, b"", row=b"C0"))
    await begun(slow)
    waiting = [asyncio.ensure_future(put(folder, b"", row=b"C%d" % number)) for number in (1, 2)]
    await asyncio.sleep(0)
    with pytest.raises(Throttled):
        await put(folder, b"", row=b"C3")
    slow.may_end.set()
    await asyncio.gather(first, *waiting)
    assert [key for key, _ in folder.rows("chats")] == [b"C0", b"C1", b"C2"]


async def test_while_the_store_tidies_up_the_group_waits_and_grows(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    tidied: list[bool] = []

    def write(changes: dict[bytes, bytes | None]) -> None:
        sizes.append(len(changes))
        if not tidied:
            raise Stalled("Result incomplete: Write stall")
        Disk.write(folder.disk, changes)

    monkeypatch.setattr(folder.disk, "write", write)
    first = asyncio.ensure_future(put(folder, b"1"))
    await until(lambda: bool(sizes))
    second = asyncio.ensure_future(put(folder, b"2", row=OTHER))
    await asyncio.sleep(0)
    tidied.append(True)
    await asyncio.gather(first, second)
    assert (sizes[0], sizes[-1]) == (1, 2)
    assert (folder.disk.get(ROW), folder.disk.get(OTHER)) == (b"1", b"2")


async def test_a_closed_folder_answers_what_was_asked_before_and_refuses_the_rest(folder: Folder) -> None:
    asked = asyncio.ensure_future(put(folder, b"1"))
    await asyncio.sleep(0)
    await folder.close()
    await asked
    with pytest.raises(ServiceUnavailable, check=because("closed")):
        await put(folder, b"2")
    with pytest.raises(ServiceUnavailable):
        folder.disk.get(ROW)


# --- rows that are kept -----------------------------------------------------------------------------------------------


def test_a_row_that_was_found_once_is_found_as_it_was_written_last(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "rows", create=True)
    disk.write({ROW: b"1", OTHER: b"2"})
    assert (disk.get(ROW), disk.get_all([OTHER, ROW])) == (b"1", [b"2", b"1"])
    disk.write({ROW: b"3", OTHER: None})
    assert (disk.get(ROW), disk.get(OTHER), disk.get_all([OTHER, ROW])) == (b"3", None, [None, b"3"])
    disk.write({OTHER: b"4"})
    assert disk.get_all([ROW, OTHER]) == [b"3", b"4"]
    disk.close()
    with pytest.raises(ServiceUnavailable):
        disk.get(ROW)


def test_a_disk_that_was_opened_again_has_forgotten_what_it_found(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "rows", create=True)
    disk.write({ROW: b"1"})
    disk.get(ROW)
    disk.close()
    other = Disk(tmp_path / "rows", create=False)
    other.write({ROW: b"2"})
    other.close()
    disk.reopen()
    assert disk.get(ROW) == b"2"
    disk.close()


def test_no_more_rows_are_kept_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STORE_ROWS_KEPT_MAX", 2)
    disk = Disk(tmp_path / "rows", create=True)
    disk.write({b"C%d" % number: b"1" for number in range(9)})
    for number in range(9):
        disk.get(b"C%d" % number)
    assert len(disk._found) == 2
    disk.close()

"""A folder is opened only if it is ours, whole, of a known format and free; each refusal says what to do."""

import os
import shutil
from functools import partial
from pathlib import Path

import pytest

from seriatim.engines.embedded.storage.disk import Disk, Stalled
from seriatim.engines.embedded.storage.folder import (
    Folder,
    FolderDamaged,
    FolderError,
    FolderInUse,
    FolderMissing,
    FolderTooNew,
)
from seriatim.engines.embedded.storage.snapshot import WriteTransaction


async def filled(path: Path, rows: int = 200) -> None:
    """A folder left without a goodbye, with its rows still in the log."""
    folder = Folder.open(path.with_name("living"))
    for number in range(rows):
        await folder.writer.commit("put", partial(_put, b"C%04d" % number), timeout_s=5)
    shutil.copytree(folder.path, path)
    await folder.close()


def _put(key: bytes, transaction: WriteTransaction) -> None:
    transaction.put(key, bytes(50))


async def count(path: Path) -> int:
    folder = Folder.open(path, create=False)
    try:
        return folder.stats().tables["chats"].rows
    finally:
        await folder.close()


def the_log(path: Path) -> Path:
    return max((path / "store").glob("*.log"), key=lambda each: each.stat().st_size)


async def test_a_folder_in_use_is_refused_and_names_its_holder(folder: Folder) -> None:
    with pytest.raises(FolderInUse, match=f"process {os.getpid()}"):
        Folder.open(folder.path)
    await folder.close()
    await Folder.open(folder.path).close()


async def test_a_newer_format_is_refused_and_left_alone(folder: Folder) -> None:
    await folder.close()
    (folder.path / "FORMAT").write_text("2\n")
    with pytest.raises(FolderTooNew, match="format 2"):
        Folder.open(folder.path)
    (folder.path / "FORMAT").write_text("1\n")
    await Folder.open(folder.path).close()


async def test_a_format_that_is_no_number_is_refused(folder: Folder) -> None:
    await folder.close()
    (folder.path / "FORMAT").write_text("")
    with pytest.raises(FolderDamaged, match="backup"):
        Folder.open(folder.path)


async def test_a_data_folder_without_its_format_is_refused(folder: Folder) -> None:
    await folder.close()
    (folder.path / "FORMAT").unlink()
    with pytest.raises(FolderDamaged, match="no FORMAT"):
        Folder.open(folder.path)


async def test_a_lost_store_is_refused_and_not_created_again(folder: Folder) -> None:
    await folder.close()
    shutil.rmtree(folder.path / "store")
    with pytest.raises(FolderDamaged, match="backup"):
        Folder.open(folder.path)


def test_a_folder_with_foreign_files_is_refused_and_nothing_is_put_into_it(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("do not touch")
    with pytest.raises(FolderDamaged, match="empty folder"):
        Folder.open(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_that_is_not_there_is_made_only_on_demand(tmp_path: Path) -> None:
    with pytest.raises(FolderMissing):
        Folder.open(tmp_path / "data", create=False)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FolderMissing):
        Folder.open(tmp_path / "empty", create=False)
    assert [each.name for each in tmp_path.rglob("*")] == ["empty"]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(FolderError):
        Folder.open(tmp_path / "data")


async def test_a_creation_cut_short_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def power_fails(path: object, content: object, *, mode: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as fault:
        fault.setattr("seriatim.engines.embedded.storage.folder.write_atomically", power_fails)
        with pytest.raises(KeyboardInterrupt):
            Folder.open(tmp_path / "data")
    folder = Folder.open(tmp_path / "data")
    assert sorted(each.name for each in folder.path.iterdir()) == ["FORMAT", "LOCK", "store"]
    await folder.close()


async def test_r5_a_making_that_was_cut_short_after_the_format_is_ended_by_the_next_open_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "data", list[list[str]]()

    unlink = Path.unlink

    def power_fails(path: Path, missing_ok: bool = False) -> None:
        if path.name == "MAKING":
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    with monkeypatch.context() as fault:
        fault.setattr(Path, "unlink", power_fails)
        with pytest.raises(KeyboardInterrupt):
            Folder.open(path)
    assert (path / "MAKING").exists()
    monkeypatch.setattr(
        "seriatim.engines.embedded.storage.folder.sync_folder", lambda at: synced.append(sorted(os.listdir(at)))
    )
    await Folder.open(path).close()
    assert synced == [["FORMAT", "LOCK", "store"]], "the folder is synced after MAKING is gone"


@pytest.mark.parametrize("create", [True, False])
async def test_r5_a_store_that_has_rows_is_never_deleted(tmp_path: Path, create: bool) -> None:
    path = tmp_path / "data"
    await filled(path)
    (path / "MAKING").touch()  # as a crash could leave it behind
    (path / "FORMAT").unlink()
    with pytest.raises(FolderDamaged, match="holds rows"):
        Folder.open(path, create=create)
    (path / "FORMAT").write_text("1\n")
    assert await count(path) == 200
    assert not (path / "MAKING").exists()


async def test_damage_within_the_log_is_refused_and_what_follows_it_is_not_dropped(tmp_path: Path) -> None:
    await filled(tmp_path / "data")
    log = the_log(tmp_path / "data")
    whole = log.read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    log.write_bytes(damaged)
    with pytest.raises(FolderDamaged, match="backup"):
        Folder.open(tmp_path / "data")
    log.write_bytes(whole)
    assert await count(tmp_path / "data") == 200


async def test_a_last_record_cut_short_was_never_acknowledged_and_is_dropped(tmp_path: Path) -> None:
    await filled(tmp_path / "data")
    log = the_log(tmp_path / "data")
    os.truncate(log, log.stat().st_size - 5)
    assert await count(tmp_path / "data") == 199


async def test_a_damaged_table_is_an_error_and_not_the_end_of_the_rows(folder: Folder) -> None:
    for number in range(2000):
        folder.disk.write({b"S%08d" % number: os.urandom(100)})
    await folder.close()
    table = max((folder.path / "store").glob("*.sst"), key=lambda each: each.stat().st_size)
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 0xFF
    table.write_bytes(content)
    disk = Disk(folder.path / "store", create=False)
    with pytest.raises(Exception, match="cannot be read"):
        list(disk.scan(b"S", b"T"))
    with pytest.raises(Exception, match="cannot be read"):
        list(disk.scan_down(b"T", b"S"))
    disk.close()


def test_a_store_that_falls_behind_says_so_at_once_and_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small tables fill faster than they are moved. A wait would hold up the event loop, so there must be none."""
    monkeypatch.setattr("seriatim.domain.limits.STORE_MEMTABLE_BYTES", 65_536)
    disk, stalls, written = Disk(tmp_path / "store", create=True), 0, 0
    while not stalls or written < 20:
        assert written < 5000, "it never falls behind"
        try:
            disk.write({b"S%04d" % written: bytes(60_000)})
            written += 1
        except Stalled:
            stalls += 1
    assert len(list(disk.scan(b"S", b"T"))) == written
    disk.close()


async def test_the_stats_count_rows_and_bytes_by_table(folder: Folder) -> None:
    await folder.writer.commit("put", lambda transaction: transaction.put(b"Cabc", b"12345"), timeout_s=5)
    stats = folder.stats()
    assert (stats.tables["chats"].rows, stats.tables["chats"].bytes) == (1, 9)
    assert stats.tables["messages"].rows == 0
    assert stats.disk_bytes > 9

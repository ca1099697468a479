"""A second look at a folder sees what its server wrote, always one moment of it, and leaves the folder as it is."""

import shutil
import tempfile
import time
from pathlib import Path

import pytest
from rocksdict import Rdict

from seriatim.engines.embedded.storage.disk import Disk
from seriatim.engines.embedded.storage.folder import Folder, FolderDamaged, FolderMissing, FolderTooNew
from seriatim.engines.embedded.storage.secondary import FolderRestless, SecondaryStore
from seriatim.engines.embedded.storage.snapshot import WriteTransaction


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where readers keep their notes."""
    path = tmp_path / "scratch"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


async def put(folder: Folder, *names: bytes) -> None:
    def decide(transaction: WriteTransaction) -> None:
        for name in names:
            transaction.put(b"C" + name, b"value of " + name)

    await folder.writer.commit("put", decide, timeout_s=5)


def seen(secondary: SecondaryStore) -> list[bytes]:
    return [key[1:] for key, _ in secondary.scan(b"C", b"D")]


def files(path: Path) -> dict[str, tuple[int, int, int]]:
    found = {each: each.stat() for each in sorted(path.rglob("*"))}
    return {str(each): (stat.st_ino, stat.st_size, stat.st_mtime_ns) for each, stat in found.items()}


async def test_it_sees_what_a_running_server_wrote_and_more_after_each_refresh(folder: Folder) -> None:
    await put(folder, b"one")
    secondary = SecondaryStore(folder.path)
    await put(folder, b"two")
    assert seen(secondary) == [b"one"]
    secondary.refresh()
    assert seen(secondary) == [b"one", b"two"]
    assert secondary.get(b"Ctwo") == b"value of two"
    secondary.close()


async def test_between_two_refreshes_it_shows_one_moment_whatever_becomes_of_the_files(folder: Folder) -> None:
    await put(folder, *[b"%04d" % number for number in range(500)])
    secondary = SecondaryStore(folder.path)
    found = secondary.scan(b"C", b"D")
    assert next(found)[0] == b"C0000"
    for number in range(500):
        folder.disk.write({b"C%04d" % number: None})
    folder.disk.compact()
    assert len(list(found)) == 499
    assert secondary.get(b"C0007") is not None
    secondary.refresh()
    assert seen(secondary) == []
    secondary.close()


async def test_a_row_that_was_replaced_and_moved_to_a_file_since_is_seen_as_it_is_now(folder: Folder) -> None:
    """A reader that only catches up still has the old row from the log, and believes that."""
    folder.disk.write({b"Crow": b"old"})
    secondary = SecondaryStore(folder.path)
    folder.disk.write({b"Crow": b"new"})
    folder.disk.compact()
    secondary.refresh()
    assert secondary.get(b"Crow") == b"new"
    secondary.close()


async def test_it_goes_on_when_the_server_starts_again(folder: Folder) -> None:
    await put(folder, b"before")
    secondary = SecondaryStore(folder.path)
    await folder.close()
    again = Folder.open(folder.path)
    await put(again, b"later")
    secondary.refresh()
    assert seen(secondary) == [b"before", b"later"]
    secondary.close()
    await again.close()


async def test_of_a_server_that_was_killed_it_sees_what_the_log_holds(folder: Folder, tmp_path: Path) -> None:
    await put(folder, b"one", b"two")
    shutil.copytree(folder.path, tmp_path / "left")
    secondary = SecondaryStore(tmp_path / "left")
    assert sorted(seen(secondary)) == [b"one", b"two"]
    secondary.close()


async def test_nothing_in_the_folder_is_changed_and_no_notes_are_left_anywhere(folder: Folder, scratch: Path) -> None:
    await put(folder, b"one")
    await folder.close()
    before = files(folder.path)
    secondary = SecondaryStore(folder.path)
    secondary.refresh()
    assert seen(secondary) == [b"one"]
    assert files(scratch)
    secondary.close()
    assert files(folder.path) == before
    assert not files(scratch)


def test_a_folder_that_is_not_there_is_an_error_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(FolderMissing, match="no data folder"):
        SecondaryStore(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


async def test_a_newer_folder_is_not_half_read(folder: Folder) -> None:
    (folder.path / "FORMAT").write_text("2\n")
    with pytest.raises(FolderTooNew, match="format 2"):
        SecondaryStore(folder.path)


async def test_a_folder_without_its_store_is_damaged(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, scratch: Path
) -> None:
    monkeypatch.setattr("seriatim.domain.limits.SECONDARY_OPEN_TRIES_MAX", 2)
    await folder.close()
    shutil.rmtree(folder.path / "store")
    with pytest.raises(FolderDamaged, match="backup"):
        SecondaryStore(folder.path)
    assert not files(scratch)


async def test_damage_within_the_log_is_refused_and_what_follows_it_is_not_dropped(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seriatim.domain.limits.SECONDARY_OPEN_TRIES_MAX", 2)
    for number in range(50):
        await put(folder, b"%04d" % number)
    left = Path(shutil.copytree(folder.path, tmp_path / "left"))
    log = max((left / "store").glob("*.log"), key=lambda each: each.stat().st_size)
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    log.write_bytes(content)
    with pytest.raises(FolderDamaged, match="backup"):
        SecondaryStore(left)


def restless(secondary: SecondaryStore, disk: Disk, monkeypatch: pytest.MonkeyPatch, *, times: int) -> list[int]:
    """From now on the server moves rows from the log to a file each time the folder is read. Returns the readings."""
    readings: list[int] = []
    open_beside = secondary._open_beside

    def reading() -> Rdict:
        found = open_beside()
        readings.append(len(readings))
        if len(readings) <= times:
            logs = secondary._logs()
            disk.write({b"Z%d" % len(readings): b""})
            disk._open_db().flush()
            until = time.monotonic() + 10
            while all(map(Path.exists, logs)) and time.monotonic() < until:
                time.sleep(0.001)  # the store removes a log that it needs no more in its own time
        return found

    monkeypatch.setattr("seriatim.domain.limits.SECONDARY_OPEN_RETRY_S", 0.0)
    monkeypatch.setattr(secondary, "_open_beside", reading)
    return readings


async def test_files_that_moved_while_they_were_read_are_read_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    secondary = SecondaryStore(folder.path)
    readings = restless(secondary, folder.disk, monkeypatch, times=2)
    secondary.refresh()
    assert len(readings) == 3
    assert secondary.get(b"Z2") is not None
    secondary.close()


async def test_files_that_never_rest_are_reported(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    secondary = SecondaryStore(folder.path)
    restless(secondary, folder.disk, monkeypatch, times=1000)
    with pytest.raises(FolderRestless, match="try again"):
        secondary.refresh()
    secondary.close()

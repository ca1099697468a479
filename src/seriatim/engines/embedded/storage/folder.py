"""The data folder: made once, held by one process at a time, opened only if it is whole and of a known format.

LOCK     held while a process has the folder; names that process
FORMAT   which format the rows have; written last when the folder is made
MAKING   there while the folder is being made, and never beside rows
store/   RocksDB's own files
"""

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.disk import Disk, DiskError
from seriatim.engines.embedded.storage.writer import Writer
from seriatim.engines.shared.files import sync_folder, write_atomically

FORMAT = 1


class FolderError(Exception):
    """Why a folder is not opened, and what to do about it. Nothing in it was changed."""


class FolderMissing(FolderError):
    pass


class FolderInUse(FolderError):
    pass


class FolderTooNew(FolderError):
    pass


class FolderDamaged(FolderError):
    pass


class TableStats(msgspec.Struct, frozen=True):
    rows: int
    bytes: int


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """`bytes` of a table are those of its keys and values; on the disk they are compressed, and the log is added."""

    format: int
    tables: Mapping[str, TableStats]
    disk_bytes: int


class Folder:
    """An open data folder. Handles on it are made from it, one for each port."""

    def __init__(self, path: Path, lock: "_Lock", disk: Disk) -> None:
        self.path = path
        self.disk = disk
        self.writer = Writer(disk)
        self._lock = lock

    @classmethod
    def open(cls, path: Path, *, create: bool = True) -> "Folder":
        """Raises `FolderError` that says why not. A folder that was not closed is opened as it was left."""
        try:
            _check_ours(path, create=create)
            path.mkdir(parents=True, exist_ok=True)
            lock = _Lock(path)
        except OSError as error:
            raise FolderError(f"the data folder {path} cannot be used: {error}; see to its owner and rights") from error
        try:
            if not (path / "FORMAT").exists():
                _make(path)
            elif (path / "MAKING").exists():
                _end_making(path)
            _check_format(path)
            return cls(path, lock, Disk(path / "store", create=False))
        except DiskError as error:
            lock.release()
            raise unreadable(path, error) from error
        except BaseException:
            lock.release()
            raise

    async def close(self) -> None:
        """Answers what was asked for, then lets go. Without it nothing acknowledged is lost either."""
        try:
            await self.writer.close()
            self.disk.close()
        finally:
            self._lock.release()

    def rows(self, table: str) -> Iterator[tuple[bytes, bytes]]:
        """Every row of a table of `rows.TABLES`, by key, synced or about to be: for tools and checkers."""
        prefix = rows.TABLES[table]
        return self.disk.scan(prefix, rows.after(prefix))

    def stats(self) -> Stats:
        """Counts every row, so it takes its time: about a second for a million."""
        return Stats(
            format=FORMAT,
            tables={table: self._table_stats(table) for table in rows.TABLES},
            disk_bytes=disk_bytes(self.path),
        )

    def _table_stats(self, table: str) -> TableStats:
        count = size = 0
        for key, value in self.rows(table):
            count += 1
            size += len(key) + len(value)
        return TableStats(count, size)


def check_folder(path: Path) -> None:
    """Raises `FolderError` unless this is a data folder of a known format. It only reads, and takes no lock."""
    try:
        _check_ours(path, create=False)
        _check_format(path)
    except OSError as error:
        raise FolderError(f"the data folder {path} cannot be read: {error}; see to its owner and rights") from error


def unreadable(path: Path, error: Exception) -> FolderDamaged:
    return FolderDamaged(
        f"the data folder {path} cannot be opened: {error}. Restore it from a backup; to inspect it, copy it first"
    )


def disk_bytes(path: Path) -> int:
    """Of all files in the folder."""
    return _sizes(path.rglob("*"))


def row_bytes(path: Path) -> int:
    """Of the files that hold rows: tables and the write-ahead log."""
    return _sizes([*(path / "store").glob("*.sst"), *(path / "store").glob("*.log")])


def _sizes(files: Iterable[Path]) -> int:
    total = 0
    for each in files:
        with suppress(FileNotFoundError):  # a running server removes files at any moment
            total += each.stat().st_size if each.is_file() else 0
    return total


def _check_ours(path: Path, *, create: bool) -> None:
    """Before anything is written: a folder that holds foreign files is left alone."""
    if not path.exists():
        if not create:
            raise FolderMissing(f"there is no data folder {path}; name the one that the server uses")
        return
    if not path.is_dir():
        raise FolderDamaged(f"{path} is a file; name a folder")
    names = sorted(each.name for each in path.iterdir() if each.name != "LOCK")
    if "FORMAT" in names:
        return
    if "MAKING" in names and row_bytes(path):
        raise FolderDamaged(
            f"{path} has lost its FORMAT file, and store/ holds rows: restore the folder from a backup, or copy it and "
            f"write {FORMAT} into FORMAT"
        )
    if "MAKING" in names and create:
        return
    if names and "MAKING" not in names:
        raise FolderDamaged(
            f"{path} holds {names[0]} but no FORMAT file: if it was a data folder, restore it from a backup; if not, "
            "name an empty folder"
        )
    if not create:
        raise FolderMissing(f"{path} holds no data yet; name the data folder that the server uses")


def _make(path: Path) -> None:
    """MAKING marks a folder whose making was cut short, which never held anything: it did not lose its FORMAT.

    What is removed here holds no row: that was checked before.
    """
    (path / "MAKING").touch()
    sync_folder(path)
    shutil.rmtree(path / "store", ignore_errors=True)
    Disk(path / "store", create=True).close()
    sync_folder(path)
    write_atomically(path / "FORMAT", f"{FORMAT}\n".encode(), mode=0o666)
    _end_making(path)


def _end_making(path: Path) -> None:
    """For good: if MAKING came back, a lost FORMAT would be taken for a making that was cut short."""
    (path / "MAKING").unlink()
    sync_folder(path)


def _check_format(path: Path) -> None:
    text = (path / "FORMAT").read_text(encoding="utf-8", errors="replace").strip()
    if not text.isdecimal():
        raise FolderDamaged(f"{path / 'FORMAT'} says {text[:20]!r}, not a number; restore the folder from a backup")
    if int(text) > FORMAT:
        raise FolderTooNew(
            f"the data folder {path} has format {text}; this release knows formats up to {FORMAT}. Use the release "
            "that wrote it, or a newer one"
        )


class _Lock:
    """Held until released, or until the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._handle = os.open(folder / "LOCK", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._handle, 20).decode(errors="replace").strip() or "another process"
            os.close(self._handle)
            raise FolderInUse(
                f"the data folder {folder} is in use by process {holder}; stop that server, or name another folder"
            ) from None
        os.ftruncate(self._handle, 0)
        os.write(self._handle, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

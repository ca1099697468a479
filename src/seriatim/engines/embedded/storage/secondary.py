"""A read-only instance on a data folder, beside the server that has it open. It changes and locks nothing.

RocksDB calls it a secondary: it sees the write-ahead log, too, and the same moment until it is refreshed.
"""

import shutil
import tempfile
import time
from pathlib import Path

from rocksdict import AccessType, DBPath, Rdict

from seriatim.domain import limits
from seriatim.engines.embedded.storage.disk import ReadableDisk, store_options
from seriatim.engines.embedded.storage.folder import FolderError, check_folder, unreadable

_ANY_SIZE = 1 << 60


class FolderRestless(FolderError):
    """The server moves its files faster than they can be read."""


class SecondaryStore(ReadableDisk):
    """The rows of a folder as of the last `refresh`."""

    def __init__(self, path: Path) -> None:
        """Raises `FolderError` that says why it cannot be opened."""
        check_folder(path)
        self.path = path
        self._store = (path / "store").absolute()
        # A reader keeps notes of its own, and `rocksdict` rewrites its settings wherever it opens: both go here.
        self._scratch = Path(tempfile.mkdtemp(prefix="seriatim-"))
        self._db = None
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

    def refresh(self) -> None:
        """From now on shows all that was written before this call.

        It opens the store again each time. To catch up would be faster and wrong: RocksDB then prefers what it has read
        from the log before to what the server has since moved to a file, and shows rows that were replaced or deleted.
        """
        super().close()
        failure: FolderError = FolderRestless(f"the files of {self.path} change too fast to be read; try again")
        for _ in range(limits.SECONDARY_OPEN_TRIES_MAX):
            try:
                logs = self._logs()
                self._db = self._open_beside()
                # The list of tables is read first, then the logs. Had the server moved a log to a table between the
                # two, its rows would be in neither: then that log is gone. Logs go from the oldest on.
                if all(map(Path.exists, logs)):
                    return
                super().close()
            except Exception as error:
                # A file may go while the list that names it is read, so one failure proves nothing.
                failure = unreadable(self.path, error)
            time.sleep(limits.SECONDARY_OPEN_RETRY_S)
        raise failure

    def close(self) -> None:
        try:
            super().close()
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def property_number(self, name: str) -> int:
        return self._open_db().property_int_value(name) or 0

    def _open_beside(self) -> Rdict:
        """The store as seen from here: the lists of its files by links, the files themselves by their own path."""
        links = Path(tempfile.mkdtemp(dir=self._scratch))
        for each in sorted([self._store / "CURRENT", *self._store.glob("MANIFEST-*")]):
            (links / each.name).symlink_to(each)
        options = store_options()
        options.create_if_missing(False)
        options.set_wal_dir(str(self._store))
        options.set_db_paths([DBPath(str(self._store), _ANY_SIZE)])
        return Rdict(str(links), options, access_type=AccessType.secondary(str(links / "notes")))

    def _logs(self) -> list[Path]:
        return sorted(self._store.glob("*.log"))

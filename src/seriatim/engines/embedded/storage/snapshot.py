"""How a request finds the rows: with all that was decided before it; and a read: as they are written, synced or not."""

from collections.abc import Callable, Iterator, Sequence

from seriatim.engines.embedded.storage.commit_group import Group
from seriatim.engines.embedded.storage.disk import Changes, Disk


class WriteTransaction:
    """The rows as one request finds them, and what it changes. A request that raises has changed nothing."""

    def __init__(self, disk: Disk, decided: Changes) -> None:
        self.changes: dict[bytes, bytes | None] = {}
        self._decided = decided
        self._disk = disk

    def get(self, key: bytes) -> bytes | None:
        if key in self.changes:
            return self.changes[key]
        if key in self._decided:
            return self._decided[key]
        return self._disk.get(key)

    def get_all(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The row of each key."""
        if self.changes or not self._decided.keys().isdisjoint(keys):
            return [self.get(key) for key in keys]
        return self._disk.get_all(keys)

    def put(self, key: bytes, value: bytes) -> None:
        self.changes[key] = value

    def delete(self, key: bytes) -> None:
        self.changes[key] = None


class ReadSnapshot:
    """The rows as one read finds them on the disk. It takes note when it meets one that is not synced yet.

    `outdated`: a row of another value, or none, was answered by `commit_early` and is not even written yet.
    """

    def __init__(self, disk: Disk, syncing: Group, gathering: Group) -> None:
        self.unsynced = False
        self.outdated = False
        self._disk = disk
        self._written = syncing.changes
        self._deleted = syncing.deleted
        self._early = gathering.early

    def get(self, key: bytes) -> bytes | None:
        if key in self._early:
            self.outdated = True
        elif key in self._written:
            self.unsynced = True
        return self._disk.get(key)

    def get_all(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The row of each key."""
        self.outdated = self.outdated or not self._early.keys().isdisjoint(keys)
        self.unsynced = self.unsynced or not self._written.keys().isdisjoint(keys)
        return self._disk.get_all(keys)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows from `start` up to, but not with, `end`."""
        self._note(lambda key: start <= key < end)
        return self._noting(self._disk.scan(start, end))

    def scan_down(self, start: bytes, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows from `start`, that one included, downwards, as long as they begin with `prefix`."""
        self._note(lambda key: prefix <= key <= start)
        return self._noting(self._disk.scan_down(start, prefix))

    def _note(self, within: Callable[[bytes], bool]) -> None:
        """What is not there to be met: rows that are not written, and rows that are gone but might come back."""
        self.outdated = self.outdated or any(map(within, self._early))
        self.unsynced = self.unsynced or any(map(within, self._deleted))

    def _noting(self, found: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        for row in found:
            if row[0] in self._written:
                self.unsynced = True
            yield row

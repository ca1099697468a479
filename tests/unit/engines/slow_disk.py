"""A disk whose syncs a test can hold back, and the small requests that are put to it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

from seriatim.engines.embedded.storage.disk import Disk
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.storage.snapshot import ReadSnapshot, WriteTransaction

ROW, OTHER, THIRD = b"Crow", b"Cother", b"Cthird"
SOON_S = 5.0


class SlowDisk:
    """Lets a test hold a sync back, and counts them."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.syncs = 0
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def sync(self) -> None:
        self.begun.set()
        assert self.may_end.wait(SOON_S), "the test did not let the sync end"
        Disk.sync(self._disk)
        self.syncs += 1


def put(folder: Folder, value: bytes, *, row: bytes = ROW, timeout_s: float = SOON_S) -> Awaitable[None]:
    return folder.writer.commit("put", lambda transaction: transaction.put(row, value), timeout_s=timeout_s)


def commit_early(folder: Folder, value: bytes, *, row: bytes = ROW) -> Awaitable[None]:
    return folder.writer.commit_early("early", lambda transaction: transaction.put(row, value), timeout_s=SOON_S)


async def begun(slow: SlowDisk) -> None:
    await until(slow.begun.is_set)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("waited in vain")


READS: dict[str, Callable[[ReadSnapshot], object]] = {
    "get": lambda snapshot: snapshot.get(ROW),
    "scan": lambda snapshot: list(snapshot.scan(b"C", b"D")),
    "scan_down": lambda snapshot: list(snapshot.scan_down(b"Cz", b"C")),
}


def changed(transaction: WriteTransaction, value: bytes | None) -> None:
    if value is None:
        transaction.delete(ROW)
    else:
        transaction.put(ROW, value)

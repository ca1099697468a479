"""For tools that read what is stored in a data folder. Nothing is changed, except by `compact`."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import msgspec

from seriatim.domain.errors import InternalError, ServiceUnavailable
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.disk import DiskError
from seriatim.engines.embedded.storage.folder import Folder, FolderError, FolderInUse, row_bytes
from seriatim.engines.embedded.storage.secondary import SecondaryStore
from seriatim.engines.embedded.tools.browse import Reveal, WrongTable, browse
from seriatim.engines.embedded.tools.inspection import EmbeddedInspection
from seriatim.engines.embedded.tools.statistics import FolderStats, measure
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.inprocess.code_sender import masked_phone
from seriatim.operations.check.findings import CheckReport
from seriatim.operations.check.run import check

TABLES = tuple(rows.TABLES)
Progress = Callable[[int, int], None]  # rows read, and about how many there are


class InspectionError(Exception):
    """Why nothing can be said about what is stored, and what to do about it."""


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """Of the files that hold rows."""

    bytes_before: int
    bytes_after: int


def check_stored(path: Path, *, recheck_s: float, progress: Progress) -> CheckReport:
    async def work(inspection: EmbeddedInspection) -> CheckReport:
        total = await inspection.estimated_rows()
        return await check(
            inspection,
            inspection,
            now_ms=SystemClock().now_ms,
            recheck_s=recheck_s,
            progress=lambda done: progress(done, total),
        )

    with _secondary(path) as secondary:
        return asyncio.run(work(EmbeddedInspection(secondary)))


def show_stored(
    path: Path,
    tables: Sequence[str],
    *,
    chat_id: str | None = None,
    after: int | None = None,
    limit: int,
    content: bool = False,
    phones: bool = False,
) -> Iterator[tuple[str, list[dict[str, object]], bool]]:
    """Of each table its first rows, and whether there are more."""
    reveal = Reveal(content, str if phones else masked_phone)
    with _secondary(path) as secondary:
        for table in tables:
            found = list(islice(browse(secondary, table, chat_id=chat_id, after=after, reveal=reveal), limit + 1))
            yield table, found[:limit], len(found) > limit


def measure_stored(path: Path, *, progress: Progress) -> FolderStats:
    with _secondary(path) as secondary:
        total = secondary.property_number("rocksdb.estimate-num-keys")
        return measure(secondary, path, lambda done: progress(done, total))


def compact_stored(path: Path) -> Compacted:
    """Needs the folder for itself."""

    async def work() -> None:
        folder = Folder.open(path, create=False)
        try:
            folder.disk.compact()
        finally:
            await folder.close()

    try:
        before = row_bytes(path)
        asyncio.run(work())
        return Compacted(bytes_before=before, bytes_after=row_bytes(path))
    except FolderInUse as error:
        raise InspectionError(f"{error}. A running server compacts by itself, a little at a time") from error
    except (FolderError, DiskError) as error:
        raise InspectionError(str(error)) from error


@contextmanager
def _secondary(path: Path) -> Iterator[SecondaryStore]:
    try:
        secondary = SecondaryStore(path)
        try:
            yield secondary
        finally:
            secondary.close()
    except (FolderError, DiskError, WrongTable) as error:
        raise InspectionError(str(error)) from error
    except (ServiceUnavailable, InternalError) as error:
        raise InspectionError(
            f"{error.log_reason}; restore the data folder from a backup, or use a newer release"
        ) from error

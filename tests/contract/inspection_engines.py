"""The engines that can be inspected, each with a town on it that writes through the ordinary ports."""

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from seriatim.engines.embedded.storage.secondary import SecondaryStore
from seriatim.engines.embedded.tools.inspection import EmbeddedInspection
from seriatim.ports.inspection import StoredRecords, StoredRows
from tests.unit.operations.shared_town import shared_town
from tests.unit.operations.stored_town import Town, living_town

Inspected = tuple[Town, StoredRows, StoredRecords]


@asynccontextmanager
async def embedded() -> AsyncIterator[Inspected]:
    with tempfile.TemporaryDirectory(prefix="seriatim-") as root:
        async with living_town(Path(root) / "data") as town:
            secondary = SecondaryStore(town.folder.path)
            try:
                inspection = EmbeddedInspection(secondary)
                yield town, inspection, inspection
            finally:
                secondary.close()


@asynccontextmanager
async def shared() -> AsyncIterator[Inspected]:
    async with shared_town() as town, town.inspection() as (rows, records):
        yield town, rows, records


ENGINES: dict[str, Callable[[], AbstractAsyncContextManager[Inspected]]] = {"embedded": embedded, "shared": shared}

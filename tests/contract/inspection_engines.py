"""The engines that can be inspected, each with data that was written through the ordinary ports."""

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from seriatim.engines.dynamodb.inspection import DynamoInspection
from seriatim.engines.dynamodb.table_reader import TableReader
from seriatim.engines.embedded.storage.secondary import SecondaryStore
from seriatim.engines.embedded.tools.inspection import EmbeddedInspection
from seriatim.engines.kafka.inspection import KafkaInspection
from seriatim.ports.inspection import StoredRecords, StoredRows
from tests.support.real_dynamodb import PREFIX
from tests.unit.operations.populated_store import TOPICS, PopulatedStore, embedded_store
from tests.unit.operations.shared_store import shared_store

Inspected = tuple[PopulatedStore, StoredRows, StoredRecords]


@asynccontextmanager
async def embedded() -> AsyncIterator[Inspected]:
    with tempfile.TemporaryDirectory(prefix="seriatim-") as root:
        async with embedded_store(Path(root) / "data") as populated:
            secondary = SecondaryStore(populated.folder.path)
            try:
                inspection = EmbeddedInspection(secondary)
                yield populated, inspection, inspection
            finally:
                secondary.close()


@asynccontextmanager
async def shared() -> AsyncIterator[Inspected]:
    async with shared_store() as populated:
        records = KafkaInspection(populated.raw.cluster, tuple(TOPICS))
        try:
            yield populated, DynamoInspection(TableReader(populated.looking, prefix=PREFIX)), records
        finally:
            await records.close()


ENGINES: dict[str, Callable[[], AbstractAsyncContextManager[Inspected]]] = {"embedded": embedded, "shared": shared}

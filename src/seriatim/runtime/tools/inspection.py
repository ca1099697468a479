"""For `seriatim check` of a deployment on DynamoDB and Kafka: both are read, and neither is written."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from seriatim.domain.errors import SeriatimError
from seriatim.engines.dynamodb.inspection import DynamoInspection
from seriatim.engines.dynamodb.table_reader import TableReader
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.operations.check.findings import CheckReport
from seriatim.operations.check.run import check
from seriatim.operations.topics import PARTITIONS
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import Record
from seriatim.ports.inspection import StoredRecords, StoredRows
from seriatim.runtime.tools.data_folder import InspectionError, Progress
from seriatim.runtime.wiring.dynamodb import DynamoDbUrl, StoreUnreachable, dynamodb


def check_shared(store: str, events: str | None, *, recheck_s: float, progress: Progress) -> CheckReport:
    """`store` and `events` are addresses as the settings have them; without `events` only the store is read.

    Raises `InspectionError`.
    """

    async def work() -> CheckReport:
        clock = SystemClock()
        async with shared_inspection(store, events, clock) as (rows, records):
            total = await rows.estimated_rows()
            await records.topics()  # if Kafka is away, fail before the rows are read
            return await check(
                rows, records, now_ms=clock.now_ms, recheck_s=recheck_s, progress=lambda done: progress(done, total)
            )

    try:
        return asyncio.run(work())
    except StoreUnreachable as error:
        raise InspectionError(str(error)) from error
    except SeriatimError as error:
        raise InspectionError(error.log_reason) from error


@asynccontextmanager
async def shared_inspection(
    store: str, events: str | None, clock: Clock
) -> AsyncIterator[tuple[StoredRows, StoredRecords]]:
    """Raises `StoreUnreachable` when an address is none; nothing is asked yet."""
    try:
        place = DynamoDbUrl.parse(store)
    except ValueError as error:
        raise StoreUnreachable(str(error)) from error
    async with _records(events) as records, dynamodb(place.endpoint, place.region, clock) as client:
        yield DynamoInspection(TableReader(client, prefix=place.prefix)), records


class NoRecords(StoredRecords):
    async def topics(self) -> Mapping[str, int]:
        return {}

    async def records(self, topic: str) -> AsyncIterator[Record]:
        none: tuple[Record, ...] = ()
        for record in none:
            yield record


@asynccontextmanager
async def _records(events: str | None) -> AsyncIterator[StoredRecords]:
    if events is None:
        yield NoRecords()
        return
    try:
        from seriatim.engines.kafka.cluster import Cluster
        from seriatim.engines.kafka.inspection import KafkaInspection
    except ModuleNotFoundError:
        raise StoreUnreachable("Kafka needs one more package: pip install 'seriatim[kafka]'") from None
    try:
        inspection = KafkaInspection(Cluster.parse(events), tuple(PARTITIONS))
    except ValueError as error:
        raise StoreUnreachable(str(error)) from error
    try:
        yield inspection
    finally:
        await inspection.close()

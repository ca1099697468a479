"""The same in a deployment of several processes: DynamoDB, Kafka and Redis are asked directly, beside all of them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from seriatim.domain import limits
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.operations.counter_repair import Repair
from seriatim.operations.message_trace import Connections, MessageTrace, Pairs
from seriatim.ports.directory import Registration
from seriatim.ports.message_log import Watermark
from seriatim.runtime.config.settings import EMBEDDED, Settings
from seriatim.runtime.tools.counter_repair import RepairRequest, repair
from seriatim.runtime.tools.data_folder import InspectionError
from seriatim.runtime.tools.message_trace import TraceQuery, tracer

try:
    from seriatim.engines.dynamodb.catalog import DynamoRoster
    from seriatim.engines.dynamodb.delivery_state import DynamoDeliveryState
    from seriatim.engines.dynamodb.inspection import DynamoInspection
    from seriatim.engines.dynamodb.message_log import DynamoMessageLog
    from seriatim.engines.dynamodb.store import CHATS, DynamoStore, ReadOnlyStore
    from seriatim.engines.dynamodb.table_reader import TableReader
    from seriatim.engines.dynamodb.transport.client import DynamoClient
    from seriatim.engines.kafka.cluster import Cluster
    from seriatim.engines.kafka.event_trail import KafkaEventTrail
    from seriatim.engines.redis.address import RedisAddress
    from seriatim.engines.redis.client import RedisClient
    from seriatim.engines.redis.dial import RedisDialer
    from seriatim.engines.redis.directory import RedisDirectory
    from seriatim.runtime.wiring.dynamodb import DynamoDbUrl, StoreUnreachable, dynamodb
except ModuleNotFoundError as missing:
    raise InspectionError(
        f"these engines need more packages ({missing.name} is missing): pip install 'seriatim[dynamodb,kafka,redis]'"
    ) from missing


async def trace_shared(settings: Settings, query: TraceQuery) -> MessageTrace:
    """Without `events` the event log is not read, and without `directory` it is unknown who is connected."""
    async with _store(settings) as (client, prefix), _connections(settings) as connections:
        delivery = DynamoDeliveryState(ReadOnlyStore(client, SystemClock(), prefix=prefix))

        async def watermarks(pairs: Pairs) -> Mapping[tuple[str, str], Watermark]:
            return await delivery.watermarks(pairs, timeout_s=limits.STORE_TIMEOUT_S)

        trail = None if settings.events == EMBEDDED else _trail(settings)
        reader = TableReader(client, prefix=prefix)
        await reader.count(CHATS)  # without retries: a store that is away is reported at once
        return await query(tracer(DynamoInspection(reader), trail, watermarks, connections))


async def repair_shared(settings: Settings, request: RepairRequest) -> Repair:
    if settings.events == EMBEDDED:
        raise InspectionError("a repair must know what was published: give --events as the servers have it")
    async with _store(settings) as (client, prefix):
        clock = SystemClock()
        store = DynamoStore(client, clock, prefix=prefix)
        return await repair(DynamoMessageLog(store), DynamoRoster(store), _trail(settings), clock, request)


@asynccontextmanager
async def _store(settings: Settings) -> AsyncIterator[tuple[DynamoClient, str]]:
    try:
        place = DynamoDbUrl.parse(settings.store)
        async with dynamodb(place.endpoint, place.region, SystemClock()) as client:
            yield client, place.prefix
    except (StoreUnreachable, ValueError) as error:
        raise InspectionError(str(error)) from error


@asynccontextmanager
async def _connections(settings: Settings) -> AsyncIterator[Connections | None]:
    if settings.directory == EMBEDDED:
        yield None
        return
    try:
        client = RedisClient(RedisDialer(RedisAddress.parse(settings.directory)))
    except ValueError as error:
        raise InspectionError(str(error)) from error
    directory = RedisDirectory(client)

    async def connections(user_ids: Sequence[str]) -> Mapping[str, Sequence[Registration]]:
        return await directory.connections(user_ids, timeout_s=limits.STORE_TIMEOUT_S)

    try:
        yield connections
    finally:
        await client.close()


def _trail(settings: Settings) -> KafkaEventTrail:
    try:
        return KafkaEventTrail(Cluster.parse(settings.events))
    except ValueError as error:
        raise InspectionError(str(error)) from error

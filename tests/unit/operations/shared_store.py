"""A populated store on the engines that servers share: a real DynamoDB Local and a real Kafka."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec
from confluent_kafka import Producer as RawProducer

from seriatim.engines.dynamodb.accounts import DynamoAccounts
from seriatim.engines.dynamodb.catalog import DynamoCatalog
from seriatim.engines.dynamodb.inspection import DynamoInspection
from seriatim.engines.dynamodb.message_log import DynamoMessageLog
from seriatim.engines.dynamodb.table_reader import TableReader
from seriatim.engines.dynamodb.transport.client import DynamoClient
from seriatim.engines.kafka.event_writer import KafkaEventWriter
from seriatim.engines.kafka.inspection import KafkaInspection
from seriatim.engines.kafka.producer import Producer
from tests.support.real_dynamodb import PATIENCE_S, PREFIX, TEST_CREDENTIALS, CarefulClient, client_with_tables
from tests.support.real_kafka import RawKafka, real_kafka
from tests.unit.operations.populated_store import TOPICS, PopulatedStore
from tools.engines.dynamodb import REGION

Attributes = dict[str, dict[str, object]]


class PopulatedSharedStore(PopulatedStore):
    def __init__(self, client: CarefulClient, raw: RawKafka, producer: Producer) -> None:
        store = client.store()
        super().__init__(
            DynamoMessageLog(store), DynamoCatalog(store), DynamoAccounts(store), KafkaEventWriter(producer)
        )
        self.raw = raw
        self.url = client.url
        self._raw_producer = RawProducer({"bootstrap.servers": raw.kafka.bootstrap, "linger.ms": 0, "log_level": 0})
        self.rows = RawRows(client.plain)
        self.looking = DynamoClient(client.url, region=REGION, credentials=lambda: TEST_CREDENTIALS, clock=self.clock)

    @asynccontextmanager
    async def inspection(self) -> AsyncIterator[tuple[DynamoInspection, KafkaInspection]]:
        records = KafkaInspection(self.raw.cluster, tuple(TOPICS))
        try:
            yield DynamoInspection(TableReader(self.looking, prefix=PREFIX)), records
        finally:
            await records.close()

    def publish(self, topic: str, key: bytes | None, value: bytes, *, partition: int) -> int:
        """Behind the back of our partitioner. Returns the offset."""
        offsets: list[int | None] = []
        self._raw_producer.produce(
            self.raw.cluster.prefixed(topic),
            value,
            key,
            partition,
            on_delivery=lambda error, message: offsets.append(message.offset() if error is None else None),
        )
        assert self._raw_producer.flush(PATIENCE_S) == 0
        [offset] = offsets
        assert offset is not None
        return offset


class RawRows:
    """Rows to be read and overwritten without any rule."""

    def __init__(self, client: DynamoClient) -> None:
        self._client = client

    async def get(self, table: str, key: Mapping[str, object]) -> Attributes:
        request = {"TableName": PREFIX + table, "Key": _attributes(key), "ConsistentRead": True}
        answer = await self._client.call("GetItem", request, until=self._client.until(PATIENCE_S))
        found: Attributes = msgspec.json.decode(answer)["Item"]
        return found

    async def put(self, table: str, row: Attributes) -> None:
        request = {"TableName": PREFIX + table, "Item": row}
        await self._client.call("PutItem", request, until=self._client.until(PATIENCE_S))

    async def drop(self, table: str, key: Mapping[str, object]) -> None:
        request = {"TableName": PREFIX + table, "Key": _attributes(key)}
        await self._client.call("DeleteItem", request, until=self._client.until(PATIENCE_S))

    async def change(self, table: str, key: Mapping[str, object], **values: object) -> Attributes:
        """None removes an attribute. A changed key makes another row."""
        row = {name: value for name, value in (await self.get(table, key)).items() if name not in values}
        row |= _attributes({name: value for name, value in values.items() if value is not None})
        await self.put(table, row)
        return row


def _attributes(values: Mapping[str, object]) -> Attributes:
    return {name: {"N": str(value)} if isinstance(value, int) else {"S": str(value)} for name, value in values.items()}


@asynccontextmanager
async def shared_store() -> AsyncIterator[PopulatedSharedStore]:
    client = await client_with_tables()
    raw = RawKafka(real_kafka(), TOPICS)
    await raw.create_topics()
    producer = Producer(raw.cluster, TOPICS, "populated")
    populated = PopulatedSharedStore(client, raw, producer)
    try:
        yield populated
    finally:
        await populated.ingest.drain()
        await producer.close()
        await raw.close()
        await client.empty()
        await populated.looking.close()
        await client.close()

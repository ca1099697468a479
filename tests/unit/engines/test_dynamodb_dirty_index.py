"""The index of dirty chats on DynamoDB: wide enough, asked in bounded groups, and open to rows of earlier releases."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from seriatim.domain import limits
from seriatim.domain.sharding import bucket
from seriatim.engines.dynamodb.inspection import DynamoInspection
from seriatim.engines.dynamodb.message_log import DynamoMessageLog
from seriatim.engines.dynamodb.rows.attributes import S, n
from seriatim.engines.dynamodb.store import COUNTERS
from seriatim.engines.dynamodb.table_reader import TableReader
from seriatim.engines.dynamodb.transport.client import Request
from seriatim.operations.topics import PARTITIONS
from seriatim.ports.event_log import MESSAGES
from tests.contract.store_data import LATER_MS, NOW_MS, T_S, allocate, found_group
from tests.support.real_dynamodb import PATIENCE_S, PREFIX
from tests.unit.engines.faulty_dynamodb import FaultyDynamoClient, FaultyDynamoEngine, faulty_engine

EARLIER_BUCKETS = 16  # what the index had before decision 0062
CHATS = ("chat_1", "chat_2", "chat_3", "chat_4")


@pytest.fixture
async def engine() -> AsyncIterator[FaultyDynamoEngine]:
    async with faulty_engine() as opened:
        yield opened


def test_f2_the_dirty_index_has_at_least_a_part_for_each_partition_of_the_topic() -> None:
    """A part takes 500 batches a second. What one partition of the topic passes on is less, so fanout ends first."""
    assert PARTITIONS[MESSAGES] <= limits.DIRTY_BUCKETS
    assert (
        len({bucket(f"chat_{number}") % limits.DIRTY_BUCKETS for number in range(50 * limits.DIRTY_BUCKETS)})
        == limits.DIRTY_BUCKETS
    )


async def test_f2_a_chat_left_behind_by_an_earlier_release_is_found(engine: FaultyDynamoEngine) -> None:
    for number, chat_id in enumerate(CHATS):
        await found_group(engine, chat_id, members=[])
        await allocate(engine.log(), chat_id=chat_id, now_ms=NOW_MS + number)
        await _move(engine, chat_id, bucket(chat_id) % EARLIER_BUCKETS)
    found = await engine.log().dirty(before_ms=LATER_MS, limit=1000, timeout_s=T_S)
    assert [each.chat_id for each in found] == list(CHATS)
    inspection = DynamoInspection(TableReader(engine.client, prefix=PREFIX))
    for number, chat_id in enumerate(CHATS):
        assert await inspection.is_listed_dirty(chat_id, dirty_at_ms=NOW_MS + number)


async def test_f2_a_chat_in_a_part_that_is_never_asked_is_not_listed(engine: FaultyDynamoEngine) -> None:
    await found_group(engine, members=[])
    await allocate(engine.log(), now_ms=NOW_MS)
    await _move(engine, CHATS[0], limits.DIRTY_BUCKETS)
    inspection = DynamoInspection(TableReader(engine.client, prefix=PREFIX))
    assert not await inspection.is_listed_dirty(CHATS[0], dirty_at_ms=NOW_MS)


async def test_f2_the_parts_of_the_index_are_asked_a_few_at_a_time() -> None:
    client = _CountingClient("http://127.0.0.1:1")
    assert await DynamoMessageLog(client.store()).dirty(before_ms=LATER_MS, limit=10, timeout_s=T_S) == []
    assert sorted(client.asked) == list(range(limits.DIRTY_BUCKETS))
    assert client.most <= limits.DIRTY_QUERIES_MAX


class _CountingClient(FaultyDynamoClient):
    """Answers every query with nothing, after all that were asked together have come."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked: list[int] = []
        self.most = 0
        self._now = 0

    async def call(self, operation: str, request: Request, *, until: float) -> bytes:
        values = request["ExpressionAttributeValues"]
        assert isinstance(values, dict)
        self.asked.append(int(values[":bucket"].N))
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(0)
        self._now -= 1
        return b'{"Items": []}'


async def _move(engine: FaultyDynamoEngine, chat_id: str, part: int) -> None:
    request = {
        "TableName": PREFIX + COUNTERS,
        "Key": {"chat_id": S(chat_id)},
        "UpdateExpression": "SET dirty_bucket = :part",
        "ExpressionAttributeValues": {":part": n(part)},
    }
    await engine.client.plain.call("UpdateItem", request, until=engine.client.until(PATIENCE_S))

"""Partitions without a committed offset: a group that lost its offsets skips old records and reads young ones."""

import asyncio
import time
from collections.abc import Mapping, Sequence

import pytest
from confluent_kafka import Producer

from seriatim.domain import limits
from seriatim.engines.kafka.event_reader import KafkaEventReader
from seriatim.engines.kafka.lag import KafkaLag
from seriatim.ports.event_log import MESSAGES, Partition, Record
from tests.contract.consumers import GROUP, Consumer, Crew, read
from tests.contract.event_engines import SOON_S, soon
from tests.contract.kafka_engines import KafkaEventLogEngine
from tests.support.real_kafka import PATIENCE_S
from tests.unit.engines.kafka_engine import kafka_engine


async def test_a_group_that_lost_its_offsets_skips_what_is_old_and_reads_what_is_young(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with kafka_engine() as engine, Crew(engine) as crew:
        old, mixed, idle = (Partition(MESSAGES, number) for number in range(3))
        minutes = limits.KAFKA_UNCOMMITTED_S / 60
        await _write(engine, old, {b"week": 7 * 24 * 60, b"hour": 60})
        await _write(engine, mixed, {b"older": minutes + 1, b"younger": minutes - 1, b"new": 0})
        first = await crew.hire("first", start=False)
        waiting = asyncio.create_task(_poll(first, 10))
        records = list(await soon(engine, _wait(waiting)))
        while len(records) < 2:
            records += await soon(engine, _poll(first, 10))
        assert [(each.partition, each.value) for each in records] == [(mixed, b"younger"), (mixed, b"new")]
        assert isinstance(first.reader, KafkaEventReader)
        assert first.reader.records_skipped == 3
        assert [text for text in caplog.messages if "for 2 partitions" in text and "skips 3 records" in text]
        group = f"{engine.raw.cluster.prefix}{GROUP}"
        lag = KafkaLag(engine.raw.cluster, {MESSAGES: 4}, group)
        assert await lag.records(timeout_s=PATIENCE_S) == {old: 0, mixed: 2, idle: 0, Partition(MESSAGES, 3): 0}
        await _write(engine, old, {b"next": 0})
        assert [each.value for each in await soon(engine, _poll(first, 10))] == [b"next"]


async def test_a_committed_offset_counts_however_old_its_records_are() -> None:
    async with kafka_engine() as engine, Crew(engine) as crew:
        partition = Partition(MESSAGES, 0)
        first = await crew.hire("first", start=False)
        await _write(engine, partition, {b"new": 0})
        assert await read(engine, first, 1) == [b"new"]
        await first.reader.commit(partition, 1, timeout_s=SOON_S)
        await _write(engine, partition, {b"day": 24 * 60, b"hour": 60})
        await crew.expel(first)
        second = await crew.hire("second", start=False)
        assert await read(engine, second, 2) == [b"day", b"hour"]


async def _write(engine: KafkaEventLogEngine, partition: Partition, ages: Mapping[bytes, float]) -> None:
    """Records that are so many minutes old."""

    def write() -> None:
        producer = Producer({"bootstrap.servers": engine.raw.cluster.bootstrap, "log_level": 0})
        for value, minutes in ages.items():
            written_ms = round((time.time() - minutes * 60) * 1000)
            name = engine.raw.cluster.prefixed(partition.topic)
            producer.produce(name, value, partition=partition.number, timestamp=written_ms)
        assert producer.flush(PATIENCE_S) == 0

    await asyncio.to_thread(write)


async def _poll(consumer: Consumer, limit: int) -> Sequence[Record]:
    return await consumer.reader.poll(limit=limit)


async def _wait(task: "asyncio.Task[Sequence[Record]]") -> Sequence[Record]:
    return await task

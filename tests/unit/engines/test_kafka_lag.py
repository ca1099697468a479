"""How far a group is behind, as operators see it: asked of a real Kafka, beside its readers."""

import asyncio

import pytest

from seriatim.domain.errors import ServiceUnavailable
from seriatim.engines.kafka.lag import KafkaLag
from seriatim.ports.event_log import DEAD_LETTERS, MESSAGES, DeadLetter, Record
from tests.contract.consumers import GROUP, Crew, fill, read
from tests.contract.event_engines import PARTITIONS, SOON_S
from tests.support.real_kafka import PATIENCE_S
from tests.unit.engines.kafka_engine import kafka_engine


async def test_the_state_of_the_log_has_the_age_of_the_oldest_waiting_event_and_the_number_of_dead_letters() -> None:
    async with kafka_engine() as engine, Crew(engine) as crew:
        partition = await fill(engine, 3)
        first, second, third = await engine.stored(MESSAGES)
        group = f"{engine.raw.cluster.prefix}{GROUP}"
        lag = KafkaLag(engine.raw.cluster, {MESSAGES: 4}, group, dead_letters=PARTITIONS[DEAD_LETTERS])
        fresh = await lag.read(timeout_s=PATIENCE_S)
        assert (fresh.oldest_ms, fresh.lag[partition], fresh.dead_letters) == (first.timestamp_ms, 3, 0)
        consumer = await crew.hire("one", start=False)
        await read(engine, consumer, 3)
        await consumer.reader.commit(partition, 2, timeout_s=SOON_S)
        await engine.dead_letters().write(_dead_letter(second), timeout_s=SOON_S)
        later = await lag.read(timeout_s=PATIENCE_S)
        assert (later.oldest_ms, later.lag[partition], later.dead_letters) == (third.timestamp_ms, 1, 1)
        await consumer.reader.commit(partition, 3, timeout_s=SOON_S)
        done = await lag.read(timeout_s=PATIENCE_S)
        assert (done.oldest_ms, sum(done.lag.values()), done.under_replicated) == (None, 0, 0)


async def test_a_log_that_is_away_is_reported_in_time_and_reading_the_lag_disturbs_no_reader() -> None:
    async with kafka_engine() as engine, Crew(engine) as crew:
        await fill(engine, 1)
        consumer = await crew.hire("one")
        await crew.until(lambda: len(consumer.handled) == 1, "the record")
        lag = KafkaLag(engine.raw.cluster, {MESSAGES: 4}, f"{engine.raw.cluster.prefix}{GROUP}")
        await lag.read(timeout_s=PATIENCE_S)
        await fill(engine, 1, start=1)
        await crew.until(lambda: len(consumer.handled) == 2, "the next record, by the same membership")
        assert consumer.lost_partitions == []
        await asyncio.to_thread(engine.raw.kafka.pause)
        try:
            async with asyncio.timeout(5):
                with pytest.raises(ServiceUnavailable):
                    await lag.read(timeout_s=0.3)
        finally:
            await asyncio.to_thread(engine.raw.kafka.resume)


def _dead_letter(record: Record) -> DeadLetter:
    return DeadLetter(
        record=record,
        reason="BadEvent: missing sequence",
        attempts=1,
        consumer_group=GROUP,
        consumer_id="one",
        failed_at_ms=record.timestamp_ms,
    )


async def test_the_lag_counts_what_is_not_committed_also_where_nothing_was_ever_committed() -> None:
    async with kafka_engine() as engine, Crew(engine) as crew:
        partition = await fill(engine, 5)
        lag = KafkaLag(engine.raw.cluster, {MESSAGES: 4}, f"{engine.raw.cluster.prefix}{GROUP}")
        assert (await lag.records(timeout_s=PATIENCE_S))[partition] == 5
        consumer = await crew.hire("one", start=False)
        await read(engine, consumer, 5)
        await consumer.reader.commit(partition, 2, timeout_s=SOON_S)
        found = await lag.records(timeout_s=PATIENCE_S)
        assert (found[partition], sum(found.values())) == (3, 3)

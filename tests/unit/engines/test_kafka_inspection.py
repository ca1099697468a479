"""An inspection of Kafka disturbs no consumer, ends whatever happens meanwhile, and fails when it cannot read."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from confluent_kafka import Producer, TopicPartition

from seriatim.domain.errors import ServiceUnavailable
from seriatim.engines.kafka.cluster import Cluster, TopicMismatch
from seriatim.engines.kafka.inspection import KafkaInspection
from tests.support.log_reasons import because
from tests.support.real_kafka import PATIENCE_S, RawKafka, real_kafka

TOPICS = {"news": 3, "empty": 2}


@pytest.fixture
async def raw() -> AsyncIterator[RawKafka]:
    raw = RawKafka(real_kafka(), TOPICS)
    await raw.create_topics()
    producer = Producer({"bootstrap.servers": raw.kafka.bootstrap, "log_level": 0})
    for number in range(30):
        producer.produce(raw.cluster.prefixed("news"), f"{number}", f"key-{number}", number % 3)
    assert producer.flush(PATIENCE_S) == 0
    yield raw
    await raw.close()


@pytest.fixture
async def inspection(raw: RawKafka) -> AsyncIterator[KafkaInspection]:
    inspection = KafkaInspection(raw.cluster, tuple(TOPICS))
    yield inspection
    await inspection.close()


async def places(inspection: KafkaInspection, topic: str) -> list[tuple[int, int]]:
    return [(record.partition.number, record.offset) async for record in inspection.records(topic)]


async def test_it_joins_no_group_and_leaves_none_behind(raw: RawKafka, inspection: KafkaInspection) -> None:
    assert await inspection.topics() == TOPICS
    assert await places(inspection, "news") == [(number, offset) for number in range(3) for offset in range(10)]
    assert await places(inspection, "empty") == []
    groups = await asyncio.to_thread(lambda: raw.admin.list_consumer_groups().result(PATIENCE_S))
    assert [group.group_id for group in groups.valid if "seriatim-check" in group.group_id] == []


async def test_what_retention_removes_meanwhile_is_passed_over(raw: RawKafka, inspection: KafkaInspection) -> None:
    """Of one partition the beginning, of the next everything, after both were measured."""
    await inspection.topics()
    records = inspection.records("news")
    first = await anext(records)
    name = raw.cluster.prefixed("news")
    removal = raw.admin.delete_records([TopicPartition(name, 1, 4), TopicPartition(name, 2, 10)])
    for each in removal.values():
        await asyncio.to_thread(each.result, PATIENCE_S)
    rest = [(record.partition.number, record.offset) async for record in records]
    assert (first.partition.number, first.offset) == (0, 0)
    assert rest == [(0, offset) for offset in range(1, 10)] + [(1, offset) for offset in range(4, 10)]


async def test_a_broker_that_falls_silent_is_reported(
    raw: RawKafka, inspection: KafkaInspection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seriatim.domain.limits.INSPECTION_RETRY_S", 0.5)
    await inspection.topics()
    records = inspection.records("news")
    await anext(records)
    raw.kafka.pause()
    try:
        with pytest.raises(ServiceUnavailable, check=because("Kafka sends no records")):
            [record async for record in records]
    finally:
        raw.kafka.resume()


async def test_a_cluster_without_our_topics_is_refused(raw: RawKafka) -> None:
    other = KafkaInspection(Cluster(bootstrap=raw.cluster.bootstrap, prefix="nobodys."), ("news",))
    with pytest.raises(TopicMismatch, match=r"there is no topic nobodys\.news"):
        await other.topics()
    await other.close()

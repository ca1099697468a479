"""`EventTrail` in Kafka: a consumer that joins no group reads one partition from a time on."""

import asyncio
from collections.abc import AsyncIterator

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from seriatim.domain import limits
from seriatim.domain.errors import ServiceUnavailable
from seriatim.engines.kafka.cluster import Cluster, TopicMismatch
from seriatim.engines.kafka.errors import FAILED, unavailable
from seriatim.engines.kafka.records import record_of
from seriatim.engines.kafka.topic_control import admin_client
from seriatim.ports.event_log import Partition, Record
from seriatim.ports.event_trail import EventTrail


class KafkaEventTrail(EventTrail):
    """One call at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def partitions(self, topic: str) -> int:
        return await asyncio.to_thread(self._count, self._cluster.prefixed(topic))

    async def events(self, partition: Partition, *, since_ms: int) -> AsyncIterator[Record]:
        consumer = self._consumer("seriatim-trace")
        try:
            first, end = await asyncio.to_thread(self._measure, consumer, partition, since_ms)
            if first < end:
                consumer.assign([self._place(partition, first)])
            loop = asyncio.get_running_loop()
            last_read_s = loop.time()
            while first < end:
                for message in await asyncio.to_thread(_take, consumer):
                    record = record_of(self._cluster, message)
                    last_read_s, first = loop.time(), record.offset + 1
                    if record.offset < end:
                        yield record
                if loop.time() - last_read_s > limits.INSPECTION_RETRY_S:
                    raise ServiceUnavailable(FAILED, log_reason="Kafka sends no records; check the brokers")
        finally:
            await asyncio.to_thread(consumer.close)

    async def next_offset(self, group: str, partition: Partition) -> int | None:
        offset = await asyncio.to_thread(self._committed, self._cluster.prefixed(group), partition)
        return None if offset < 0 else offset

    # --- in a thread --------------------------------------------------------------------------------------------------

    def _count(self, name: str) -> int:
        try:
            found = admin_client(self._cluster).list_topics(name, timeout=limits.KAFKA_ADMIN_S).topics
        except KafkaException as error:
            raise unavailable("trace", error.args[0]) from error
        if name not in found or found[name].error is not None:
            raise TopicMismatch(f"there is no topic {name}: see `seriatim topics verify`")
        return len(found[name].partitions)

    def _measure(self, consumer: Consumer, partition: Partition, since_ms: int) -> tuple[int, int]:
        """The first offset of that time, and the end. Retention may have moved the beginning."""
        try:
            bounds = consumer.get_watermark_offsets(self._place(partition), timeout=limits.KAFKA_ADMIN_S)
            [found] = consumer.offsets_for_times([self._place(partition, since_ms)], timeout=limits.KAFKA_ADMIN_S)
        except KafkaException as error:
            raise unavailable("trace", error.args[0]) from error
        if found.error is not None:
            raise unavailable("trace", found.error)
        begin, end = bounds
        return (max(begin, found.offset) if found.offset >= 0 else end), end

    def _committed(self, group: str, partition: Partition) -> int:
        consumer = self._consumer(group)
        try:
            [place] = consumer.committed([self._place(partition)], timeout=limits.KAFKA_ADMIN_S)
        except KafkaException as error:
            raise unavailable("trace", error.args[0]) from error
        finally:
            consumer.close()
        if place.error is not None:
            raise unavailable("trace", place.error)
        return int(place.offset)

    def _consumer(self, group: str) -> Consumer:
        """librdkafka requires a group; this consumer never joins it and commits nothing."""
        return Consumer(
            {
                **self._cluster.client_settings("seriatim-trace"),
                "log_level": 0,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
            }
        )

    def _place(self, partition: Partition, offset: int | None = None) -> TopicPartition:
        name = self._cluster.prefixed(partition.topic)
        return (
            TopicPartition(name, partition.number) if offset is None else TopicPartition(name, partition.number, offset)
        )


def _take(consumer: Consumer) -> list[Message]:
    try:
        messages = consumer.consume(limits.INSPECTED_AT_ONCE_ROWS, limits.KAFKA_WAIT_S)
    except KafkaException as error:
        raise unavailable("trace", error.args[0]) from error
    for message in messages:
        failure = message.error()
        if failure is not None and (failure.fatal() or not failure.retriable()):
            raise unavailable("trace", failure)
    return [message for message in messages if message.error() is None]

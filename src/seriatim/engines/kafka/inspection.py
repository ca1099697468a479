"""All records of the event log in Kafka, for checkers: the consumer joins no group and commits nothing."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from seriatim.domain import limits
from seriatim.domain.errors import ServiceUnavailable
from seriatim.engines.kafka.cluster import ClientSettings, Cluster, refuse_mismatch
from seriatim.engines.kafka.errors import FAILED, unavailable
from seriatim.engines.kafka.records import record_of
from seriatim.ports.event_log import Record
from seriatim.ports.inspection import StoredRecords


class KafkaInspection(StoredRecords):
    """librdkafka's consumer serves one caller at a time: so does this."""

    def __init__(self, cluster: Cluster, topics: Sequence[str]) -> None:
        """Raises `ValueError` for options of the cluster that librdkafka does not take."""
        self._cluster = cluster
        self._topics = topics
        self._counts: Mapping[str, int] = {}
        try:
            self._consumer = Consumer(_settings(cluster))
        except KafkaException as error:
            raise ValueError(
                f"the address of Kafka has an option that it does not take: {error.args[0].str()}"
            ) from error

    async def topics(self) -> Mapping[str, int]:
        """Raises `TopicMismatch` when one of them is missing: then this is the wrong cluster or prefix."""
        self._counts = await asyncio.to_thread(self._find_topics)
        return self._counts

    async def records(self, topic: str) -> AsyncIterator[Record]:
        ranges = await asyncio.to_thread(self._measure, topic)
        for range_ in ranges:
            async for message in self._read(range_):
                yield record_of(self._cluster, message)

    async def close(self) -> None:
        await asyncio.to_thread(self._consumer.close)

    async def _read(self, range_: "_OffsetRange") -> AsyncIterator[Message]:
        """Ends where the log ended when it was measured, or where it ends by now if retention was faster."""
        loop = asyncio.get_running_loop()
        self._consumer.assign([TopicPartition(range_.name, range_.number, range_.first)])
        last_read_s, final = loop.time(), range_.end - 1
        last = range_.first - 1
        while last < final:
            for message in await asyncio.to_thread(self._take):
                last_read_s = loop.time()
                error = message.error()
                if error is not None:
                    last = max(last, _offset_reached(error, final))
                elif message.partition() == range_.number and last < final:
                    last = message.offset() or 0
                    yield message
            if loop.time() - last_read_s > limits.INSPECTION_RETRY_S:
                raise ServiceUnavailable(
                    FAILED, log_reason=f"{range_.name}/{range_.number}: Kafka sends no records; check the brokers"
                )

    # --- in a thread --------------------------------------------------------------------------------------------------

    def _find_topics(self) -> Mapping[str, int]:
        try:
            found = self._consumer.list_topics(timeout=limits.KAFKA_ADMIN_S)
        except KafkaException as error:
            raise unavailable("topics", error.args[0]) from error
        counts = {name: len(topic.partitions) for name, topic in found.topics.items() if topic.error is None}
        names = {topic: self._cluster.prefixed(topic) for topic in self._topics}
        # Any number of partitions can be read; `seriatim topics verify` says whether it is the right one.
        refuse_mismatch(self._cluster, {topic: counts.get(name, 1) for topic, name in names.items()}, counts)
        return {topic: counts[name] for topic, name in names.items()}

    def _measure(self, topic: str) -> "list[_OffsetRange]":
        """The partitions that hold anything at this moment."""
        name = self._cluster.prefixed(topic)
        ranges: list[_OffsetRange] = []
        for number in range(self._counts[topic]):
            try:
                found = self._consumer.get_watermark_offsets(TopicPartition(name, number), timeout=limits.KAFKA_ADMIN_S)
            except KafkaException as error:
                raise unavailable("records", error.args[0]) from error
            if found is None:
                raise ServiceUnavailable(
                    FAILED, log_reason=f"{name}/{number}: Kafka did not say what it holds; check the brokers"
                )
            first, end = found
            if first < end:
                ranges.append(_OffsetRange(name, number, first, end))
        return ranges

    def _take(self) -> list[Message]:
        try:
            return self._consumer.consume(limits.INSPECTED_AT_ONCE_ROWS, limits.KAFKA_WAIT_S)
        except KafkaException as error:
            raise unavailable("records", error.args[0]) from error


class _OffsetRange(msgspec.Struct, frozen=True):
    """The records of a partition: from `first` up to, and without, `end`."""

    name: str
    number: int
    first: int
    end: int


def _settings(cluster: Cluster) -> ClientSettings:
    """No log: errors are raised. Short fetches: one that waits would hold up the next partition."""
    return {
        **cluster.client_settings("seriatim-check"),
        "log_level": 0,
        "group.id": cluster.prefixed("seriatim-check"),  # librdkafka requires one; it is never joined
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",  # retention may remove what was about to be read
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
        "queued.max.messages.kbytes": limits.KAFKA_FETCHED_KBYTES_MAX,
    }


def _offset_reached(error: KafkaError, final: int) -> int:
    """The offset that an event without a record stands for: the end of the partition lies behind `final`."""
    if error.code() == KafkaError._PARTITION_EOF:
        return final
    if error.fatal() or not error.retriable():
        raise unavailable("records", error)
    return -1

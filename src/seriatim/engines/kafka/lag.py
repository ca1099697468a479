"""The lag of a group and the state of the log itself, for metrics and readiness.

The brokers are asked, so a partition without a reader shows as well.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from seriatim.domain import limits
from seriatim.domain.errors import ServiceUnavailable
from seriatim.engines.kafka.cluster import Cluster
from seriatim.engines.kafka.errors import unavailable
from seriatim.engines.kafka.topic_control import admin_client, admin_result
from seriatim.ports.event_log import DEAD_LETTERS, Partition

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class EventLogState(msgspec.Struct, frozen=True, kw_only=True):
    """`oldest_ms` is when the oldest record that is not yet committed was written: None if nothing waits.

    `under_replicated`: partitions of the deployment that have fewer replicas in sync than they should.
    """

    lag: Mapping[Partition, int]
    ends: Mapping[Partition, int]
    oldest_ms: int | None
    dead_letters: int
    under_replicated: int


class KafkaLag:
    """Of a group that reads these topics."""

    def __init__(self, cluster: Cluster, partitions: Mapping[str, int], group: str, *, dead_letters: int = 0) -> None:
        """`dead_letters`: how many partitions the topic of dead letters has."""
        self._cluster = cluster
        self._group = group
        self._admin = admin_client(cluster)
        self._topics = (*partitions, *([DEAD_LETTERS] if dead_letters else ()))
        self._partitions = [Partition(topic, n) for topic, count in partitions.items() for n in range(count)]
        self._dead_letters = [Partition(DEAD_LETTERS, number) for number in range(dead_letters)]

    async def read(self, *, timeout_s: float) -> EventLogState:
        """Each of its requests may take so long."""
        next_offsets = await self._next_offsets(timeout_s)
        ends = await self._offsets([*self._partitions, *self._dead_letters], _LATEST, timeout_s)
        begins = await self._offsets(self._dead_letters, _EARLIEST, timeout_s)
        lag = {each: max(0, ends[each] - offset) for each, offset in next_offsets.items()}
        waiting = {each: next_offsets[each] for each, records in lag.items() if records > 0}
        return EventLogState(
            lag=lag,
            ends={each: ends[each] for each in lag},
            oldest_ms=await asyncio.to_thread(self._oldest_ms, waiting, timeout_s) if waiting else None,
            dead_letters=sum([ends[each] - begins[each] for each in self._dead_letters]),
            under_replicated=await asyncio.to_thread(self._under_replicated, timeout_s),
        )

    async def records(self, *, timeout_s: float) -> Mapping[Partition, int]:
        """Records not yet committed, for every partition."""
        # The commits first: records handled meanwhile must not make a lag below zero.
        next_offsets = await self._next_offsets(timeout_s)
        ends = await self._offsets(self._partitions, _LATEST, timeout_s)
        return {each: max(0, ends[each] - offset) for each, offset in next_offsets.items()}

    async def _next_offsets(self, timeout_s: float) -> Mapping[Partition, int]:
        """Where the group goes on: at its commits, or at the beginning where it has none."""
        try:
            places = await asyncio.to_thread(self._ask_committed, timeout_s)
        except KafkaException as error:
            raise unavailable("lag", error.args[0]) from error
        for place in places:
            if place.error is not None:  # or it would look as if nothing was committed
                raise unavailable("lag", place.error)
        committed = {self._partition(place): place.offset for place in places}
        begins = await self._offsets([each for each in self._partitions if committed[each] < 0], _EARLIEST, timeout_s)
        return {each: begins.get(each, committed[each]) for each in self._partitions}

    def _ask_committed(self, timeout_s: float) -> list[TopicPartition]:
        """By a consumer that joins no group: the admin client's own request ends the process on a fresh broker."""
        consumer = self._consumer()
        try:
            return consumer.committed([self._place(partition) for partition in self._partitions], timeout=timeout_s)
        finally:
            consumer.close()

    async def _offsets(
        self, partitions: Sequence[Partition], spec: OffsetSpec, timeout_s: float
    ) -> Mapping[Partition, int]:
        if not partitions:
            return {}
        requests = self._admin.list_offsets({self._place(partition): spec for partition in partitions})
        try:
            return {
                self._partition(place): (await admin_result("lag", each, timeout_s)).offset
                for place, each in requests.items()
            }
        except ServiceUnavailable:
            # The client keeps the leaders from before the brokers were restarted, and does not look them up again.
            self._admin = admin_client(self._cluster)
            raise

    def _oldest_ms(self, waiting: Mapping[Partition, int], timeout_s: float) -> int | None:
        """When the first of the records was written that wait at these offsets, as far as they come in time."""
        until = time.monotonic() + timeout_s
        left = dict(waiting)
        oldest: int | None = None
        consumer = self._consumer()
        try:
            consumer.assign([self._place(partition, offset) for partition, offset in waiting.items()])
            while left and time.monotonic() < until:
                for message in consumer.consume(len(left), 0.1):
                    if message.error() is not None:
                        continue
                    partition = Partition(self._cluster.unprefixed(message.topic() or ""), message.partition() or 0)
                    if left.pop(partition, None) is not None:
                        _, written_ms = message.timestamp()
                        oldest = written_ms if oldest is None else min(oldest, written_ms)
                        consumer.pause([self._place(partition)])
        except KafkaException as error:
            raise unavailable("lag", error.args[0]) from error
        finally:
            consumer.close()
        return oldest

    def _under_replicated(self, timeout_s: float) -> int:
        try:
            found = self._admin.list_topics(timeout=timeout_s).topics
        except KafkaException as error:
            raise unavailable("lag", error.args[0]) from error
        topics = [found[name] for topic in self._topics if (name := self._cluster.prefixed(topic)) in found]
        return sum([len(each.isrs) < len(each.replicas) for topic in topics for each in topic.partitions.values()])

    def _consumer(self) -> Consumer:
        """It never subscribes, so it is no member of the group; and it commits nothing."""
        return Consumer(
            {
                **self._cluster.client_settings("seriatim-lag"),
                "log_level": 0,
                "group.id": self._group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.message.max.bytes": limits.KAFKA_LAG_FETCH_BYTES,
                "fetch.wait.max.ms": 100,
            }
        )

    def _place(self, partition: Partition, offset: int | None = None) -> TopicPartition:
        name = self._cluster.prefixed(partition.topic)
        return (
            TopicPartition(name, partition.number) if offset is None else TopicPartition(name, partition.number, offset)
        )

    def _partition(self, place: TopicPartition) -> Partition:
        return Partition(self._cluster.unprefixed(place.topic), place.partition)

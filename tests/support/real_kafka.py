"""A real Kafka for tests: one broker per test process, started by the first test that needs it; own topics for each."""

import asyncio
import atexit
import functools
import itertools
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from seriatim.domain.errors import SeriatimError
from seriatim.engines.kafka.cluster import Cluster, check_partitions
from seriatim.ports.event_log import Partition, Record
from tests.support.real_engines import real_engines
from tools.engines.kafka import Kafka, request

PATIENCE_S = 30.0
LEAVE_GROUP, LEAVE_GROUP_VERSION = 13, 3

_numbers = itertools.count()


def real_kafka() -> Kafka:
    """Running, whatever the test before did to it."""
    with real_engines():
        kafka = _broker()
        kafka.start()
    return kafka


class RawKafka:
    """Topics of one test, and what no engine offers: to look at all records, and to put a consumer out of its group."""

    def __init__(self, kafka: Kafka, partitions: Mapping[str, int]) -> None:
        self.kafka = kafka
        self.cluster = Cluster(bootstrap=kafka.bootstrap, prefix=f"test{os.getpid()}-{next(_numbers)}.")
        self.partitions = partitions
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        self._looker = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap,
                "group.id": f"{self.cluster.prefix}looker",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,  # a fetch that waits would hold up the next look
                "log_level": 0,
            }
        )

    async def create_topics(self) -> None:
        await asyncio.to_thread(self._create_topics)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    async def stored(self, topic: str) -> Sequence[Record]:
        return await asyncio.to_thread(self._stored, topic)

    async def expel(self, group: str, consumer_id: str) -> None:
        await asyncio.to_thread(self._expel, group, consumer_id)

    def _create_topics(self) -> None:
        topics = [NewTopic(self.cluster.prefixed(topic), count, 1) for topic, count in self.partitions.items()]
        for made in self.admin.create_topics(topics).values():
            made.result(PATIENCE_S)
        deadline_s = time.monotonic() + PATIENCE_S
        while not self._serves_all():
            assert time.monotonic() < deadline_s, "the topics do not appear"
            time.sleep(0.01)

    def _serves_all(self) -> bool:
        """The controller knows new topics first, then the broker, and only then does it lead them."""
        try:
            check_partitions(self.cluster, self.partitions, timeout_s=PATIENCE_S)
            for topic in self.partitions:
                self._stored(topic)
        except (SeriatimError, KafkaException):
            return False
        return True

    def _close(self) -> None:
        self._looker.close()
        names = [self.cluster.prefixed(topic) for topic in self.partitions]
        for gone in self.admin.delete_topics(names).values():
            gone.result(PATIENCE_S)

    def _stored(self, topic: str) -> Sequence[Record]:
        found: list[Record] = []
        for number in range(self.partitions[topic]):
            place = TopicPartition(self.cluster.prefixed(topic), number, 0)
            end = self._end(place)
            if end == 0:
                continue
            self._looker.assign([place])
            records: list[Record] = []
            while len(records) < end:
                for message in self._looker.consume(end - len(records), 0.05):
                    assert message.error() is None
                    records.append(
                        Record(
                            partition=Partition(topic, number),
                            offset=message.offset() or 0,
                            key=message.key(),
                            value=message.value(),
                            headers=tuple(message.headers() or ()),  # type: ignore[arg-type]
                            timestamp_ms=message.timestamp()[1],
                        )
                    )
            found += records
        return found

    def _end(self, place: TopicPartition) -> int:
        """Waits for a broker that has just started, and does not lead its partitions yet."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._looker.get_watermark_offsets(place, PATIENCE_S)[1]
            except KafkaException as failed:
                if failed.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > deadline_s:
                    raise
            time.sleep(0.01)

    def _expel(self, group: str, consumer_id: str) -> None:
        """What a session timeout does: the coordinator forgets the member, and tells it when it is next heard of."""
        described = self.admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
        members = [each.member_id for each in described.members if each.client_id == consumer_id]
        assert members, f"{consumer_id} is no member of {group}"
        for member in members:
            body = _text(group) + struct.pack(">i", 1) + _text(member) + struct.pack(">h", -1)
            answer = request(self.kafka.port, LEAVE_GROUP, LEAVE_GROUP_VERSION, body)
            _throttled_ms, error = struct.unpack_from(">ih", answer)
            assert error == 0, f"the group answered {error}"


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


@functools.cache
def _broker() -> Kafka:
    folder = Path(tempfile.mkdtemp(prefix="seriatim-kafka-"))
    kafka = Kafka(folder / "kafka")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(kafka.kill)
    return kafka

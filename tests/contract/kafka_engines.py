"""Kafka under contract: a real broker, and topics of its own for every test."""

import asyncio
from collections.abc import Mapping, Sequence

from seriatim.engines.kafka.event_reader import KafkaEventReader
from seriatim.engines.kafka.event_writer import KafkaDeadLetterWriter, KafkaEventWriter
from seriatim.engines.kafka.producer import Producer
from seriatim.ports.event_log import DEAD_LETTERS, DeadLetterWriter, EventReader, EventWriter, Record
from tests.support.real_kafka import RawKafka, real_kafka

PRODUCERS = 2  # each takes half a second to begin, so writers take turns with them


class KafkaEventLogEngine:
    """A pause is real time. Sessions are as short as a broker allows, heartbeats quick: else a test takes minutes."""

    looks = 1500

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._partitions = partitions

    async def open(self) -> None:
        self.raw = RawKafka(real_kafka(), self._partitions)
        await self.raw.create_topics()
        cluster = self.raw.cluster
        self._producers = [Producer(cluster, self._partitions, f"writer-{number}") for number in range(PRODUCERS)]
        dead_letters = {DEAD_LETTERS: self._partitions[DEAD_LETTERS]}
        self._dead_letters = Producer(cluster, dead_letters, "dead_letters")
        self._readers: list[KafkaEventReader] = []
        self._writers = 0

    async def close(self) -> None:
        for reader in self._readers:
            await reader.leave()
        for producer in (*self._producers, self._dead_letters):
            await producer.close()
        await self.raw.close()

    async def pause(self) -> None:
        await asyncio.sleep(0.01)

    def writer(self) -> EventWriter:
        self._writers += 1
        return KafkaEventWriter(self._producers[self._writers % PRODUCERS])

    def dead_letters(self) -> DeadLetterWriter:
        return KafkaDeadLetterWriter(self._dead_letters)

    def reader(self, group: str, consumer_id: str) -> EventReader:
        reader = KafkaEventReader(
            self.raw.cluster, self._partitions, self._group(group), consumer_id, session_s=6, heartbeat_s=0.2
        )
        self._readers.append(reader)
        return reader

    async def stored(self, topic: str) -> Sequence[Record]:
        return await self.raw.stored(topic)

    async def expel(self, group: str, consumer_id: str) -> None:
        await self.raw.expel(self._group(group), consumer_id)

    def _group(self, group: str) -> str:
        return f"{self.raw.cluster.prefix}{group}"

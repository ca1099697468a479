"""The writers of the event log in Kafka, on top of `producer`. Its reader is in `event_reader`."""

from collections.abc import Sequence

from seriatim.domain.errors import InternalError
from seriatim.domain.sharding import partition as partition_of
from seriatim.engines.kafka.producer import Producer, ProducerRecord
from seriatim.engines.shared.dead_letter_record import dead_letter_record
from seriatim.ports.event_log import DEAD_LETTERS, DeadLetter, Event, Partition


class KafkaEventWriter:
    """Implements `EventWriter`. The partition is computed here: librdkafka would hash the key with CRC32."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    async def append(self, topic: str, events: Sequence[Event], *, timeout_s: float) -> None:
        if not events:
            return
        key = events[0].key
        if any(event.key != key for event in events):
            raise InternalError("the events of one append share one key")
        partition = Partition(topic, partition_of(key, self._producer.partition_count(topic)))
        raw = key.encode()
        records = [ProducerRecord(raw, event.value, event.headers) for event in events]
        await self._producer.append("append", partition, records, timeout_s=timeout_s)


class KafkaDeadLetterWriter:
    """Implements `DeadLetterWriter`. Give it a producer that knows no other topic: fanout may write nothing else."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    async def write(self, dead_letter: DeadLetter, *, timeout_s: float) -> None:
        partition, key, value = dead_letter_record(dead_letter, self._producer.partition_count(DEAD_LETTERS))
        await self._producer.append("write_dead_letter", partition, [ProducerRecord(key, value)], timeout_s=timeout_s)

"""A dead letter as every engine writes it: its partition, its key and its envelope."""

from seriatim.domain.dead_letter import letter_key, letter_partition, letter_value
from seriatim.ports.event_log import DEAD_LETTERS, Letter, Partition


def enveloped(letter: Letter, partitions: int) -> tuple[Partition, bytes | None, bytes]:
    """`partitions`: how many the dead letters have."""
    record = letter.record
    source = record.partition.number
    value = letter_value(
        topic=record.partition.topic,
        source_partition=source,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=record.key,
        value=record.value,
        headers=record.headers,
        reason=letter.reason,
        attempts=letter.attempts,
        consumer_group=letter.consumer_group,
        consumer_id=letter.consumer_id,
        failed_at_ms=letter.failed_at_ms,
    )
    number = letter_partition(record.key, source, partitions)
    key = None if letter_key(record.key) is None else record.key
    return Partition(DEAD_LETTERS, number), key, value

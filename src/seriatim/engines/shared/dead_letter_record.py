"""A dead letter as every engine writes it: its partition, its key and its envelope."""

from seriatim.domain.dead_letter import dead_letter_key, dead_letter_partition, dead_letter_value
from seriatim.ports.event_log import DEAD_LETTERS, DeadLetter, Partition


def dead_letter_record(dead_letter: DeadLetter, partitions: int) -> tuple[Partition, bytes | None, bytes]:
    """`partitions`: how many the dead letters have."""
    record = dead_letter.record
    source = record.partition.number
    value = dead_letter_value(
        topic=record.partition.topic,
        source_partition=source,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=record.key,
        value=record.value,
        headers=record.headers,
        reason=dead_letter.reason,
        attempts=dead_letter.attempts,
        consumer_group=dead_letter.consumer_group,
        consumer_id=dead_letter.consumer_id,
        failed_at_ms=dead_letter.failed_at_ms,
    )
    number = dead_letter_partition(record.key, source, partitions)
    key = None if dead_letter_key(record.key) is None else record.key
    return Partition(DEAD_LETTERS, number), key, value

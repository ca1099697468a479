"""Partitions without a committed offset, of a group that begins or has lost its offsets (docs/decisions/0051).

librdkafka would begin with the oldest record, which may be a week old. Such a push is of no use to a device: since then
the head probe of its gateway, or its own sync, has delivered the message.
"""

import logging
import time
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from seriatim.domain import limits

LOGGER = logging.getLogger("seriatim.kafka")
_LATEST, _EARLIEST = -1, -2  # instead of a timestamp, in a request for offsets

Place = tuple[str, int]


def skip_old_records(consumer: Consumer, places: Sequence[TopicPartition]) -> int:
    """CommitQueue, where the group has committed nothing, the first record not older than `KAFKA_UNCOMMITTED_S`.

    Returns how many older ones the group skips. Blocks. If Kafka does not answer, nothing is skipped: old records are
    then pushed once more, and gateways drop what their devices have.
    """
    try:
        return _skip(consumer, places)
    except KafkaException as error:
        LOGGER.warning(
            "consumer: %s; a partition without a committed offset is read from its beginning", error.args[0].name()
        )
        return 0


def _skip(consumer: Consumer, places: Sequence[TopicPartition]) -> int:
    committed = consumer.committed(
        [TopicPartition(each.topic, each.partition) for each in places], limits.GROUP_TIMEOUT_S
    )
    fresh = [(each.topic, each.partition) for each in committed if each.error is None and each.offset < 0]
    if not fresh:
        return 0
    # The end first: no record that arrives between two requests is skipped.
    ends = _offsets(consumer, fresh, _LATEST)
    young = _offsets(consumer, fresh, round((time.time() - limits.KAFKA_UNCOMMITTED_S) * 1000))
    oldest = _offsets(consumer, fresh, _EARLIEST)
    begins = {place: young[place] if young[place] >= 0 else ends[place] for place in fresh}
    late = {place: begin for place, begin in begins.items() if begin > oldest[place]}
    if not late:
        return 0
    consumer.commit(
        offsets=[TopicPartition(topic, number, begin) for (topic, number), begin in late.items()], asynchronous=False
    )
    skipped = sum([begin - oldest[place] for place, begin in late.items()])
    LOGGER.error(
        "consumer: the group has no committed offset for %d partitions, one of them %s/%d: it skips %d records "
        "older than %d minutes. Unless the deployment is new, offsets were lost: check the topic __consumer_offsets",
        len(late),
        *min(late),
        skipped,
        limits.KAFKA_UNCOMMITTED_S // 60,
    )
    return skipped


def _offsets(consumer: Consumer, places: Sequence[Place], timestamp_ms: int) -> Mapping[Place, int]:
    asked = [TopicPartition(topic, number, timestamp_ms) for topic, number in places]
    found = consumer.offsets_for_times(asked, limits.GROUP_TIMEOUT_S)
    for each in found:
        if each.error is not None:
            raise KafkaException(each.error)
    return {(each.topic, each.partition): each.offset for each in found}

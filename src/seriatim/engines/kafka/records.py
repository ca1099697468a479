"""A message of librdkafka as a `Record` of the port."""

from typing import TypeVar

from confluent_kafka import Message

from seriatim.engines.kafka.cluster import Cluster
from seriatim.ports.event_log import Headers, Partition, Record

T = TypeVar("T")


def record_of(cluster: Cluster, message: Message) -> Record:
    """Of a message that is no error."""
    _, timestamp_ms = message.timestamp()
    return Record(
        partition=Partition(cluster.unprefixed(_known(message.topic())), _known(message.partition())),
        offset=_known(message.offset()),
        key=message.key(),
        value=message.value(),
        headers=_headers(message),
        timestamp_ms=timestamp_ms,
    )


def _known(value: T | None) -> T:
    """Every record that was read has a topic, a partition and an offset."""
    assert value is not None
    return value


def _headers(message: Message) -> Headers:
    found = message.headers() or []
    pairs = found.items() if isinstance(found, dict) else found
    return tuple([(name, _bytes(content)) for name, content in pairs])


def _bytes(content: str | bytes | None) -> bytes:
    return content.encode() if isinstance(content, str) else content or b""

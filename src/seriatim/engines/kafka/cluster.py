"""The address of Kafka, the prefix of a deployment's names in it, and the settings of its clients.

The settings are listed in docs/spec/data.md#kafka-settings; docs/decisions/0033 says why `retries` is not among them.
"""

from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, urlsplit

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from seriatim.domain import limits
from seriatim.domain.errors import InternalError, ServiceUnavailable
from seriatim.engines.kafka.errors import FAILED, unavailable

ClientSettings = dict[str, str | int | float | bool]

SCHEME = "kafka"


class TopicMismatch(InternalError):
    """A topic is missing or has another number of partitions. It is never changed: the order of chats depends on it."""


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """`options` go to librdkafka as they are, for TLS and passwords. `prefix` lets installations share a cluster."""

    bootstrap: str
    prefix: str = ""
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, url: str) -> "Cluster":
        """`kafka://host:9092,host:9092?prefix=staging.&security.protocol=ssl`. Raises `ValueError`."""
        parts = urlsplit(url)
        if parts.scheme != SCHEME or not parts.netloc or parts.path.strip("/"):
            raise ValueError(f"{url!r} is no address of Kafka: it looks like kafka://host:9092,host:9092?prefix=p.")
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        prefix = options.pop("prefix", "")
        return cls(bootstrap=parts.netloc, prefix=prefix, options=tuple(options.items()))

    def __repr__(self) -> str:
        """Without the options: a password may be among them."""
        return f"Cluster({self.bootstrap}, prefix={self.prefix!r})"

    def prefixed(self, name: str) -> str:
        """The name of a topic or group in Kafka."""
        return self.prefix + name

    def unprefixed(self, name: str) -> str:
        return name.removeprefix(self.prefix)

    def client_settings(self, client_id: str) -> ClientSettings:
        """Settings of all clients. Errors are raised as exceptions, so librdkafka logs only those without a caller."""
        fixed: ClientSettings = {"bootstrap.servers": self.bootstrap, "client.id": client_id, "log_level": 3}
        return {**dict(self.options), **fixed}

    def producer_settings(self, client_id: str) -> ClientSettings:
        """No `retries`: after a count librdkafka would drop one request of an append and send the next."""
        return {
            **self.client_settings(client_id),
            "acks": "all",
            "enable.idempotence": True,
            "enable.gapless.guarantee": True,
            "delivery.timeout.ms": _ms(limits.KAFKA_DELIVERY_S),
            "request.timeout.ms": _ms(limits.KAFKA_REQUEST_S),
            "retry.backoff.ms": _ms(limits.KAFKA_RETRY_BACKOFF_S),
            "linger.ms": _ms(limits.KAFKA_LINGER_S),
            "batch.size": limits.KAFKA_BATCH_BYTES,
            "compression.type": "lz4",
            "message.max.bytes": limits.KAFKA_RECORD_BYTES_MAX,
            "queue.buffering.max.messages": limits.KAFKA_UNSENT_EVENTS_MAX,
        }

    def consumer_settings(
        self, group: str, consumer_id: str, *, session_s: float, heartbeat_s: float
    ) -> ClientSettings:
        """Cooperative: only the partitions that move stop. The reader itself keeps to `max.poll.records`."""
        return {
            **self.client_settings(consumer_id),
            "group.id": group,
            "group.protocol": "classic",
            "partition.assignment.strategy": "cooperative-sticky",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": _ms(session_s),
            "heartbeat.interval.ms": _ms(heartbeat_s),
            "max.poll.interval.ms": _ms(limits.KAFKA_POLL_INTERVAL_S),
            "socket.timeout.ms": _ms(limits.KAFKA_SOCKET_S),
            "queued.max.messages.kbytes": limits.KAFKA_FETCHED_KBYTES_MAX,
            "fetch.queue.backoff.ms": _ms(limits.KAFKA_FETCH_PAUSE_S),
        }


def check_partitions(cluster: Cluster, partitions: Mapping[str, int], *, timeout_s: float) -> None:
    """Blocks. Raises `TopicMismatch` unless every topic is there and has so many partitions."""
    admin = AdminClient({**cluster.client_settings("seriatim-start"), "log_level": 0})
    try:
        found = admin.list_topics(timeout=timeout_s)
    except KafkaException as error:
        raise unavailable("topics", error.args[0]) from error
    counts = {name: len(topic.partitions) for name, topic in found.topics.items() if topic.error is None}
    refuse_mismatch(cluster, partitions, counts)


class LeaderCheck:
    """Blocks. Raises `ServiceUnavailable` unless every partition of the topics has a leader, which takes events."""

    def __init__(self, cluster: Cluster, topics: Iterable[str]) -> None:
        self._names = [cluster.prefixed(topic) for topic in topics]
        self._admin = AdminClient({**cluster.client_settings("seriatim-probe"), "log_level": 0})

    def __call__(self) -> None:
        for name in self._names:
            try:
                found = self._admin.list_topics(name, timeout=limits.KAFKA_PROBE_S).topics[name]
            except KafkaException as error:
                raise unavailable("probe", error.args[0]) from error
            leaderless = [number for number, each in found.partitions.items() if each.leader < 0]
            if found.error is not None or leaderless:
                why = found.error or f"partitions without a leader: {leaderless}"
                raise ServiceUnavailable(FAILED, log_reason=f"probe: {name}: {why}")


def refuse_mismatch(cluster: Cluster, partitions: Mapping[str, int], found: Mapping[str, int]) -> None:
    """`found`: how many partitions there are, by the names that Kafka has for topics."""
    wrong: list[str] = []
    for topic, count in partitions.items():
        name = cluster.prefixed(topic)
        if name not in found:
            wrong.append(f"there is no topic {name}")
        elif found[name] != count:
            wrong.append(f"topic {name} has {found[name]} partitions and not {count}")
    if wrong:
        raise TopicMismatch("; ".join(wrong) + ": see `seriatim topics verify`")


def _ms(seconds: float) -> int:
    return round(seconds * 1000)

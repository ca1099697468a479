"""What the engines beyond one machine count by themselves, under the names that Prometheus sees."""

from collections.abc import Sequence

from seriatim.engines.dynamodb.transport.client import DynamoClient
from seriatim.engines.kafka.event_reader import KafkaEventReader
from seriatim.engines.redis.client import RedisClient
from seriatim.engines.redis.dial import RedisDialer
from seriatim.engines.redis.push import RedisPushSubscriber
from seriatim.runtime.telemetry.metrics import EngineCounter


def dynamodb_counters(client: DynamoClient) -> Sequence[EngineCounter]:
    return (
        EngineCounter(
            name="dynamodb_calls",
            text="Calls to DynamoDB",
            labels=("operation",),
            counts={(operation,): count for operation, count in client.calls.items()},
        ),
        EngineCounter(
            name="dynamodb_refusals",
            text="Calls that it did not do: by its own word, or because it was not there",
            labels=("operation", "reason"),
            counts=dict(client.failures.items()),
        ),
        _number("dynamodb_retries", "Calls repeated after a pause, other than those of sends", client.retries),
    )


def redis_counters(dialer: RedisDialer, client: RedisClient) -> Sequence[EngineCounter]:
    made = "Connections made to Redis: a few at the start, then one for each loss"
    return (
        _number("redis_connections", made, dialer.made),
        _number("redis_dials_failed", "Dials that reached no Redis", dialer.failed),
        _number("redis_calls_failed", "Calls to Redis without an answer that helps", client.failed_calls),
    )


def kafka_counters(reader: KafkaEventReader) -> Sequence[EngineCounter]:
    text = "Old events that fanout did not push because the group had no committed offset"
    return (_number("kafka_records_passed_over", text, reader.records_skipped),)


def push_counters(subscriber: RedisPushSubscriber) -> Sequence[EngineCounter]:
    return (_number("redis_parcels_malformed", "Pushes that nobody could read", subscriber.malformed_envelopes),)


def _number(name: str, text: str, count: int) -> EngineCounter:
    return EngineCounter(name=name, text=text, counts={(): count})

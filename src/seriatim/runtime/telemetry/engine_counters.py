"""What the engines beyond one machine count by themselves, under the names that Prometheus sees."""

from collections.abc import Mapping

from seriatim.engines.dynamodb.transport.client import DynamoClient
from seriatim.engines.kafka.event_reader import KafkaEventReader
from seriatim.engines.redis.client import RedisClient
from seriatim.engines.redis.dial import RedisDialer
from seriatim.engines.redis.push import RedisPushSubscriber

Numbers = Mapping[str, int] | Mapping[tuple[str, str], int]


def dynamodb_counters(client: DynamoClient) -> Mapping[str, int | Numbers]:
    return {
        "dynamodb_calls": client.calls,
        "dynamodb_refusals": client.failures,
        "dynamodb_retries": client.retries,
    }


def redis_counters(dialer: RedisDialer, client: RedisClient) -> Mapping[str, int | Numbers]:
    return {
        "redis_connections": dialer.made,
        "redis_dials_failed": dialer.failed,
        "redis_calls_failed": client.failed_calls,
    }


def kafka_counters(reader: KafkaEventReader) -> Mapping[str, int | Numbers]:
    return {"kafka_records_passed_over": reader.records_skipped}


def push_counters(subscriber: RedisPushSubscriber) -> Mapping[str, int | Numbers]:
    return {"redis_parcels_malformed": subscriber.malformed_envelopes}

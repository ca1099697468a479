"""Tables and topics for an installation on DynamoDB and Kafka, made where they are missing."""

from collections.abc import Callable

from seriatim.domain.errors import SeriatimError
from seriatim.engines.dynamodb.table_control import DynamoTableControl
from seriatim.engines.kafka.cluster import Cluster
from seriatim.engines.kafka.topic_control import KafkaTopicControl
from seriatim.operations import tables, topics
from seriatim.operations.retries import RetryingTableControl, RetryingTopicControl
from seriatim.ports.clock import Clock
from seriatim.runtime.config.settings import Settings
from seriatim.runtime.server.lifecycle import StartupError
from seriatim.runtime.wiring.dynamodb import DynamoDbUrl, StoreUnreachable, dynamodb


async def prepare(settings: Settings, profile: str, clock: Clock, report: Callable[[str], None]) -> None:
    """May be repeated at any time. `profile` is one of `topics.PROFILES`. Raises `StartupError`."""
    try:
        place, kafka = DynamoDbUrl.parse(settings.store), Cluster.parse(settings.events)
        async with dynamodb(place.endpoint, place.region, clock) as client:
            store = RetryingTableControl(DynamoTableControl(client), clock, report)
            await tables.create(store, clock, prefix=place.prefix, report=report)
        log = RetryingTopicControl(KafkaTopicControl(kafka), clock, report)
        await topics.create(log, topics.PROFILES[profile], prefix=kafka.prefix, report=report)
    except (StoreUnreachable, ValueError) as error:
        raise StartupError(str(error)) from error
    except SeriatimError as error:
        raise StartupError(error.log_reason) from error

"""`TopicControl` on Kafka, for operators: no plane creates or changes topics."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from seriatim.engines.kafka.cluster import Cluster
from seriatim.engines.kafka.errors import outcome_unknown, unavailable
from seriatim.ports.topics import Topic

T = TypeVar("T")


class KafkaTopicControl:
    """Implements `TopicControl`."""

    def __init__(self, cluster: Cluster) -> None:
        self._admin = admin_client(cluster)

    async def describe(self, names: Sequence[str], *, timeout_s: float) -> Mapping[str, Topic]:
        found = await self._metadata(timeout_s)
        there = {name: topic for name, topic in found.topics.items() if name in names and topic.error is None}
        settings = await self._settings(ResourceType.TOPIC, list(there), timeout_s)
        return {
            name: Topic(
                name=name,
                partitions=len(topic.partitions),
                replicas=min([len(each.replicas) for each in topic.partitions.values()]),
                settings=settings[name],
            )
            for name, topic in there.items()
        }

    async def defaults(self, *, timeout_s: float) -> Mapping[str, str]:
        """Of the first broker: all are deployed with the same settings."""
        found = await self._metadata(timeout_s)
        broker = str(min(found.brokers))
        return (await self._settings(ResourceType.BROKER, [broker], timeout_s))[broker]

    async def create(self, topic: Topic, *, timeout_s: float) -> None:
        new = NewTopic(topic.name, topic.partitions, topic.replicas, config=dict(topic.settings))
        (created,) = self._admin.create_topics([new], operation_timeout=timeout_s).values()
        try:
            await _result("create", created, timeout_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise unavailable("create", error.args[0]) from error

    async def adjust(self, topic: Topic, *, timeout_s: float) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in topic.settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic.name, incremental_configs=entries)
        (changed,) = self._admin.incremental_alter_configs([resource]).values()
        await admin_result("adjust", changed, timeout_s)

    async def _metadata(self, timeout_s: float) -> ClusterMetadata:
        try:
            return await asyncio.to_thread(self._admin.list_topics, timeout=timeout_s)
        except KafkaException as error:
            raise unavailable("describe", error.args[0]) from error

    async def _settings(
        self, kind: ResourceType, names: Sequence[str], timeout_s: float
    ) -> Mapping[str, Mapping[str, str]]:
        if not names:
            return {}
        requests = self._admin.describe_configs([ConfigResource(kind, name) for name in names])
        answers = {
            resource.name: await admin_result("describe", each, timeout_s) for resource, each in requests.items()
        }
        return {name: {entry.name: str(entry.value) for entry in each.values()} for name, each in answers.items()}


def admin_client(cluster: Cluster) -> AdminClient:
    """Without a log of its own: errors are raised."""
    return AdminClient({**cluster.client_settings("seriatim-control"), "log_level": 0})


async def admin_result(operation: str, request: "Future[T]", timeout_s: float) -> T:
    try:
        return await _result(operation, request, timeout_s)
    except KafkaException as error:
        raise unavailable(operation, error.args[0]) from error


async def _result(operation: str, request: "Future[T]", timeout_s: float) -> T:
    result: Awaitable[T] = asyncio.wrap_future(request)
    try:
        async with asyncio.timeout(timeout_s):
            return await result
    except TimeoutError:
        raise outcome_unknown(operation) from None

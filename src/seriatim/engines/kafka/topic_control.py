"""Topics, for operators: questions to Kafka that no plane asks."""

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
from seriatim.engines.kafka.errors import unavailable, unknown
from seriatim.ports.topics import Topic

T = TypeVar("T")


class KafkaTopicControl:
    """Implements `TopicControl`."""

    def __init__(self, cluster: Cluster) -> None:
        self._admin = quiet_admin(cluster)

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
        """Of the first broker: they are deployed alike, or else more is wrong than a setting."""
        found = await self._metadata(timeout_s)
        broker = str(min(found.brokers))
        return (await self._settings(ResourceType.BROKER, [broker], timeout_s))[broker]

    async def create(self, topic: Topic, *, timeout_s: float) -> None:
        new = NewTopic(topic.name, topic.partitions, topic.replicas, config=dict(topic.settings))
        (made,) = self._admin.create_topics([new], operation_timeout=timeout_s).values()
        try:
            await _answer("create", made, timeout_s)
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
        await answered("adjust", changed, timeout_s)

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
        asked = self._admin.describe_configs([ConfigResource(kind, name) for name in names])
        answers = {resource.name: await answered("describe", each, timeout_s) for resource, each in asked.items()}
        return {name: {entry.name: str(entry.value) for entry in each.values()} for name, each in answers.items()}


def quiet_admin(cluster: Cluster) -> AdminClient:
    """Quiet: whatever goes wrong is an exception."""
    return AdminClient({**cluster.client("seriatim-control"), "log_level": 0})


async def answered(operation: str, asked: "Future[T]", timeout_s: float) -> T:
    try:
        return await _answer(operation, asked, timeout_s)
    except KafkaException as error:
        raise unavailable(operation, error.args[0]) from error


async def _answer(operation: str, asked: "Future[T]", timeout_s: float) -> T:
    answer: Awaitable[T] = asyncio.wrap_future(asked)
    try:
        async with asyncio.timeout(timeout_s):
            return await answer
    except TimeoutError:
        raise unknown(operation) from None

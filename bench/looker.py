"""Looks at a deployment from outside: its metrics, the engines' own counters, and the CPU of every process."""

import asyncio
import time

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from bench.counts import Counts, Numbers, commands_of, counts_of
from bench.deployment import Deployment
from bench.processes import cpu_s
from seriatim.engines.kafka.cluster import Cluster
from seriatim.operations.topics import PARTITIONS
from seriatim.ports.event_log import MESSAGES
from seriatim.runtime.config.roles import ProcessRole

KAFKA_S = 10.0


class Looker:
    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._looks = 0

    async def counts(self) -> Counts:
        deployment = self._deployment
        self._looks += len(deployment.roles[ProcessRole.INGEST])
        metrics = "".join([await deployment.metrics(role) for role in deployment.roles])
        commands = commands_of(await _commandstats(deployment.engines.redis.port))
        records = await asyncio.to_thread(_records, deployment.settings.events)
        return counts_of(metrics, looks=self._looks, records=records, commands=commands)

    def cpu_s(self) -> Numbers:
        """Of each role, the sum of its processes; of each engine, and of ourselves, who make the load."""
        engines, roles = self._deployment.engines, self._deployment.roles
        return {
            **{role.value: sum(each.cpu_s() for each in processes) for role, processes in roles.items()},
            engines.dynamodb.name: cpu_s(engines.dynamodb.pid),
            engines.kafka.name: cpu_s(engines.kafka.pid),
            engines.redis.name: cpu_s(engines.redis.pid),
            "load": time.process_time(),
        }


async def _commandstats(port: int) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"INFO commandstats\r\n")
        length = int((await reader.readline()).removeprefix(b"$"))
        return (await reader.readexactly(length)).decode()
    finally:
        writer.close()


def _records(events: str) -> int:
    """How many records of messages there have ever been. Blocks."""
    cluster = Cluster.parse(events)
    admin = AdminClient(cluster.client_settings("bench"))
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(cluster.prefixed(MESSAGES), number): latest for number in range(PARTITIONS[MESSAGES])}
    return sum(found.result(KAFKA_S).offset for found in admin.list_offsets(asked).values())

"""`events = kafka://`: the event log in Kafka, shared by all processes."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack

from seriatim.domain import limits
from seriatim.engines.kafka.cluster import Cluster, LeaderCheck, check_partitions
from seriatim.engines.kafka.errors import NotAuthorized
from seriatim.engines.kafka.event_reader import KafkaEventReader
from seriatim.engines.kafka.event_writer import KafkaDeadLetterWriter, KafkaEventWriter
from seriatim.engines.kafka.lag import KafkaLag
from seriatim.engines.kafka.producer import Producer
from seriatim.engines.kafka.topic_control import KafkaTopicControl
from seriatim.operations.topics import PARTITIONS, FragileTopics, weaknesses
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import DEAD_LETTERS, MEMBERSHIPS, MESSAGES, DeadLetterWriter, EventReader, EventWriter
from seriatim.runtime.config.settings import Settings
from seriatim.runtime.server.lag_monitor import LagMonitor
from seriatim.runtime.server.topic_monitor import TopicMonitor
from seriatim.runtime.telemetry.engine_counters import kafka_counters
from seriatim.runtime.telemetry.logs import log_event
from seriatim.runtime.telemetry.metrics import Metrics
from seriatim.runtime.wiring.engine_set import NO_BACKLOG, BackgroundTask, Backlog, EventEngine

_log = logging.getLogger("seriatim")


class KafkaEvents(EventEngine):
    """Connects when it is first used. Raises `ValueError` for a URL that is none."""

    def __init__(self, settings: Settings, metrics: Metrics, clock: Clock, run_id: str) -> None:
        self.tasks: list[BackgroundTask] = []
        self._cluster = Cluster.parse(settings.events)
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._run_id = run_id
        self._opened = AsyncExitStack()
        self._lag: LagMonitor | None = None
        self._topics_monitor: TopicMonitor | None = None

    def writer(self, role: str, *topics: str) -> EventWriter:
        if role == "ingest":  # without the log REST still answers
            self._topics_monitor = TopicMonitor(LeaderCheck(self._cluster, topics))
            self.tasks.append(("topics", self._topics_monitor.run))
        return KafkaEventWriter(self._producer(role, *topics))

    def dead_letter_writer(self, role: str) -> DeadLetterWriter:
        return KafkaDeadLetterWriter(self._producer(role, DEAD_LETTERS))

    def reader(self, group: str, consumer_id: str) -> EventReader:
        group = self._cluster.prefixed(group)  # two installations on one Kafka are two groups, too
        topics = _topics(MESSAGES, MEMBERSHIPS)
        lag = KafkaLag(self._cluster, topics, group, dead_letters=PARTITIONS[DEAD_LETTERS])
        self._lag = LagMonitor(lag, self._clock)
        self.tasks.append(("lag", self._lag.run))
        reader = KafkaEventReader(self._cluster, topics, group, consumer_id)
        self._metrics.engine_counters.append(lambda: kafka_counters(reader))
        return reader

    async def check_reachable(self) -> None:
        await asyncio.to_thread(check_partitions, self._cluster, PARTITIONS, timeout_s=limits.KAFKA_ADMIN_S)
        if self._settings.env == "prod":
            await self._refuse_fragile_topics()

    async def availability(self) -> Mapping[str, str | None]:
        """What the monitors found last; a consumer must also have been assigned its partitions."""
        found = [each.reason for each in (self._topics_monitor, self._lag) if each is not None]
        if not found:
            return {}
        reason = next((each for each in found if each is not None), None)
        if reason is None and self._lag is not None and not self._metrics.fanout.rebalances:
            reason = "no partitions were assigned to this process yet"
        return {"events": reason}

    async def backlog(self) -> Backlog:
        return NO_BACKLOG if self._lag is None else self._lag.backlog

    async def close(self) -> None:
        await self._opened.aclose()

    async def _refuse_fragile_topics(self) -> None:
        try:
            found = await weaknesses(KafkaTopicControl(self._cluster), prefix=self._cluster.prefix)
        except NotAuthorized as error:
            step = "allow DescribeConfigs on the topics, or run `seriatim topics verify` with other rights"
            log_event(_log, logging.WARNING, "topics_not_checked", reason=error.log_reason, next_step=step)
            return
        if not found:
            return
        listed = "; ".join([f"{each.topic}: {each.what} is {each.found}, not {each.expected}" for each in found])
        if not self._settings.events_fragile_in_prod:
            raise FragileTopics(
                f"env is prod, and the event log does not survive the loss of a broker: {listed}. Make more copies "
                "with kafka-reassign-partitions, mend settings with `seriatim topics create`, or accept it with "
                "events_fragile_in_prod = true"
            )
        log_event(_log, logging.WARNING, "topics_fragile", found=listed, next_step="see `seriatim topics verify`")

    def _producer(self, role: str, *topics: str) -> Producer:
        """One for each role: it knows no topics but those that the role may write to."""
        producer = Producer(self._cluster, _topics(*topics), f"{role}-{self._run_id}")
        self._opened.push_async_callback(producer.close)
        return producer


def _topics(*names: str) -> Mapping[str, int]:
    return {name: PARTITIONS[name] for name in names}

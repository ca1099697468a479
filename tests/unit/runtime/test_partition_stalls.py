"""A partition that stands still while events arrive makes its process unready; slow, idle and new ones do not."""

import asyncio
import io
import json
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from seriatim.domain import limits
from seriatim.engines.kafka.event_reader import KafkaEventReader
from seriatim.engines.kafka.lag import KafkaLag
from seriatim.fanout.consumer import FanoutConsumer
from seriatim.ports.event_log import MEMBERSHIPS, MESSAGES, Partition
from seriatim.runtime.config.roles import ProcessRole
from seriatim.runtime.server.health import ProcessHealth
from seriatim.runtime.server.lag_monitor import LagMonitor
from seriatim.runtime.server.partition_stalls import PartitionStallMonitor
from seriatim.runtime.telemetry.metrics import Metrics
from seriatim.runtime.wiring.engine_set import NO_BACKLOG, Backlog
from tests.contract.consumers import fill
from tests.contract.event_engines import PARTITIONS, until
from tests.contract.kafka_engines import KafkaEventLogEngine
from tests.support.manual_clock import ManualClock
from tests.support.real_kafka import PATIENCE_S
from tests.unit.fanout.fakes import FakeDirectory, FakePush, FakeRoster, FixedClock
from tests.unit.runtime.test_metrics import LIVE

P0, P1 = Partition(MESSAGES, 0), Partition(MESSAGES, 1)


class StallHarness:
    """An event log and a consumer of which the test says how far they are."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.positions: Mapping[Partition, int | None] = {P0: 10, P1: 10}
        self.committed = {P0: 10, P1: 10}
        self.ends: Mapping[Partition, int] = {P0: 10, P1: 10}
        self.monitor = PartitionStallMonitor(self, self, self.clock)

    async def backlog(self) -> Backlog:
        if not self.ends:
            return NO_BACKLOG
        lag = {partition: end - self.committed[partition] for partition, end in self.ends.items()}
        return Backlog(lag_records=lag, ends=self.ends, lag_s=None, dead_letters=None)

    async def stalled(self, *, after_s: float = 0.0) -> list[Partition]:
        self.clock.advance(after_s)
        await self.monitor.check()
        return list(self.monitor.partitions)


async def test_b1_a_partition_whose_position_stalls_while_its_end_moves_is_noticed_and_logged_once(
    log: io.StringIO,
) -> None:
    harness = StallHarness()
    assert await harness.stalled() == []
    harness.ends = {P0: 11, P1: 10}
    assert await harness.stalled(after_s=5) == []
    assert await harness.stalled(after_s=limits.STALL_S - 1) == []
    assert await harness.stalled(after_s=1) == [P0]
    assert await harness.stalled(after_s=5) == [P0]
    harness.positions = {P0: 11, P1: 10}
    assert await harness.stalled(after_s=5) == []
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["partition_stalled", "partition_resumed"]
    assert {name: lines[0][name] for name in ("topic", "partition", "position", "end", "seconds")} == {
        "topic": MESSAGES,
        "partition": 0,
        "position": 10,
        "end": 11,
        "seconds": limits.STALL_S,
    }


async def test_a_partition_of_which_no_record_was_handled_yet_is_where_the_group_committed() -> None:
    harness = StallHarness()
    harness.positions = {P0: None}
    assert await harness.stalled() == []
    assert await harness.stalled(after_s=2 * limits.STALL_S) == []
    harness.ends = {P0: 12, P1: 10}
    assert await harness.stalled() == []
    assert await harness.stalled(after_s=limits.STALL_S) == [P0]


async def test_a_slow_consumer_moves_and_is_not_stalled() -> None:
    harness = StallHarness()
    for handled in range(1, 20):
        harness.ends = {P0: 10 + 100 * handled, P1: 10}
        harness.positions = {P0: 10 + handled, P1: 10}
        assert await harness.stalled(after_s=limits.STALL_S - 1) == []


@pytest.mark.parametrize("position", [10, None], ids=["handled here", "handled by its last owner"])
async def test_an_idle_partition_is_not_stalled_and_neither_is_one_whose_end_was_asked_a_moment_ago(
    position: int | None,
) -> None:
    harness = StallHarness()
    harness.positions = {P0: position}
    harness.ends = {P0: 8, P1: 10}  # as it was a moment ago; by now the end is 10, and all of it is handled
    harness.committed[P0] = 8
    assert await harness.stalled() == []
    harness.ends = {P0: 10, P1: 10}
    harness.committed[P0] = 10
    for _ in range(5):
        assert await harness.stalled(after_s=limits.STALL_S) == []


async def test_a_backlog_into_which_nothing_new_arrives_is_not_called_stalled() -> None:
    """What retention removed counts as lag until the next record is handled; nothing is there to be read."""
    harness = StallHarness()
    harness.committed[P0] = 3
    harness.positions = {P0: None}
    for _ in range(5):
        assert await harness.stalled(after_s=limits.STALL_S) == []


async def test_a_pause_as_long_as_the_longest_backoff_is_not_stalled() -> None:
    harness = StallHarness()
    await harness.stalled()
    harness.ends = {P0: 20, P1: 10}
    await harness.stalled()
    assert (
        await harness.stalled(after_s=limits.DEAD_LETTER_RETRY_MAX_S + limits.KAFKA_LAG_EVERY_S + limits.STALL_CHECK_S)
        == []
    )


async def test_a_partition_that_went_to_another_process_is_no_longer_reported() -> None:
    harness = StallHarness()
    await harness.stalled()
    harness.ends = {P0: 11, P1: 10}
    await harness.stalled()
    assert await harness.stalled(after_s=limits.STALL_S) == [P0]
    harness.positions = {P1: 10}
    assert await harness.stalled() == []


async def test_a_log_that_does_not_answer_accuses_no_partition() -> None:
    harness = StallHarness()
    await harness.stalled()
    harness.ends = {P0: 11, P1: 10}
    await harness.stalled()
    harness.ends = {}
    assert await harness.stalled(after_s=limits.STALL_S) == []
    harness.ends = {P0: 11, P1: 10}
    assert await harness.stalled() == []


def test_the_number_of_stalled_partitions_is_shown_by_the_process_that_has_them() -> None:
    assert b'fanout_partitions_stalled{instance="here"} 0.0' in Metrics("here", (ProcessRole.FANOUT,)).text(LIVE, 0.0)
    assert b"fanout_partitions_stalled" not in Metrics("here", (ProcessRole.GATEWAY,)).text(LIVE, 0.0)


# --- on a real Kafka --------------------------------------------------------------------------------------------------


class _FakeEngines:
    """Of a fanout process on Kafka, all that its readiness asks for."""

    remote = None

    def __init__(self, lag: LagMonitor) -> None:
        self._lag = lag

    async def availability(self) -> Mapping[str, str | None]:
        return {"events": self._lag.reason}

    async def backlog(self) -> Backlog:
        return self._lag.backlog


class _DeadLetters:
    async def write(self, dead_letter: object, *, timeout_s: float) -> None:
        """The records of this test are no events: each is set aside at once."""


@asynccontextmanager
async def _fanout(engine: KafkaEventLogEngine) -> AsyncIterator[tuple[FanoutConsumer, KafkaEventReader]]:
    reader = engine.reader("fanout", "one")
    assert isinstance(reader, KafkaEventReader)
    service = FanoutConsumer(
        reader, _DeadLetters(), FakeRoster(1), FakeDirectory(), FakePush(), FixedClock(), consumer_id="one"
    )
    running = asyncio.create_task(service.run())
    try:
        yield service, reader
    finally:
        await service.stop()
        await running


async def test_b1_a_process_whose_partition_kafka_keeps_paused_becomes_unready_and_ready_again() -> None:
    engine = KafkaEventLogEngine(PARTITIONS)
    await engine.open()
    try:
        async with _fanout(engine) as (service, reader):
            group = f"{engine.raw.cluster.prefix}fanout"
            topics = {MESSAGES: PARTITIONS[MESSAGES], MEMBERSHIPS: PARTITIONS[MEMBERSHIPS]}
            clock, asked = ManualClock(), KafkaLag(engine.raw.cluster, topics, group)
            lag = LagMonitor(asked, clock)
            health = ProcessHealth(_FakeEngines(lag), Metrics("here", (ProcessRole.FANOUT,)), clock, fanout=service)  # type: ignore[arg-type]
            assert health.stalls is not None

            async def ready(after_s: float = 0.0) -> Mapping[str, bool]:
                clock.advance(after_s)
                lag.backlog = lag._backlog(await asked.read(timeout_s=PATIENCE_S))
                assert health.stalls is not None
                await health.stalls.check()
                return await health.readiness()

            partition = await fill(engine, 1)
            await until(engine, lambda: service.positions.get(partition) == 1, "the first record")
            assert await ready() == {"events": True, "fanout": True}
            membership, version = reader._membership, reader._assigned[partition].version
            assert membership is not None
            membership.pause(partition, version=version)  # and no resume follows, as librdkafka does after a rebalance
            paused = threading.Event()
            membership._command(partition, version, paused.set)
            await until(engine, paused.is_set, "the pause")
            await fill(engine, 5, start=1)
            assert await ready(after_s=5) == {"events": True, "fanout": True}
            assert await ready(after_s=limits.STALL_S) == {"events": True, "fanout": False}
            assert (await health.live()).stalled == 1
            membership.resume(partition, version=version)
            await until(engine, lambda: service.positions.get(partition) == 6, "the records that waited")
            assert await ready(after_s=5) == {"events": True, "fanout": True}
    finally:
        await engine.close()

"""What a Kafka reader keeps beyond the contract: bounded buffers, brokers that fail, and its own end."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, cast

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, KafkaException

from seriatim.domain import limits
from seriatim.domain.errors import InternalError, OutcomeUnknown, ServiceUnavailable
from seriatim.engines.kafka.cluster import Cluster, TopicMismatch
from seriatim.engines.kafka.event_reader import KafkaEventReader
from seriatim.engines.kafka.lag import KafkaLag
from seriatim.ports.event_log import MESSAGES, Fenced, Partition, Record
from tests.contract.consumers import GROUP, Consumer, Crew, fill, read
from tests.contract.event_engines import SOON_S, soon
from tests.contract.kafka_engines import KafkaEventLogEngine
from tests.support.log_reasons import because
from tests.support.real_kafka import PATIENCE_S
from tests.unit.engines.kafka_engine import kafka_engine


def test_the_settings_are_those_of_the_specification() -> None:
    settings = Cluster(bootstrap="x").consumer_settings("fanout-workers", "fanout-0", session_s=30, heartbeat_s=10)
    assert {name: settings[name] for name in settings if name in _SPECIFIED} == _SPECIFIED


_SPECIFIED = {
    "group.id": "fanout-workers",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "max.poll.interval.ms": 300_000,
    "session.timeout.ms": 30_000,
    "heartbeat.interval.ms": 10_000,
    "isolation.level": "read_committed",
}


async def test_a_paused_partition_keeps_a_few_records_and_leaves_the_rest_in_kafka() -> None:
    count = 20 * limits.KAFKA_PAUSED_RECORDS_MAX
    async with kafka_engine() as engine, Crew(engine) as crew:
        partition = await fill(engine, 1)
        consumer = await crew.hire("one", start=False)
        await read(engine, consumer, 1)
        consumer.reader.pause(partition)
        waiting = asyncio.create_task(_poll(consumer, 50))
        for start in range(1, count, 100):
            await fill(engine, 100, start=start)
        assert isinstance(consumer.reader, KafkaEventReader)
        kept = consumer.reader._assigned[partition].arrived
        for _ in range(100):
            await engine.pause()
        assert limits.KAFKA_PAUSED_RECORDS_MAX <= len(kept) <= limits.KAFKA_PAUSED_RECORDS_MAX + 2 * 50
        consumer.reader.resume(partition)
        records = list(await soon(engine, _wait(waiting)))
        while len(records) < count:
            records += await soon(engine, _poll(consumer, 500))
        assert [int(record.value or b"") for record in records] == list(range(1, count + 1))


@pytest.mark.parametrize("resumed", [True, False], ids=["resumed while it is given back", "never resumed"])
async def test_b1_a_paused_partition_that_is_given_back_reads_on(resumed: bool) -> None:
    """A worker that is revoked resumes its partition; a worker that is fenced does not."""
    async with kafka_engine() as engine, Crew(engine) as crew:
        first = await crew.hire("first")
        await crew.until_shared()
        partitions = list(first.owned)
        for partition in partitions:
            first.reader.pause(partition)
        await _fill_all(engine, limits.KAFKA_PAUSED_RECORDS_MAX)
        assert isinstance(first.reader, KafkaEventReader)
        assigned = first.reader._assigned
        await crew.until(lambda: all(each.stopped for each in assigned.values()), "a backlog that pauses them all")

        async def give_back(revoked: Sequence[Partition]) -> None:
            if resumed:
                for partition in revoked:
                    first.reader.resume(partition)

        first.on_revoked = give_back
        second = await crew.hire("second")
        await crew.until_shared()
        moved = list(second.owned)
        await second.stop()
        await second.reader.close()
        crew.consumers.remove(second)
        await crew.until_shared()
        await _fill_all(engine, 1, start=limits.KAFKA_PAUSED_RECORDS_MAX)
        ends = {record.partition: record.offset for record in await engine.stored(MESSAGES)}

        def all_read() -> bool:
            last = {record.partition: record.offset for record in first.handled}
            return all(last.get(partition) == ends[partition] for partition in moved)

        await crew.until(all_read, f"the new records of {moved}")
        assert {record.partition for record in first.handled} == set(moved)  # the others are paused as before


async def test_b1_a_pause_that_was_ordered_before_a_rebalance_does_not_outlive_it() -> None:
    """The order still waits in the thread of the consumer when the partition is already given out once more."""
    async with kafka_engine() as engine, Crew(engine) as crew:
        partition = await fill(engine, 1)
        consumer = await crew.hire("one")
        await crew.until(lambda: len(consumer.handled) == 1, "the first record")
        assert isinstance(consumer.reader, KafkaEventReader)
        membership, version = consumer.reader._membership, consumer.reader._assigned[partition].version
        assert membership is not None
        carried_out = threading.Event()
        membership.pause(partition, version=version - 1)
        membership._command(partition, version, carried_out.set)
        await crew.until(carried_out.is_set, "the orders were carried out")
        await fill(engine, 1, start=1)
        await crew.until(lambda: len(consumer.handled) == 2, "the record after the pause")


async def test_a_seek_wins_over_whatever_is_on_its_way_also_while_paused() -> None:
    async with kafka_engine() as engine, Crew(engine) as crew:
        partition = await fill(engine, 200)
        consumer = await crew.hire("one", start=False)
        assert (await read(engine, consumer, 3))[:1] == [b"0"]
        for offset in (150, 10, 199, 0):
            consumer.reader.seek(partition, offset)
            assert (await read(engine, consumer, 1))[0] == b"%d" % offset
        consumer.reader.pause(partition)
        consumer.reader.seek(partition, 42)
        consumer.reader.resume(partition)
        assert (await read(engine, consumer, 3))[:3] == [b"42", b"43", b"44"]


async def test_a_partition_that_was_just_assigned_can_be_sought() -> None:
    async with kafka_engine() as engine:
        partition = await fill(engine, 5)
        reader = engine.reader(GROUP, "one")

        class Seeker(Consumer):
            def assigned(self, partitions: Sequence[Partition]) -> None:
                reader.seek(partition, 3)

        consumer = Seeker("one", reader, {})
        await consumer.open()
        assert await read(engine, consumer, 2) == [b"3", b"4"]


async def test_commits_that_come_together_are_all_answered_and_all_stored() -> None:
    async with kafka_engine() as engine, Crew(engine) as crew:
        for number in range(12):
            await fill(engine, 5, key=f"chat_{number}")
        consumer = await crew.hire("one", start=False)
        await read(engine, consumer, 60)
        offsets = {record.partition: record.offset + 1 for record in consumer.handled}
        await asyncio.gather(
            *[consumer.reader.commit(each, offset, timeout_s=SOON_S) for each, offset in offsets.items()],
            *[consumer.reader.commit(each, offset, timeout_s=SOON_S) for each, offset in offsets.items()],
        )
        lag = KafkaLag(engine.raw.cluster, {MESSAGES: 4}, f"{engine.raw.cluster.prefix}{GROUP}")
        assert await lag.records(timeout_s=PATIENCE_S) == dict.fromkeys([Partition(MESSAGES, n) for n in range(4)], 0)


@pytest.mark.parametrize("refusal", [KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS])
async def test_a_commit_that_a_rebalance_refuses_is_repeated_and_stored(refusal: int) -> None:
    async with kafka_engine() as engine, Crew(engine) as crew:
        partition = await fill(engine, 1)
        consumer = await crew.hire("one", start=False)
        await read(engine, consumer, 1)
        refusing = _refuse_commits(consumer, refusal, times=2)
        await consumer.reader.commit(partition, 1, timeout_s=SOON_S)
        assert refusing.times == 0
        lag = KafkaLag(engine.raw.cluster, {MESSAGES: 4}, f"{engine.raw.cluster.prefix}{GROUP}")
        assert (await lag.records(timeout_s=PATIENCE_S))[partition] == 0


async def test_a_commit_that_is_refused_until_its_timeout_says_that_nothing_was_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "KAFKA_RETRY_BACKOFF_S", 60.0)
    async with kafka_engine() as engine, Crew(engine) as crew:
        partition = await fill(engine, 1)
        consumer = await crew.hire("one", start=False)
        await read(engine, consumer, 1)
        _refuse_commits(consumer, KafkaError.REBALANCE_IN_PROGRESS, times=1)
        with pytest.raises(ServiceUnavailable, check=because("REBALANCE_IN_PROGRESS")):
            await consumer.reader.commit(partition, 1, timeout_s=2.0)


async def test_a_broker_that_dies_and_comes_back_loses_no_record_and_no_reader() -> None:
    async with kafka_engine() as engine, Crew(engine) as crew:
        await fill(engine, 3)
        consumer = await crew.hire("one")
        await crew.until(lambda: len(consumer.handled) == 3, "three records")
        await asyncio.to_thread(engine.raw.kafka.kill)
        await asyncio.to_thread(engine.raw.kafka.start)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with suppress(ServiceUnavailable):
                    partition = await fill(engine, 2, start=3)
                    break
        end = (await engine.stored(MESSAGES))[-1].offset

        def caught_up() -> bool:
            """A member whose session ended meanwhile loses the partition, and reads it again from the committed offset,
            which is 0.
            """
            offsets = [record.offset for record in consumer.handled]
            assert all(after in (0, before + 1) for before, after in pairwise(offsets))
            return offsets[-1] == end and offsets.count(0) == 1 + consumer.lost_partitions.count(partition)

        def lost_more_than(count: int) -> Callable[[], bool]:
            return lambda: consumer.lost_partitions.count(partition) > count

        committed = False
        while not committed:
            await crew.until(caught_up, "what came after the restart")
            losses = consumer.lost_partitions.count(partition)
            try:
                await consumer.reader.commit(partition, end + 1, timeout_s=SOON_S)
                committed = True
            except ServiceUnavailable:
                await engine.pause()
            except Fenced:  # the group has removed this member, and the reader does not know it yet
                await crew.until(lost_more_than(losses), "the loss of the partition")


async def test_a_commit_to_a_broker_that_stands_still_ends_as_unknown() -> None:
    async with kafka_engine() as engine, Crew(engine) as crew:
        partition = await fill(engine, 1)
        consumer = await crew.hire("one", start=False)
        await read(engine, consumer, 1)
        engine.raw.kafka.pause()
        try:
            began = asyncio.get_running_loop().time()
            with pytest.raises(OutcomeUnknown):
                await consumer.reader.commit(partition, 1, timeout_s=0.3)
            assert asyncio.get_running_loop().time() - began < 2
        finally:
            engine.raw.kafka.resume()


async def test_a_reader_that_closes_while_kafka_stands_still_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KAFKA_LEAVE_S", 0.5)
    async with kafka_engine() as engine, Crew(engine) as crew:
        partition = await fill(engine, 1)
        consumer = await crew.hire("one", start=False)
        await read(engine, consumer, 1)
        consumer.on_revoked = _nothing
        engine.raw.kafka.pause()
        try:
            with pytest.raises(OutcomeUnknown):
                await consumer.reader.commit(partition, 1, timeout_s=0.1)
            async with asyncio.timeout(3):
                await consumer.reader.close()
        finally:
            engine.raw.kafka.resume()
        await crew.until(lambda: "kafka-consumer" not in [each.name for each in threading.enumerate()], "its end")


async def test_a_reader_cannot_be_opened_while_kafka_is_away_and_can_be_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "GROUP_TIMEOUT_S", 0.5)
    async with kafka_engine() as engine:
        await fill(engine, 1)
        await asyncio.to_thread(engine.raw.kafka.stop)
        consumer = Consumer("one", engine.reader(GROUP, "one"), {})
        with pytest.raises(ServiceUnavailable):
            await consumer.open()
        monkeypatch.undo()
        await asyncio.to_thread(engine.raw.kafka.start)
        await consumer.open()
        assert await read(engine, consumer, 1) == [b"0"]


async def test_a_topic_of_another_size_is_refused() -> None:
    async with kafka_engine() as engine:
        reader = KafkaEventReader(engine.raw.cluster, {MESSAGES: 64}, GROUP, "one")
        with pytest.raises(TopicMismatch):
            await reader.open([MESSAGES], Consumer("one", reader, {}))
        await reader.close()
        with pytest.raises(InternalError):
            await reader.open(["messages.misspelt"], Consumer("one", reader, {}))


async def test_closing_ends_a_waiting_poll_without_records_and_leaves_no_thread() -> None:
    async with kafka_engine() as engine:
        consumer = Consumer("one", engine.reader(GROUP, "one"), {})
        with pytest.raises(InternalError):
            await consumer.reader.poll(limit=3)
        await consumer.open()
        polled = asyncio.create_task(_poll(consumer, 3))
        await asyncio.sleep(0)
        with pytest.raises(InternalError):
            await consumer.reader.poll(limit=3)
        await asyncio.sleep(0.2)
        await consumer.reader.close()
        assert await polled == ()
        await consumer.reader.close()


async def _fill_all(engine: KafkaEventLogEngine, count: int, *, start: int = 0) -> None:
    """So many events for every partition."""
    for number in range(12):
        await fill(engine, count, key=f"chat_{number}", start=start)


class _RefusingConsumer:
    """librdkafka's consumer, whose first commits are refused."""

    def __init__(self, consumer: KafkaConsumer, code: int, times: int) -> None:
        self._consumer = consumer
        self._code = code
        self.times = times

    def commit(self, **options: Any) -> Any:
        if self.times == 0:
            return self._consumer.commit(**options)
        self.times -= 1
        raise KafkaException(KafkaError(self._code))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)


def _refuse_commits(consumer: Consumer, code: int, *, times: int) -> _RefusingConsumer:
    assert isinstance(consumer.reader, KafkaEventReader)
    membership = consumer.reader._membership
    assert membership is not None
    refusing = _RefusingConsumer(membership._consumer, code, times)
    membership._consumer = cast(KafkaConsumer, refusing)
    return refusing


async def _nothing(partitions: Sequence[Partition]) -> None:
    return


async def _poll(consumer: Consumer, limit: int) -> Sequence[Record]:
    return await consumer.reader.poll(limit=limit)


async def _wait(task: "asyncio.Task[Sequence[Record]]") -> Sequence[Record]:
    return await task

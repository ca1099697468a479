"""What the memory reader keeps when its wire is bad: calls that are lost, late, or whose answer is lost."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import TypeVar

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import InternalError, OutcomeUnknown, ServiceUnavailable
from seriatim.engines.inprocess.wire import Wire
from seriatim.engines.shared.consumer_group import MemberKey, balance
from seriatim.ports.event_log import MESSAGES, Fenced, Partition
from tests.contract.consumers import GROUP, Consumer, Crew, fill, read
from tests.contract.event_engines import SOON_S, MemoryEventLogEngine, quiet, until

T = TypeVar("T")
FOUR = [Partition(MESSAGES, number) for number in range(4)]


class BadWire(Wire):
    """Loses what `fate` says: the request, the response, or nothing; or keeps the request for later."""

    def __init__(self, fate: Callable[[str], str]) -> None:
        self.fate = fate
        self.calls: list[str] = []
        self.late: list[Callable[[], object]] = []
        self.deaf = False

    async def call(
        self, operation: str, apply: Callable[[], T], *, timeout_s: float, finish: Callable[[], None] | None = None
    ) -> T:
        self.calls.append(operation)
        fate = self.fate(operation)
        if fate == "fine":
            return await super().call(operation, apply, timeout_s=timeout_s, finish=finish)
        await asyncio.sleep(0)
        if fate == "late":
            self.late.append(apply)
        elif fate == "unanswered":
            apply()
        raise OutcomeUnknown(f"{operation}: {fate}")

    def deliver(self, receive: Callable[[], None], *, lossy: bool = False) -> None:
        if not self.deaf:
            super().deliver(receive)


def only(*fates: str) -> Callable[[str], str]:
    """These fates, then nothing but good ones."""
    left = list(fates)
    return lambda operation: left.pop(0) if left else "fine"


def joined(engine: MemoryEventLogEngine, wire: Wire, name: str = "one") -> Consumer:
    return Consumer(name, engine.reader(GROUP, name, wire), {})


@pytest.mark.parametrize("fates", [("unanswered",) * 3, ("lost",) * 3, ("fine", "unanswered", "unanswered"), ("late",)])
async def test_lost_polls_pass_over_no_record_and_no_assignment(fates: Sequence[str]) -> None:
    engine = MemoryEventLogEngine()
    await fill(engine, 3)
    wire = BadWire(only("fine", *fates))
    consumer = joined(engine, wire)
    await consumer.open()
    for _ in range(fates.count("unanswered") + fates.count("lost") + fates.count("late")):
        with pytest.raises(ServiceUnavailable):
            await consumer.reader.poll(limit=3)
    assert await read(engine, consumer, 3) == [b"0", b"1", b"2"]
    assert sorted(consumer.owned) == FOUR
    for apply in wire.late:
        apply()
    await fill(engine, 1, start=3)
    assert await read(engine, consumer, 1) == [b"3"]


async def test_a_commit_that_arrives_after_the_partition_moved_changes_nothing() -> None:
    engine = MemoryEventLogEngine()
    partition = await fill(engine, 3)
    wire = BadWire(lambda operation: "late" if operation == "commit" else "fine")
    consumer = joined(engine, wire)
    await consumer.open()
    await read(engine, consumer, 3)
    with pytest.raises(OutcomeUnknown):
        await consumer.reader.commit(partition, 3, timeout_s=SOON_S)
    engine.broker.expel(GROUP, "one")
    assert await read(engine, consumer, 3) == [b"0", b"1", b"2"]  # it has the partition again, under a new grant
    with pytest.raises(Fenced):
        wire.late[0]()
    assert engine.broker.committed(GROUP, partition) is None


async def test_a_join_that_arrives_after_its_reader_joined_again_makes_no_ghost() -> None:
    engine = MemoryEventLogEngine()
    wire = BadWire(only("late"))
    consumer = joined(engine, wire)
    with pytest.raises(OutcomeUnknown):
        await consumer.open()
    await consumer.open()
    consumer.start()
    await until(engine, lambda: len(consumer.owned) == 4, "all partitions")
    wire.late[0]()
    await quiet(engine)
    assert engine.broker.holders(GROUP) == dict.fromkeys(FOUR, "one")
    assert consumer.lost_partitions == []
    await consumer.stop()


async def test_a_release_whose_answer_is_lost_still_hands_the_partition_over() -> None:
    engine = MemoryEventLogEngine()
    async with Crew(engine) as crew:
        wire = BadWire(only())
        first = Consumer("first", engine.reader(GROUP, "first", wire), crew.hands)
        await first.open()
        first.start()
        await until(engine, lambda: len(first.owned) == 4, "all partitions")
        await first.stop()
        second = await crew.hire("second", start=False)
        second.start()
        wire.fate = only("fine", "unanswered")  # it is asked to release; it releases, but gets no answer
        with pytest.raises(ServiceUnavailable):
            await first.reader.poll(limit=3)
        await crew.until(lambda: len(second.owned) == 2, "the second half")
        crew.consumers.append(first)
        first.start()
        await quiet(engine)
        assert (len(first.owned), len(second.owned)) == (2, 2)


async def test_records_that_arrive_after_a_pause_or_a_seek_are_dropped_and_read_again() -> None:
    engine = MemoryEventLogEngine()
    partition = await fill(engine, 2)
    consumer = joined(engine, Wire())
    await consumer.open()
    await read(engine, consumer, 2)
    consumer.reader.seek(partition, 0)
    polled = asyncio.create_task(consumer.reader.poll(limit=3))
    await asyncio.sleep(0)  # the question is on its way
    consumer.reader.seek(partition, 1)
    assert [record.value for record in await polled] == [b"1"]
    consumer.reader.seek(partition, 0)
    polled = asyncio.create_task(consumer.reader.poll(limit=3))
    await asyncio.sleep(0)
    consumer.reader.pause(partition)
    await quiet(engine)
    assert not polled.done()
    consumer.reader.resume(partition)
    assert [record.value for record in await polled] == [b"0", b"1"]


async def test_an_idle_poll_asks_nothing_until_it_is_woken() -> None:
    engine = MemoryEventLogEngine()
    wire = BadWire(only())
    consumer = joined(engine, wire)
    await consumer.open()
    consumer.start()
    await quiet(engine)
    wire.calls.clear()
    await quiet(engine)
    assert wire.calls == []
    await fill(engine, 1)
    await until(engine, lambda: bool(consumer.handled), "the record")
    assert wire.calls[:1] == ["poll"]
    await consumer.stop()


async def test_a_lost_wake_up_delays_a_poll_but_does_not_strand_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "POLL_WAIT_S", 0.01)
    engine = MemoryEventLogEngine()
    wire = BadWire(only())
    consumer = joined(engine, wire)
    await consumer.open()
    wire.deaf = True
    polled = asyncio.create_task(consumer.reader.poll(limit=3))
    await quiet(engine)
    await fill(engine, 1)
    assert [record.value for record in await polled] == [b"0"]


async def test_a_reader_polls_once_at_a_time_and_only_while_open() -> None:
    engine = MemoryEventLogEngine()
    consumer = joined(engine, Wire())
    with pytest.raises(InternalError):
        await consumer.reader.poll(limit=3)
    await consumer.open()
    waiting = asyncio.create_task(consumer.reader.poll(limit=3))
    await asyncio.sleep(0)
    with pytest.raises(InternalError):
        await consumer.reader.poll(limit=3)
    waiting.cancel()
    await asyncio.wait([waiting])
    await consumer.reader.close()
    with pytest.raises(InternalError):
        await consumer.reader.poll(limit=3)


async def test_closing_ends_a_waiting_poll_without_records() -> None:
    engine = MemoryEventLogEngine()
    consumer = joined(engine, Wire())
    await consumer.open()
    polled = asyncio.create_task(consumer.reader.poll(limit=3))
    await quiet(engine)
    await consumer.reader.close()
    assert await polled == ()
    assert engine.broker.holders(GROUP) == {}


async def test_lag_counts_what_is_not_committed() -> None:
    engine = MemoryEventLogEngine()
    partition = await fill(engine, 3)
    consumer = joined(engine, Wire())
    await consumer.open()
    await read(engine, consumer, 3)
    assert sum(engine.broker.lag(GROUP).values()) == 3
    await consumer.reader.commit(partition, 2, timeout_s=SOON_S)
    assert engine.broker.lag(GROUP) == {each: int(each == partition) for each in FOUR}
    assert engine.broker.end_offsets(MESSAGES)[partition] == 3


def test_a_rebalance_deals_evenly_and_moves_as_little_as_it_can() -> None:
    a, b, c = [MemberKey(name, 1, 1) for name in "abc"]
    assert balance(FOUR, {a: []}) == {a: FOUR}
    assert balance(FOUR, {a: FOUR, b: []}) == {a: FOUR[:2], b: FOUR[2:]}
    assert balance(FOUR, {a: FOUR[:2], b: FOUR[2:], c: []}) == {a: FOUR[:2], b: FOUR[2:3], c: FOUR[3:]}
    assert balance(FOUR, {b: FOUR[2:3], c: FOUR[3:]}) == {b: [FOUR[2], FOUR[0]], c: [FOUR[3], FOUR[1]]}
    assert balance(FOUR, {}) == {}


@pytest.mark.parametrize("seed", range(30))
async def test_under_random_faults_no_partition_is_shared_and_no_record_is_left_out(seed: int) -> None:
    chance, engine = Random(seed), MemoryEventLogEngine()
    hands: dict[Partition, str] = {}
    faulty = True

    def fate(operation: str) -> str:
        return chance.choice(["fine", "fine", "lost", "unanswered", "late"]) if faulty else "fine"

    wires = [BadWire(fate) for _ in range(3)]
    crew = [Stubborn(f"c{n}", engine.reader(GROUP, f"c{n}", wire), hands) for n, wire in enumerate(wires)]
    for step in range(12):
        await fill(engine, 2, key=f"chat_{step % 6}", start=step * 2)
        if step < 3:
            crew[step].start()
        for wire in wires:
            if wire.late and chance.random() < 0.5:
                arrive(wire.late.pop(0))
        if chance.random() < 0.3:
            engine.broker.expel(GROUP, crew[step % 3].name)
            crew[step % 3].is_out()
        for _ in range(chance.randrange(20)):
            await engine.pause()
        for consumer in crew:
            consumer.check()
    faulty = False
    for wire in wires:
        for apply in wire.late:
            arrive(apply)

    def all_handled() -> bool:
        for consumer in crew:
            consumer.check()
        return sum(engine.broker.lag(GROUP).values()) == 0 and all(consumer.owned for consumer in crew)

    engine.looks = 5000
    await until(engine, all_handled, "everything is handled and everyone has a share")
    handled = {(record.partition, record.offset) for consumer in crew for record in consumer.handled}
    assert sorted(handled) == [(record.partition, record.offset) for record in engine.broker.records(MESSAGES)]
    for consumer in crew:
        await consumer.stop()


class Stubborn(Consumer):
    """Repeats what failed until it succeeds or is fenced, and commits each record when it has handled it."""

    async def _run(self) -> None:
        await insist(self.open)
        while True:
            with suppress(ServiceUnavailable):
                for record in await self.reader.poll(limit=3):
                    self.handled.append(record)
                    await insist(partial(self.commit_handled, [record.partition]))

    async def commit_handled(self, partitions: Sequence[Partition]) -> None:
        with suppress(Fenced):
            await insist(partial(super().commit_handled, partitions))


async def insist(act: Callable[[], Awaitable[None]]) -> None:
    while True:
        with suppress(ServiceUnavailable):
            return await act()


def arrive(late: Callable[[], object]) -> None:
    with suppress(Fenced):
        late()

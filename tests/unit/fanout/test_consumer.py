"""The whole consumer on a memory event log: isolation of partitions, rebalances, graceful and sudden ends.

Every test is told twice: for records that are handled one by one, and for runs of two.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import InternalError, ServiceUnavailable
from seriatim.domain.sharding import partition as partition_of
from seriatim.engines.inprocess.wire import Wire
from seriatim.fanout.consumer import FanoutConsumer
from seriatim.fanout.observer import SkipReason
from seriatim.ports.event_log import DEAD_LETTERS, MEMBERSHIPS, MESSAGES, Event, Partition, RebalanceListener, Record
from seriatim.ports.push import MessageDelivery, PushEnvelope
from seriatim.simulation.stores.event_log import MemoryBroker, MemoryDeadLetterWriter, MemoryEventWriter
from seriatim.simulation.stores.event_reader import MemoryEventReader
from tests.unit.fanout.fakes import (
    FakeDirectory,
    FakePush,
    FakeRoster,
    FixedClock,
    RecordingObserver,
    let_everything_run,
    message_value,
    registration,
    until,
)

GROUP = "fanout-workers"
PARTITIONS = 2
CHATS = tuple(
    next(chat for chat in (f"chat_{n}" for n in range(100)) if partition_of(chat, PARTITIONS) == number)
    for number in range(PARTITIONS)
)  # one chat for each partition
P0, P1 = (Partition(MESSAGES, number) for number in range(PARTITIONS))


class HeldPush(FakePush):
    """Holds back the messages of some chats until they are released."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: dict[tuple[str, int], asyncio.Event] = {}
        self.begun: list[tuple[str, int]] = []

    def hold(self, chat_id: str, sequence: int) -> asyncio.Event:
        self.gates[chat_id, sequence] = asyncio.Event()
        return self.gates[chat_id, sequence]

    async def publish(self, envelopes: Sequence[tuple[str, PushEnvelope]], *, timeout_s: float) -> Sequence[bool]:
        places = _places(envelopes)
        self.begun += places
        for gate in [self.gates[place] for place in places if place in self.gates]:
            await gate.wait()
        return await super().publish(envelopes, timeout_s=timeout_s)

    def places(self) -> list[tuple[str, int]]:
        return [place for call in self.calls for place in _places(call)]


class ConsumerHarness:
    """A broker, a member who is online, and as many fanout processes as a test starts."""

    def __init__(self, run_records: int) -> None:
        self.run_records = run_records  # that are handled together
        self.broker = MemoryBroker({MESSAGES: PARTITIONS, MEMBERSHIPS: 1, DEAD_LETTERS: 1})
        self.roster = FakeRoster(1, "ann", "bob")
        self.directory = FakeDirectory(registration("bob-phone"))
        self.push = HeldPush()
        self.ledgers: dict[str, RecordingObserver] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self._writer = MemoryEventWriter(self.broker, Wire(), FixedClock().now_ms)

    def service(self, name: str, *, reader: MemoryEventReader | None = None) -> FanoutConsumer:
        clock = FixedClock()
        self.ledgers.setdefault(name, RecordingObserver())
        return FanoutConsumer(
            reader or MemoryEventReader(self.broker, Wire(), GROUP, name),
            MemoryDeadLetterWriter(self.broker, Wire(), clock.now_ms),
            self.roster,
            self.directory,
            self.push,
            clock,
            consumer_id=name,
            observe=self.ledgers[name],
        )

    def start(self, service: FanoutConsumer) -> None:
        self.tasks.append(asyncio.create_task(service.run()))

    async def publish(self, chat_id: str, *sequences: int) -> None:
        events = [Event(key=chat_id, value=message_value(each, chat_id=chat_id)) for each in sequences]
        await self._writer.append(MESSAGES, events, timeout_s=1)

    async def publish_rubbish(self, chat_id: str) -> None:
        await self._writer.append(MESSAGES, [Event(key=chat_id, value=b"{")], timeout_s=1)

    def committed(self, partition: Partition) -> int | None:
        return self.broker.committed(GROUP, partition)

    def drained(self) -> bool:
        ends = self.broker.end_offsets(MESSAGES)
        return all((self.committed(partition) or 0) == end for partition, end in ends.items())

    def holders(self) -> list[str]:
        return sorted(dict.fromkeys(self.broker.holders(GROUP).values()))

    def dead_letters(self) -> int:
        return len(self.broker.records(DEAD_LETTERS))


@pytest.fixture(params=[1, 2], ids=["singly", "in_runs"])
async def harness(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ConsumerHarness]:
    harness = ConsumerHarness(request.param)
    monkeypatch.setattr(limits, "RUN_RECORDS_MAX", harness.run_records)
    yield harness
    for task in harness.tasks:
        task.cancel()
    for task in harness.tasks:
        await asyncio.wait((task,))


# --- running -----------------------------------------------------------------------------------------------------


async def test_every_message_is_pushed_in_order_and_then_committed(harness: ConsumerHarness) -> None:
    await harness.publish(CHATS[0], 1, 2, 3)
    harness.start(harness.service("f1"))
    await until(lambda: harness.committed(P0) == 3)
    await harness.publish(CHATS[0], 4)
    await until(lambda: harness.committed(P0) == 4)
    assert harness.push.places() == [(CHATS[0], each) for each in (1, 2, 3, 4)]
    assert harness.ledgers["f1"].offsets == [(P0, each) for each in range(4)]


async def test_a_stuck_partition_does_not_hold_up_another(harness: ConsumerHarness) -> None:
    harness.push.hold(CHATS[0], 1)
    harness.start(harness.service("f1"))
    await harness.publish(CHATS[0], 1, 2)
    await until(lambda: (CHATS[0], 1) in harness.push.begun)
    await harness.publish(CHATS[1], 1, 2, 3)
    await until(lambda: harness.committed(P1) == 3)
    assert harness.committed(P0) is None


async def test_h13_a_dead_letter_that_cannot_be_written_holds_up_its_own_partition_only(
    harness: ConsumerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise ServiceUnavailable("no broker")

    monkeypatch.setattr(MemoryDeadLetterWriter, "write", refuse)
    harness.start(harness.service("f1"))
    await harness.publish_rubbish(CHATS[0])
    await harness.publish(CHATS[0], 1)
    await until(lambda: harness.ledgers["f1"].pages != [])
    await harness.publish(CHATS[1], 1)
    await until(lambda: harness.committed(P1) == 1)
    assert (harness.committed(P0), harness.dead_letters()) == (None, 0)
    monkeypatch.undo()
    await until(lambda: harness.committed(P0) == 2)
    assert harness.dead_letters() == 1
    assert (CHATS[0], 1) in harness.push.places()


async def test_s35_a_poison_record_reaches_the_dead_letters_and_the_lag_returns_to_zero(
    harness: ConsumerHarness,
) -> None:
    harness.start(harness.service("f1"))
    await harness.publish_rubbish(CHATS[0])
    await harness.publish(CHATS[0], 1)
    await until(harness.drained)
    assert harness.dead_letters() == 1
    assert harness.push.places() == [(CHATS[0], 1)]


async def test_s36_a_directory_outage_writes_no_dead_letter_and_the_offset_advances(harness: ConsumerHarness) -> None:
    harness.directory.down = ("cached_members", "connections")
    harness.start(harness.service("f1"))
    await harness.publish(CHATS[0], 1, 2)
    await until(harness.drained)
    assert harness.committed(P0) == 2
    assert harness.dead_letters() == 0
    assert harness.ledgers["f1"].skips == [SkipReason.DIRECTORY] * 2


async def test_a_failed_join_or_poll_is_tried_again_and_loses_nothing(harness: ConsumerHarness) -> None:
    reader = MoodyReader(harness.broker, failures=3)
    harness.start(harness.service("f1", reader=reader))
    await harness.publish(CHATS[0], 1, 2)
    await until(lambda: harness.committed(P0) == 2)
    assert harness.ledgers["f1"].restarts == 6
    assert harness.push.places() == [(CHATS[0], 1), (CHATS[0], 2)]


# --- rebalances --------------------------------------------------------------------------------------------------


async def test_s34_a_rebalance_in_mid_batch_loses_nothing_and_commits_exactly_what_was_handled(
    harness: ConsumerHarness,
) -> None:
    release = harness.push.hold(CHATS[0], 2)
    other = harness.push.hold(CHATS[1], 2)
    harness.start(harness.service("f1"))
    await harness.publish(CHATS[0], 1, 2, 3, 4)
    await harness.publish(CHATS[1], 1, 2, 3, 4)
    await until(lambda: {(CHATS[0], 2), (CHATS[1], 2)} <= set(harness.push.begun))
    harness.start(harness.service("f2"))
    await let_everything_run()  # f1 is asked to give one partition up, and still has a record of it in hand
    release.set()
    other.set()
    await until(harness.drained)
    first, second = harness.ledgers["f1"].offsets, harness.ledgers["f2"].offsets
    assert {partition for partition, _ in second} == {P1}
    assert [offset for partition, offset in first if partition == P1] == [0, 1], "the one in hand was finished"
    assert [offset for _, offset in second] == [2, 3], "and committed, so that the next owner began behind it"
    assert harness.push.places().count((CHATS[1], 2)) == 1


async def test_s34_what_a_cancelled_consumer_had_in_hand_is_handled_by_the_next_one(harness: ConsumerHarness) -> None:
    harness.push.hold(CHATS[0], 3)
    harness.start(harness.service("f1"))
    first = harness.tasks[0]
    await harness.publish(CHATS[0], 1, 2, 3, 4)
    await until(lambda: (CHATS[0], 3) in harness.push.begun)
    first.cancel()
    await until(first.done)
    assert first.cancelled()
    harness.push.gates.clear()
    harness.start(harness.service("f2"))
    await until(harness.drained)
    assert {(CHATS[0], each) for each in (1, 2, 3, 4)} <= set(harness.push.places())


async def test_s34_an_expelled_consumer_forgets_its_backlog_and_the_new_owner_handles_it(
    harness: ConsumerHarness,
) -> None:
    release = harness.push.hold(CHATS[0], 1)
    harness.start(harness.service("f1"))
    await harness.publish(CHATS[0], 1, 2, 3)
    await until(lambda: (CHATS[0], 1) in harness.push.begun)
    harness.push.gates.clear()
    harness.start(harness.service("f2"))
    harness.broker.expel(GROUP, "f1")
    await until(lambda: harness.holders() == ["f1", "f2"] and len(harness.broker.holders(GROUP)) == PARTITIONS + 1)
    release.set()
    await until(harness.drained)
    handled = harness.ledgers["f1"].offsets + harness.ledgers["f2"].offsets
    assert {offset for partition, offset in handled if partition == P0} == {0, 1, 2}
    assert harness.ledgers["f1"].commit_failures == 0


async def test_a_partition_lost_and_given_back_is_committed_by_its_new_worker_only(harness: ConsumerHarness) -> None:
    release = harness.push.hold(CHATS[0], 1)
    harness.start(harness.service("f1"))
    await harness.publish(CHATS[0], 1, 2, 3)
    await until(lambda: (CHATS[0], 1) in harness.push.begun)
    harness.push.gates.clear()
    harness.broker.expel(GROUP, "f1")
    await until(harness.drained)
    release.set()
    await let_everything_run()
    assert harness.push.places().count((CHATS[0], 1)) == 2, "the schedule of the story: both workers handled it"
    assert harness.committed(P0) == 3


async def test_a_partition_assigned_anew_leaves_its_old_worker_nothing_to_commit(harness: ConsumerHarness) -> None:
    release = harness.push.hold(CHATS[0], 1)
    service = harness.service("f1")
    harness.start(service)
    await harness.publish(CHATS[0], 1)
    await until(lambda: (CHATS[0], 1) in harness.push.begun)
    service.assigned((P0,))
    release.set()
    await until(lambda: harness.push.places() == [(CHATS[0], 1)])
    await let_everything_run()
    assert harness.committed(P0) is None


async def test_a_zombie_whose_commit_is_fenced_leaves_the_new_owners_commit_alone(harness: ConsumerHarness) -> None:
    release = harness.push.hold(CHATS[0], 1)
    harness.start(harness.service("f1", reader=DeafReader(harness.broker)))
    await harness.publish(CHATS[0], 1, 2)
    await until(lambda: (CHATS[0], 1) in harness.push.begun)
    harness.push.gates.clear()
    harness.broker.expel(GROUP, "f1")
    harness.start(harness.service("f2"))
    await until(harness.drained)
    release.set()
    await let_everything_run()
    assert harness.committed(P0) == 2
    assert harness.ledgers["f1"].commit_failures == 0


# --- ending ------------------------------------------------------------------------------------------------------


async def test_stop_finishes_what_is_in_hand_commits_it_and_leaves_the_group(harness: ConsumerHarness) -> None:
    release = harness.push.hold(CHATS[0], 1)
    service = harness.service("f1")
    harness.start(service)
    running = harness.tasks[0]
    await harness.publish(CHATS[0], 1, 2, 3)
    await until(lambda: (CHATS[0], 1) in harness.push.begun)
    stopping = asyncio.create_task(service.stop())
    await let_everything_run()
    assert not stopping.done()
    release.set()
    await stopping
    assert running.done()
    assert running.exception() is None
    assert harness.push.places() == [(CHATS[0], 1 + each) for each in range(harness.run_records)]
    assert harness.committed(P0) == harness.run_records
    assert harness.holders() == []


async def test_a_stop_during_a_revocation_still_finishes_and_commits_the_record_in_hand(
    harness: ConsumerHarness,
) -> None:
    release = harness.push.hold(CHATS[1], 1)
    service = harness.service("f1")
    harness.start(service)
    await harness.publish(CHATS[1], 1)
    await until(lambda: (CHATS[1], 1) in harness.push.begun)
    harness.start(harness.service("f2"))
    await let_everything_run()  # f1 waits for its record before it gives the partition up
    stopping = asyncio.create_task(service.stop())
    await let_everything_run()
    release.set()
    await stopping
    assert harness.committed(P1) == 1


async def test_stop_is_harmless_before_run_and_when_repeated(harness: ConsumerHarness) -> None:
    service = harness.service("f1")
    await service.stop()
    await service.run()
    await service.stop()
    assert harness.holders() == []


async def test_a_worker_that_dies_brings_the_consumer_down_loudly(
    harness: ConsumerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(_self: RecordingObserver, _run: Sequence[Record]) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(RecordingObserver, "handled", explode)
    harness.start(harness.service("f1"))
    running = harness.tasks[0]
    await harness.publish(CHATS[0], 1)
    await until(running.done)
    assert isinstance(running.exception(), ZeroDivisionError)
    assert harness.holders() == []


async def test_a_group_that_does_not_exist_is_the_callers_to_know(harness: ConsumerHarness) -> None:
    nothing = MemoryBroker({})
    with pytest.raises(InternalError):
        await harness.service("f1", reader=MemoryEventReader(nothing, Wire(), GROUP, "f1")).run()


# --- readers with a will of their own ----------------------------------------------------------------------------


class MoodyReader(MemoryEventReader):
    """Its first attempts to join fail, and then its first polls."""

    def __init__(self, broker: MemoryBroker, *, failures: int) -> None:
        super().__init__(broker, Wire(), GROUP, "f1")
        self._failures = failures
        self._refusals = failures

    async def open(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        if self._refusals:
            self._refusals -= 1
            raise ServiceUnavailable("join")
        await super().open(topics, listener)

    async def poll(self, *, limit: int) -> Sequence[Record]:
        if self._failures:
            self._failures -= 1
            raise ServiceUnavailable("poll")
        return await super().poll(limit=limit)


class DeafReader(MemoryEventReader):
    """Once it has returned records it polls no more, so it never hears that it was expelled."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker, Wire(), GROUP, "f1")
        self._served = False

    async def poll(self, *, limit: int) -> Sequence[Record]:
        if self._served:
            await asyncio.Event().wait()
        records = await super().poll(limit=limit)
        self._served = True
        return records


def _places(envelopes: Sequence[tuple[str, PushEnvelope]]) -> list[tuple[str, int]]:
    return [(each.message.chat_id, each.message.sequence) for _, each in envelopes if isinstance(each, MessageDelivery)]

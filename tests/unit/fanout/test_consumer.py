"""The whole consumer on a memory event log: isolation of partitions, rebalances, graceful and sudden ends.

Every test runs twice: for records that are handled one by one, and for runs of two.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import InternalError, ServiceUnavailable
from seriatim.engines.inprocess.wire import Wire
from seriatim.fanout.observer import SkipReason
from seriatim.ports.event_log import Record
from seriatim.simulation.stores.event_log import MemoryBroker, MemoryDeadLetterWriter
from seriatim.simulation.stores.event_reader import MemoryEventReader
from tests.unit.fanout.consumer_harness import (
    CHATS,
    GROUP,
    P0,
    P1,
    PARTITIONS,
    ConsumerHarness,
    FlakyReader,
    StalledReader,
)
from tests.unit.fanout.fakes import (
    RecordingObserver,
    let_everything_run,
    until,
)


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
    reader = FlakyReader(harness.broker, failures=3)
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


async def test_a_partition_assigned_again_leaves_its_old_worker_nothing_to_commit(harness: ConsumerHarness) -> None:
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
    harness.start(harness.service("f1", reader=StalledReader(harness.broker)))
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

"""The contract of the event log's readers. Each promise quotes its sentence of ports/event_log.py."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from seriatim.domain.sharding import partition as partition_of
from seriatim.ports import event_log as port
from seriatim.ports.event_log import MESSAGES, EventReader, Fenced, Partition, Record
from tests.contract import test_event_log
from tests.contract.consumers import Crew, fill, read
from tests.contract.event_engines import EVENT_LOGS, SOON_S, EventLogEngine, Suite, keep, quiet, soon

SUITE: Suite[EventLogEngine] = Suite(port)
KEYS = tuple([f"chat_{number}" for number in range(12)])  # enough to reach all four partitions


@SUITE.promise
async def records_come_in_offset_order_and_none_is_left_out(engine: EventLogEngine) -> None:
    """Waits for records of our partitions that are not paused; per partition in offset order, none left out."""
    for round_ in range(3):
        for key in KEYS:
            await fill(engine, 2, key=key, start=round_ * 2)
    async with Crew(engine) as crew:
        consumer = await crew.hire("one")
        await crew.until(lambda: len(consumer.handled) >= 72, "72 records")
        await quiet(engine)
        stored = await engine.stored(MESSAGES)
        for partition in consumer.owned:
            expected = [record for record in stored if record.partition == partition]
            assert [record for record in consumer.handled if record.partition == partition] == expected
        assert len(consumer.handled) == 72


@SUITE.promise
async def a_poll_returns_no_more_than_its_limit(engine: EventLogEngine) -> None:
    """Waits for records of our partitions that are not paused; per partition in offset order, none left out."""
    for key in KEYS:
        await fill(engine, 3, key=key)
    async with Crew(engine) as crew:
        consumer = await crew.hire("one", start=False)
        for _ in range(9):
            assert 1 <= len(await soon(engine, poll(consumer.reader, 4))) <= 4


@SUITE.promise
async def a_poll_waits_for_the_first_record_and_then_returns_it(engine: EventLogEngine) -> None:
    """Waits for records of our partitions that are not paused; per partition in offset order, none left out."""
    async with Crew(engine) as crew:
        consumer = await crew.hire("one")
        await quiet(engine)
        assert consumer.handled == []
        await fill(engine, 1)
        await crew.until(lambda: [record.value for record in consumer.handled] == [b"0"], "the record")


@SUITE.promise
async def opening_joins_the_group_and_polling_brings_the_partitions(engine: EventLogEngine) -> None:
    """Joins the group. Rebalances happen inside this call: who does not poll, does not take part."""
    async with Crew(engine) as crew:
        consumer = await crew.hire("one", start=False)
        await quiet(engine)
        assert consumer.owned == []
        consumer.start()
        await crew.until(lambda: len(consumer.owned) == 4, "all four partitions")


@SUITE.promise
async def a_reader_opened_again_is_still_one_member(engine: EventLogEngine) -> None:
    """After `ServiceUnavailable` it may be called again."""
    async with Crew(engine) as crew:
        first = await crew.hire("first", start=False)
        await first.open()
        first.start()
        await crew.hire("second")
        await crew.until_shared()
        assert [len(consumer.owned) for consumer in crew.consumers] == [2, 2]


@SUITE.promise
async def a_group_that_never_committed_begins_with_the_first_record(engine: EventLogEngine) -> None:
    """These are ours from their committed offsets on."""
    await fill(engine, 2)
    async with Crew(engine) as crew:
        assert await read(engine, await crew.hire("one", start=False), 2) == [b"0", b"1"]


@SUITE.promise
async def a_new_reader_starts_at_the_committed_offset(engine: EventLogEngine) -> None:
    """One consumer of a group. Each partition has one reader at a time; a new reader starts at the committed offset.
    The group's next reader begins there. After a crash of the log itself it may begin a little before, never beyond:
    records come twice, none is left out."""
    partition = await fill(engine, 5)
    async with Crew(engine) as crew:
        first = await crew.hire("first", start=False)
        await read(engine, first, 5)
        await first.reader.commit(partition, 2, timeout_s=SOON_S)
        await crew.expel(first)  # it dies without a goodbye
        second = await crew.hire("second", start=False)
        assert await read(engine, second, 3) == [b"2", b"3", b"4"]


@SUITE.promise
async def groups_do_not_disturb_each_other(engine: EventLogEngine) -> None:
    """One consumer of a group."""
    partition = await fill(engine, 3)
    async with Crew(engine) as crew:
        one = await crew.hire("one", start=False)
        await read(engine, one, 3)
        await one.reader.commit(partition, 3, timeout_s=SOON_S)
        other = await crew.hire("one", group="others", start=False)
        assert await read(engine, other, 3) == [b"0", b"1", b"2"]


@SUITE.promise
async def after_a_seek_the_next_poll_begins_there(engine: EventLogEngine) -> None:
    """The next poll begins there."""
    partition = await fill(engine, 3)
    async with Crew(engine) as crew:
        consumer = await crew.hire("one", start=False)
        await read(engine, consumer, 3)
        consumer.reader.seek(partition, 1)
        assert await read(engine, consumer, 2) == [b"1", b"2"]
        await fill(engine, 2, start=3)
        consumer.reader.seek(partition, 4)
        assert await read(engine, consumer, 1) == [b"4"]


@SUITE.promise
async def a_paused_partition_delivers_nothing_until_it_is_resumed(engine: EventLogEngine) -> None:
    """Waits for records of our partitions that are not paused; per partition in offset order, none left out."""
    partition = await fill(engine, 1)
    async with Crew(engine) as crew:
        consumer = await crew.hire("one")
        await crew.until(lambda: len(consumer.handled) == 1, "the first record")
        consumer.reader.pause(partition)
        await fill(engine, 2, start=1)
        elsewhere = await fill(engine, 1, key=next(key for key in KEYS if partition_of(key, 4) != partition.number))
        await crew.until(lambda: bool(of(consumer.handled, elsewhere)), "a record of another partition")
        await quiet(engine)
        assert of(consumer.handled, partition) == [b"0"]
        consumer.reader.resume(partition)
        await crew.until(lambda: len(of(consumer.handled, partition)) == 3, "what came during the pause")
        assert of(consumer.handled, partition) == [b"0", b"1", b"2"]


@SUITE.promise
async def a_partition_that_was_paused_and_given_back_reads_on(engine: EventLogEngine) -> None:
    """None of them is paused, whatever was paused before."""
    async with Crew(engine) as crew:
        first = await crew.hire("first")
        await crew.until_shared()
        for partition in first.owned:
            first.reader.pause(partition)
        second = await crew.hire("second")
        await crew.until_shared()
        moved = list(second.owned)
        await second.stop()
        await second.reader.close()
        crew.consumers.remove(second)
        await crew.until_shared()
        for key in KEYS:
            await fill(engine, 1, key=key)
        expected = [record for record in await engine.stored(MESSAGES) if record.partition in moved]
        await crew.until(lambda: len(first.handled) == len(expected), "the records of what was given back")
        await quiet(engine)
        assert sorted(first.handled, key=place) == expected


@SUITE.promise
async def a_partition_that_moves_is_revoked_first_and_assigned_afterwards(engine: EventLogEngine) -> None:
    """Called before others get them: the last chance to finish a record and commit. The first reader takes its time."""
    async with Crew(engine) as crew:
        first = await crew.hire("first")
        await crew.until_shared()
        finish = asyncio.Event()

        async def slowly(partitions: Sequence[Partition]) -> None:
            await finish.wait()

        first.on_revoked = slowly
        second = await crew.hire("second", start=False)
        second.start()
        await quiet(engine)
        assert second.owned == []
        finish.set()
        await crew.until_shared()
        assert (len(first.owned), len(second.owned)) == (2, 2)


@SUITE.promise
async def no_record_is_handled_twice_when_revoked_readers_commit(engine: EventLogEngine) -> None:
    """Each partition has one reader at a time; a new reader starts at the committed offset. These are ours from their
    committed offsets on."""
    async with Crew(engine) as crew:
        await crew.hire("first")
        for round_, name in enumerate(("second", "third")):
            for key in KEYS:
                await fill(engine, 3, key=key, start=round_ * 3)
            await crew.hire(name)
            await crew.until_shared()
        first = crew.consumers.pop(0)
        await first.stop()
        await first.reader.close()
        await crew.until_shared()
        everyone = (first, *crew.consumers)
        await crew.until(lambda: sum([len(consumer.handled) for consumer in everyone]) >= 72, "all records")
        await quiet(engine)
        handled = [record for consumer in everyone for record in consumer.handled]
        places = sorted((record.partition, record.offset) for record in handled)
        assert places == [(record.partition, record.offset) for record in await engine.stored(MESSAGES)]


@SUITE.promise
async def who_does_not_poll_keeps_its_partitions_from_the_others(engine: EventLogEngine) -> None:
    """Rebalances happen inside this call: who does not poll, does not take part."""
    async with Crew(engine) as crew:
        first = await crew.hire("first")
        await crew.until_shared()
        await first.stop()
        second = await crew.hire("second", start=False)
        second.start()
        await quiet(engine)
        assert (len(first.owned), second.owned) == (4, [])
        first.start()
        await crew.until_shared()


@SUITE.promise
async def after_the_revocation_a_commit_is_fenced(engine: EventLogEngine) -> None:
    """Raises `Fenced` when the partition is no longer ours."""
    await fill(engine, 1)
    async with Crew(engine) as crew:
        first = await crew.hire("first")
        await crew.until_shared()
        before = list(first.owned)
        await crew.hire("second")
        await crew.until_shared()
        for partition in before:
            if partition not in first.owned:
                with pytest.raises(Fenced):
                    await first.reader.commit(partition, 0, timeout_s=SOON_S)


@SUITE.promise
async def an_expelled_reader_commits_nothing(engine: EventLogEngine) -> None:
    """The partition belongs to another consumer now; nothing was committed. Raises `Fenced` when the partition is no
    longer ours."""
    partition = await fill(engine, 3)
    async with Crew(engine) as crew:
        zombie = await crew.hire("zombie", start=False)
        await read(engine, zombie, 3)
        await zombie.reader.commit(partition, 1, timeout_s=SOON_S)
        await crew.expel(zombie)
        heir = await crew.hire("heir", start=False)
        assert await read(engine, heir, 2) == [b"1", b"2"]
        with pytest.raises(Fenced):
            await zombie.reader.commit(partition, 3, timeout_s=SOON_S)
        await crew.expel(heir)
        last = await crew.hire("last", start=False)
        assert await read(engine, last, 2) == [b"1", b"2"]


@SUITE.promise
async def an_expelled_reader_learns_of_its_loss_at_the_next_poll_and_joins_again(engine: EventLogEngine) -> None:
    """Others have them already: forget them, commit nothing."""
    async with Crew(engine) as crew:
        zombie = await crew.hire("zombie")
        await crew.until_shared()
        await zombie.stop()
        had = list(zombie.owned)
        await crew.expel(zombie)
        heir = await crew.hire("heir")
        await crew.until(lambda: len(heir.owned) == 4, "the heir has all")
        assert zombie.lost_partitions == []
        zombie.start()
        await crew.until(lambda: zombie.lost_partitions == had, "the zombie hears of its loss")
        await crew.until_shared()
        assert (len(zombie.owned), len(heir.owned)) == (2, 2)


@SUITE.promise
async def a_commit_under_an_earlier_ownership_is_fenced_after_the_partition_came_back(engine: EventLogEngine) -> None:
    """The partition belongs to another consumer now; nothing was committed."""
    partition = await fill(engine, 2)
    async with Crew(engine) as crew:
        first = await crew.hire("first", start=False)
        await read(engine, first, 2)
        await crew.expel(first)
        with pytest.raises(Fenced):
            await first.reader.commit(partition, 2, timeout_s=SOON_S)
        assert await read(engine, first, 2) == [b"0", b"1"]
        assert len(first.lost_partitions) == 4
        await first.reader.commit(partition, 2, timeout_s=SOON_S)


@SUITE.promise
async def a_reader_that_closes_hands_its_partitions_over_at_once(engine: EventLogEngine) -> None:
    """Leaves the group; its partitions go to the others at once. Called before others get them: the last chance to
    finish a record and commit."""
    await fill(engine, 3)
    async with Crew(engine) as crew:
        first = await crew.hire("first")
        await crew.until(lambda: len(first.handled) == 3, "three records")
        second = await crew.hire("second", start=False)
        await first.stop()
        await first.reader.close()
        assert first.owned == []
        second.start()
        await crew.until(lambda: len(second.owned) == 4, "all four partitions")
        await fill(engine, 1, start=3)
        await crew.until(lambda: bool(second.handled), "the next record")
        assert [record.value for record in second.handled] == [b"3"]


@pytest.mark.parametrize("engine", EVENT_LOGS)
@pytest.mark.parametrize("promise", SUITE.promises)
async def test_the_event_log_keeps(
    promise: Callable[[EventLogEngine], Awaitable[None]], engine: Callable[[], EventLogEngine]
) -> None:
    await keep(promise, engine)


def test_every_sentence_of_the_port_is_quoted() -> None:
    whole: Suite[EventLogEngine] = Suite(port)
    whole.promises = [*test_event_log.SUITE.promises, *SUITE.promises]
    assert whole.unquoted() == []


def of(records: Sequence[Record], partition: Partition) -> list[bytes | None]:
    return [record.value for record in records if record.partition == partition]


def place(record: Record) -> tuple[Partition, int]:
    return record.partition, record.offset


async def poll(reader: EventReader, limit: int) -> Sequence[Record]:
    return await reader.poll(limit=limit)

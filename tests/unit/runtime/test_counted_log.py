"""What the runtime sees of the message log on DynamoDB: who was overtaken, who was behind."""

from collections.abc import AsyncIterator

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import CounterMissing
from seriatim.engines.dynamodb.message_log import DynamoMessageLog
from seriatim.ports.message_log import PublishedAhead
from seriatim.runtime.telemetry.counted_message_log import CountedSharedLog
from seriatim.runtime.telemetry.durability_counters import DurabilityCounters
from tests.contract.store_data import CHAT, T_S, allocate, entry, found_group, message, persist, seal
from tests.contract.store_engines import DynamoEngine


@pytest.fixture
async def engine() -> AsyncIterator[DynamoEngine]:
    opened = DynamoEngine()
    await opened.open()
    try:
        await found_group(opened)
        yield opened
    finally:
        await opened.close()


async def test_a_slot_found_empty_below_a_filled_one_is_counted_once_however_often_it_is_looked_at(
    engine: DynamoEngine,
) -> None:
    counts = DurabilityCounters()
    log = CountedSharedLog(DynamoMessageLog(engine.store), counts)
    await allocate(log, 6)
    for sequence in (2, 3, 6):
        await persist(log, entry(message(sequence)))
    for _ in range(3):
        await log.read(CHAT, after=0, limit=10, timeout_s=T_S)
    assert counts.overtaken == 2  # 1, and 4 with its neighbour
    for sequence in (1, 4, 5):
        await seal(log, sequence)
    await log.read(CHAT, after=0, limit=10, timeout_s=T_S)
    await log.read(CHAT, after=-1, limit=10, timeout_s=T_S)
    assert counts.overtaken == 2


async def test_a_chat_without_holes_counts_none_wherever_the_reader_begins(engine: DynamoEngine) -> None:
    counts = DurabilityCounters()
    log = CountedSharedLog(DynamoMessageLog(engine.store), counts)
    await allocate(log, 3)
    await persist(log, *[entry(message(sequence)) for sequence in (1, 2, 3)])
    for after in (-1, 0, 1, 2, 3):
        await log.read(CHAT, after=after, limit=2, timeout_s=T_S)
    assert counts.overtaken == 0


async def test_no_more_holes_are_remembered_than_the_limit_says(
    engine: DynamoEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert limits.OVERTAKEN_SLOTS_KEPT_MAX >= 100
    monkeypatch.setattr(limits, "OVERTAKEN_SLOTS_KEPT_MAX", 1)
    counts = DurabilityCounters()
    log = CountedSharedLog(DynamoMessageLog(engine.store), counts)
    await allocate(log, 6)
    for sequence in (2, 4, 6):
        await persist(log, entry(message(sequence)))
    await log.read(CHAT, after=0, limit=10, timeout_s=T_S)
    assert (counts.overtaken, list(log._overtaken)) == (3, [(CHAT, 5)])


async def test_an_allocation_that_meets_another_owner_ahead_and_one_that_fails_are_counted(
    engine: DynamoEngine,
) -> None:
    counts = DurabilityCounters()
    log = CountedSharedLog(DynamoMessageLog(engine.store), counts)
    await allocate(log, 4)
    await allocate(log, 1, through=3, last=3)
    assert (counts.behind, counts.allocation_errors) == (0, 0)
    assert isinstance(await allocate(log, 1, through=1, last=1), PublishedAhead)
    assert (counts.behind, counts.allocation_errors) == (1, 0)
    with pytest.raises(CounterMissing):
        await allocate(log, 1, chat_id="chat_nobody_made")
    assert (counts.behind, counts.allocation_errors) == (1, 1)

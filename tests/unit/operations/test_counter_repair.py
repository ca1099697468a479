"""Repair of a lost counter: above everything anyone has seen, closed in between, and refused when it is not safe."""

import asyncio

import pytest

from seriatim.domain import limits
from seriatim.domain.chat import Role
from seriatim.engines.dynamodb.message_log import DynamoMessageLog
from seriatim.engines.embedded.message_log import EmbeddedMessageLog
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.operations.counter_repair import CounterRepairer, Repair, RepairRefused
from seriatim.simulation.stores.message_log import MemoryMessageLog
from tests.contract.store_data import NOW_MS, T_S, found_group, message, store_messages
from tests.contract.store_engines import ENGINES
from tests.support.durability_harness import ANN, BOB, CHAT, CID, DurabilityHarness, Node, draft
from tests.support.scripted_wire import with_before


async def test_the_next_message_gets_the_highest_number_plus_one(harness: DurabilityHarness) -> None:
    harness.given_messages(7)
    node = _lost(harness)
    repair = await _repair(node, published=7)
    assert repair == Repair(chat_id=CHAT, newest_slot=7, published=7, watermark=0, allocated=7, sealed=())
    assert (await node.stored(draft(1))).sequence == 8


async def test_the_counter_is_above_every_members_watermark(harness: DurabilityHarness) -> None:
    harness.given_messages(3)
    for user_id, watermark in ((ANN, 2), (BOB, 9), (CID, 5)):
        harness.store.put_watermark(user_id, CHAT, watermark)
    repair = await _repair(_lost(harness), published=3)
    assert (repair.watermark, repair.allocated) == (9, 9)


@pytest.mark.parametrize("name", ENGINES)
async def test_r6_the_counter_is_above_the_watermark_of_who_left_and_may_come_back(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RECOVERY_QUIET_S", 0.0)
    engine = ENGINES[name]()
    await engine.open()
    try:
        await found_group(engine)
        await store_messages(engine, message(1))
        for user_id, watermark in ((ANN, 1), (BOB, 4), (CID, 2)):
            await engine.log().acknowledge(user_id, CHAT, sequence=watermark, now_ms=NOW_MS, timeout_s=T_S)
        await engine.catalog().leave(CHAT, BOB, now_ms=NOW_MS, timeout_s=T_S)
        await engine.lose_counter(CHAT)
        log = engine.repair()
        assert isinstance(log, EmbeddedMessageLog | MemoryMessageLog | DynamoMessageLog)
        repair = await CounterRepairer(log, SystemClock(), highest_published=lambda _: 1).repair(CHAT)
    finally:
        await engine.close()
    assert (repair.watermark, repair.allocated, repair.sealed) == (4, 4, (2, 3, 4))


async def test_the_counter_is_above_every_published_event(harness: DurabilityHarness) -> None:
    harness.given_messages(3)
    repair = await _repair(_lost(harness), published=6)
    assert (repair.published, repair.allocated) == (6, 6)


async def test_the_counter_is_above_tombstones_too(harness: DurabilityHarness) -> None:
    harness.given_messages(3)
    harness.put_tombstone(4)
    repair = await _repair(_lost(harness), published=3)
    assert (repair.newest_slot, repair.allocated) == (4, 4)


async def test_a_margin_is_added_on_top(harness: DurabilityHarness) -> None:
    harness.given_messages(3)
    node = _lost(harness)
    repair = await _repair(node, published=3, margin=2)
    assert (repair.allocated, repair.sealed) == (5, (4, 5))
    assert (await node.stored(draft(1))).sequence == 6


async def test_the_skipped_range_is_closed_so_that_readers_pass_it_at_once(harness: DurabilityHarness) -> None:
    harness.given_messages(3)
    harness.store.put_watermark(BOB, CHAT, 6)
    node = _lost(harness)
    repair = await _repair(node, published=3)
    assert repair.sealed == (4, 5, 6)
    assert harness.tombstones() == [4, 5, 6]
    began = harness.loop.time()
    receipt = await node.stored(draft(1))
    assert harness.loop.time() - began < 0.1
    assert receipt.sequence == 7
    assert [message.sequence for message in await node.read_all(BOB, after=6)] == [7]


async def test_an_empty_chat_starts_at_one_again(harness: DurabilityHarness) -> None:
    node = _lost(harness)
    await _repair(node, published=0)
    assert (await node.stored(draft(1))).sequence == 1


async def test_what_was_not_published_before_the_loss_is_published_after_the_repair(harness: DurabilityHarness) -> None:
    harness.given_messages(5)
    node = _lost(harness)
    await _repair(node, published=3)
    assert harness.counter().dirty_at_ms is not None
    reconciling = node.start_reconciler()
    await asyncio.sleep(limits.RECONCILE_AFTER_S + 2 * limits.RECONCILE_EVERY_S)
    assert harness.published() == [4, 5]
    assert harness.counter().dirty_at_ms is None
    assert not reconciling.done()


async def test_when_everything_is_published_the_chat_is_clean(harness: DurabilityHarness) -> None:
    harness.given_messages(5)
    await _repair(_lost(harness), published=5)
    assert harness.counter().dirty_at_ms is None


async def test_the_membership_version_is_above_all_earlier_ones_and_those_of_earlier_repairs(
    harness: DurabilityHarness,
) -> None:
    node = harness.node()
    for _ in range(3):
        await node.catalog.add_member(CHAT, "user_dan", Role.MEMBER, by=ANN, now_ms=0, timeout_s=1)
        await node.catalog.remove_member(CHAT, "user_dan", by=ANN, now_ms=0, timeout_s=1)
    versions = [harness.counter().members_version]
    for _ in range(2):
        harness.store.lose_counter(CHAT)
        await _repair(node, published=0)
        versions.append(harness.counter().members_version)
        await node.catalog.add_member(CHAT, "user_dan", Role.MEMBER, by=ANN, now_ms=0, timeout_s=1)
        await node.catalog.remove_member(CHAT, "user_dan", by=ANN, now_ms=0, timeout_s=1)
        versions.append(harness.counter().members_version)
    assert versions == sorted(set(versions))


async def test_a_number_far_above_everything_stored_is_not_believed(harness: DurabilityHarness) -> None:
    harness.given_messages(3)
    harness.store.put_watermark(BOB, CHAT, 10**15)
    with pytest.raises(RepairRefused, match="one of these is wrong"):
        await _repair(_lost(harness), published=3)
    assert harness.tombstones() == []
    assert CHAT not in harness.store.counters


async def test_a_counter_that_exists_is_not_repaired(harness: DurabilityHarness) -> None:
    harness.given_messages(3)
    harness.store.put_watermark(BOB, CHAT, 9)
    before = harness.counter()
    with pytest.raises(RepairRefused, match="exists"):
        await _repair(harness.node(), published=3)
    assert harness.counter() == before
    assert harness.tombstones() == []


async def test_a_chat_that_is_still_being_written_is_not_repaired(harness: DurabilityHarness) -> None:
    harness.given_messages(3)
    harness.store.put_watermark(BOB, CHAT, 9)
    node = _lost(harness)
    late_s = limits.RECOVERY_QUIET_S - 0.5
    harness.loop.call_later(late_s, lambda: harness.put_message(4), context=harness.loop.world.context)
    with pytest.raises(RepairRefused, match="still being written"):
        await _repair(node, published=3)
    assert CHAT not in harness.store.counters
    assert harness.tombstones() == []


async def test_a_counter_that_comes_back_meanwhile_is_left_as_it_is(harness: DurabilityHarness) -> None:
    harness.given_messages(3)
    node = _lost(harness)
    node.wire.on("recover_counter", with_before(lambda: harness.set_counter(CHAT, 3, published=3)))
    with pytest.raises(RepairRefused, match="came back"):
        await _repair(node, published=2)
    assert (harness.counter().allocated, harness.counter().published_through) == (3, 3)
    assert harness.store.recoveries == []


async def test_a_commit_that_lands_after_the_repair_overwrites_nothing_and_loses_nothing(
    harness: DurabilityHarness,
) -> None:
    """The repair cannot see a transaction that is under way for longer than it waits: write-once slots protect it."""
    harness.given_messages(3)
    node = _lost(harness)
    await _repair(node, published=3)
    harness.put_message(4, content="of an allocation from before the loss")
    receipt = await node.stored(draft(1))
    assert harness.contents()[3:] == ["of an allocation from before the loss", "text 1"]
    assert receipt.sequence == 5
    assert node.recorded.collisions == [4]
    assert harness.published() == [4, 5]


async def test_the_repair_leaves_a_trace(harness: DurabilityHarness) -> None:
    harness.given_messages(3)
    await _repair(_lost(harness), published=3)
    [recovery] = harness.store.recoveries
    assert (recovery.chat_id, recovery.recovered_from) == (CHAT, 3)


def _lost(harness: DurabilityHarness) -> Node:
    harness.store.lose_counter(CHAT)
    return harness.node()


async def _repair(node: Node, *, published: int, margin: int = 0) -> Repair:
    repairer = CounterRepairer(node.log, node.clock, highest_published=lambda _: published)
    return await repairer.repair(CHAT, margin=margin)

"""Watermarks: members only, never beyond the end, never down."""

import asyncio

import pytest

from seriatim.domain.errors import NotAMember, ServiceUnavailable
from tests.support.durability_harness import BOB, CHAT, CID, EVE, DurabilityHarness, Node
from tests.support.scripted_wire import LOST_REQUEST, late, with_before


async def test_an_ack_raises_the_watermark_of_its_user_only(harness: DurabilityHarness) -> None:
    harness.given_messages(5)
    await _ack(harness.node(), 3)
    assert harness.store.watermarks == {(BOB, CHAT): 3}


async def test_a_stale_ack_never_lowers_the_watermark(harness: DurabilityHarness) -> None:
    harness.given_messages(5)
    node = harness.node()
    await _ack(node, 4)
    await _ack(node, 2)
    assert harness.store.watermarks[BOB, CHAT] == 4


async def test_shuffled_concurrent_acks_end_at_the_highest(harness: DurabilityHarness) -> None:
    harness.given_messages(9)
    node = harness.node()
    node.wire.on("acknowledge", *(late(delay / 100) for delay in (1, 7, 3, 5, 2)))
    await asyncio.gather(*(_ack(node, sequence) for sequence in (3, 9, 1, 7, 5)))
    assert harness.store.watermarks[BOB, CHAT] == 9


async def test_an_ack_beyond_the_end_is_clamped_to_the_newest_message(harness: DurabilityHarness) -> None:
    harness.given_messages(5)
    harness.put_tombstone(6)
    await _ack(harness.node(), 10**15)
    assert harness.store.watermarks[BOB, CHAT] == 5


async def test_an_ack_in_an_empty_chat_writes_nothing(harness: DurabilityHarness) -> None:
    node = harness.node()
    await _ack(node, 10**15)
    assert harness.store.watermarks == {}
    assert "acknowledge" not in node.wire.calls


async def test_an_ack_at_a_tombstone_counts_for_the_message_before_it(harness: DurabilityHarness) -> None:
    harness.given_messages(2)
    harness.put_tombstone(3)
    harness.put_message(4)
    await _ack(harness.node(), 3)
    assert harness.store.watermarks[BOB, CHAT] == 2


async def test_an_outsiders_ack_is_refused_and_writes_nothing(harness: DurabilityHarness) -> None:
    harness.given_messages(5)
    with pytest.raises(NotAMember):
        await harness.node().ingest.acknowledge(EVE, CHAT, sequence=3, timeout_s=5)
    assert harness.store.watermarks == {}


async def test_membership_is_checked_after_the_data_was_read(harness: DurabilityHarness) -> None:
    harness.given_messages(5)
    node = harness.node()
    node.wire.on("newest_message", with_before(lambda: harness.remove(CID)))
    with pytest.raises(NotAMember):
        await node.ingest.acknowledge(CID, CHAT, sequence=3, timeout_s=5)
    assert harness.store.watermarks == {}


async def test_a_dead_store_is_an_error_in_time(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.always("*", LOST_REQUEST)
    with pytest.raises(ServiceUnavailable):
        await node.ingest.acknowledge(BOB, CHAT, sequence=3, timeout_s=2)
    assert harness.loop.time() <= 2


async def _ack(node: Node, sequence: int) -> None:
    await node.ingest.acknowledge(BOB, CHAT, sequence=sequence, timeout_s=5)

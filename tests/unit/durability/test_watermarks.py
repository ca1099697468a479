"""Watermarks: members only, never beyond the end, never down."""

import asyncio

import pytest

from seriatim.domain.errors import NotAMember, ServiceUnavailable
from tests.support.bench import BOB, CHAT, CID, EVE, Bench, Node
from tests.support.scripted_wire import LOST_REQUEST, late, with_before


async def test_an_ack_raises_the_watermark_of_its_user_only(bench: Bench) -> None:
    bench.given_messages(5)
    await _ack(bench.node(), 3)
    assert bench.store.watermarks == {(BOB, CHAT): 3}


async def test_a_stale_ack_never_lowers_the_watermark(bench: Bench) -> None:
    bench.given_messages(5)
    node = bench.node()
    await _ack(node, 4)
    await _ack(node, 2)
    assert bench.store.watermarks[BOB, CHAT] == 4


async def test_shuffled_concurrent_acks_end_at_the_highest(bench: Bench) -> None:
    bench.given_messages(9)
    node = bench.node()
    node.wire.on("acknowledge", *(late(delay / 100) for delay in (1, 7, 3, 5, 2)))
    await asyncio.gather(*(_ack(node, sequence) for sequence in (3, 9, 1, 7, 5)))
    assert bench.store.watermarks[BOB, CHAT] == 9


async def test_an_ack_beyond_the_end_is_clamped_to_the_newest_message(bench: Bench) -> None:
    bench.given_messages(5)
    bench.put_tombstone(6)
    await _ack(bench.node(), 10**15)
    assert bench.store.watermarks[BOB, CHAT] == 5


async def test_an_ack_in_an_empty_chat_writes_nothing(bench: Bench) -> None:
    node = bench.node()
    await _ack(node, 10**15)
    assert bench.store.watermarks == {}
    assert "acknowledge" not in node.wire.calls


async def test_an_ack_at_a_tombstone_counts_for_the_message_before_it(bench: Bench) -> None:
    bench.given_messages(2)
    bench.put_tombstone(3)
    bench.put_message(4)
    await _ack(bench.node(), 3)
    assert bench.store.watermarks[BOB, CHAT] == 2


async def test_an_outsiders_ack_is_refused_and_writes_nothing(bench: Bench) -> None:
    bench.given_messages(5)
    with pytest.raises(NotAMember):
        await bench.node().ingest.acknowledge(EVE, CHAT, sequence=3, timeout_s=5)
    assert bench.store.watermarks == {}


async def test_membership_is_checked_after_the_data_was_read(bench: Bench) -> None:
    bench.given_messages(5)
    node = bench.node()
    node.wire.on("newest_message", with_before(lambda: bench.remove(CID)))
    with pytest.raises(NotAMember):
        await node.ingest.acknowledge(CID, CHAT, sequence=3, timeout_s=5)
    assert bench.store.watermarks == {}


async def test_a_dead_store_is_an_error_in_time(bench: Bench) -> None:
    node = bench.node()
    node.wire.always("*", LOST_REQUEST)
    with pytest.raises(ServiceUnavailable):
        await node.ingest.acknowledge(BOB, CHAT, sequence=3, timeout_s=2)
    assert bench.loop.time() <= 2


async def _ack(node: Node, sequence: int) -> None:
    await node.ingest.acknowledge(BOB, CHAT, sequence=sequence, timeout_s=5)

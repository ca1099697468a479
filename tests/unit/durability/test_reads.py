"""Sync for members: membership is checked after the data, outsiders change nothing, and no cursor hides a message."""

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import NotAMember, ServiceUnavailable
from seriatim.ports.durability import PrefixPage
from tests.support.durability_harness import BOB, CHAT, EVE, DurabilityHarness, Node, draft
from tests.support.scripted_wire import LOST_REQUEST, with_before

OLD_S = limits.SEAL_AFTER_S


async def test_a_member_gets_the_messages_above_the_cursor(harness: DurabilityHarness) -> None:
    harness.given_messages(5)
    page = await _read(harness.node(), after=2)
    assert (_numbers(page), page.through, page.has_more) == ([3, 4, 5], 5, False)


async def test_a_read_costs_one_query_and_one_membership_check_after_it(harness: DurabilityHarness) -> None:
    harness.given_messages(5)
    node = harness.node()
    await _read(node, after=2)
    assert node.wire.calls == ["read", "role"]


async def test_a_page_holds_at_most_the_asked_number_of_slots(harness: DurabilityHarness) -> None:
    harness.given_messages(10)
    page = await _read(harness.node(), after=2, limit=3)
    assert (_numbers(page), page.through, page.has_more) == ([3, 4, 5], 5, True)


async def test_the_largest_page_is_served(harness: DurabilityHarness) -> None:
    harness.given_messages(600)
    page = await _read(harness.node(), after=1, limit=limits.SYNC_SLOTS_MAX)
    assert (len(page.messages), page.through, page.has_more) == (limits.SYNC_SLOTS_MAX, 501, True)


async def test_tombstones_are_not_shown_but_passed(harness: DurabilityHarness) -> None:
    harness.put_message(1)
    harness.put_tombstone(2)
    harness.put_tombstone(3)
    page = await _read(harness.node(), after=1)
    assert (_numbers(page), page.through) == ([], 3)


async def test_an_outsider_is_refused_and_causes_no_write(harness: DurabilityHarness) -> None:
    harness.put_message(1)
    harness.put_message(3, age_s=OLD_S)
    node = harness.node()
    with pytest.raises(NotAMember):
        await node.ingest.read(EVE, CHAT, after=0, limit=10, timeout_s=5)
    assert harness.tombstones() == []
    assert "seal" not in node.wire.calls


async def test_a_chat_that_does_not_exist_looks_like_one_that_the_reader_is_not_in(harness: DurabilityHarness) -> None:
    harness.given_messages(1)
    node = harness.node()
    with pytest.raises(NotAMember) as missing:
        await node.ingest.read(BOB, "chat_none", after=0, limit=10, timeout_s=5)
    with pytest.raises(NotAMember) as closed:
        await node.ingest.read(EVE, CHAT, after=0, limit=10, timeout_s=5)
    assert str(missing.value) == str(closed.value)


async def test_a_member_closes_an_old_hole_and_reads_on(harness: DurabilityHarness) -> None:
    harness.put_message(1)
    harness.put_message(3, age_s=OLD_S)
    node = harness.node()
    page = await _read(node)
    assert (_numbers(page), page.through, harness.tombstones()) == ([1, 3], 3, [2])
    assert node.wire.calls[-1] == "role"


async def test_a_member_who_is_removed_while_a_hole_is_closed_is_refused(harness: DurabilityHarness) -> None:
    harness.put_message(2, age_s=OLD_S)
    node = harness.node()
    node.wire.on("seal", with_before(lambda: harness.remove(BOB)))
    with pytest.raises(NotAMember):
        await _read(node)


async def test_a_young_hole_is_waited_for(harness: DurabilityHarness) -> None:
    harness.put_message(1)
    harness.put_message(3)
    page = await _read(harness.node())
    assert (_numbers(page), page.through, page.has_more) == ([1], 1, False)


async def test_a_cursor_beyond_the_end_gets_the_true_end(harness: DurabilityHarness) -> None:
    harness.given_messages(5)
    page = await _read(harness.node(), after=1000)
    assert (page.messages, page.through, page.has_more) == ((), 5, False)


async def test_operators_hear_of_a_members_cursor_beyond_the_end_as_after_a_restore(harness: DurabilityHarness) -> None:
    harness.given_messages(5)
    node = harness.node()
    for after in (0, 4, 5):
        await _read(node, after=after)
    with pytest.raises(NotAMember):
        await node.ingest.read(EVE, CHAT, after=9, limit=10, timeout_s=5)
    assert node.recorded.beyond_end == []
    await _read(node, after=9)
    assert node.recorded.beyond_end == [(CHAT, 9, 5)]


async def test_a_cursor_at_the_end_stays_there(harness: DurabilityHarness) -> None:
    harness.given_messages(5)
    page = await _read(harness.node(), after=5)
    assert (page.messages, page.through, page.has_more) == ((), 5, False)


async def test_a_cursor_at_a_trailing_tombstone_stays_there(harness: DurabilityHarness) -> None:
    harness.given_messages(5)
    harness.put_tombstone(6)
    page = await _read(harness.node(), after=6)
    assert (page.messages, page.through) == ((), 6)


async def test_a_cursor_in_an_empty_chat_gets_zero(harness: DurabilityHarness) -> None:
    page = await _read(harness.node(), after=7)
    assert (page.messages, page.through, page.has_more) == ((), 0, False)


async def test_the_end_answered_to_a_bogus_cursor_never_lies_above_a_hole(harness: DurabilityHarness) -> None:
    """Nothing may appear at or below `through` later, whatever cursor was asked with."""
    harness.given_messages(3)
    harness.set_counter(CHAT, 5, published=3)
    harness.put_message(5)  # 4 is still being written
    node = harness.node()
    page = await _read(node, after=1000)
    assert (page.messages, page.through, page.has_more) == ((), 3, False)
    harness.put_message(4)
    seen = await node.read_all(BOB, after=page.through)
    assert 4 in [message.sequence for message in seen]


async def test_a_bogus_cursor_in_a_hole_never_leads_past_it(harness: DurabilityHarness) -> None:
    harness.given_messages(3)
    harness.set_counter(CHAT, 6, published=3)
    harness.put_message(6)  # 4 and 5 are still being written
    node = harness.node()
    page = await _read(node, after=5)
    assert page.messages == ()
    harness.put_message(4)
    harness.put_message(5)
    seen = await node.read_all(BOB, after=page.through)
    assert [message.sequence for message in seen] == [4, 5, 6]


async def test_a_dead_store_is_an_error_in_time(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.always("*", LOST_REQUEST)
    with pytest.raises(ServiceUnavailable):
        await node.ingest.read(BOB, CHAT, after=0, limit=10, timeout_s=3)
    assert harness.loop.time() <= 3


async def test_heads_are_the_stored_marks_and_the_better_knowledge_of_an_active_pipeline(
    harness: DurabilityHarness,
) -> None:
    harness.add_chat("chat_2")
    harness.given_messages(4, chat_id="chat_2")
    node, other = harness.node("ingest-1"), harness.node("ingest-2")
    assert (await node.stored(draft(1))).sequence == 1
    asked = [CHAT, "chat_2", "chat_none"]
    assert await node.ingest.heads(asked, timeout_s=5) == {CHAT: 1, "chat_2": 4}
    assert await other.ingest.heads(asked, timeout_s=5) == {CHAT: 0, "chat_2": 4}


async def _read(node: Node, *, after: int = 0, limit: int = 10) -> PrefixPage:
    return await node.ingest.read(BOB, CHAT, after=after, limit=limit, timeout_s=5)


def _numbers(page: PrefixPage) -> list[int]:
    return [message.sequence for message in page.messages]

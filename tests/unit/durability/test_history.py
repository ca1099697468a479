"""History: the newest messages first, never anything above a hole, never a page that silently lacks one."""

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import NotAMember, ServiceUnavailable
from seriatim.ports.durability import BackPage
from tests.support.durability_harness import ANN, BOB, CHAT, EVE, DurabilityHarness, Node, draft
from tests.support.scripted_wire import LOST_REQUEST, THROTTLED, CallOutcome, with_before

OLD_S = limits.SEAL_AFTER_S
END = limits.SEQUENCE_MAX


async def test_the_newest_messages_come_first(harness: DurabilityHarness) -> None:
    harness.given_messages(10)
    page = await _back(harness.node(), limit=3)
    assert (_numbers(page), page.has_more) == ([10, 9, 8], True)


async def test_both_bounds_are_left_out(harness: DurabilityHarness) -> None:
    harness.given_messages(10)
    page = await _back(harness.node(), before=8, after=4)
    assert (_numbers(page), page.has_more) == ([7, 6, 5], False)


async def test_more_means_more_above_the_lower_bound(harness: DurabilityHarness) -> None:
    harness.given_messages(10)
    node = harness.node()
    assert (await _back(node, before=8, after=4, limit=2)).has_more
    assert not (await _back(node, before=8, after=4, limit=3)).has_more
    assert not (await _back(node, before=4, limit=3)).has_more


async def test_bounds_with_nothing_in_between_are_an_empty_page(harness: DurabilityHarness) -> None:
    harness.given_messages(10)
    node = harness.node()
    for before, after in ((5, 4), (5, 5), (4, 9), (1, 0), (0, 0), (0, -1), (1, -5)):
        page = await _back(node, before=before, after=after)
        assert (page.messages, page.has_more) == ((), False)


async def test_an_empty_chat_has_an_empty_history(harness: DurabilityHarness) -> None:
    page = await _back(harness.node())
    assert (page.messages, page.has_more) == ((), False)


async def test_pages_one_after_another_are_the_whole_history(harness: DurabilityHarness) -> None:
    harness.given_messages(25)
    node, before, seen = harness.node(), END, list[int]()
    while True:
        page = await _back(node, before=before, limit=4)
        seen += _numbers(page)
        if not page.has_more:
            break
        before = page.messages[-1].sequence
    assert seen == list(range(25, 0, -1))


# --- the end of the prefix --------------------------------------------------------------------------------------------


async def test_nothing_above_a_hole_is_shown(harness: DurabilityHarness) -> None:
    harness.given_messages(3)
    harness.set_counter(CHAT, 6, published=3)
    harness.put_message(4)
    harness.put_message(6)  # 5 is still being written
    node = harness.node()
    assert _numbers(await _back(node)) == [4, 3, 2, 1]
    assert _numbers(await _back(node, before=7)) == [4, 3, 2, 1]
    assert _numbers(await _back(node, before=6, after=4)) == []
    harness.put_message(5)
    assert _numbers(await _back(node, after=3)) == [6, 5, 4]


async def test_a_message_acknowledged_a_moment_ago_is_the_newest(harness: DurabilityHarness) -> None:
    harness.given_messages(3)
    node = harness.node()
    for number in (1, 2, 3):
        receipt = await node.stored(draft(number))
        page = await _back(node, limit=1)
        assert [message.message_id for message in page.messages] == [receipt.message_id]


async def test_a_message_acknowledged_by_another_process_is_the_newest(harness: DurabilityHarness) -> None:
    """That process has not flushed its mark, so the slots above the stored one are walked through."""
    owner, reader = harness.node("ingest-1"), harness.node("ingest-2")
    for number in (1, 2, 3):
        await owner.stored(draft(number))
    assert harness.counter().published_through == 2
    assert _numbers(await _back(reader)) == [3, 2, 1]


async def test_a_chat_active_here_is_not_walked_through_again(harness: DurabilityHarness) -> None:
    """What it has acknowledged is known, even while the store does not say so."""
    node = harness.node()
    receipts = [await node.stored(draft(number)) for number in (1, 2, 3)]
    node.wire.calls.clear()
    page = await _back(node, before=receipts[-1].sequence + 1)
    assert _numbers(page) == [3, 2, 1]
    assert node.wire.calls == ["role", "read_back", "role"]


async def test_a_page_at_the_end_costs_three_reads_between_two_checks_of_membership(harness: DurabilityHarness) -> None:
    harness.given_messages(200)
    node = harness.node()
    await _back(node, limit=100)
    assert node.wire.calls == ["role", "counters", "read", "read_back", "role"]


async def test_a_member_closes_an_old_hole_and_reads_beyond(harness: DurabilityHarness) -> None:
    harness.put_message(1)
    harness.put_message(3, age_s=OLD_S)
    page = await _back(harness.node())
    assert (_numbers(page), harness.tombstones()) == ([3, 1], [2])


async def test_a_long_unpublished_stretch_is_walked_to_its_end(harness: DurabilityHarness) -> None:
    for sequence in range(1, 1201):
        harness.put_message(sequence)
    harness.set_counter(CHAT, 1200, published=0)
    assert _numbers(await _back(harness.node(), limit=2)) == [1200, 1199]


async def test_a_stretch_too_long_to_walk_is_an_error_and_not_an_older_page(harness: DurabilityHarness) -> None:
    end = limits.HEAD_PAGES_MAX * limits.SYNC_SLOTS_MAX + 1
    for sequence in range(1, end + 1):
        harness.put_message(sequence)
    harness.set_counter(CHAT, end, published=0)
    node = harness.node()
    with pytest.raises(ServiceUnavailable) as refused:
        await _back(node)
    assert refused.value.retry_after_seconds == limits.HEAD_RETRY_S
    assert node.wire.calls.count("read") == limits.HEAD_PAGES_MAX
    assert _numbers(await _back(node, before=3)) == [2, 1], "what lies far below the end is shown"
    harness.set_counter(CHAT, end, published=end - 1)
    assert _numbers(await _back(node, limit=1)) == [end]


async def test_a_chat_without_its_counter_can_still_be_read(harness: DurabilityHarness) -> None:
    harness.given_messages(5)
    harness.store.lose_counter(CHAT)
    assert _numbers(await _back(harness.node(), limit=2)) == [5, 4]


# --- tombstones and commits seen in part ------------------------------------------------------------------------------


async def test_tombstones_are_left_out_without_cutting_the_page_short(harness: DurabilityHarness) -> None:
    for sequence in range(1, 21):
        if sequence % 3:
            harness.put_tombstone(sequence)
        else:
            harness.put_message(sequence)
    harness.set_counter(CHAT, 20, published=20)
    node = harness.node()
    page = await _back(node, limit=3)
    assert (_numbers(page), page.has_more) == ([18, 15, 12], True)
    page = await _back(node, before=12, limit=3)
    assert (_numbers(page), page.has_more) == ([9, 6, 3], False), "two tombstones below are not more"


async def test_a_very_long_run_of_tombstones_is_passed_in_few_reads(harness: DurabilityHarness) -> None:
    end = limits.REPAIR_SEALS_MAX + 2
    for sequence in range(2, end):
        harness.put_tombstone(sequence)
    harness.put_message(1)
    harness.put_message(end)
    harness.set_counter(CHAT, end, published=end)
    node = harness.node()
    page = await _back(node, limit=2)
    assert (_numbers(page), page.has_more) == ([end, 1], False)
    assert node.wire.calls.count("read_back") <= limits.REPAIR_SEALS_MAX // limits.READ_SLOTS_MAX + 3


async def test_heavy_messages_do_not_cut_the_page_short(harness: DurabilityHarness) -> None:
    """The store ends a page at a megabyte."""
    harness.given_messages(400, content="x" * limits.CONTENT_BYTES_MAX)
    page = await _back(harness.node(), limit=350)
    assert (_numbers(page), page.has_more) == (list(range(400, 50, -1)), True)


async def test_a_commit_seen_in_part_is_waited_for_and_not_passed_over(harness: DurabilityHarness) -> None:
    harness.given_messages(5)
    harness.store.slots(CHAT).hide([4])
    harness.loop.call_later(0.3, harness.store.slots(CHAT).show, [4])
    page = await _back(harness.node())
    assert _numbers(page) == [5, 4, 3, 2, 1]


async def test_a_row_that_stays_away_is_an_error_in_time_and_not_a_gap(harness: DurabilityHarness) -> None:
    harness.given_messages(5)
    harness.store.slots(CHAT).hide([4])
    with pytest.raises(ServiceUnavailable):
        await harness.node().ingest.read_back(BOB, CHAT, before=END, after=0, limit=10, timeout_s=3)
    assert harness.loop.time() <= 3


async def test_a_row_that_stays_away_is_asked_for_at_intervals(harness: DurabilityHarness) -> None:
    harness.given_messages(5)
    harness.store.slots(CHAT).hide([4])
    node = harness.node()
    with pytest.raises(ServiceUnavailable):
        await node.ingest.read_back(BOB, CHAT, before=END, after=0, limit=10, timeout_s=3)
    assert 2 < node.wire.count("read_back") <= 3 / limits.HOLE_POLL_S


# --- members only -----------------------------------------------------------------------------------------------------


async def test_an_outsider_is_refused_and_causes_no_write(harness: DurabilityHarness) -> None:
    harness.put_message(1)
    harness.put_message(3, age_s=OLD_S)
    node = harness.node()
    with pytest.raises(NotAMember):
        await node.ingest.read_back(EVE, CHAT, before=END, after=0, limit=10, timeout_s=5)
    assert harness.tombstones() == []
    assert node.wire.calls == ["role"]


async def test_a_chat_that_does_not_exist_looks_like_one_that_the_reader_is_not_in(harness: DurabilityHarness) -> None:
    harness.given_messages(1)
    node = harness.node()
    with pytest.raises(NotAMember) as missing:
        await node.ingest.read_back(BOB, "chat_none", before=END, after=0, limit=10, timeout_s=5)
    with pytest.raises(NotAMember) as closed:
        await node.ingest.read_back(EVE, CHAT, before=END, after=0, limit=10, timeout_s=5)
    assert str(missing.value) == str(closed.value)


async def test_a_member_who_is_removed_while_reading_is_refused(harness: DurabilityHarness) -> None:
    harness.given_messages(5)
    for operation in ("counters", "read", "read_back"):
        harness.add_chat(CHAT)  # everyone is back, and nothing counts as published
        node = harness.node()
        node.wire.on(operation, with_before(lambda: harness.remove(BOB)))
        with pytest.raises(NotAMember):
            await _back(node)


# --- a failing store --------------------------------------------------------------------------------------------------


async def test_a_throttled_page_is_asked_for_again(harness: DurabilityHarness) -> None:
    harness.given_messages(5)
    node = harness.node()
    node.wire.on("read_back", THROTTLED, THROTTLED)
    assert _numbers(await _back(node, limit=2)) == [5, 4]


async def test_a_failure_half_way_is_an_error_and_not_a_short_page(harness: DurabilityHarness) -> None:
    harness.given_messages(300, content="x" * limits.CONTENT_BYTES_MAX)
    node = harness.node()
    node.wire.on("read_back", CallOutcome(), LOST_REQUEST, LOST_REQUEST)
    with pytest.raises(ServiceUnavailable):
        await _back(node, limit=300)


async def test_a_dead_store_is_an_error_in_time(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.always("*", LOST_REQUEST)
    with pytest.raises(ServiceUnavailable):
        await node.ingest.read_back(ANN, CHAT, before=END, after=0, limit=10, timeout_s=3)
    assert harness.loop.time() <= 3


async def _back(node: Node, *, before: int = END, after: int = 0, limit: int = 10) -> BackPage:
    return await node.ingest.read_back(BOB, CHAT, before=before, after=after, limit=limit, timeout_s=5)


def _numbers(page: BackPage) -> list[int]:
    return [message.sequence for message in page.messages]

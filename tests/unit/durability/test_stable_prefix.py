"""The stable prefix: nothing above a hole is shown, and only old holes are closed."""

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import ServiceUnavailable
from seriatim.domain.message import Message, Sealed
from seriatim.durability.stable_prefix import Prefix
from tests.support.durability_harness import CHAT, DurabilityHarness, Node
from tests.support.scripted_wire import (
    APPLIED,
    CONFLICT,
    LATENCY_S,
    LOST_REQUEST,
    LOST_RESPONSE,
    THROTTLED,
    UNAVAILABLE,
    CallOutcome,
    with_before,
)
from tests.support.virtual_time import simulate

OLD_S = limits.SEAL_AFTER_S


async def test_an_empty_chat_has_an_empty_prefix(harness: DurabilityHarness) -> None:
    assert await _read(harness.node()) == Prefix(slots=(), through=0, more=False)


async def test_the_prefix_is_everything_up_to_the_first_hole(harness: DurabilityHarness) -> None:
    for sequence in (1, 2, 4, 5):
        harness.put_message(sequence)
    prefix = await _read(harness.node())
    assert (_numbers(prefix), prefix.through, prefix.more) == ([1, 2], 2, False)


async def test_a_hole_right_above_the_cursor_hides_everything(harness: DurabilityHarness) -> None:
    harness.put_message(4)
    prefix = await _read(harness.node(), after=2)
    assert (_numbers(prefix), prefix.through) == ([], 2)


async def test_a_young_hole_is_left_open(harness: DurabilityHarness) -> None:
    harness.put_message(1)
    harness.put_message(3, age_s=OLD_S - 0.1)
    node = harness.node()
    prefix = await _read(node)
    assert (_numbers(prefix), prefix.sealable) == ([1], False)
    assert node.wire.count("seal") == 0


async def test_an_old_hole_is_closed_and_passed(harness: DurabilityHarness) -> None:
    harness.put_message(1)
    harness.put_message(4, age_s=OLD_S)
    node = harness.node()
    prefix = await _read(node)
    assert (_numbers(prefix), prefix.through) == ([1, 2, 3, 4], 4)
    assert harness.tombstones() == node.recorded.seals == [2, 3]


async def test_the_age_that_counts_is_that_of_the_slot_right_above_the_hole(harness: DurabilityHarness) -> None:
    harness.put_message(2, age_s=0)
    harness.put_message(3, age_s=OLD_S)
    assert _numbers(await _read(harness.node())) == []
    assert harness.tombstones() == []


async def test_a_reader_that_may_not_seal_only_says_that_one_could(harness: DurabilityHarness) -> None:
    harness.put_message(1)
    harness.put_message(3, age_s=OLD_S)
    node = harness.node()
    prefix = await _read(node, sealing=False)
    assert (_numbers(prefix), prefix.through, prefix.sealable) == ([1], 1, True)
    assert harness.tombstones() == []


async def test_a_message_that_fills_the_hole_just_before_the_seal_is_shown(harness: DurabilityHarness) -> None:
    harness.put_message(2, age_s=OLD_S)
    node = harness.node()

    def late_commit() -> None:
        harness.put_message(1)

    node.wire.on("seal", with_before(late_commit))
    prefix = await _read(node)
    assert [type(slot) for slot in prefix.slots] == [Message, Message]
    assert (harness.tombstones(), node.recorded.seals) == ([], [])


async def test_a_full_page_says_where_it_ends_and_that_there_is_more(harness: DurabilityHarness) -> None:
    harness.given_messages(10)
    prefix = await _read(harness.node(), after=2, limit=5)
    assert (_numbers(prefix), prefix.through, prefix.more) == ([3, 4, 5, 6, 7], 7, True)


async def test_a_page_that_ends_exactly_at_the_end_of_the_chat_says_there_is_no_more(
    harness: DurabilityHarness,
) -> None:
    harness.given_messages(7)
    prefix = await _read(harness.node(), after=2, limit=5)
    assert (_numbers(prefix), prefix.more) == ([3, 4, 5, 6, 7], False)


async def test_there_is_no_more_when_only_a_hole_follows_a_full_page(harness: DurabilityHarness) -> None:
    for sequence in (1, 2, 4):
        harness.put_message(sequence)
    prefix = await _read(harness.node(), limit=2)
    assert (_numbers(prefix), prefix.more) == ([1, 2], False)


async def test_a_page_of_tombstones_advances_the_cursor(harness: DurabilityHarness) -> None:
    for sequence in range(1, 8):
        harness.put_tombstone(sequence)
    prefix = await _read(harness.node(), limit=5)
    assert (prefix.through, prefix.more) == (5, True)
    assert all(isinstance(slot, Sealed) for slot in prefix.slots)


async def test_a_page_cut_by_its_weight_says_that_there_is_more(harness: DurabilityHarness) -> None:
    harness.given_messages(300, content="x" * 4096)
    prefix = await _read(harness.node(), limit=290)
    assert len(prefix.slots) < 290
    assert (prefix.through, prefix.more) == (len(prefix.slots), True)


async def test_a_wide_old_hole_is_closed_by_a_bounded_number_of_tombstones_per_read(harness: DurabilityHarness) -> None:
    harness.put_message(1000, age_s=OLD_S)
    node = harness.node()
    prefix = await _read(node, limit=500)
    assert prefix.sealable
    assert prefix.through == len(harness.tombstones()) == 2 * limits.SEALS_PER_READ_MAX
    assert node.wire.count("read") == 3


async def test_a_commit_seen_half_way_is_not_passed(harness: DurabilityHarness) -> None:
    harness.put_message(1)
    harness.put_message(2)
    harness.store.slots(CHAT).hide([1])
    node = harness.node()
    assert _numbers(await _read(node)) == []
    harness.store.slots(CHAT).show([1])
    assert _numbers(await _read(node)) == [1, 2]


async def test_a_commit_seen_half_way_for_long_is_never_sealed_over(harness: DurabilityHarness) -> None:
    harness.put_message(1)
    harness.put_message(2, age_s=OLD_S)
    harness.store.slots(CHAT).hide([1])
    node = harness.node()
    prefix = await _read(node)
    assert (_numbers(prefix), prefix.sealable) == ([], True)
    assert (harness.tombstones(), node.recorded.seals) == ([], [])


async def test_a_slow_clock_waits_longer_and_a_fast_one_less_and_neither_shows_a_hole(
    harness: DurabilityHarness,
) -> None:
    harness.put_message(2, age_s=OLD_S)
    slow, fast = harness.node("slow", skew_s=-60), harness.node("fast", skew_s=60)
    assert _numbers(await _read(slow)) == []
    prefix = await _read(fast)
    assert [type(slot) for slot in prefix.slots] == [Sealed, Message]


async def test_f1_a_seal_that_meets_a_conflict_is_followed_by_another_read(harness: DurabilityHarness) -> None:
    harness.put_message(1)
    harness.put_message(3, age_s=OLD_S)
    node = harness.node()
    node.wire.on("seal", CONFLICT)
    prefix = await _read(node)
    assert (_numbers(prefix), harness.tombstones()) == ([1, 2, 3], [2])
    assert node.wire.calls == ["read", "seal", "read", "seal", "read"]
    assert node.recorded.refusals == ["conflict"]


async def test_f1_the_commit_that_a_seal_collided_with_is_shown(harness: DurabilityHarness) -> None:
    harness.put_message(1)
    harness.put_message(3, age_s=OLD_S)
    node = harness.node()
    node.wire.on("seal", CONFLICT)

    def commit() -> None:
        harness.put_message(2)

    node.wire.on("read", APPLIED, with_before(commit))
    prefix = await _read(node)
    assert [type(slot) for slot in prefix.slots] == [Message, Message, Message]
    assert (harness.tombstones(), node.wire.count("seal")) == ([], 1)


@pytest.mark.parametrize("outcome", [CONFLICT, THROTTLED, UNAVAILABLE, LOST_REQUEST, LOST_RESPONSE])
def test_f1_a_read_shows_what_lies_below_a_hole_that_cannot_be_closed(outcome: CallOutcome) -> None:
    async def schedule(harness: DurabilityHarness) -> None:
        harness.put_message(1)
        harness.put_message(3, age_s=OLD_S)
        node = harness.node()
        node.wire.always("seal", outcome)
        prefix = await _read(node)
        assert 1 in _numbers(prefix)
        assert prefix.sealable == (2 not in harness.tombstones())

    simulate(schedule)


async def test_f1_a_read_whose_time_ends_while_it_seals_shows_what_it_has_read(harness: DurabilityHarness) -> None:
    harness.put_message(1)
    harness.put_message(3, age_s=OLD_S)
    node = harness.node()
    node.wire.always("seal", LOST_REQUEST)
    deadline = node.deadline(limits.STORE_TIMEOUT_S + limits.ATTEMPT_ROOM_S)
    prefix = await node.prefix().read(CHAT, after=0, limit=10, deadline=deadline)
    assert (_numbers(prefix), prefix.sealable) == ([1], True)
    assert node.wire.calls == ["read", "seal"]


async def test_a_read_without_time_does_not_begin(harness: DurabilityHarness) -> None:
    node = harness.node()
    with pytest.raises(ServiceUnavailable):
        await node.prefix().read(CHAT, after=0, limit=1, deadline=node.deadline(limits.ATTEMPT_ROOM_S - LATENCY_S))
    assert node.wire.calls == []


async def _read(node: Node, *, after: int = 0, limit: int = 10, sealing: bool = True) -> Prefix:
    return await node.prefix().read(CHAT, after=after, limit=limit, deadline=node.deadline(), sealing=sealing)


def _numbers(prefix: Prefix) -> list[int]:
    return [slot.sequence for slot in prefix.slots]

"""Atomic commits: drafts that arrive while the store is busy are one transaction that keeps a pipeline's promises."""

import asyncio

import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import (
    CounterMissing,
    InvalidMessage,
    NotAMember,
    OutcomeUnknown,
    ServerBusy,
)
from seriatim.domain.message import Receipt
from seriatim.ports.message_log import ChatCounter
from tests.support.durability_harness import ANN, BOB, CHAT, CID, EVE, DurabilityHarness, Node, draft
from tests.support.scripted_wire import LOST_RESPONSE, CallOutcome, late, with_before

OTHER = "chat_2"
DAYS_S = 86_400.0


def atomic_node(harness: DurabilityHarness) -> Node:
    harness.add_chat(OTHER)
    return harness.node(atomic_store=True)


# --- one transaction --------------------------------------------------------------------------------------------------


async def test_drafts_of_all_chats_that_arrive_together_are_one_transaction(harness: DurabilityHarness) -> None:
    node = atomic_node(harness)
    answers = [node.submit(draft(number, chat_id=(CHAT, OTHER)[number % 2])) for number in range(6)]
    receipts = [each for each in await asyncio.gather(*answers) if isinstance(each, Receipt)]
    assert [each.sequence for each in receipts] == [1, 1, 2, 2, 3, 3]
    assert node.wire.calls == ["transaction"]
    assert node.recorded.counted == {"allocated": 6, "persisted": 6, "published": 6, "answered": 6}


async def test_a_draft_after_the_batch_was_judged_is_in_the_next_one_and_need_not_wait_for_its_answer(
    harness: DurabilityHarness,
) -> None:
    node = atomic_node(harness)
    node.wire.on("transaction", CallOutcome(response_s=1.0))
    slow = node.submit(draft(1))
    await asyncio.sleep(0.1)
    assert (await node.stored(draft(2))).sequence == 2
    assert not slow.done()
    assert isinstance(await slow, Receipt)


async def test_message_event_and_counter_row_say_the_same(harness: DurabilityHarness) -> None:
    harness.given_messages(2)
    harness.put_tombstone(3)
    harness.set_counter(CHAT, 3, published=3)
    harness.store.put_counter(CHAT, msgspec.structs.replace(harness.counter(), dirty_at_ms=1))
    harness.remove(CID)
    node = atomic_node(harness)
    first, second = await asyncio.gather(node.submit(draft(1)), node.submit(draft(2, sender_id=BOB)))
    assert isinstance(first, Receipt)
    assert isinstance(second, Receipt)
    assert [(each.sequence, each.prev_sequence) for each in (first, second)] == [(4, 2), (5, 4)]
    assert [(each.prev_sequence, each.members_version) for each in harness.events()] == [(2, 2), (4, 2)]
    assert harness.counter() == ChatCounter(
        allocated=5, published_through=5, published_message=5, members_version=2, dirty_at_ms=None
    )


async def test_where_the_message_before_is_unknown_none_is_named(harness: DurabilityHarness) -> None:
    harness.given_messages(2)
    harness.store.put_counter(CHAT, msgspec.structs.replace(harness.counter(), published_message=None))
    assert (await atomic_node(harness).stored(draft(1))).prev_sequence is None
    assert [each.prev_sequence for each in harness.events()] == [None]
    assert harness.counter().published_message == 3


async def test_the_time_of_a_message_never_runs_backwards(harness: DurabilityHarness) -> None:
    node = atomic_node(harness)
    node.clock.skew_s = 60.0
    first = await node.stored(draft(1))
    node.clock.skew_s = 0.0
    assert (await node.stored(draft(2))).created_at == first.created_at


# --- keys and members -------------------------------------------------------------------------------------------------


async def test_of_drafts_with_one_id_in_one_transaction_one_is_stored_and_all_get_its_receipt(
    harness: DurabilityHarness,
) -> None:
    node = atomic_node(harness)
    answers = await asyncio.gather(*(node.submit(draft(1, text)) for text in ("first", "first", "second")))
    receipts = [each for each in answers if isinstance(each, Receipt)]
    assert [(each.sequence, each.deduplicated, each.content_differs) for each in receipts] == [
        (1, False, False),
        (1, True, False),
        (1, True, True),
    ]
    assert (harness.contents(), harness.published(), node.recorded.hits) == (["first"], [1], 2)


async def test_a_retry_after_a_lost_answer_finds_the_message(harness: DurabilityHarness) -> None:
    node = atomic_node(harness)
    node.wire.on("transaction", LOST_RESPONSE)
    assert isinstance(await node.failed(draft(1)), OutcomeUnknown)
    receipt = await node.stored(draft(1))
    assert (receipt.sequence, receipt.deduplicated, harness.published()) == (1, True, [1])


async def test_a_transaction_that_failed_left_nothing(harness: DurabilityHarness) -> None:
    node = atomic_node(harness)
    node.wire.cuts.append(0)
    assert isinstance(await node.failed(draft(1)), OutcomeUnknown)
    assert (harness.slots(), harness.published(), harness.counter().allocated) == ({}, [], 0)
    assert (await node.stored(draft(1))).sequence == 1


async def test_an_expired_key_is_absent_and_makes_room_for_the_new_one(harness: DurabilityHarness) -> None:
    harness.given_messages(1)
    harness.put_key(draft(1), harness.messages()[0], expires_in_s=0)
    node = atomic_node(harness)
    assert (await node.stored(draft(1))).sequence == 2
    assert harness.store.keys[CHAT, draft(1).client_message_id].sequence == 2


async def test_a_clock_that_was_wrong_for_a_moment_expires_no_key(harness: DurabilityHarness) -> None:
    node = atomic_node(harness)
    await node.stored(draft(1))
    node.clock.skew_s = 30 * DAYS_S
    await node.stored(draft(2))
    node.clock.skew_s = 0.0
    assert (await node.stored(draft(1))).sequence == 1


async def test_a_key_answers_its_own_sender_even_a_removed_one_and_no_other_user(harness: DurabilityHarness) -> None:
    node = atomic_node(harness)
    await node.stored(draft(1, sender_id=BOB))
    harness.remove(BOB)
    answers = await asyncio.gather(*(node.submit(draft(1, sender_id=user)) for user in (BOB, ANN, EVE)))
    assert [type(each) for each in answers] == [Receipt, InvalidMessage, NotAMember]
    assert harness.published() == [1]


async def test_a_sender_who_is_removed_before_the_batch_is_judged_is_refused(harness: DurabilityHarness) -> None:
    node = atomic_node(harness)
    node.wire.on("transaction", with_before(lambda: harness.remove(BOB)))
    refused, stored = await asyncio.gather(node.submit(draft(1, sender_id=BOB)), node.submit(draft(2)))
    assert isinstance(refused, NotAMember)
    assert isinstance(stored, Receipt)
    assert (stored.sequence, harness.contents()) == (1, ["text 2"])


# --- the pipeline -----------------------------------------------------------------------------------------------------


async def test_a_chat_with_something_unpublished_uses_the_pipeline_and_later_atomic_commits_again(
    harness: DurabilityHarness,
) -> None:
    node = atomic_node(harness)
    harness.put_message(1, age_s=9)
    harness.set_counter(CHAT, 1, published=0)
    answers = [node.submit(draft(number)) for number in (1, 2)]
    other = await node.stored(draft(9, chat_id=OTHER))
    assert (other.sequence, node.ingest.active_chats) == (1, [CHAT])
    answers.append(node.submit(draft(3)))  # follows the others, though an atomic commit would be faster
    receipts = [each for each in await asyncio.gather(*answers) if isinstance(each, Receipt)]
    assert [each.sequence for each in receipts] == [2, 3, 4]
    assert (node.wire.count("transaction"), harness.published()) == (1, [1, 2, 3, 4])
    await asyncio.sleep(limits.PIPELINE_IDLE_S + 0.1)
    assert (await node.stored(draft(4))).sequence == 5
    assert node.wire.count("transaction") == 2


async def test_a_chat_without_its_counter_halts_and_the_others_do_not(harness: DurabilityHarness) -> None:
    node = atomic_node(harness)
    harness.store.lose_counter(CHAT)
    halted, other = await asyncio.gather(node.submit(draft(1)), node.submit(draft(2, chat_id=OTHER)))
    assert isinstance(halted, CounterMissing)
    assert isinstance(other, Receipt)
    assert node.recorded.missing_counters == [CHAT]


async def test_nothing_is_written_over_where_a_counter_is_below_its_slots(harness: DurabilityHarness) -> None:
    node = atomic_node(harness)
    harness.put_message(1, content="acknowledged long ago")
    receipt = await node.stored(draft(1))
    assert (receipt.sequence, harness.contents()) == (2, ["acknowledged long ago", "text 1"])
    assert node.recorded.collisions == [1]


async def test_a_pipeline_dies_with_the_process_and_the_next_one_finds_what_was_left(
    harness: DurabilityHarness,
) -> None:
    node = atomic_node(harness)
    harness.put_message(1, age_s=9)
    harness.set_counter(CHAT, 1, published=0)
    node.wire.on("lookup", late(0.5))
    unanswered = node.submit(draft(1))
    await asyncio.sleep(0.1)
    node.crash()
    await asyncio.sleep(2)
    assert (unanswered.done(), harness.published()) == (False, [])
    assert (await harness.node("ingest-2", atomic_store=True).stored(draft(1))).sequence == 2
    assert harness.published() == [1, 2]


async def test_where_no_further_chat_can_have_a_pipeline_the_others_go_on(harness: DurabilityHarness) -> None:
    node = atomic_node(harness)
    harness.store.lose_counter(CHAT)
    most, limits.PIPELINES_MAX = limits.PIPELINES_MAX, 0
    try:
        busy, other = await asyncio.gather(node.submit(draft(1)), node.submit(draft(2, chat_id=OTHER)))
    finally:
        limits.PIPELINES_MAX = most
    assert isinstance(busy, ServerBusy)
    assert isinstance(other, Receipt)

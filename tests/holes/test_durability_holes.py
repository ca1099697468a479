"""The holes of docs/spec/delivery.md#the-holes that the durability plane closes, each as its shortest story.

Each story runs with all rules, where it ends well, and without each of the rules that close its hole, where it must
not (`conftest.py`).
"""

import asyncio

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import Conflict, InvalidMessage, NotAMember, ServerBusy, ServiceUnavailable
from seriatim.domain.message import Message, Receipt
from seriatim.operations.counter_repair import CounterRepairer
from tests.holes.durability_rules import (
    a_sync_is_waited_for_beyond_the_deadline,
    ambiguous_adds_are_repeated,
    atomic_commit_begins_however_late,
    atomic_commit_checks_no_membership,
    atomic_commit_trusts_any_counter,
    every_call_has_its_own_timeout,
    every_cancellation_is_a_duplicate,
    later_drafts_get_lower_slots,
    lookups_ignore_expiry,
    more_is_guessed_from_the_count,
    old_holes_are_skipped,
    the_commit_ignores_expiry,
    the_cursor_is_the_last_message,
)
from tests.support.durability_harness import ANN, BOB, CHAT, CID, EVE, DurabilityHarness, Node, Outcome, draft
from tests.support.scripted_wire import LOST_REQUEST, LOST_RESPONSE, UNAVAILABLE, CallOutcome, late, with_before

closed_by = pytest.mark.closed_by

# Why a story does not run on a data folder.
TWO_WRITERS = "two processes write to one chat, and a data folder belongs to one"
NO_GAP = "storing and publishing are one write, so nothing happens between them"

# --- H1: late commit -----------------------------------------------------------------------------------------------


@closed_by("reader-ignores-holes", on_folder=TWO_WRITERS)
async def test_h1_a_reader_never_passes_a_slot_that_is_still_to_be_filled(harness: DurabilityHarness) -> None:
    slow, quick = harness.node("ingest-1"), harness.node("ingest-2")
    slow.wire.on("persist", late(0.5))
    first = slow.submit(draft(1, sender_id=ANN))
    await asyncio.sleep(0.01)
    second = quick.submit(draft(2, sender_id=BOB))
    seen = await _follow(quick, until_s=4)
    assert isinstance(await first, Receipt)
    assert isinstance(await second, Receipt)
    assert seen == harness.messages(), "a cumulative reader missed a message"


@closed_by("reader-ignores-holes", old_holes_are_skipped, on_folder=TWO_WRITERS)
async def test_h1_what_readers_have_passed_is_closed_to_a_very_late_commit(harness: DurabilityHarness) -> None:
    doomed, quick = harness.node("ingest-1"), harness.node("ingest-2")
    doomed.wire.on("persist", late(5.0))
    unanswered = doomed.submit(draft(1, sender_id=ANN))
    await asyncio.sleep(0.01)
    doomed.crash()  # no process is left to give the slot up
    second = quick.submit(draft(2, sender_id=BOB))
    seen = await _follow(quick, until_s=8)
    assert not unanswered.done()
    assert isinstance(await second, Receipt)
    assert seen == harness.messages(), "a cumulative reader missed a message"


# --- H3: publish order ---------------------------------------------------------------------------------------------


@closed_by("publish-only-own", on_folder=TWO_WRITERS)
async def test_h3_what_is_stored_below_is_published_first_whichever_process_stored_it(
    harness: DurabilityHarness,
) -> None:
    slow, quick = harness.node("ingest-1"), harness.node("ingest-2")
    slow.events_wire.on("append", late(0.5))
    first = slow.submit(draft(1, sender_id=ANN))
    await asyncio.sleep(0.02)
    second = quick.submit(draft(2, sender_id=BOB))
    await asyncio.gather(first, second)
    assert harness.first_published() == [1, 2]


# --- H4: overwrite -------------------------------------------------------------------------------------------------


@closed_by("unconditional-put", on_folder=[atomic_commit_trusts_any_counter])
async def test_h4_a_counter_restored_too_low_overwrites_nothing(harness: DurabilityHarness) -> None:
    harness.given_messages(3)
    before = harness.messages()
    harness.set_counter(CHAT, 1, published=1)
    node = harness.node()
    receipt = await node.stored(draft(1))
    assert harness.messages()[:3] == before
    assert receipt.sequence == 4
    assert node.recorded.collisions == [2, 3]


# --- H5: counter restored below the watermarks ---------------------------------------------------------------------


@closed_by("repair-from-slots-alone")
async def test_h5_after_a_repair_new_messages_are_visible_to_who_had_acknowledged_most(
    harness: DurabilityHarness,
) -> None:
    harness.given_messages(3)
    harness.store.put_watermark(BOB, CHAT, 5)  # 4 and 5 were seen, then lost with a part of the store
    harness.store.lose_counter(CHAT)
    node = harness.node()
    await CounterRepairer(node.log, node.clock, highest_published=lambda _: 3).repair(CHAT)
    receipt = await node.stored(draft(1))
    assert receipt.sequence > 5
    assert [message.content for message in await node.read_all(BOB, after=5)] == ["text 1"]


# --- H6: unauthorised reads and acks -------------------------------------------------------------------------------


@closed_by("reads-checked-before", "reads-unauthorised")
async def test_h6_who_was_removed_reads_nothing_written_after_the_removal(harness: DurabilityHarness) -> None:
    harness.given_messages(1)
    node = harness.node()

    def removed_then_spoken_of() -> None:
        harness.remove(BOB)
        harness.put_message(2, content="Bob is gone, now we can talk")

    node.wire.on("read", with_before(removed_then_spoken_of))
    try:
        page = await node.ingest.read(BOB, CHAT, after=0, limit=10, timeout_s=5)
    except NotAMember:
        return
    raise AssertionError(f"Bob read {page.messages}")


@closed_by("reads-unauthorised")
async def test_h6_an_outsider_reads_nothing(harness: DurabilityHarness) -> None:
    harness.given_messages(1)
    try:
        page = await harness.node().ingest.read(EVE, CHAT, after=0, limit=10, timeout_s=5)
    except NotAMember:
        return
    raise AssertionError(f"Eve read {page.messages}")


# --- H7: a hit acknowledged, never published -----------------------------------------------------------------------


@closed_by("hit-acked-without-publish", on_folder=NO_GAP)
async def test_h7_a_retry_that_hits_its_key_is_answered_only_once_the_message_is_out(
    harness: DurabilityHarness,
) -> None:
    node = harness.node()
    node.events_wire.on("append", UNAVAILABLE)
    assert isinstance(await node.send(draft(1)), ServiceUnavailable)
    assert harness.published() == []
    assert isinstance(await node.send(draft(1)), Receipt)
    assert harness.published() == [1]


# --- H8: the sender is gone after storing --------------------------------------------------------------------------


@closed_by("no-reconciler", on_folder=NO_GAP)
async def test_h8_a_message_goes_out_although_its_process_and_its_sender_are_gone(harness: DurabilityHarness) -> None:
    doomed, other = harness.node("ingest-1"), harness.node("ingest-2")
    reconciling = other.start_reconciler()
    doomed.events_wire.on("append", LOST_REQUEST)
    unanswered = doomed.submit(draft(1))
    await asyncio.sleep(0.1)
    doomed.crash()
    assert not unanswered.done()
    assert harness.published() == []
    await asyncio.sleep(limits.RECONCILE_AFTER_S + 2 * limits.RECONCILE_EVERY_S)
    assert harness.published() == [1]
    assert harness.counter().dirty_at_ms is None
    assert not reconciling.done()


# --- H14: a key not bound to its sender ----------------------------------------------------------------------------


@closed_by("key-not-bound-to-sender")
async def test_h14_no_sender_is_acknowledged_for_another_senders_message(harness: DurabilityHarness) -> None:
    node = harness.node()
    await node.stored(draft(1, "Ann's", sender_id=ANN))
    outcome = await node.send(draft(1, "Bob's", sender_id=BOB))
    assert isinstance(outcome, InvalidMessage)


@closed_by("key-not-bound-to-sender", on_folder=TWO_WRITERS)
async def test_h14_no_sender_is_acknowledged_for_another_senders_message_in_a_race_either(
    harness: DurabilityHarness,
) -> None:
    slow, quick = harness.node("ingest-1"), harness.node("ingest-2")
    slow.wire.on("persist", late(0.1))
    bobs = slow.submit(draft(1, "Bob's", sender_id=BOB))
    await asyncio.sleep(0.01)
    await quick.stored(draft(1, "Ann's", sender_id=ANN))
    assert isinstance(await bobs, InvalidMessage)


# --- H15: ack beyond the end ---------------------------------------------------------------------------------------


@closed_by("ack-unclamped")
async def test_h15_a_bogus_ack_does_not_poison_the_watermark(harness: DurabilityHarness) -> None:
    harness.given_messages(2)
    node = harness.node()
    await node.ingest.acknowledge(BOB, CHAT, sequence=10**15, timeout_s=5)
    assert harness.store.watermarks[BOB, CHAT] == 2
    await node.stored(draft(1))
    missed = await node.read_all(BOB, after=harness.store.watermarks[BOB, CHAT])
    assert [message.content for message in missed] == ["text 1"]


# --- H19: removed between check and commit -------------------------------------------------------------------------


@closed_by("membership-checked-early", on_folder=[atomic_commit_checks_no_membership])
async def test_h19_nothing_of_a_removed_member_commits_after_the_removal(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.on_commit(with_before(lambda: harness.remove(BOB)))
    outcome = await node.send(draft(1, "one last word", sender_id=BOB))
    assert isinstance(outcome, NotAMember)
    assert harness.contents() == []


# --- H20: lazy expiry ----------------------------------------------------------------------------------------------


@closed_by(lookups_ignore_expiry, the_commit_ignores_expiry, on_folder=[lookups_ignore_expiry])
async def test_h20_an_expired_key_that_was_not_removed_yet_is_absent(harness: DurabilityHarness) -> None:
    harness.given_messages(1)
    harness.put_key(draft(1), harness.messages()[0], expires_in_s=0)
    receipt = await harness.node().stored(draft(1))
    assert (receipt.sequence, receipt.deduplicated) == (2, False)


# --- H21: the wrong branch -----------------------------------------------------------------------------------------


@closed_by(every_cancellation_is_a_duplicate)
async def test_h21_a_slot_sealed_under_its_writer_is_no_duplicate(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.on_commit(with_before(lambda: harness.put_tombstone(1)))
    receipt = await node.stored(draft(1))
    assert (receipt.sequence, receipt.deduplicated) == (2, False)
    assert harness.contents() == ["text 1"]


@closed_by(every_cancellation_is_a_duplicate, on_folder=[atomic_commit_checks_no_membership])
async def test_h21_a_removed_sender_is_no_duplicate(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.on_commit(with_before(lambda: harness.remove(BOB)))
    assert isinstance(await node.send(draft(1, sender_id=BOB)), NotAMember)


# --- H22: hidden retry of ADD --------------------------------------------------------------------------------------


@closed_by(ambiguous_adds_are_repeated, on_folder="a slot is allocated by the commit that fills it")
async def test_h22_one_attempt_burns_at_most_its_own_slot(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.on("allocate", LOST_RESPONSE)
    outcome = await node.send(draft(1))
    assert harness.counter().allocated == 1, "slots without an owner"
    assert isinstance(outcome, ServiceUnavailable)


# --- H23: nested timeouts ------------------------------------------------------------------------------------------


@closed_by(every_call_has_its_own_timeout, on_folder=[a_sync_is_waited_for_beyond_the_deadline])
async def test_h23_a_stuck_event_log_is_an_error_by_the_deadline(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.on_publish(LOST_REQUEST)
    began = harness.loop.time()
    assert isinstance(await node.send(draft(1)), ServiceUnavailable)
    assert harness.loop.time() - began <= limits.PERSIST_DEADLINE_S


@closed_by(every_call_has_its_own_timeout, on_folder=[atomic_commit_begins_however_late])
async def test_h23_nothing_is_begun_that_could_end_after_the_error(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.on_lookup(late(0.9))
    outcome = await node.send(draft(1), within_s=1.0)
    assert isinstance(outcome, ServiceUnavailable | ServerBusy)
    await asyncio.sleep(30)
    assert (harness.contents(), harness.counter().allocated) == ([], 0), "an error now, a message later"


# --- H24: paging ---------------------------------------------------------------------------------------------------


@closed_by(the_cursor_is_the_last_message, more_is_guessed_from_the_count)
async def test_h24_a_page_of_tombstones_only_is_passed(harness: DurabilityHarness) -> None:
    harness.put_message(1)
    for sequence in range(2, 150):
        harness.put_tombstone(sequence)
    harness.put_message(150)
    seen = await harness.node().read_all(BOB, limit=20)
    assert [message.sequence for message in seen] == [1, 150]


@closed_by(more_is_guessed_from_the_count)
async def test_h24_a_page_cut_by_its_weight_is_not_the_last(harness: DurabilityHarness) -> None:
    harness.given_messages(600, content="x" * 4096)
    seen = await harness.node().read_all(BOB, limit=500)
    assert [message.sequence for message in seen] == list(range(1, 601))


# --- H25: one sender's order ---------------------------------------------------------------------------------------


@closed_by("batch-reversed", on_folder=["step-reversed"])
async def test_h25_what_one_socket_sent_first_comes_first(harness: DurabilityHarness) -> None:
    node = harness.node()
    answers: list[asyncio.Future[Outcome]] = []
    for number in range(1, 21):
        answers.append(node.submit(draft(number)))
        if number % 4 == 0:
            await asyncio.sleep(0.003)  # some arrive together, some while a commit is under way
    for answer in answers:
        assert isinstance(await answer, Receipt)
    assert harness.contents() == [f"text {number}" for number in range(1, 21)]


@closed_by(
    "batch-reversed",
    later_drafts_get_lower_slots,
    on_folder="a failed atomic commit is not repeated in parts",
)
async def test_h25_the_order_survives_conflicts_lost_answers_and_stolen_slots(harness: DurabilityHarness) -> None:
    node = harness.node()
    first = node.submit(draft(0))
    await asyncio.sleep(0.001)
    node.wire.on("persist", CallOutcome(), CallOutcome(refusal=Conflict), LOST_RESPONSE, LOST_REQUEST)
    node.wire.on("persist", with_before(lambda: harness.put_tombstone(harness.counter().allocated)))
    answers = [node.submit(draft(number)) for number in range(1, 9)]
    for answer in [first, *answers]:
        assert isinstance(await answer, Receipt)
    assert harness.contents() == [f"text {number}" for number in range(9)]


async def _follow(node: Node, *, until_s: float) -> list[Message]:
    """Cid's client: it reads on from where the last page ended, and never reads below."""
    seen: list[Message] = []
    cursor = 0
    while node.clock.monotonic() < until_s:
        page = await node.ingest.read(CID, CHAT, after=cursor, limit=10, timeout_s=5)
        seen.extend(page.messages)
        cursor = page.through
        await asyncio.sleep(0.05)
    return seen

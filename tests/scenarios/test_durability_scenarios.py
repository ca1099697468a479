"""The scenarios of docs/spec/data.md#scenarios that the durability plane decides, under their numbers."""

import asyncio
from itertools import pairwise

from seriatim.domain import limits
from seriatim.domain.errors import (
    CounterMissing,
    InvalidMessage,
    NotAMember,
    SeriatimError,
    ServiceUnavailable,
)
from seriatim.domain.message import Message, Receipt
from seriatim.operations.counter_repair import CounterRepairer
from tests.support.durability_harness import ANN, BOB, CHAT, CID, EVE, DurabilityHarness, Node, Outcome, draft
from tests.support.scripted_wire import LOST_REQUEST, LOST_RESPONSE, UNAVAILABLE, CallOutcome, late


async def test_s1_a_send_takes_the_next_sequence(harness: DurabilityHarness) -> None:
    """Given counter 10, when one message is sent, then counter, answer, message and key say 11."""
    harness.given_messages(10)
    receipt = await harness.node().stored(draft(1))
    assert (harness.counter().allocated, receipt.sequence, receipt.deduplicated) == (11, 11, False)
    message = harness.slots()[11]
    assert isinstance(message, Message)
    assert (message.message_id, message.content) == (receipt.message_id, "text 1")
    assert harness.store.keys[CHAT, draft(1).client_message_id].sequence == 11


async def test_s2_a_repeated_send_gets_the_first_answer_and_stores_nothing(harness: DurabilityHarness) -> None:
    """Given message 11, when the same id is sent again, then the counter stays and the answer is 11, deduplicated."""
    harness.given_messages(10)
    node = harness.node()
    first = await node.stored(draft(1))
    again = await node.stored(draft(1))
    assert (again.sequence, again.message_id, again.created_at) == (11, first.message_id, first.created_at)
    assert again.deduplicated
    assert harness.counter().allocated == 11
    assert len(harness.messages()) == 11


async def test_s3_concurrent_sends_get_distinct_sequences(harness: DurabilityHarness) -> None:
    """Given counter 10, when three processes send at once, then the counter is 13 and no two are equal."""
    harness.given_messages(10)
    nodes = [harness.node(f"ingest-{number}") for number in range(3)]
    receipts = await asyncio.gather(*(node.stored(draft(number)) for number, node in enumerate(nodes)))
    assert sorted(receipt.sequence for receipt in receipts) == [11, 12, 13]
    assert harness.counter().allocated == 13
    assert sorted(harness.contents()[10:]) == ["text 0", "text 1", "text 2"]


async def test_s4_twins_on_two_processes_become_one_message(harness: DurabilityHarness) -> None:
    """Given A allocated 11, its twin B allocated 12 and committed first, then both are answered 12; 11 is a gap."""
    harness.given_messages(10)
    one, other = harness.node("ingest-1"), harness.node("ingest-2")
    one.wire.on("persist", late(0.1))
    slow = one.submit(draft(1))
    await asyncio.sleep(0.01)
    quick = other.submit(draft(1))
    first, second = await slow, await quick
    assert isinstance(first, Receipt)
    assert isinstance(second, Receipt)
    assert (first.sequence, second.sequence) == (12, 12)
    assert first.message_id == second.message_id
    assert (first.deduplicated, second.deduplicated) == (True, False)
    assert harness.counter().allocated == 12
    assert [message.sequence for message in harness.messages()[10:]] == [12]


async def test_s5_a_crash_after_the_allocation_leaves_a_gap(harness: DurabilityHarness) -> None:
    """Given a crash after allocating 11, when the client retries elsewhere, then the message is at 12."""
    harness.given_messages(10)
    doomed = harness.node("ingest-1")
    doomed.wire.on("persist", LOST_REQUEST)
    unanswered = doomed.submit(draft(1))
    await asyncio.sleep(0.05)
    assert harness.counter().allocated == 11
    doomed.crash()
    receipt = await harness.node("ingest-2").stored(draft(1))
    assert not unanswered.done()
    assert (receipt.sequence, harness.counter().allocated) == (12, 12)
    assert 11 not in [message.sequence for message in harness.messages()]


async def test_s6_the_first_message_of_a_chat_is_1(harness: DurabilityHarness) -> None:
    """Given a new chat, when the first message is sent, then its sequence is 1 and nothing comes before it."""
    receipt = await harness.node().stored(draft(1))
    assert (receipt.sequence, receipt.prev_sequence) == (1, 0)


async def test_s7_a_missing_counter_halts_the_chat_until_it_is_repaired(harness: DurabilityHarness) -> None:
    """Given a lost counter, then sends fail, nothing is written, operators hear of it; after repair next = max+1."""
    harness.given_messages(7)
    harness.store.lose_counter(CHAT)
    node = harness.node()
    before = dict(harness.slots())
    error = await node.failed(draft(1))
    assert isinstance(error, CounterMissing)
    assert (harness.slots(), harness.store.keys, CHAT in harness.store.counters) == (before, {}, False)
    assert node.recorded.missing_counters == [CHAT]
    await CounterRepairer(node.log, node.clock, highest_published=lambda _: 7).repair(CHAT)
    assert (await node.stored(draft(1))).sequence == 8


async def test_s8_a_hundred_concurrent_writers_get_a_hundred_sequences_without_a_gap(
    harness: DurabilityHarness,
) -> None:
    """Given 100 concurrent sends of one chat, then 1..100 are all used, each once."""
    node = harness.node()
    answers = [node.submit(draft(number)) for number in range(100)]
    receipts = [await answer for answer in answers]
    assert [outcome.sequence for outcome in receipts if isinstance(outcome, Receipt)] == list(range(1, 101))


async def test_s8_writers_on_many_processes_never_share_a_sequence(harness: DurabilityHarness) -> None:
    """Given 100 sends spread over 5 processes, then there are 100 messages with 100 sequences."""
    nodes = [harness.node(f"ingest-{number}") for number in range(5)]
    answers = [nodes[number % 5].submit(draft(number)) for number in range(100)]
    receipts = [await answer for answer in answers]
    sequences = [outcome.sequence for outcome in receipts if isinstance(outcome, Receipt)]
    assert len(set(sequences)) == len(sequences) == len(harness.messages()) == 100


async def test_s9_killed_after_the_allocation_the_retry_succeeds_above_a_gap(harness: DurabilityHarness) -> None:
    """Given a kill after step 3, when the client retries, then there is a gap, then success."""
    doomed = harness.node("ingest-1")
    doomed.wire.on("persist", LOST_REQUEST)
    unanswered = doomed.submit(draft(1))
    await asyncio.sleep(0.05)
    doomed.crash()
    receipt = await harness.node("ingest-2").stored(draft(1))
    assert not unanswered.done()
    assert (receipt.sequence, harness.published()) == (2, [2])


async def test_s9_killed_after_the_commit_the_retry_gets_the_cached_answer_and_the_event_exists(
    harness: DurabilityHarness,
) -> None:
    """Given a kill after step 4, when the client retries, then the answer is the cached one, published by then."""
    doomed = harness.node("ingest-1")
    doomed.events_wire.on("append", LOST_REQUEST)
    unanswered = doomed.submit(draft(1))
    await asyncio.sleep(0.05)
    assert harness.contents() == ["text 1"]
    assert harness.published() == []
    doomed.crash()
    receipt = await harness.node("ingest-2").stored(draft(1))
    assert not unanswered.done()
    assert (receipt.sequence, receipt.deduplicated, harness.published()) == (1, True, [1])


async def test_s14_a_timeout_and_a_retry_make_one_message(harness: DurabilityHarness) -> None:
    """Given a send that timed out, when it is repeated with the same id, then the sequence is the same."""
    node = harness.node()
    node.events_wire.on("append", LOST_RESPONSE)
    assert isinstance(await node.failed(draft(1)), ServiceUnavailable)
    receipt = await node.stored(draft(1))
    assert (receipt.sequence, receipt.deduplicated) == (1, True)
    assert harness.contents() == ["text 1"]
    assert harness.first_published() == [1]


async def test_s15_a_client_that_crashed_before_the_ack_gets_the_same_answer(harness: DurabilityHarness) -> None:
    """Given a client that never saw its ack, when it repeats after minutes, then the answer is the same."""
    node = harness.node()
    lost_with_the_client = await node.stored(draft(1))
    await asyncio.sleep(200)
    again = await node.stored(draft(1))
    assert (again.sequence, again.message_id) == (lost_with_the_client.sequence, lost_with_the_client.message_id)
    assert len(harness.messages()) == 1


async def test_s16_another_instance_answers_for_one_that_crashed_after_storing(harness: DurabilityHarness) -> None:
    """Given a server that crashed after the commit and before the ack, then another answers the cached result."""
    doomed = harness.node("ingest-1")
    doomed.wire.on("persist", CallOutcome(response_s=1))
    unanswered = doomed.submit(draft(1))
    await asyncio.sleep(0.1)
    doomed.crash()
    [stored] = harness.messages()
    receipt = await harness.node("ingest-2").stored(draft(1))
    assert (receipt.message_id, receipt.sequence, receipt.deduplicated) == (stored.message_id, 1, True)
    assert not unanswered.done()
    assert harness.published() == [1]


async def test_s17_a_long_absence_is_synced_in_pages_in_order(harness: DurabilityHarness) -> None:
    """Given 1,234 messages and a watermark of 7, when the client syncs, then it gets 8..1234 ascending, in pages."""
    harness.given_messages(1234)
    node = harness.node()
    seen = await node.read_all(BOB, after=7, limit=100)
    assert [message.sequence for message in seen] == list(range(8, 1235))
    assert node.wire.count("read") == 13


async def test_s18_the_same_id_with_another_text_keeps_the_original(harness: DurabilityHarness) -> None:
    """Given a stored message, when its id comes with other content, then sequence and content stay the first ones."""
    node = harness.node()
    first = await node.stored(draft(1, "the original"))
    again = await node.stored(draft(1, "something else"))
    assert (again.sequence, again.deduplicated, again.content_differs) == (first.sequence, True, True)
    assert harness.contents() == ["the original"]
    assert [event.message.content for event in harness.events()] == ["the original"]


async def test_s31_a_dead_store_is_an_error_within_the_deadline(harness: DurabilityHarness) -> None:
    """Given a store that never answers, then each send gets an error within 5 s, and later ones work."""
    node = harness.node()
    node.wire.always("*", LOST_REQUEST)
    began = harness.loop.time()
    answers = [node.submit(draft(number)) for number in range(60)]
    for answer in answers:
        assert isinstance(await answer, ServiceUnavailable)
    assert harness.loop.time() - began <= limits.PERSIST_DEADLINE_S
    node.wire.heal()
    assert (await node.stored(draft(99))).sequence == 1


async def test_s31_a_store_that_dies_between_allocation_and_commit_is_an_error_within_the_deadline(
    harness: DurabilityHarness,
) -> None:
    """Given a store that dies after the allocation, then the sender hears an error; a retry finds the truth."""
    node = harness.node()
    for operation in ("persist", "seal"):
        node.wire.always(operation, LOST_RESPONSE)
    error = await node.failed(draft(1))
    assert isinstance(error, ServiceUnavailable)
    node.wire.heal()
    receipt = await node.stored(draft(1))
    assert receipt.deduplicated
    assert harness.contents() == ["text 1"]


async def test_s31_a_dead_event_log_is_an_error_and_not_a_hang(harness: DurabilityHarness) -> None:
    """Given an event log that never answers, then each send gets an error within 5 s, and the breaker makes it fast."""
    node = harness.node()
    node.events_wire.always("append", LOST_REQUEST)
    for number in range(limits.BREAKER_FAILURES_MAX):
        assert isinstance(await node.failed(draft(number)), ServiceUnavailable)
    began = harness.loop.time()
    assert isinstance(await node.failed(draft(99)), ServiceUnavailable)
    assert harness.loop.time() == began
    assert len(harness.messages()) == limits.BREAKER_FAILURES_MAX


async def test_s39_no_reader_sees_a_higher_sequence_before_a_delayed_lower_one(harness: DurabilityHarness) -> None:
    """Given two processes and a lower sequence that commits late, then every reader sees both, once, in order."""
    slow, quick = harness.node("ingest-1"), harness.node("ingest-2")
    slow.wire.on("persist", late(0.8))
    first = slow.submit(draft(1, sender_id=ANN))
    await asyncio.sleep(0.01)
    second = quick.submit(draft(2, sender_id=BOB))
    seen: list[int] = []
    await follow(quick, seen, until_s=4)
    assert seen == [1, 2]
    assert [_sequence(await first), _sequence(await second)] == [1, 2]
    assert harness.first_published() == [1, 2]


async def test_s39_a_lower_sequence_that_comes_too_late_moves_up_instead(harness: DurabilityHarness) -> None:
    """Given a lower sequence delayed beyond sealing, then its message gets a higher one, and no reader misses it."""
    slow, quick = harness.node("ingest-1"), harness.node("ingest-2")
    slow.wire.on("persist", late(3.0))
    first = slow.submit(draft(1, sender_id=ANN))
    await asyncio.sleep(0.01)
    second = quick.submit(draft(2, sender_id=BOB))
    seen: list[int] = []
    await follow(quick, seen, until_s=8)
    sequences = [_sequence(await first), _sequence(await second)]
    assert seen == sorted(sequences)
    assert sorted(harness.contents()) == ["text 1", "text 2"]


async def test_s40_a_known_id_in_other_hands_discloses_nothing(harness: DurabilityHarness) -> None:
    """Given Ann's message, when an outsider or another member uses its id, then neither learns anything but no."""
    node = harness.node()
    await node.stored(draft(1, "Ann's secret"))
    outsider = await node.failed(draft(1, "mine", sender_id=EVE))
    member = await node.failed(draft(1, "mine", sender_id=BOB))
    assert isinstance(outsider, NotAMember)
    assert isinstance(member, InvalidMessage)
    for error in (outsider, member):
        assert "secret" not in f"{error.message} {error.details}"
        assert ANN not in f"{error.message} {error.details}"
    stranger = await node.failed(draft(2, "mine", sender_id=EVE))
    assert (type(outsider), outsider.message) == (type(stranger), stranger.message)
    assert harness.contents() == ["Ann's secret"]


async def test_s41_a_hit_after_a_failed_publish_publishes(harness: DurabilityHarness) -> None:
    """Given an event log down on the first try, when the second is a hit, then the event is out by its answer."""
    node = harness.node()
    node.events_wire.on("append", UNAVAILABLE)
    assert isinstance(await node.failed(draft(1)), ServiceUnavailable)
    assert (harness.contents(), harness.published()) == (["text 1"], [])
    receipt = await node.stored(draft(1))
    assert receipt.deduplicated
    assert harness.published() == [1]


async def test_s42_an_absurd_ack_is_clamped_to_the_newest_message(harness: DurabilityHarness) -> None:
    """Given 3 messages, when a client acknowledges 10^15, then its watermark is 3 and later acks still move it."""
    harness.given_messages(3)
    node = harness.node()
    await node.ingest.acknowledge(BOB, CHAT, sequence=10**15, timeout_s=5)
    assert harness.store.watermarks == {(BOB, CHAT): 3}
    await node.stored(draft(1))
    await node.ingest.acknowledge(BOB, CHAT, sequence=4, timeout_s=5)
    assert harness.store.watermarks == {(BOB, CHAT): 4}


async def follow(node: Node, seen: list[int], *, until_s: float) -> None:
    """Cid reads again and again from where the last page ended, as a client that acknowledges cumulatively."""
    cursor = 0
    while node.clock.monotonic() < until_s:
        page = await node.ingest.read(CID, CHAT, after=cursor, limit=10, timeout_s=5)
        seen.extend(message.sequence for message in page.messages)
        cursor = page.through
        assert all(lower < higher for lower, higher in pairwise(seen))
        await asyncio.sleep(0.05)


def _sequence(outcome: Outcome) -> int:
    if isinstance(outcome, SeriatimError):
        raise AssertionError(outcome)
    return outcome.sequence

"""Group commit, one batch at a time: order, twins, deadlines, a full queue, the idle flush, a chat that halts alone."""

import asyncio

from seriatim.domain import limits
from seriatim.domain.errors import (
    CounterMissing,
    InternalError,
    NotAMember,
    OutcomeUnknown,
    ServerBusy,
    ServiceUnavailable,
)
from seriatim.domain.message import Receipt
from seriatim.ports.message_log import Lookup
from tests.support.durability_harness import ANN, BOB, CHAT, CID, EVE, DurabilityHarness, Outcome, draft
from tests.support.scripted_wire import CONFLICT, LOST_REQUEST, LOST_RESPONSE, THROTTLED, UNAVAILABLE, CallOutcome


async def test_drafts_that_arrive_during_a_commit_form_the_next_batch(harness: DurabilityHarness) -> None:
    node = harness.node()
    first = node.submit(draft(0))
    await asyncio.sleep(0.001)
    rest = [node.submit(draft(number)) for number in range(1, 11)]
    await asyncio.gather(first, *rest)
    assert node.wire.calls == ["lookup", "allocate", "persist"] * 2
    assert node.events_wire.count("append") == 2
    assert harness.contents() == [f"text {number}" for number in range(11)]


async def test_a_lone_draft_does_not_wait_for_other_drafts(harness: DurabilityHarness) -> None:
    node = harness.node()
    await node.stored(draft(1))
    assert harness.loop.time() < 0.02


async def test_a_batch_fits_one_transaction_and_one_lookup(harness: DurabilityHarness) -> None:
    members = [f"user_{number}" for number in range(100)]
    harness.add_chat("chat_2", members)
    node = harness.node()
    answers = [node.submit(draft(number, sender_id=members[number], chat_id="chat_2")) for number in range(100)]
    for answer in answers:
        assert isinstance(await answer, Receipt)
    assert node.wire.count("persist") == 4  # 33 messages of 33 senders are 99 items
    assert harness.contents("chat_2") == [f"text {number}" for number in range(100)]


async def test_a_new_sender_counts_before_the_draft_is_taken(harness: DurabilityHarness) -> None:
    node = harness.node()
    answers = [node.submit(draft(number, sender_id=(ANN, BOB)[number % 2])) for number in range(48)]
    answers.append(node.submit(draft(48, sender_id=CID)))  # the 99th and 100th item, and one for Cid
    for answer in answers:
        assert isinstance(await answer, Receipt)
    assert node.wire.count("persist") == 2


async def test_a_twin_of_a_draft_under_way_gets_the_same_answer_and_is_stored_once(harness: DurabilityHarness) -> None:
    node = harness.node()
    answers = [node.submit(draft(number)) for number in (1, 1, 2, 1)]
    first, twin, other, late_twin = [await answer for answer in answers]
    assert isinstance(first, Receipt)
    assert isinstance(twin, Receipt)
    assert isinstance(late_twin, Receipt)
    assert isinstance(other, Receipt)
    assert first.sequence == twin.sequence == late_twin.sequence == 1
    assert [first.deduplicated, twin.deduplicated, late_twin.deduplicated] == [False, True, True]
    assert harness.contents() == ["text 1", "text 2"]


async def test_an_ack_names_the_message_before_it(harness: DurabilityHarness) -> None:
    harness.put_message(1)
    harness.put_tombstone(2)
    harness.set_counter(CHAT, 2, published=2)
    node = harness.node()
    answers = [node.submit(draft(number)) for number in (1, 2)]
    receipts = [await answer for answer in answers]
    assert [each.prev_sequence for each in receipts if isinstance(each, Receipt)] == [1, 3]


async def test_in_one_batch_each_draft_gets_its_own_outcome(harness: DurabilityHarness) -> None:
    node = harness.node()
    known = await node.stored(draft(1))
    answers = [
        node.submit(draft(2)),
        node.submit(draft(1)),
        node.submit(draft(3, sender_id=EVE)),
        node.submit(draft(4, sender_id=BOB)),
    ]
    new, hit, outsider, other = [await answer for answer in answers]
    assert isinstance(new, Receipt)
    assert isinstance(hit, Receipt)
    assert isinstance(other, Receipt)
    assert (new.sequence, hit.sequence, other.sequence) == (2, known.sequence, 3)
    assert isinstance(outsider, NotAMember)
    assert node.recorded.hits == 1


async def test_an_outsider_never_touches_the_counter(harness: DurabilityHarness) -> None:
    node = harness.node()
    assert isinstance(await node.failed(draft(1, sender_id=EVE)), NotAMember)
    assert node.wire.calls == ["lookup"]


async def test_an_outsider_cannot_tell_a_halted_chat_from_a_missing_one(harness: DurabilityHarness) -> None:
    harness.store.lose_counter(CHAT)
    node = harness.node()
    answers = [node.submit(draft(1, sender_id=ANN)), node.submit(draft(2, sender_id=EVE))]
    member, outsider = [await answer for answer in answers]
    assert isinstance(member, CounterMissing)
    assert isinstance(outsider, NotAMember)


async def test_a_missing_counter_halts_only_its_own_chat(harness: DurabilityHarness) -> None:
    harness.add_chat("chat_2")
    harness.store.lose_counter(CHAT)
    node = harness.node()
    for number in range(2 * limits.BREAKER_FAILURES_MAX):
        error = await node.failed(draft(number))
        assert isinstance(error, CounterMissing)
        assert not error.trips_breaker
    assert (await node.stored(draft(99, chat_id="chat_2"))).sequence == 1
    assert set(node.recorded.missing_counters) == {CHAT}
    assert harness.slots() == {}


async def test_a_hit_in_a_chat_without_counter_is_not_acknowledged_since_it_may_be_unpublished(
    harness: DurabilityHarness,
) -> None:
    node = harness.node()
    await node.stored(draft(1))
    harness.store.lose_counter(CHAT)
    assert isinstance(await node.failed(draft(1)), CounterMissing)


async def test_everyone_is_answered_by_the_deadline_wherever_the_store_hangs(harness: DurabilityHarness) -> None:
    for number, operation in enumerate(("lookup", "allocate", "persist", "seal", "append")):
        node = harness.node(f"ingest-{number}")
        node.wire.always(operation, LOST_REQUEST)
        node.events_wire.always(operation, LOST_REQUEST)
        if operation == "seal":
            node.wire.on("persist", LOST_REQUEST)
        began = harness.loop.time()
        answers = [node.submit(draft(100 * number + each)) for each in range(60)]
        for answer in answers:
            assert isinstance(await answer, ServiceUnavailable | ServerBusy)
        assert harness.loop.time() - began <= limits.PERSIST_DEADLINE_S


async def test_a_short_deadline_is_kept_although_an_earlier_batch_takes_longer(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.events_wire.on("append", LOST_REQUEST)
    patient = node.submit(draft(1), within_s=5.0)
    await asyncio.sleep(0.1)
    hasty = node.submit(draft(2), within_s=1.0)
    assert isinstance(await hasty, ServerBusy)
    assert harness.loop.time() <= 1.1 + 0.001
    assert not patient.done()
    assert isinstance(await patient, ServiceUnavailable)


async def test_the_most_hurried_draft_sets_the_pace_of_its_batch(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.events_wire.always("append", LOST_REQUEST)
    patient, hasty = node.submit(draft(1), within_s=5.0), node.submit(draft(2), within_s=1.0)
    assert isinstance(await hasty, ServiceUnavailable)
    assert isinstance(await patient, ServiceUnavailable)
    assert harness.loop.time() <= 1.0


async def test_a_draft_that_expired_in_the_queue_is_not_stored_afterwards(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.events_wire.on("append", CallOutcome(response_s=2.0))
    first = node.submit(draft(1), within_s=5.0)
    await asyncio.sleep(0.1)
    hasty, patient = node.submit(draft(2), within_s=1.0), node.submit(draft(3), within_s=5.0)
    outcomes = await asyncio.gather(first, hasty, patient)
    assert [type(outcome) for outcome in outcomes] == [Receipt, ServerBusy, Receipt]
    assert harness.contents() == ["text 1", "text 3"]


async def test_a_draft_without_time_for_an_attempt_is_refused_before_the_store_is_asked(
    harness: DurabilityHarness,
) -> None:
    node = harness.node()
    assert isinstance(await node.failed(draft(1), within_s=limits.ATTEMPT_ROOM_S / 2), ServerBusy)
    assert node.wire.calls == []


async def test_a_full_queue_answers_server_busy_and_keeps_what_it_has(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.on("lookup", CallOutcome(response_s=0.5))
    first = node.submit(draft(0))
    await asyncio.sleep(0.001)
    queued = [node.submit(draft(number)) for number in range(1, limits.CHAT_QUEUE_DRAFTS_MAX + 1)]
    error = await node.failed(draft(9999))
    assert isinstance(error, ServerBusy)
    assert error.retry_after_seconds == 1
    for answer in [first, *queued]:
        assert isinstance(await answer, Receipt)
    assert harness.contents()[-1] == f"text {limits.CHAT_QUEUE_DRAFTS_MAX}"


async def test_a_refused_lookup_is_repeated_and_one_without_an_answer_once(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.on("lookup", THROTTLED, CONFLICT)
    assert (await node.stored(draft(1))).sequence == 1
    node.wire.on("lookup", LOST_RESPONSE)
    assert (await node.stored(draft(2))).sequence == 2
    node.wire.on("lookup", LOST_RESPONSE, LOST_REQUEST)
    assert isinstance(await node.failed(draft(3)), OutcomeUnknown)


async def test_throttling_beyond_the_allowed_retries_is_a_clean_error(harness: DurabilityHarness) -> None:
    """Scenario 10 at this level: bounded retries, growing pauses, then SERVICE_UNAVAILABLE."""
    node = harness.node()
    node.wire.always("lookup", THROTTLED)
    error = await node.failed(draft(1))
    assert error.code == "SERVICE_UNAVAILABLE"
    assert node.wire.count("lookup") == 1 + limits.THROTTLE_RETRIES_MAX


async def test_after_an_error_the_next_batch_goes_on(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.on("lookup", UNAVAILABLE)
    answers = [node.submit(draft(1))]
    await asyncio.sleep(0.001)
    answers.append(node.submit(draft(2)))
    first, second = [await answer for answer in answers]
    assert isinstance(first, ServiceUnavailable)
    assert isinstance(second, Receipt)


async def test_a_bug_is_answered_as_internal_error_and_reported_and_the_pipeline_lives(
    harness: DurabilityHarness,
) -> None:
    node = harness.node()
    lookup = node.log.lookup

    async def broken(*_: object, **__: object) -> Lookup:
        raise ZeroDivisionError

    node.log.lookup = broken  # type: ignore[method-assign]
    assert isinstance(await node.failed(draft(1)), InternalError)
    assert [type(error) for error in node.recorded.failures] == [ZeroDivisionError]
    node.log.lookup = lookup  # type: ignore[method-assign]
    assert (await node.stored(draft(1))).sequence == 1


async def test_a_pipeline_that_is_cancelled_still_answers_everyone(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.on("persist", CallOutcome(response_s=0.5))
    answers = [node.submit(draft(1))]
    await asyncio.sleep(0.1)
    answers.append(node.submit(draft(2)))
    node.ingest._tasks[CHAT].cancel()
    for answer in answers:
        assert isinstance(await answer, ServiceUnavailable)
    assert harness.loop.time() < 0.2
    assert node.ingest._pipelines == {}


async def test_an_idle_chat_is_flushed_and_marked_clean(harness: DurabilityHarness) -> None:
    node = harness.node()
    await node.stored(draft(1))
    assert harness.counter().dirty_at_ms is not None
    assert harness.counter().published_through == 0
    await asyncio.sleep(limits.PIPELINE_IDLE_S + 0.1)
    counter = harness.counter()
    assert (counter.published_through, counter.published_message, counter.dirty_at_ms) == (1, 1, None)


async def test_a_busy_chat_is_not_flushed_but_its_allocations_carry_the_mark(harness: DurabilityHarness) -> None:
    node = harness.node()
    for number in range(5):
        await node.stored(draft(number))
        await asyncio.sleep(limits.PIPELINE_IDLE_S / 2)
    assert node.wire.count("flush") == 0
    assert harness.counter().published_through == 4


async def test_a_chat_with_something_unpublished_stays_dirty(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.events_wire.on("append", UNAVAILABLE)
    await node.failed(draft(1))
    await asyncio.sleep(2 * limits.PIPELINE_IDLE_S)
    assert node.wire.count("flush") == 1
    assert harness.counter().dirty_at_ms is not None


async def test_a_failed_flush_leaves_the_chat_dirty_for_the_reconciler(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.on("flush", UNAVAILABLE)
    await node.stored(draft(1))
    await asyncio.sleep(2 * limits.PIPELINE_IDLE_S)
    assert harness.counter().dirty_at_ms is not None
    assert (await node.stored(draft(2))).prev_sequence == 1


async def test_a_draft_that_arrives_during_the_flush_is_stored_by_the_same_pipeline(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.on("flush", CallOutcome(response_s=0.5))
    await node.stored(draft(1))
    await asyncio.sleep(limits.PIPELINE_IDLE_S + 0.2)
    assert node.wire.calls[-1] == "flush"
    assert (await node.stored(draft(2))).sequence == 2
    assert harness.loop.time() > limits.PIPELINE_IDLE_S + 0.5


async def test_a_second_owner_costs_only_duplicates(harness: DurabilityHarness) -> None:
    """A wrong owner is safe: both pipelines take turns on one chat, and everything is out once, in order."""
    one, other = harness.node("ingest-1"), harness.node("ingest-2")
    answers: list[asyncio.Future[Outcome]] = []
    for number in range(40):
        answers.append((one, other)[number % 2].submit(draft(number)))
        await asyncio.sleep(0.003)
    for answer in answers:
        assert isinstance(await answer, Receipt)
    assert sorted(harness.contents()) == sorted(f"text {number}" for number in range(40))
    assert harness.first_published() == [message.sequence for message in harness.messages()]

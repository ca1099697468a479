"""What an owner left unpublished is settled by another process, and settling twice at once costs only duplicates."""

import asyncio

from seriatim.domain import limits
from seriatim.domain.circuit_breaker import BreakerState
from seriatim.domain.errors import BreakerOpen
from seriatim.domain.message import Receipt
from tests.support.durability_harness import CHAT, DurabilityHarness, Node, draft
from tests.support.scripted_wire import LOST_REQUEST, UNAVAILABLE, CallOutcome

SETTLED_AFTER_S = limits.RECONCILE_AFTER_S + 2 * limits.RECONCILE_EVERY_S


async def test_a_stored_message_goes_out_without_its_sender_or_its_process(harness: DurabilityHarness) -> None:
    await _crash_before_publishing(harness)
    other = harness.node("ingest-2")
    reconciling = other.start_reconciler()
    await asyncio.sleep(SETTLED_AFTER_S)
    assert harness.published() == [1]
    assert other.recorded.settled == [CHAT]
    assert other.recorded.republications == 1
    assert (harness.counter().published_through, harness.counter().dirty_at_ms) == (1, None)
    assert not reconciling.done()


async def test_a_chat_is_left_alone_until_it_was_dirty_for_long(harness: DurabilityHarness) -> None:
    await _crash_before_publishing(harness)
    other = harness.node("ingest-2")
    await other.ingest.reconciler.sweep()
    assert (harness.published(), other.wire.calls) == ([], ["dirty"])


async def test_holes_at_the_end_are_closed_and_the_chat_becomes_clean(harness: DurabilityHarness) -> None:
    harness.put_message(1)
    harness.put_message(3)
    harness.set_counter(CHAT, 5, published=0)
    await asyncio.sleep(limits.RECONCILE_AFTER_S + 0.1)
    await harness.node().ingest.reconciler.sweep()
    assert harness.tombstones() == [2, 4, 5]
    assert harness.published() == [1, 3]
    counter = harness.counter()
    assert (counter.published_through, counter.published_message, counter.dirty_at_ms) == (5, 3, None)


async def test_a_chat_with_only_an_abandoned_allocation_becomes_clean(harness: DurabilityHarness) -> None:
    harness.given_messages(2)
    harness.set_counter(CHAT, 3, published=2)
    node = harness.node()
    settled = await node.ingest.reconciler.settle(CHAT, node.deadline())
    assert settled
    assert (harness.tombstones(), harness.published(), harness.counter().published_message) == ([3], [], 2)


async def test_several_reconcilers_at_once_keep_the_order(harness: DurabilityHarness) -> None:
    for sequence in range(1, 31):
        if sequence % 7:
            harness.put_message(sequence)
    harness.set_counter(CHAT, 30, published=0)
    nodes = [harness.node(f"ingest-{number}") for number in range(3)]
    nodes[0].events_wire.on("append", UNAVAILABLE)
    nodes[1].events_wire.on("append", CallOutcome(response_s=0.5))
    reconciling = [node.start_reconciler() for node in nodes]
    await asyncio.sleep(2 * SETTLED_AFTER_S)
    assert harness.first_published() == [message.sequence for message in harness.messages()]
    assert harness.tombstones() == [7, 14, 21, 28]
    assert harness.counter().dirty_at_ms is None
    assert not any(task.done() for task in reconciling)


async def test_a_chat_in_use_here_is_left_to_its_pipeline(harness: DurabilityHarness) -> None:
    node = harness.node()
    harness.put_message(1)
    harness.set_counter(CHAT, 1, published=0)
    await asyncio.sleep(limits.RECONCILE_AFTER_S + 0.1)
    node.wire.on("lookup", CallOutcome(response_s=0.5))
    answer = node.submit(draft(1))
    await asyncio.sleep(0.01)
    await node.ingest.reconciler.sweep()
    assert node.wire.calls == ["lookup", "dirty"]
    assert isinstance(await answer, Receipt)
    assert harness.published() == [1, 2]


async def test_a_chat_in_use_elsewhere_may_be_settled_too(harness: DurabilityHarness) -> None:
    owner, other = harness.node("ingest-1"), harness.node("ingest-2")
    reconciling = other.start_reconciler()
    for number in range(40):
        await owner.stored(draft(number))
        await asyncio.sleep(0.5)
    assert harness.contents() == [f"text {number}" for number in range(40)]
    assert harness.first_published() == list(range(1, 41))
    assert not reconciling.done()


async def test_a_chat_whose_counter_is_missing_is_reported_and_the_others_are_settled(
    harness: DurabilityHarness,
) -> None:
    harness.add_chat("chat_2")
    for chat_id in (CHAT, "chat_2"):
        harness.put_message(1, chat_id=chat_id)
        harness.set_counter(chat_id, 1, published=0)
    await asyncio.sleep(limits.RECONCILE_AFTER_S + 0.1)
    del harness.store.counters[CHAT]  # and the index does not know yet
    node = harness.node()
    await node.ingest.reconciler.sweep()
    assert (node.recorded.missing_counters, node.recorded.settled) == ([CHAT], ["chat_2"])
    assert harness.published("chat_2") == [1]


async def test_one_chat_that_cannot_be_settled_does_not_hold_up_the_others(harness: DurabilityHarness) -> None:
    harness.add_chat("chat_2")
    for chat_id in (CHAT, "chat_2"):
        harness.put_message(1, chat_id=chat_id)
        harness.set_counter(chat_id, 1, published=0)
    await asyncio.sleep(limits.RECONCILE_AFTER_S + 0.1)
    node = harness.node()
    node.events_wire.on("append", UNAVAILABLE)
    await node.ingest.reconciler.sweep()
    assert sorted([*harness.published(), *harness.published("chat_2")]) == [1]
    await node.ingest.reconciler.sweep()
    assert (harness.published(), harness.published("chat_2")) == ([1], [1])


async def test_a_failing_index_is_asked_again(harness: DurabilityHarness) -> None:
    await _crash_before_publishing(harness)
    other = harness.node("ingest-2")
    other.wire.on("dirty", UNAVAILABLE, LOST_REQUEST, UNAVAILABLE)
    reconciling = other.start_reconciler()
    await asyncio.sleep(2 * SETTLED_AFTER_S)
    assert harness.published() == [1]
    assert not reconciling.done()


async def test_a_chat_that_grows_while_it_is_settled_stays_dirty(harness: DurabilityHarness) -> None:
    harness.put_message(1)
    harness.set_counter(CHAT, 1, published=0)
    node = harness.node()

    def another_owner_allocates() -> None:
        harness.set_counter(CHAT, 2, published=0)

    node.events_wire.on("append", CallOutcome(before=another_owner_allocates))
    assert not await node.ingest.reconciler.settle(CHAT, node.deadline())
    assert harness.counter().dirty_at_ms is not None
    assert node.recorded.settled == []


async def test_an_idle_reconciler_never_keeps_senders_out_after_an_outage(harness: DurabilityHarness) -> None:
    """Its sweep finds nothing to publish, so it proves nothing about the event log: the probe is for others to use."""
    node = harness.node()
    node.events_wire.always("append", UNAVAILABLE)
    for number in range(limits.BREAKER_FAILURES_MAX):
        await node.failed(draft(number))
    assert isinstance(await node.failed(draft(99)), BreakerOpen)
    node.events_wire.heal()
    other = harness.node("ingest-2")
    await asyncio.sleep(2 * limits.PIPELINE_IDLE_S)
    assert await other.ingest.reconciler.settle(CHAT, other.deadline())  # there is nothing left to do for our node
    reconciling = node.start_reconciler()
    await asyncio.sleep(limits.BREAKER_OPEN_S)
    assert harness.counter().dirty_at_ms is None
    assert node.ingest.reconciler._breaker.state(node.clock.monotonic()) is BreakerState.HALF_OPEN
    assert (await node.stored(draft(100))).sequence == 6
    assert not reconciling.done()


async def test_a_sweep_that_only_closed_holes_gives_its_probe_back(harness: DurabilityHarness) -> None:
    harness.add_chat("chat_2")
    node = harness.node()
    node.events_wire.always("append", UNAVAILABLE)
    for number in range(limits.BREAKER_FAILURES_MAX):
        await node.failed(draft(number))
    node.events_wire.heal()
    await asyncio.sleep(2 * limits.PIPELINE_IDLE_S)
    other = harness.node("ingest-2")
    assert await other.ingest.reconciler.settle(CHAT, other.deadline())
    harness.set_counter("chat_2", 1, published=0)  # allocated and never filled
    await asyncio.sleep(limits.BREAKER_OPEN_S)
    await node.ingest.reconciler.sweep()
    assert node.recorded.settled == ["chat_2"]
    assert isinstance(await node.send(draft(100)), Receipt)


async def test_busy_chats_do_not_hide_an_abandoned_one(harness: DurabilityHarness) -> None:
    """A chat that is published as it goes is dirty since a moment ago, however long it has been busy."""
    busy = [f"chat_busy{number}" for number in range(limits.RECONCILE_CHATS_MAX)]
    for chat_id in busy:
        harness.add_chat(chat_id)
    node = harness.node()
    for chat_id in busy:
        await node.stored(draft(1, chat_id=chat_id))
    await _crash_before_publishing(harness)
    other = harness.node("ingest-3")
    for number in range(2, 14):
        for chat_id in busy:
            await node.stored(draft(number, chat_id=chat_id))
        await asyncio.sleep(1)
        await other.ingest.reconciler.sweep()
    assert other.recorded.settled == [CHAT], "only the abandoned one, and it was found"


async def test_a_long_backlog_is_settled_over_several_sweeps(harness: DurabilityHarness) -> None:
    count = 12 * limits.PUBLISH_EVENTS_MAX
    for sequence in range(1, count + 1):
        harness.put_message(sequence)
    harness.set_counter(CHAT, count, published=0)
    node = harness.node()
    node.events_wire.always("append", CallOutcome(request_s=1.0))
    await asyncio.sleep(limits.RECONCILE_AFTER_S + 0.1)
    for _ in range(2):
        await node.ingest.reconciler.sweep()
    assert harness.first_published() == list(range(1, count + 1))
    assert harness.counter().dirty_at_ms is None


async def _crash_before_publishing(harness: DurabilityHarness) -> Node:
    doomed = harness.node("ingest-1")
    doomed.events_wire.on("append", LOST_REQUEST)
    unanswered = doomed.submit(draft(1))
    await asyncio.sleep(0.1)
    doomed.crash()
    assert not unanswered.done()
    assert (harness.contents(), harness.published()) == (["text 1"], [])
    return doomed

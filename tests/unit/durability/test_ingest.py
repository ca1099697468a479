"""Ingest: what is admitted, when its breakers are open, and how it drains."""

import asyncio

from seriatim.domain import limits
from seriatim.domain.circuit_breaker import BreakerState
from seriatim.domain.errors import (
    BreakerOpen,
    Draining,
    NotAMember,
    ServerBusy,
    ServiceUnavailable,
)
from seriatim.domain.message import Receipt
from tests.support.durability_harness import CHAT, EVE, DurabilityHarness, draft
from tests.support.scripted_wire import LOST_REQUEST, UNAVAILABLE


async def test_a_failing_event_log_opens_its_breaker_before_more_piles_up_unpublished(
    harness: DurabilityHarness,
) -> None:
    harness.add_chat("chat_2")
    node = harness.node()
    node.events_wire.always("append", UNAVAILABLE)
    for number in range(limits.BREAKER_FAILURES_MAX):
        assert isinstance(await node.failed(draft(number)), ServiceUnavailable)
    asked = len(node.wire.calls)
    for chat_id in (CHAT, "chat_2"):
        error = await node.failed(draft(99, chat_id=chat_id))
        assert isinstance(error, BreakerOpen)
        assert error.retry_after_seconds is not None
        assert 0 < error.retry_after_seconds <= limits.BREAKER_OPEN_S
    assert len(node.wire.calls) == asked


async def test_once_the_event_log_works_again_one_probe_closes_the_breaker(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.events_wire.always("append", UNAVAILABLE)
    for number in range(limits.BREAKER_FAILURES_MAX):
        await node.failed(draft(number))
    node.events_wire.heal()
    await asyncio.sleep(limits.BREAKER_OPEN_S)
    assert isinstance(await node.submit(draft(98)), Receipt)
    assert (await node.stored(draft(99))).sequence == limits.BREAKER_FAILURES_MAX + 2
    assert harness.first_published() == list(range(1, limits.BREAKER_FAILURES_MAX + 3))


async def test_an_outsider_cannot_keep_the_breaker_open(harness: DurabilityHarness) -> None:
    """Only what reaches the event log says how the event log is."""
    node = harness.node()
    node.events_wire.always("append", UNAVAILABLE)
    for number in range(limits.BREAKER_FAILURES_MAX):
        await node.failed(draft(number))
    node.events_wire.heal()
    await asyncio.sleep(limits.BREAKER_OPEN_S)
    assert isinstance(await node.failed(draft(97, sender_id=EVE)), NotAMember)
    assert isinstance(await node.submit(draft(98)), Receipt)


async def test_refusals_of_single_requests_do_not_open_the_breaker(harness: DurabilityHarness) -> None:
    node = harness.node()
    for number in range(3 * limits.BREAKER_FAILURES_MAX):
        assert isinstance(await node.failed(draft(number, sender_id=EVE)), NotAMember)
    assert (await node.stored(draft(99))).sequence == 1


async def test_a_failing_store_opens_its_own_breaker_and_not_the_one_of_the_event_log(
    harness: DurabilityHarness,
) -> None:
    harness.add_chat("chat_2")
    for number, operation in enumerate(("lookup", "allocate", "persist")):
        node = harness.node(f"ingest-{number}")
        node.wire.always(operation, UNAVAILABLE)
        for each in range(limits.BREAKER_FAILURES_MAX):
            chat_id = ("chat_2", CHAT)[each % 2]
            assert not isinstance(await node.failed(draft(100 * number + each, chat_id=chat_id)), BreakerOpen)
        assert (node.ingest.store_breaker, node.ingest.breaker) == (BreakerState.OPEN, BreakerState.CLOSED)
        asked = len(node.wire.calls)
        error = await node.failed(draft(99))
        assert isinstance(error, BreakerOpen)
        assert error.retry_after_seconds is not None
        assert 0 < error.retry_after_seconds <= limits.BREAKER_OPEN_S
        assert len(node.wire.calls) == asked


async def test_once_the_store_works_again_one_send_closes_its_breaker_and_an_outsider_cannot_keep_it_open(
    harness: DurabilityHarness,
) -> None:
    harness.add_chat("chat_2")
    node = harness.node()
    node.wire.always("lookup", UNAVAILABLE)
    for number in range(limits.BREAKER_FAILURES_MAX):
        await node.failed(draft(number, chat_id=("chat_2", CHAT)[number % 2]))
    await asyncio.sleep(limits.BREAKER_OPEN_S)
    asked = node.wire.count("lookup")
    _, refused = await asyncio.gather(node.failed(draft(90)), node.failed(draft(91, chat_id="chat_2")))
    assert isinstance(refused, BreakerOpen)
    assert refused.retry_after_seconds == limits.BREAKER_PROBE_RETRY_S, "a probe is decided soon"
    assert node.wire.count("lookup") == asked + 1, "one probe, not two"
    node.wire.heal()
    await asyncio.sleep(limits.BREAKER_OPEN_S)
    assert isinstance(await node.failed(draft(97, sender_id=EVE)), NotAMember)
    assert node.ingest.store_breaker.value == "half_open", "only a write proves that the store can write"
    assert isinstance(await node.submit(draft(98)), Receipt)
    assert node.ingest.store_breaker.value == "closed"


async def test_a_probe_that_finds_a_full_queue_is_given_back(harness: DurabilityHarness) -> None:
    """Otherwise no draft could try the event log for the length of a probe."""
    harness.add_chat("chat_2")
    node = harness.node()
    node.wire.on("persist", LOST_REQUEST)
    node.wire.always("seal", LOST_REQUEST)
    stuck = [node.submit(draft(0), within_s=60.0)]
    await asyncio.sleep(0.001)
    stuck += [node.submit(draft(number), within_s=60.0) for number in range(1, limits.CHAT_QUEUE_DRAFTS_MAX + 1)]
    await asyncio.sleep(0.1)
    node.events_wire.always("append", UNAVAILABLE)
    for number in range(limits.BREAKER_FAILURES_MAX):
        await node.failed(draft(number, chat_id="chat_2"))
    node.events_wire.heal()
    await asyncio.sleep(limits.BREAKER_OPEN_S)
    assert isinstance(await node.failed(draft(9999)), ServerBusy)
    assert isinstance(await node.send(draft(9999, chat_id="chat_2")), Receipt)
    await asyncio.gather(*stuck)


async def test_too_many_active_chats_are_server_busy_but_active_ones_go_on(harness: DurabilityHarness) -> None:
    harness.add_chat("chat_2")
    node = harness.node()
    await node.stored(draft(1))
    most, limits.PIPELINES_MAX = limits.PIPELINES_MAX, 1
    try:
        assert isinstance(await node.failed(draft(2, chat_id="chat_2")), ServerBusy)
        assert (await node.stored(draft(3))).sequence == 2
        await asyncio.sleep(limits.PIPELINE_IDLE_S + 0.1)
        assert (await node.stored(draft(2, chat_id="chat_2"))).sequence == 1
    finally:
        limits.PIPELINES_MAX = most


async def test_an_idle_pipeline_is_dropped(harness: DurabilityHarness) -> None:
    node = harness.node()
    await node.stored(draft(1))
    assert list(node.ingest._pipelines) == [CHAT]
    await asyncio.sleep(limits.PIPELINE_IDLE_S + 0.1)
    assert (node.ingest._pipelines, node.ingest._tasks) == ({}, {})


async def test_draining_finishes_what_was_admitted_and_takes_nothing_new(harness: DurabilityHarness) -> None:
    harness.add_chat("chat_2")
    node = harness.node()
    answers = [node.submit(draft(number)) for number in range(60)]
    answers.append(node.submit(draft(1, chat_id="chat_2")))
    drained = asyncio.ensure_future(node.ingest.drain())
    await asyncio.sleep(0.001)
    assert isinstance(await node.failed(draft(99)), Draining)
    for answer in answers:
        assert isinstance(await answer, Receipt)
    await drained
    assert node.ingest._tasks == {}
    for chat_id, count in ((CHAT, 60), ("chat_2", 1)):
        counter = harness.counter(chat_id)
        assert (counter.published_through, counter.dirty_at_ms) == (count, None)


async def test_draining_an_idle_process_returns_at_once(harness: DurabilityHarness) -> None:
    node = harness.node()
    await node.ingest.drain()
    assert harness.loop.time() == 0


async def test_what_one_owner_leaves_the_next_one_continues(harness: DurabilityHarness) -> None:
    first, second = harness.node("ingest-1"), harness.node("ingest-2")
    for number in range(3):
        await first.stored(draft(number))
    await first.ingest.drain()
    receipt = await second.stored(draft(10))
    assert (receipt.sequence, receipt.prev_sequence) == (4, 3)
    assert harness.published() == [1, 2, 3, 4]

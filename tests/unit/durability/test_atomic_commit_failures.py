"""Atomic commits that fail: deadlines, failing transactions, a failing store and its breaker, and the drain."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from seriatim.domain import limits
from seriatim.domain.errors import (
    BreakerOpen,
    Draining,
    InternalError,
    NotAMember,
    OutcomeUnknown,
    SeriatimError,
    ServerBusy,
    ServiceUnavailable,
)
from seriatim.domain.message import Receipt
from seriatim.ports.event_log import Event
from seriatim.ports.message_log import Entry, Key
from seriatim.simulation.stores import atomic_store
from seriatim.simulation.stores.atomic_store import MemoryAtomicTransaction
from seriatim.simulation.stores.event_log import MemoryBroker
from tests.support.durability_harness import CHAT, EVE, DurabilityHarness, Node, draft
from tests.support.scripted_wire import LOST_REQUEST, THROTTLED, UNAVAILABLE, CallOutcome, late

OTHER = "chat_2"
DAYS_S = 86_400.0


def atomic_node(harness: DurabilityHarness) -> Node:
    harness.add_chat(OTHER)
    return harness.node(atomic_store=True)


# --- time -------------------------------------------------------------------------------------------------------------


async def test_a_draft_with_less_time_than_the_others_is_answered_in_its_own(harness: DurabilityHarness) -> None:
    node = atomic_node(harness)
    node.wire.on("transaction", late(2.0))
    patient, hasty = node.submit(draft(1), within_s=5.0), node.submit(draft(2), within_s=1.0)
    assert isinstance(await hasty, OutcomeUnknown)
    assert not patient.done()
    assert isinstance(await patient, Receipt)
    assert harness.contents() == ["text 1"]


async def test_a_draft_that_was_answered_before_the_others_is_not_answered_or_counted_again(
    harness: DurabilityHarness,
) -> None:
    node = atomic_node(harness)
    node.wire.on("transaction", CallOutcome(response_s=2.0))
    patient, hasty = node.submit(draft(1), within_s=5.0), node.submit(draft(2), within_s=1.0)
    assert isinstance(await hasty, OutcomeUnknown)
    assert isinstance(await patient, Receipt)
    assert node.recorded.counted["answered"] == 1
    assert (await node.stored(draft(2))).deduplicated


async def test_a_draft_whose_time_is_almost_up_when_the_batch_is_judged_is_not_stored(
    harness: DurabilityHarness,
) -> None:
    node = atomic_node(harness)
    node.wire.on("transaction", late(2.0))
    patient, hasty = node.submit(draft(1), within_s=5.0), node.submit(draft(2), within_s=2.1)
    assert isinstance(await hasty, ServerBusy)
    assert isinstance(await patient, Receipt)
    assert harness.contents() == ["text 1"]


async def test_drafts_without_time_are_refused_and_say_nothing_about_the_store(harness: DurabilityHarness) -> None:
    node = atomic_node(harness)
    for number in range(2 * limits.BREAKER_FAILURES_MAX):
        assert isinstance(await node.failed(draft(number), within_s=limits.ATTEMPT_ROOM_S / 2), ServiceUnavailable)
    assert node.wire.calls == []
    assert isinstance(await node.send(draft(99)), Receipt)


async def test_a_transaction_that_was_given_up_is_never_committed_and_the_next_one_begins(
    harness: DurabilityHarness,
) -> None:
    node = atomic_node(harness)
    node.wire.on("transaction", late(6.0), LOST_REQUEST)
    assert isinstance(await node.failed(draft(1)), OutcomeUnknown)
    assert isinstance(await node.failed(draft(2)), OutcomeUnknown)
    assert (harness.contents(), harness.counter().allocated) == ([], 0)
    assert (await node.stored(draft(3))).sequence == 1


async def test_too_many_that_wait_are_refused_and_the_rest_is_stored(harness: DurabilityHarness) -> None:
    node = atomic_node(harness)
    most, limits.COMMIT_BATCH_DRAFTS_MAX = limits.COMMIT_BATCH_DRAFTS_MAX, 2
    try:
        answers = [node.submit(draft(number)) for number in (1, 2, 3)]
    finally:
        limits.COMMIT_BATCH_DRAFTS_MAX = most
    assert [type(each) for each in await asyncio.gather(*answers)] == [Receipt, Receipt, ServerBusy]


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_when_a_transaction_fails_all_of_its_drafts_are_answered_and_none_is_stored(
    harness: DurabilityHarness,
) -> None:
    class Failing(MemoryAtomicTransaction):
        def add(self, entry: Entry, event: Event) -> None:
            if entry.message.content == "text 2":
                raise RuntimeError("a bug")
            super().add(entry, event)

    node = atomic_node(harness)
    with transactions_of(Failing):
        answers = await asyncio.gather(*(node.submit(draft(each)) for each in (1, 2, 3)))
    assert [type(each) for each in answers] == [InternalError] * 3
    assert [type(each) for each in node.recorded.failures] == [RuntimeError]
    assert (harness.contents(), harness.published(), harness.counter().allocated) == ([], [], 0)
    with transactions_of(Failing):
        for _ in range(limits.BREAKER_FAILURES_MAX):  # a bug in the code says nothing about the store
            assert isinstance(await node.failed(draft(2)), InternalError)
    assert (await node.stored(draft(1))).sequence == 1


async def test_when_a_transaction_fails_none_of_its_drafts_went_to_the_pipeline(harness: DurabilityHarness) -> None:
    class Unreadable(MemoryAtomicTransaction):
        def key(self, chat_id: str, client_message_id: str) -> Key | None:
            raise ServiceUnavailable("the data folder cannot be read")

    node = atomic_node(harness)
    harness.store.lose_counter(CHAT)
    with transactions_of(Unreadable):
        answers = await asyncio.gather(node.submit(draft(1)), node.submit(draft(2, chat_id=OTHER)))
    assert [type(each) for each in answers] == [ServiceUnavailable] * 2
    assert node.ingest.active_chats == []


async def test_no_draft_is_answered_while_the_batch_is_judged(harness: DurabilityHarness) -> None:
    """An answer callback may submit again: its draft must not overtake those of the batch that are not judged yet."""
    judging: list[bool] = []
    outcomes: list[tuple[bool, type[object]]] = []

    class Watched(MemoryAtomicTransaction):
        def expect(self, keys: Sequence[tuple[str, str]]) -> None:
            judging.append(True)

        def write(self, broker: MemoryBroker, now_ms: int) -> None:
            judging.clear()
            super().write(broker, now_ms)

    node = atomic_node(harness)
    harness.store.lose_counter(CHAT)
    node.wire.on("transaction", late(4.0))
    most, limits.PIPELINES_MAX = limits.PIPELINES_MAX, 0
    with transactions_of(Watched):
        for number, chat_id in enumerate((OTHER, CHAT)):
            node.ingest.submit(
                draft(number, chat_id=chat_id),
                deadline=node.clock.monotonic() + 4.1 + 0.5 * number,
                answer=lambda outcome: outcomes.append((bool(judging), type(outcome))),
            )
        await asyncio.sleep(5)
    limits.PIPELINES_MAX = most
    assert sorted(outcomes, key=str) == [(False, ServerBusy), (False, ServerBusy)]


@contextmanager
def transactions_of(kind: type[MemoryAtomicTransaction]) -> Iterator[None]:
    usual = atomic_store.MemoryAtomicTransaction
    setattr(atomic_store, "MemoryAtomicTransaction", kind)  # noqa: B010  (a type is no variable, says mypy)
    try:
        yield
    finally:
        setattr(atomic_store, "MemoryAtomicTransaction", usual)  # noqa: B010


async def test_an_answer_callback_may_submit_the_next_draft(harness: DurabilityHarness) -> None:
    node = atomic_node(harness)
    outcomes: list[Receipt | SeriatimError] = []

    def again(outcome: Receipt | SeriatimError) -> None:
        outcomes.append(outcome)
        if len(outcomes) < 3:
            deadline = node.clock.monotonic() + 5
            node.ingest.submit(draft(len(outcomes)), deadline=deadline, answer=again)

    node.process.run(lambda: node.ingest.submit(draft(0), deadline=node.clock.monotonic() + 5, answer=again))
    await asyncio.sleep(1)
    assert [each.sequence for each in outcomes if isinstance(each, Receipt)] == [1, 2, 3]


async def test_an_answer_callback_that_raises_costs_no_other_draft_its_answer(harness: DurabilityHarness) -> None:
    def raising(outcome: Receipt | SeriatimError) -> None:
        raise RuntimeError("the answer callback has a bug")

    node = atomic_node(harness)
    deadline = node.clock.monotonic() + 5
    node.process.run(lambda: node.ingest.submit(draft(1), deadline=deadline, answer=raising))
    assert (await node.stored(draft(2))).sequence == 2
    assert [type(each) for each in node.recorded.failures] == [RuntimeError]
    await node.ingest.drain()


# --- the breaker ------------------------------------------------------------------------------------------------------


async def _broken(node: Node) -> None:
    """Half of the transactions never begin, the other half begin and fail to commit."""
    for number in range(limits.BREAKER_FAILURES_MAX):
        if number % 2:
            node.wire.on("transaction", LOST_REQUEST)
        else:
            node.wire.cuts.append(0)
        assert isinstance(await node.failed(draft(number), within_s=1.0), OutcomeUnknown)


async def test_a_failing_store_opens_the_breaker_and_one_good_commit_closes_it(harness: DurabilityHarness) -> None:
    node = atomic_node(harness)
    await _broken(node)
    asked = len(node.wire.calls)
    assert isinstance(await node.failed(draft(1)), BreakerOpen)
    assert len(node.wire.calls) == asked
    await asyncio.sleep(limits.BREAKER_OPEN_S)
    assert isinstance(await node.send(draft(1)), Receipt)
    assert node.ingest.breaker.value == "closed"


async def test_b2_a_store_that_says_that_it_is_broken_or_cannot_be_read_is_asked_again(
    harness: DurabilityHarness,
) -> None:
    """It refuses at no cost, and mends sooner than a breaker would try again. What cannot be read may be one row."""

    class Unreadable(MemoryAtomicTransaction):
        def key(self, chat_id: str, client_message_id: str) -> Key | None:
            raise ServiceUnavailable("the data folder cannot be read")

    node = atomic_node(harness)
    node.wire.always("transaction", UNAVAILABLE)
    for number in range(2 * limits.BREAKER_FAILURES_MAX):
        assert type(await node.failed(draft(number))) is ServiceUnavailable
    node.wire.heal()
    assert isinstance(await node.send(draft(1)), Receipt)
    with transactions_of(Unreadable):
        for number in range(2 * limits.BREAKER_FAILURES_MAX):
            assert type(await node.failed(draft(number))) is ServiceUnavailable
    assert isinstance(await node.send(draft(2)), Receipt)


async def test_while_a_probe_is_out_no_other_transaction_begins(harness: DurabilityHarness) -> None:
    node = atomic_node(harness)
    await _broken(node)
    await asyncio.sleep(limits.BREAKER_OPEN_S)
    node.wire.on("transaction", CallOutcome(response_s=1.0))
    probe = node.submit(draft(1))
    await asyncio.sleep(0.1)
    assert isinstance(await node.failed(draft(2)), BreakerOpen)
    assert isinstance(await probe, Receipt)
    assert isinstance(await node.send(draft(2)), Receipt)


async def test_a_probe_that_wrote_nothing_proves_nothing_and_blocks_no_later_send(harness: DurabilityHarness) -> None:
    node = atomic_node(harness)
    await _broken(node)
    await asyncio.sleep(limits.BREAKER_OPEN_S)
    node.wire.on("transaction", THROTTLED)
    assert isinstance(await node.failed(draft(1)), ServiceUnavailable)
    assert isinstance(await node.failed(draft(1, sender_id=EVE)), NotAMember)
    assert node.ingest.breaker.value == "half_open"
    assert isinstance(await node.send(draft(1)), Receipt)
    assert node.ingest.breaker.value == "closed"


async def test_refusals_do_not_open_the_breaker(harness: DurabilityHarness) -> None:
    node = atomic_node(harness)
    node.wire.always("transaction", THROTTLED)
    for number in range(2 * limits.BREAKER_FAILURES_MAX):
        await node.failed(draft(number))
    node.wire.heal()
    for number in range(2 * limits.BREAKER_FAILURES_MAX):
        assert isinstance(await node.failed(draft(number, sender_id=EVE)), NotAMember)
    assert isinstance(await node.send(draft(99)), Receipt)


# --- leaving ----------------------------------------------------------------------------------------------------------


async def test_a_drain_finishes_what_was_admitted_by_pipeline_or_atomic_commit(harness: DurabilityHarness) -> None:
    node = atomic_node(harness)
    harness.put_message(1, age_s=9)
    harness.set_counter(CHAT, 1, published=0)
    node.wire.on("transaction", late(1.0))
    answers = [node.submit(draft(1)), node.submit(draft(2, chat_id=OTHER))]
    drained = [node.process.spawn(node.ingest.drain()) for _ in range(2)]
    await asyncio.sleep(0.5)
    assert isinstance(await node.failed(draft(3)), Draining)
    assert not any([each.done() for each in drained] + [each.done() for each in answers])
    await asyncio.gather(*drained)
    assert node.clock.monotonic() < 1.0 + limits.PIPELINE_IDLE_S
    assert [type(each) for each in await asyncio.gather(*answers)] == [Receipt, Receipt]
    assert node.ingest.active_chats == []
    assert harness.counter().dirty_at_ms is None

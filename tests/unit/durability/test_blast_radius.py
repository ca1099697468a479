"""H26: what fails in one chat, one call or one moment refuses no send of a chat that does not depend on it."""

import asyncio
from collections.abc import Sequence

import pytest

from seriatim.domain import limits
from seriatim.domain.circuit_breaker import BreakerState
from seriatim.domain.errors import InternalError, OutcomeUnknown, OutOfTime, ServerBusy, ServiceUnavailable
from seriatim.domain.message import Receipt
from seriatim.ports.message_log import Lookup
from seriatim.simulation.stores.message_log import MemoryMessageLog
from tests.support.durability_harness import CHAT, DurabilityHarness, Node, Outcome, draft
from tests.support.scripted_wire import LOST_REQUEST, CallOutcome
from tests.support.virtual_time import simulate

OTHER = "chat_2"
RESET = CallOutcome(refusal=OutcomeUnknown)
DRAFTS = 11


async def _in_one_call(node: Node) -> Sequence[asyncio.Future[Outcome]]:
    """So many drafts that share a lookup: the first is under way while they gather."""
    first = node.submit(draft(100))
    await asyncio.sleep(0.001)
    answers = [node.submit(draft(number)) for number in range(DRAFTS)]
    await first
    return answers


async def test_b2_one_reset_of_one_lookup_costs_no_draft(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.on("lookup", CallOutcome(response_s=0.01), RESET)
    for answer in await _in_one_call(node):
        assert isinstance(await answer, Receipt)


@pytest.mark.parametrize("operation", ["lookup", "allocate", "persist"])
def test_b2_a_call_that_fails_costs_its_own_drafts_and_no_others(operation: str) -> None:
    simulate(lambda harness: _costs_its_own_drafts(harness, operation))


async def _costs_its_own_drafts(harness: DurabilityHarness, operation: str) -> None:
    harness.add_chat(OTHER)
    node = harness.node()
    good = CallOutcome(response_s=0.01)
    node.wire.on(operation, good, *[RESET] * (1 + limits.READ_REPEATS_MAX if operation == "lookup" else 1))
    if operation == "persist":
        node.wire.always("seal", LOST_REQUEST)
    outcomes = [await each for each in await _in_one_call(node)]
    assert [isinstance(each, ServiceUnavailable) for each in outcomes] == [True] * DRAFTS
    node.wire.heal()
    assert isinstance(await node.send(draft(1, chat_id=OTHER)), Receipt)
    assert node.ingest.store_breaker is BreakerState.CLOSED


async def test_b2_calls_of_many_chats_that_one_event_fails_are_one_failure(harness: DurabilityHarness) -> None:
    node = harness.node()
    chats = [f"chat_{number}" for number in range(2, 2 + 4 * limits.BREAKER_FAILURES_MAX)]
    for chat_id in chats:
        harness.add_chat(chat_id)
    node.wire.always("allocate", RESET)
    answers = [node.submit(draft(1, chat_id=chat_id)) for chat_id in chats]
    assert [type(await answer) for answer in answers] == [OutcomeUnknown] * len(chats)
    node.wire.heal()
    for chat_id in chats:
        assert isinstance(await node.submit(draft(1, chat_id=chat_id)), Receipt)


async def test_b2_appends_of_many_chats_that_one_event_fails_are_one_failure(harness: DurabilityHarness) -> None:
    node = harness.node()
    chats = [f"chat_{number}" for number in range(2, 2 + 4 * limits.BREAKER_FAILURES_MAX)]
    for chat_id in chats:
        harness.add_chat(chat_id)
    node.events_wire.always("append", RESET)
    answers = [node.submit(draft(1, chat_id=chat_id)) for chat_id in chats]
    assert [type(await answer) for answer in answers] == [OutcomeUnknown] * len(chats)
    node.events_wire.heal()
    for chat_id in chats:
        assert isinstance(await node.submit(draft(1, chat_id=chat_id)), Receipt)


async def test_b2_an_overloaded_chat_runs_out_of_time_and_a_calm_one_is_stored(harness: DurabilityHarness) -> None:
    """Its store calls are slow, as when many write at once: what waits runs out of time, and nothing has failed."""
    harness.add_chat(OTHER)
    node = harness.node()
    slow_chat(node, CHAT, 0.9)
    answers = []
    for number in range(1500):
        answers.append(node.submit(draft(number)))
        await asyncio.sleep(0.01)
    outcomes = [await answer for answer in answers]
    refused = [each for each in outcomes if not isinstance(each, Receipt)]
    assert limits.BREAKER_FAILURES_MAX < len(refused) < len(outcomes)
    assert {type(each) for each in refused} <= {ServerBusy, OutOfTime}
    assert node.ingest.store_breaker is node.ingest.breaker is BreakerState.CLOSED
    assert isinstance(await node.submit(draft(1, chat_id=OTHER)), Receipt)


async def test_b2_a_queue_that_ran_out_of_time_is_server_busy_and_says_nothing_about_the_store(
    harness: DurabilityHarness,
) -> None:
    harness.add_chat(OTHER)
    node = harness.node()
    node.events_wire.on("append", CallOutcome(response_s=2.0))
    first = node.submit(draft(100), within_s=5.0)
    await asyncio.sleep(0.1)
    queued = [node.submit(draft(number), within_s=1.0) for number in range(2 * limits.BREAKER_FAILURES_MAX)]
    for answer in queued:
        outcome = await answer
        assert isinstance(outcome, ServerBusy)
        assert outcome.retry_after_seconds == 1
    assert isinstance(await first, Receipt)
    assert isinstance(await node.submit(draft(1, chat_id=OTHER)), Receipt)


async def test_b2_one_chat_alone_whose_calls_fail_does_not_open_the_breaker_for_another(
    harness: DurabilityHarness,
) -> None:
    """Its part of the store may be the only one that is bad. When another chat fails too, it is the store."""
    harness.add_chat(OTHER)
    node = harness.node()
    node.wire.always("persist", CallOutcome(refusal=ServiceUnavailable))
    for number in range(3 * limits.BREAKER_FAILURES_MAX):
        assert isinstance(await node.failed(draft(number)), ServiceUnavailable)
    assert node.ingest.store_breaker.value == "closed"
    await node.failed(draft(1, chat_id=OTHER))
    assert node.ingest.store_breaker.value == "open"


async def test_b2_a_row_that_cannot_be_read_halts_its_own_chat(harness: DurabilityHarness) -> None:
    harness.add_chat(OTHER)
    node = harness.node()
    unreadable(node, CHAT)
    for number in range(2 * limits.BREAKER_FAILURES_MAX):
        assert isinstance(await node.failed(draft(number)), InternalError)
        assert isinstance(await node.submit(draft(number, chat_id=OTHER)), Receipt)


def slow_chat(node: Node, chat_id: str, seconds: float) -> None:
    """Every store call of the send path of this chat takes so long; it ends by its time limit if that is less."""
    original = MemoryMessageLog.lookup

    async def lookup(
        self: MemoryMessageLog, chat: str, keys: Sequence[str], users: Sequence[str], *, timeout_s: float
    ) -> Lookup:
        if chat == chat_id:
            await asyncio.sleep(min(seconds, timeout_s))
            if timeout_s <= seconds:
                raise OutcomeUnknown("no answer in time")
        return await original(self, chat, keys, users, timeout_s=timeout_s)

    node.log.lookup = lookup.__get__(node.log)  # type: ignore[method-assign]


def unreadable(node: Node, chat_id: str) -> None:
    original = MemoryMessageLog.lookup

    async def lookup(
        self: MemoryMessageLog, chat: str, keys: Sequence[str], users: Sequence[str], *, timeout_s: float
    ) -> Lookup:
        if chat == chat_id:
            raise InternalError("a row of the store is not what this release writes")
        return await original(self, chat, keys, users, timeout_s=timeout_s)

    node.log.lookup = lookup.__get__(node.log)  # type: ignore[method-assign]

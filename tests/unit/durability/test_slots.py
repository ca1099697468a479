"""Allocate, then persist: order is kept, slots are filled once or closed, and nothing is guessed."""

from itertools import pairwise

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import Conflict, CounterMissing, NotAMember, SeriatimError, ServiceUnavailable
from seriatim.domain.message import Receipt
from seriatim.durability.slots import Outcome
from tests.support.durability_harness import ANN, BOB, CHAT, DurabilityHarness, Node, draft, drafts
from tests.support.scripted_wire import (
    APPLIED,
    CONFLICT,
    LOST_REQUEST,
    LOST_RESPONSE,
    THROTTLED,
    UNAVAILABLE,
    CallOutcome,
    late,
    with_before,
)
from tests.support.virtual_time import simulate


async def test_a_batch_costs_one_allocation_and_one_transaction(harness: DurabilityHarness) -> None:
    node = harness.node()
    outcomes = await _store(node, 1, 2, 3)
    assert _sequences(outcomes) == [1, 2, 3]
    assert node.wire.calls == ["allocate", "persist"]


async def test_a_slot_lost_to_a_tombstone_moves_everyone_up_in_order(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.on("persist", with_before(lambda: harness.put_tombstone(2)))
    outcomes = await _store(node, 1, 2, 3)
    assert _sequences(outcomes) == [1, 3, 4]
    assert harness.contents() == ["text 1", "text 2", "text 3"]
    assert node.recorded.collisions == []


async def test_a_slot_lost_to_a_message_is_a_page_for_the_operator(harness: DurabilityHarness) -> None:
    node = harness.node()

    def collide() -> None:
        harness.put_message(1, content="foreign")

    node.wire.on("persist", with_before(collide))
    outcomes = await _store(node, 1)
    assert _sequences(outcomes) == [2]
    assert harness.contents() == ["foreign", "text 1"]
    assert node.recorded.collisions == [1]


async def test_a_duplicate_in_the_middle_is_answered_and_its_neighbours_close_up(harness: DurabilityHarness) -> None:
    harness.given_messages(1)
    first = harness.messages()[0]
    node = harness.node()
    node.wire.on("persist", with_before(lambda: harness.put_key(draft(2), first)))
    outcomes = await _store(node, 1, 2, 3)
    assert _sequences(outcomes) == [2, 1, 3]
    assert isinstance(outcomes[1], Receipt)
    assert outcomes[1].deduplicated
    assert harness.contents()[1:] == ["text 1", "text 3"]
    assert harness.tombstones() == [4]


async def test_a_removed_sender_is_refused_and_the_others_are_stored(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.on("persist", with_before(lambda: harness.remove(BOB)))
    given = [*drafts(1), (draft(2, sender_id=BOB), ""), *drafts(3)]
    outcomes = await node.slot_writer(node.publisher()).store(given, node.deadline())
    assert isinstance(outcomes[1], NotAMember)
    assert _sequences([outcomes[0], outcomes[2]]) == [1, 2]
    assert harness.contents() == ["text 1", "text 3"]


async def test_unused_slots_are_closed_at_once_so_that_no_publisher_waits_for_them(harness: DurabilityHarness) -> None:
    node = harness.node()
    publisher = node.publisher()
    node.wire.on("persist", with_before(lambda: harness.remove(BOB)))
    given = [(draft(1, sender_id=BOB), ""), (draft(2, sender_id=BOB), ""), *drafts(3)]
    await node.slot_writer(publisher).store(given, node.deadline())
    assert harness.tombstones() == [2, 3]
    began = harness.loop.time()
    await publisher.advance(3, deadline=node.deadline())
    assert harness.loop.time() - began < 0.1
    assert "read" not in node.wire.calls


async def test_an_ambiguous_commit_that_happened_is_found_by_sealing(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.on("persist", LOST_RESPONSE)
    outcomes = await _store(node, 1, 2)
    assert _sequences(outcomes) == [1, 2]
    assert not any(isinstance(outcome, Receipt) and outcome.deduplicated for outcome in outcomes)
    assert (harness.contents(), harness.tombstones()) == (["text 1", "text 2"], [])
    assert node.wire.calls == ["allocate", "persist", "seal"]


async def test_an_ambiguous_commit_that_did_not_happen_never_will(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.on("persist", late(1.2))  # lands just after the owner has closed the slot
    outcomes = await _store(node, 1, 2)
    assert harness.contents() == ["text 1", "text 2"]
    assert _sequences(outcomes) == [2, 3]
    assert harness.tombstones() == [1]


async def test_an_ambiguous_seal_is_repeated_until_it_tells(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.on("persist", LOST_RESPONSE)
    node.wire.on("seal", LOST_REQUEST, THROTTLED, CONFLICT)
    outcomes = await _store(node, 1)
    assert _sequences(outcomes) == [1]
    assert node.wire.count("seal") == 4


@pytest.mark.parametrize("refusal", [THROTTLED, CONFLICT])
def test_a_store_that_refuses_the_seal_is_asked_again_only_after_a_pause(refusal: CallOutcome) -> None:
    async def schedule(harness: DurabilityHarness) -> None:
        node = harness.node()
        node.wire.on("persist", LOST_RESPONSE)
        node.wire.on("seal", *[refusal] * 4)
        assert _sequences(await _store(node, 1)) == [1]
        seals = [at for call, at in zip(node.wire.calls, node.wire.times, strict=True) if call == "seal"]
        assert [later - earlier >= limits.CONFLICT_BACKOFF_S for earlier, later in pairwise(seals)] == [True] * 4

    simulate(schedule)


async def test_an_ambiguous_commit_that_cannot_be_resolved_in_time_is_an_error_and_not_a_guess(
    harness: DurabilityHarness,
) -> None:
    node = harness.node()
    node.wire.on("persist", LOST_RESPONSE)
    node.wire.always("seal", LOST_REQUEST)
    outcomes = await _store(node, 1, 2)
    assert all(isinstance(outcome, ServiceUnavailable) for outcome in outcomes)
    assert harness.loop.time() <= limits.PERSIST_DEADLINE_S
    assert harness.contents() == ["text 1", "text 2"]  # stored nevertheless: a retry will hit


async def test_a_foreign_message_found_while_resolving_is_not_taken_for_the_own_one(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.on("persist", LOST_REQUEST)

    def collide() -> None:
        harness.put_message(1, content="foreign")

    node.wire.on("seal", with_before(collide))
    outcomes = await _store(node, 1)
    assert node.recorded.collisions == [1]
    assert _sequences(outcomes) == [2]


async def test_a_conflict_halves_the_group_and_keeps_the_order(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.on("persist", CONFLICT)
    outcomes = await _store(node, 1, 2, 3, 4, 5)
    assert _sequences(outcomes) == [1, 2, 3, 4, 5]
    assert node.wire.calls == ["allocate", "persist", "persist", "persist", "persist"]  # 5 refused, then 2, 2, 1
    assert node.recorded.refusals == ["conflict"]


async def test_a_store_that_keeps_refusing_is_an_error_after_bounded_tries(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.always("persist", THROTTLED)
    outcomes = await _store(node, 1, 2)
    assert all(isinstance(outcome, ServiceUnavailable) for outcome in outcomes)
    assert node.wire.count("persist") == limits.THROTTLE_RETRIES_MAX
    assert harness.contents() == []
    assert harness.tombstones() == [1, 2]


async def test_what_was_stored_before_a_failure_is_reported_as_stored(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.on("persist", CONFLICT, APPLIED, UNAVAILABLE)
    outcomes = await _store(node, 1, 2, 3, 4)
    assert _sequences(outcomes[:2]) == [1, 2]
    assert all(isinstance(outcome, ServiceUnavailable) for outcome in outcomes[2:])
    assert harness.contents() == ["text 1", "text 2"]
    assert harness.tombstones() == [3, 4]


async def test_slots_are_abandoned_when_their_lease_ends(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.on("allocate", CallOutcome(response_s=limits.STORE_TIMEOUT_S - 0.1))
    node.wire.on("persist", CallOutcome(refusal=Conflict), LOST_REQUEST)
    outcomes = await _store(node, 1, 2, 3, 4)
    assert node.wire.count("allocate") == 2
    assert harness.tombstones() == [1, 2, 3, 4]
    assert _sequences(outcomes) == [5, 6, 7, 8]


async def test_the_lease_counts_from_before_the_allocation(harness: DurabilityHarness) -> None:
    """The store may have allocated at the first moment of a slow call, and readers count from then."""
    node = harness.node()
    node.wire.on("allocate", CallOutcome(response_s=0.9))
    node.wire.on("persist", CallOutcome(response_s=0.7, before=lambda: harness.put_tombstone(1)))
    outcomes = await _store(node, 1, 2)
    assert node.wire.count("allocate") == 2
    assert _sequences(outcomes) == [3, 4]


async def test_slots_are_allocated_again_a_bounded_number_of_times(harness: DurabilityHarness) -> None:
    node = harness.node()

    def seal_everything() -> None:
        for sequence in range(1, harness.counter().allocated + 1):
            if sequence not in harness.slots():
                harness.put_tombstone(sequence)

    node.wire.always("persist", with_before(seal_everything))
    outcomes = await _store(node, 1)
    assert isinstance(outcomes[0], ServiceUnavailable)
    assert node.wire.count("allocate") == limits.ALLOCATIONS_MAX


async def test_an_ambiguous_allocation_is_never_repeated(harness: DurabilityHarness) -> None:
    for outcome in (LOST_RESPONSE, LOST_REQUEST):
        node = harness.node()
        node.wire.on("allocate", outcome)
        outcomes = await _store(node, 1)
        assert isinstance(outcomes[0], ServiceUnavailable)
        assert node.wire.calls == ["allocate"]
    assert harness.counter().allocated == 1


async def test_a_refused_allocation_is_repeated_since_it_was_not_applied(harness: DurabilityHarness) -> None:
    node = harness.node()
    node.wire.on("allocate", THROTTLED, CONFLICT)
    assert _sequences(await _store(node, 1)) == [1]
    assert node.recorded.refusals == ["throttled", "conflict"]


async def test_another_owners_mark_is_adopted_before_slots_are_taken(harness: DurabilityHarness) -> None:
    harness.given_messages(7)
    node = harness.node()
    publisher = node.publisher()
    outcomes = await node.slot_writer(publisher).store(drafts(1), node.deadline())
    assert _sequences(outcomes) == [8]
    assert (publisher.mark, publisher.last_message) == (7, 7)
    assert node.wire.calls == ["allocate", "allocate", "persist"]


async def test_a_missing_counter_stores_nothing_and_is_reported_once(harness: DurabilityHarness) -> None:
    harness.store.lose_counter(CHAT)
    node = harness.node()
    outcomes = await _store(node, 1, 2)
    assert all(isinstance(outcome, CounterMissing) for outcome in outcomes)
    assert node.recorded.missing_counters == [CHAT]
    assert harness.slots() == {}


async def test_times_of_one_process_never_run_backwards(harness: DurabilityHarness) -> None:
    node = harness.node()
    writer = node.slot_writer(node.publisher())
    await writer.store(drafts(1), node.deadline())
    node.clock.skew_s = -100.0
    await writer.store(drafts(2), node.deadline())
    first, second = harness.messages()
    assert second.created_at >= first.created_at


async def test_a_key_lives_for_its_lifetime_from_the_moment_of_storing(harness: DurabilityHarness) -> None:
    node = harness.node()
    await _store(node, 1)
    key = harness.store.keys[CHAT, draft(1).client_message_id]
    assert key.sender_id == ANN
    assert key.expires_at_s == -(-harness.now_ms() // 1000) + limits.KEY_LIFETIME_S


@pytest.mark.parametrize("broken_call", range(1, 7))
def test_wherever_the_answer_is_lost_every_message_is_stored_at_most_once_and_in_order(broken_call: int) -> None:
    async def schedule(harness: DurabilityHarness) -> None:
        node = harness.node()
        fates = [APPLIED] * (broken_call - 1) + [LOST_RESPONSE, CONFLICT, LOST_REQUEST]
        node.wire.on("persist", *fates)
        outcomes = await _store(node, 1, 2, 3, 4, 5, 6)
        stored = [outcome.sequence for outcome in outcomes if isinstance(outcome, Receipt)]
        assert stored == sorted(stored)
        assert harness.contents() == [f"text {number}" for number in range(1, len(harness.contents()) + 1)]

    simulate(schedule)


async def _store(node: Node, *numbers: int) -> list[Outcome]:
    return await node.slot_writer(node.publisher()).store(drafts(*numbers), node.deadline())


def _sequences(outcomes: list[Receipt | SeriatimError]) -> list[int]:
    sequences: list[int] = []
    for outcome in outcomes:
        assert isinstance(outcome, Receipt), repr(outcome)
        sequences.append(outcome.sequence)
    return sequences

"""One deadline rules every wait: which refusals are repeated, how often, and after which pauses (ADR-009)."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import Conflict, OutcomeUnknown, OutOfTime, SeriatimError, ServiceUnavailable, Throttled
from seriatim.durability.deadline import retry_refused
from tests.support.durability_harness import DurabilityHarness, Node
from tests.support.virtual_time import simulate


class Store:
    """Refuses with each of these errors in turn, and then answers. `times` is when it was asked."""

    def __init__(self, node: Node, refusals: Sequence[SeriatimError]) -> None:
        self.node = node
        self.times: list[float] = []
        self._refusals = list(refusals)

    async def call(self, room_s: float) -> str:
        self.times.append(self.node.clock.monotonic())
        if self._refusals:
            raise self._refusals.pop(0)
        return "answer"

    async def ask(self, within_s: float = 60.0) -> str:
        node = self.node
        return await retry_refused(self.call, deadline=node.deadline(within_s), clock=node.clock, observe=node.recorded)

    def pauses(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.times)]


@pytest.mark.parametrize(
    ("refusal", "pauses"),
    [(Throttled("slow"), [0.1, 0.2, 0.4]), (Conflict("both"), [0.05, 0.1, 0.2, 0.4, 0.5])],
)
def test_a_refused_call_is_repeated_after_pauses_that_double_up_to_their_bound(
    refusal: SeriatimError, pauses: list[float]
) -> None:
    async def schedule(harness: DurabilityHarness) -> None:
        store = Store(harness.node(), [refusal] * len(pauses))
        assert await store.ask() == "answer"
        for taken, full in zip(store.pauses(), pauses, strict=True):
            assert full / 2 <= taken <= full

    simulate(schedule)


@pytest.mark.parametrize(
    ("refusal", "tries"),
    [
        (Throttled("slow"), limits.THROTTLE_RETRIES_MAX + 1),
        (Conflict("both"), limits.CONFLICT_RETRIES_MAX + 1),
        (OutcomeUnknown("lost"), 1),
        (ServiceUnavailable("away"), 1),
    ],
)
def test_a_call_is_repeated_a_bounded_number_of_times_and_never_when_it_may_have_been_applied(
    refusal: SeriatimError, tries: int
) -> None:
    async def schedule(harness: DurabilityHarness) -> None:
        store = Store(harness.node(), [refusal] * 20)
        with pytest.raises(type(refusal)) as caught:
            await store.ask()
        assert (caught.value, len(store.times)) == (refusal, tries)

    simulate(schedule)


async def test_pauses_after_throttles_and_after_conflicts_grow_apart(harness: DurabilityHarness) -> None:
    store = Store(harness.node(), [Throttled("slow"), Conflict("both"), Throttled("slow"), Conflict("both")])
    assert await store.ask() == "answer"
    for taken, full in zip(store.pauses(), [0.1, 0.05, 0.2, 0.1], strict=True):
        assert full / 2 <= taken <= full


async def test_the_deadline_ends_the_repetitions_while_there_is_still_room_to_answer(
    harness: DurabilityHarness,
) -> None:
    store = Store(harness.node(), [Conflict("both")] * 20)
    with pytest.raises(ServiceUnavailable):
        await store.ask(within_s=limits.ATTEMPT_ROOM_S + 0.3)
    assert harness.loop.time() <= 0.3
    assert 2 <= len(store.times) <= limits.CONFLICT_RETRIES_MAX


async def test_a_call_may_take_what_the_deadline_leaves_and_never_more_than_its_bound(
    harness: DurabilityHarness,
) -> None:
    node = harness.node()
    assert node.deadline(60.0).room() == limits.STORE_TIMEOUT_S
    assert node.deadline(60.0).room(2.5) == 2.5
    assert node.deadline(limits.ATTEMPT_ROOM_S).room() == pytest.approx(limits.ATTEMPT_ROOM_S)
    with pytest.raises(ServiceUnavailable):
        node.deadline(limits.ATTEMPT_ROOM_S - 0.001).room()


async def test_no_pause_begins_that_would_leave_no_room_for_an_attempt(harness: DurabilityHarness) -> None:
    deadline = harness.node().deadline(1.0)
    with pytest.raises(ServiceUnavailable):
        await deadline.pause(1.0 - limits.ATTEMPT_ROOM_S + 0.001)
    assert harness.loop.time() == 0.0
    await deadline.pause(1.0 - limits.ATTEMPT_ROOM_S)
    assert harness.loop.time() == pytest.approx(1.0 - limits.ATTEMPT_ROOM_S)


@pytest.mark.parametrize("reads", [False, True])
async def test_a_call_that_the_deadline_cut_short_is_out_of_time_and_says_nothing_about_the_store(
    harness: DurabilityHarness, reads: bool
) -> None:
    node = harness.node()

    async def call(room_s: float) -> str:
        await asyncio.sleep(room_s)
        raise OutcomeUnknown("no answer")

    deadline = node.deadline(limits.STORE_TIMEOUT_S / 2)
    with pytest.raises(OutOfTime) as caught:
        await retry_refused(call, deadline=deadline, clock=node.clock, observe=node.recorded, reads=reads)
    assert isinstance(caught.value.__cause__, OutcomeUnknown)

"""A retry is recognised for the whole of the 7 days, to the millisecond, by whichever way its message was committed."""

import pytest

from seriatim.domain import limits
from seriatim.domain.times import milliseconds
from tests.support.durability_harness import DurabilityHarness, Node, draft
from tests.support.virtual_time import simulate

LATE_IN_A_SECOND_MS = 900  # when the message is committed: what floors to seconds loses the most
ROOM_MS = 50  # the steps of a send take some milliseconds of virtual time

both_ways = pytest.mark.parametrize("atomic_store", [False, True], ids=["pipeline", "atomic commit"])


@both_ways
def test_r3_a_retry_just_within_seven_days_is_not_stored_twice(atomic_store: bool) -> None:
    async def schedule(harness: DurabilityHarness) -> None:
        node = harness.node(atomic_store=atomic_store)
        set_clock(node, node.clock.now_ms() // 1000 * 1000 + LATE_IN_A_SECOND_MS)
        first = await node.stored(draft(1))
        end_ms = milliseconds(first.created_at) + 1000 * limits.KEY_LIFETIME_S
        set_clock(node, end_ms - ROOM_MS)
        again = await node.stored(draft(1))
        assert (again.deduplicated, again.sequence) == (True, 1)
        set_clock(node, end_ms + 1000)
        assert (await node.stored(draft(1))).sequence == 2, "a key ends within a second of its time"

    simulate(schedule)


def set_clock(node: Node, now_ms: int) -> None:
    node.clock.skew_s += (now_ms - node.clock.now_ms()) / 1000

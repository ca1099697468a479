"""Publishing by the prefix rule: first occurrences in order, whichever process publishes and whatever fails."""

import asyncio

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown, ServiceUnavailable
from seriatim.domain.message import Message
from seriatim.durability.publish import ChatPublisher, PublishItem
from seriatim.ports.event_log import MESSAGES
from tests.support.durability_harness import CHAT, DurabilityHarness, Node
from tests.support.scripted_wire import CONFLICT, LOST_REQUEST, LOST_RESPONSE, THROTTLED, UNAVAILABLE, CallOutcome
from tests.support.virtual_time import simulate


async def test_own_messages_go_out_in_order_without_being_read_back(harness: DurabilityHarness) -> None:
    node = harness.node()
    publisher = node.publisher()
    publisher.adopt(0, 0)
    for sequence in (2, 1, 3):
        _own(publisher, harness.put_message(sequence))
    predecessors = await publisher.advance(3, deadline=node.deadline())
    assert harness.published() == [1, 2, 3]
    assert predecessors == {1: 0, 2: 1, 3: 2}
    assert (publisher.mark, publisher.last_message) == (3, 3)
    assert node.wire.calls == []
    assert node.events_wire.count("append") == 1


async def test_what_another_owner_stored_below_is_read_back_and_goes_out_first(harness: DurabilityHarness) -> None:
    node = harness.node()
    publisher = node.publisher()
    publisher.adopt(0, 0)
    harness.put_message(1)
    harness.put_message(2)
    _own(publisher, harness.put_message(3), origin="conn_1")
    await publisher.advance(3, deadline=node.deadline())
    assert harness.published() == [1, 2, 3]
    assert [event.prev_sequence for event in harness.events()] == [0, 1, 2]


async def test_a_message_read_back_is_marked_as_republished_and_skips_no_connection(harness: DurabilityHarness) -> None:
    node = harness.node()
    publisher = node.publisher()
    harness.put_message(1)
    _own(publisher, harness.put_message(2), origin="conn_1")
    await publisher.advance(2, deadline=node.deadline())
    flags = [dict(record.headers).get("x-republish") for record in harness.broker.records(MESSAGES)]
    assert flags == [b"1", None]
    assert [event.origin_connection_id for event in harness.events()] == ["", "conn_1"]
    assert node.recorded.republications == 1


async def test_a_message_read_back_carries_a_membership_version_not_older_than_its_own(
    harness: DurabilityHarness,
) -> None:
    node = harness.node()
    harness.put_message(1)
    harness.remove("user_bob")
    await node.publisher().advance(1, deadline=node.deadline())
    assert [event.members_version for event in harness.events()] == [2]


async def test_tombstones_move_the_mark_without_an_event(harness: DurabilityHarness) -> None:
    node = harness.node()
    publisher = node.publisher()
    publisher.adopt(0, 0)
    harness.put_message(1)
    harness.put_tombstone(2)
    harness.put_message(3)
    harness.put_tombstone(4)
    await publisher.advance(4, deadline=node.deadline())
    assert harness.published() == [1, 3]
    assert [event.prev_sequence for event in harness.events()] == [0, 1]
    assert (publisher.mark, publisher.last_message) == (4, 3)


async def test_an_adopted_mark_brings_its_own_last_message(harness: DurabilityHarness) -> None:
    node = harness.node()
    publisher = node.publisher()
    publisher.adopt(0, 0)
    _own(publisher, harness.put_message(1))
    await publisher.advance(1, deadline=node.deadline())
    harness.put_message(2)
    harness.put_tombstone(3)
    publisher.adopt(3, 2)
    _own(publisher, harness.put_message(4))
    predecessors = await publisher.advance(4, deadline=node.deadline())
    assert predecessors == {4: 2}
    assert harness.events()[-1].prev_sequence == 2


async def test_after_adopting_a_mark_without_its_last_message_the_predecessor_is_unknown(
    harness: DurabilityHarness,
) -> None:
    node = harness.node()
    publisher = node.publisher()
    publisher.adopt(0, 0)
    _own(publisher, harness.put_message(1))
    await publisher.advance(1, deadline=node.deadline())
    harness.put_message(2)
    publisher.adopt(2, None)
    _own(publisher, harness.put_message(3))
    _own(publisher, harness.put_message(4))
    predecessors = await publisher.advance(4, deadline=node.deadline())
    assert predecessors == {3: None, 4: 3}
    assert [event.prev_sequence for event in harness.events()] == [0, None, 3]


async def test_an_older_mark_is_not_adopted(harness: DurabilityHarness) -> None:
    publisher = harness.node().publisher()
    publisher.adopt(5, 4)
    publisher.adopt(3, 3)
    assert (publisher.mark, publisher.last_message) == (5, 4)


async def test_the_same_mark_teaches_a_last_message_that_was_unknown_and_forgets_none(
    harness: DurabilityHarness,
) -> None:
    publisher = harness.node().publisher()
    publisher.adopt(5, None)
    publisher.adopt(5, 4)
    publisher.adopt(5, None)
    assert (publisher.mark, publisher.last_message) == (5, 4)


async def test_own_messages_below_an_adopted_mark_are_not_published_again(harness: DurabilityHarness) -> None:
    node = harness.node()
    publisher = node.publisher()
    for sequence in (1, 2, 3):
        _own(publisher, harness.put_message(sequence))
    publisher.adopt(2, 2)
    await publisher.advance(3, deadline=node.deadline())
    assert harness.published() == [3]


async def test_nothing_below_the_mark_is_kept(harness: DurabilityHarness) -> None:
    publisher = harness.node().publisher()
    _own(publisher, harness.put_message(1))
    publisher.adopt(2, 1)
    _own(publisher, harness.put_message(2))
    assert publisher._own == {}


async def test_a_failed_append_moves_nothing_and_its_repetition_keeps_the_order(harness: DurabilityHarness) -> None:
    node = harness.node()
    publisher = node.publisher()
    publisher.adopt(0, 0)
    for sequence in (1, 2, 3):
        _own(publisher, harness.put_message(sequence))
    node.events_wire.cuts.append(2)
    with pytest.raises(OutcomeUnknown):
        await publisher.advance(3, deadline=node.deadline())
    assert (publisher.mark, harness.published()) == (0, [1, 2])
    await publisher.advance(3, deadline=node.deadline())
    assert harness.published() == [1, 2, 1, 2, 3]
    assert [event.prev_sequence for event in harness.events()] == [0, 1, 0, 1, 2]
    ids = [event.envelope.event_id for event in harness.events()]
    assert ids[:2] == ids[2:4]


async def test_an_append_that_was_lost_on_the_way_back_is_repeated_from_its_beginning(
    harness: DurabilityHarness,
) -> None:
    node = harness.node()
    publisher = node.publisher()
    _own(publisher, harness.put_message(1))
    node.events_wire.on("append", LOST_RESPONSE)
    with pytest.raises(OutcomeUnknown):
        await publisher.advance(1, deadline=node.deadline())
    _own(publisher, harness.put_message(2))
    await publisher.advance(2, deadline=node.deadline())
    assert harness.published() == [1, 1, 2]


async def test_a_foreign_hole_is_waited_for(harness: DurabilityHarness) -> None:
    node = harness.node()
    publisher = node.publisher()
    _own(publisher, harness.put_message(2))
    harness.loop.call_later(1.0, lambda: harness.put_message(1), context=harness.loop.world.context)
    await publisher.advance(2, deadline=node.deadline())
    assert harness.published() == [1, 2]
    assert harness.tombstones() == []


@pytest.mark.parametrize("skew_s", [-3600.0, -1.0, 0.0, 1.0, 3600.0])
def test_a_foreign_hole_is_closed_in_time_whatever_the_wall_clocks_say(skew_s: float) -> None:
    async def schedule(harness: DurabilityHarness) -> None:
        node = harness.node(skew_s=skew_s)
        publisher = node.publisher()
        _own(publisher, harness.put_message(2))
        await publisher.advance(2, deadline=node.deadline())
        assert harness.published() == [2]
        assert harness.tombstones() == [1]
        assert harness.loop.time() <= limits.SEAL_AFTER_S + 2 * limits.HOLE_POLL_MAX_S

    simulate(schedule)


async def test_with_right_clocks_a_foreign_hole_stays_open_for_as_long_as_its_writer_may_need(
    harness: DurabilityHarness,
) -> None:
    node = harness.node()
    publisher = node.publisher()
    _own(publisher, harness.put_message(2))
    publishing = asyncio.ensure_future(publisher.advance(2, deadline=node.deadline()))
    await asyncio.sleep(limits.SEAL_AFTER_S - 0.01)
    assert harness.tombstones() == []
    await publishing


async def test_trailing_holes_up_to_the_target_are_closed_after_one_wait(harness: DurabilityHarness) -> None:
    node = harness.node()
    publisher = node.publisher()
    publisher.adopt(0, 0)
    harness.put_message(1)
    await publisher.advance(4, deadline=node.deadline(10))
    assert (publisher.mark, publisher.last_message, harness.tombstones()) == (4, 1, [2, 3, 4])
    assert harness.loop.time() < limits.SEAL_AFTER_S + 2 * limits.HOLE_POLL_MAX_S


@pytest.mark.parametrize("outcome", [CONFLICT, THROTTLED, LOST_REQUEST, LOST_RESPONSE])
def test_f1_a_publisher_whose_seal_is_refused_once_goes_on_within_its_deadline(outcome: CallOutcome) -> None:
    async def schedule(harness: DurabilityHarness) -> None:
        node = harness.node()
        publisher = node.publisher()
        publisher.adopt(0, 0)
        harness.put_message(1)
        node.wire.on("seal", outcome)
        await publisher.advance(2, deadline=node.deadline(10))
        assert (harness.published(), publisher.mark, harness.tombstones()) == ([1], 2, [2])

    simulate(schedule)


async def test_a_hole_that_outlasts_the_deadline_is_an_error_and_publishes_nothing_above(
    harness: DurabilityHarness,
) -> None:
    node = harness.node()
    publisher = node.publisher()
    _own(publisher, harness.put_message(2))
    with pytest.raises(ServiceUnavailable):
        await publisher.advance(2, deadline=node.deadline(1.0))
    assert harness.loop.time() <= 1.0
    assert harness.published() == []


async def test_a_long_backlog_goes_out_in_bounded_appends(harness: DurabilityHarness) -> None:
    node = harness.node()
    for sequence in range(1, 251):
        harness.put_message(sequence)
    await node.publisher().advance(250, deadline=node.deadline())
    assert harness.published() == list(range(1, 251))
    assert node.events_wire.count("append") == 3


async def test_a_large_batch_of_our_own_goes_out_in_bounded_appends(harness: DurabilityHarness) -> None:
    node = harness.node()
    publisher = node.publisher()
    for sequence in range(1, limits.PUBLISH_EVENTS_MAX + 2):
        _own(publisher, harness.put_message(sequence))
    await publisher.advance(limits.PUBLISH_EVENTS_MAX + 1, deadline=node.deadline())
    assert node.events_wire.count("append") == 2
    assert node.wire.calls == []


async def test_without_a_counter_nothing_is_read_back(harness: DurabilityHarness) -> None:
    node = harness.node()
    harness.put_message(1)
    harness.store.lose_counter(CHAT)
    with pytest.raises(ServiceUnavailable):
        await node.publisher().advance(1, deadline=node.deadline())
    assert harness.published() == []


async def test_two_publishers_at_once_keep_the_order_of_first_occurrences(harness: DurabilityHarness) -> None:
    nodes = [harness.node("ingest-1"), harness.node("ingest-2")]
    publishers = [node.publisher() for node in nodes]
    for sequence in range(1, 41):
        _own(publishers[sequence % 2], harness.put_message(sequence))
    nodes[0].events_wire.on("append", UNAVAILABLE, LOST_RESPONSE)
    await asyncio.gather(*(_stubborn(node, each, 40) for node, each in zip(nodes, publishers, strict=True)))
    assert harness.first_published() == list(range(1, 41))


async def _stubborn(node: Node, publisher: ChatPublisher, target: int) -> None:
    while publisher.mark < target:
        try:
            await publisher.advance(target, deadline=node.deadline())
        except ServiceUnavailable:
            await asyncio.sleep(0.01)


def _own(publisher: ChatPublisher, message: Message, *, origin: str = "") -> None:
    publisher.filled(PublishItem(slot=message, members_version=1, origin_connection_id=origin))

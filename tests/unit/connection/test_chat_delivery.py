"""Contiguous delivery on a connection: lost pushes, syncs, own messages, full buffers (H2, H9, H16, H17, H18, S26)."""

import asyncio

from seriatim.domain import limits
from seriatim.domain.errors import NotAMember, OutcomeUnknown
from seriatim.ports.push import MessageDelivery
from seriatim.protocol.frames import CloseReason, MessageAck, MessageFrame
from tests.unit.connection.fakes import CHAT, a_message, a_receipt
from tests.unit.connection.gateway_harness import GatewayHarness, a_send, a_sync, ask, turns


async def test_a_chat_never_synced_is_delivered_as_it_comes(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    harness.deliver(connection, 7, 6)
    harness.deliver(connection, 5, 4)
    await turns()
    assert socket.messages == [7, 5]


async def test_a_contiguous_push_leaves_at_once_with_its_predecessor(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1, 2])
    harness.deliver(connection, 4, 2)
    await turns()
    [push] = socket.frames
    assert isinstance(push, MessageFrame)
    assert (push.sequence, push.prev_sequence) == (4, 2)


async def test_a_push_of_what_was_sent_or_waits_to_be_is_counted_and_dropped(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1, 2])
    harness.deliver(connection, 3, 2)
    harness.deliver(connection, 5, 4)  # waits for 4
    assert harness.observed.repetitions == 0
    for repeated in (2, 3, 5):
        harness.deliver(connection, repeated, repeated - 1)
    harness.deliver(connection, 4, 3)
    await turns()
    assert socket.messages == [3, 4, 5]
    assert harness.observed.repetitions == 3


async def test_a_push_is_encoded_once_for_all_who_get_it(harness: GatewayHarness) -> None:
    one, first = await harness.connect("device_1")
    other, second = await harness.connect("device_2")
    envelope = MessageDelivery(
        connection_ids=(one.connection_id, other.connection_id), message=a_message(1), prev_sequence=None
    )
    harness.gateway.received([envelope])
    await turns()
    assert first.writes[0][0] is second.writes[0][0]


async def test_h2_a_lost_push_is_read_back_before_the_next_one_is_sent(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    harness.durability.chats[CHAT] = [1, 2]  # its push is lost
    harness.deliver(connection, 3, 2)
    await turns()
    assert socket.messages == []
    await asyncio.sleep(limits.GAP_WAIT_S + 0.01)
    assert socket.messages == [2, 3]


async def test_h2_a_push_that_is_only_late_costs_no_read(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    harness.durability.chats[CHAT] = [1, 2]
    harness.deliver(connection, 3, 2)
    await asyncio.sleep(limits.GAP_WAIT_S / 2)
    harness.deliver(connection, 2, 1)
    await asyncio.sleep(1)
    assert socket.messages == [2, 3]
    assert harness.durability.reads == []


async def test_h2_gaps_that_follow_each_other_and_close_by_themselves_cost_no_read(harness: GatewayHarness) -> None:
    """A chat in which many write: each push is a little late, and the next one is missing when it comes."""
    connection, socket = await harness.synced([1])
    harness.deliver(connection, 3, 2)
    for late in range(2, 22, 2):
        await asyncio.sleep(limits.GAP_WAIT_S * 0.7)
        harness.deliver(connection, late + 3, late + 2)
        harness.deliver(connection, late, late - 1)
    harness.deliver(connection, 22, 21)
    await asyncio.sleep(1)
    assert socket.messages == list(range(2, 24))
    assert harness.durability.reads == []


async def test_h2_a_fill_that_fails_is_tried_again_until_it_succeeds(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    harness.durability.failures = [OutcomeUnknown("away"), OutcomeUnknown("away"), OutcomeUnknown("away")]
    harness.deliver(connection, 3, None)
    await asyncio.sleep(10)
    assert socket.messages == [3]
    assert len(harness.durability.reads) == 4


async def test_h2_a_fill_that_meets_a_hole_waits_longer_each_time(harness: GatewayHarness) -> None:
    connection, _ = await harness.synced([1])
    harness.gateway.received(
        [MessageDelivery(connection_ids=(connection.connection_id,), message=a_message(3), prev_sequence=None)]
    )
    await asyncio.sleep(60)
    assert 10 < len(harness.durability.reads) < 25, "about one read every FILL_RETRY_MAX_S"


async def test_a_fill_longer_than_a_page_goes_on_to_the_end(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    harness.durability.chats[CHAT] = list(range(1, 251))
    harness.deliver(connection, 251, 250)
    await asyncio.sleep(1)
    assert socket.messages == list(range(2, 252))


async def test_a_user_who_may_not_read_any_more_is_not_filled(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    harness.durability.failures = [NotAMember("gone")]
    harness.deliver(connection, 3, None)
    await asyncio.sleep(10)
    assert socket.frames == []
    assert len(harness.durability.reads) == 1


async def test_a_member_who_was_removed_and_added_again_misses_nothing(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    harness.durability.failures = [NotAMember("gone")]
    harness.deliver(connection, 3, None)
    await asyncio.sleep(1)
    harness.durability.chats[CHAT] = [1, 2, 3, 4]
    harness.deliver(connection, 4, 3)
    await asyncio.sleep(1)
    assert socket.messages == [2, 3, 4], "the client never learned that it is not in step any more"


async def test_h9_a_lost_last_push_is_found_by_the_probe_within_a_minute(harness: GatewayHarness) -> None:
    _, socket = await harness.synced([1])
    harness.durability.chats[CHAT] = [1, 2]
    await asyncio.sleep(limits.PROBE_INTERVAL_MAX_S + 1)
    assert socket.messages == [2]


# --- own messages --------------------------------------------------------------------------------------------------


async def test_h18_an_own_ack_does_not_hide_a_message_that_was_not_sent(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    await ask(connection, a_send())
    harness.durability.chats[CHAT] = [1, 2, 3]  # 2 is another's and its push is lost
    harness.durability.answer(0, a_receipt(3, prev=2))
    await asyncio.sleep(1)
    assert [type(frame) for frame in socket.frames] == [MessageAck, MessageFrame]
    assert socket.messages == [2], "and no echo of the own one"


async def test_h18_the_push_after_an_own_message_needs_no_fill(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    await ask(connection, a_send())
    harness.durability.chats[CHAT] = [1, 2]
    harness.durability.answer(0, a_receipt(2, prev=1))
    harness.deliver(connection, 3, 2)
    await turns()
    assert socket.messages == [3]
    assert harness.durability.reads == []


# --- syncing -------------------------------------------------------------------------------------------------------


async def test_h16_a_live_push_does_not_overtake_the_sync_it_arrives_during(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    harness.durability.chats[CHAT] = [43, 44]
    harness.durability.gate.clear()
    await ask(connection, a_sync(42))
    harness.deliver(connection, 45, 44)
    await turns()
    assert socket.frames == []
    harness.durability.chats[CHAT] = [43, 44]  # the read had seen no more
    harness.durability.gate.set()
    await turns(8)
    assert [item.sequence for item in socket.batches[0].messages] == [43, 44]
    assert socket.messages == []
    harness.durability.chats[CHAT] = [43, 44, 45]
    await asyncio.sleep(1)
    assert socket.messages == [45]


async def test_h16_pushes_wait_until_the_client_has_read_all_pages(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    harness.durability.chats[CHAT] = list(range(1, 31))
    await ask(connection, a_sync(0, limit=20))
    harness.deliver(connection, 31, 30)
    await asyncio.sleep(1)
    assert socket.messages == []
    await ask(connection, a_sync(20, limit=20))
    assert [item.sequence for item in socket.batches[1].messages] == list(range(21, 32))
    harness.deliver(connection, 32, 31)
    await turns()
    assert socket.messages == [32]


async def test_a_failed_sync_is_answered_and_a_live_chat_stays_live(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    harness.durability.failures = [OutcomeUnknown("away")]
    await ask(connection, a_sync(0))
    assert socket.codes == ["SERVICE_UNAVAILABLE"]
    harness.deliver(connection, 2, 1)
    await turns()
    assert socket.messages == [2]


async def test_a_chat_whose_first_sync_failed_is_delivered_as_it_comes(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    harness.durability.failures = [NotAMember("no")]
    await ask(connection, a_sync(0))
    assert socket.codes == ["NOT_A_MEMBER"]
    assert socket.errors[0].chat_id == CHAT
    harness.deliver(connection, 9, 8)
    await turns()
    assert socket.messages == [9]


async def test_a_fill_refused_before_a_sync_succeeds_does_not_undo_the_sync(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    harness.durability.gate.clear()
    harness.deliver(connection, 3, None)
    await asyncio.sleep(1)
    await ask(connection, a_sync(1))
    harness.durability.failures = [NotAMember("not yet again")]  # for the fill, which asked first
    harness.durability.gate.set()
    await asyncio.sleep(1)
    assert len(socket.batches) == 1
    harness.durability.chats[CHAT] = [1, 3, 4]
    harness.deliver(connection, 5, 4)
    await asyncio.sleep(1)
    assert socket.messages == [4, 5], "still complete and in order"


# --- slow consumers ------------------------------------------------------------------------------------------------


async def push_many(harness: GatewayHarness, count: int) -> None:
    """Pushes 2.. to the one connection, which is LIVE at 1."""
    [connection] = harness.gateway.connections.values()
    for sequence in range(2, count + 2):
        harness.deliver(connection, sequence, sequence - 1)
    await turns()


async def test_s26_a_slow_consumer_is_warned_has_5_seconds_and_is_closed(harness: GatewayHarness) -> None:
    _, socket = await harness.synced([1])
    socket.room = False
    await push_many(harness, 810)
    assert harness.observed.high == [810]
    await push_many(harness, 960)
    await asyncio.sleep(4.9)
    assert socket.is_open
    await asyncio.sleep(0.2)
    assert socket.closed == (1008, "slow_consumer")
    assert harness.observed.ends == [CloseReason.SLOW_CONSUMER]
    [warning] = socket.errors
    assert (warning.code, warning.grace_period) == ("SLOW_CONSUMER", 5)
    assert warning.details == {"buffer_size": 960, "buffer_limit": 1000}
    assert [type(frame).__name__ for frame in socket.frames] == ["ErrorFrame", "ConnectionClosing"]


async def test_s26_the_closing_says_where_to_sync_from(harness: GatewayHarness) -> None:
    _, socket = await harness.synced([1])
    socket.room = False
    await push_many(harness, 960)
    await asyncio.sleep(6)
    assert socket.closing is not None
    assert socket.closing.sync_from_sequence == {CHAT: 1}


async def test_s26_a_consumer_that_drains_in_time_stays_and_the_warning_overtook_the_pushes(
    harness: GatewayHarness,
) -> None:
    connection, socket = await harness.synced([1])
    socket.room = False
    await push_many(harness, 960)
    await asyncio.sleep(4)
    socket.room = True
    connection.writable()
    await asyncio.sleep(10)
    assert socket.is_open
    assert socket.codes == ["SLOW_CONSUMER"]
    assert type(socket.frames[0]).__name__ == "ErrorFrame"
    assert socket.messages == list(range(2, 962))


async def test_h17_what_finds_no_room_is_read_back_after_the_buffer_drained(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    socket.room = False
    await push_many(harness, 1200)
    socket.room = True
    connection.writable()
    await asyncio.sleep(1)
    assert socket.messages == list(range(2, 1202))


async def test_h17_a_sync_that_fails_after_the_buffer_drained_leaves_nothing_owed(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    socket.room = False
    await push_many(harness, 1100)
    harness.durability.gate.clear()
    await ask(connection, a_sync(1))
    socket.room = True
    connection.writable()
    await turns()
    harness.durability.failures = [OutcomeUnknown("away")]
    harness.durability.gate.set()
    await asyncio.sleep(1)
    assert socket.codes == ["SLOW_CONSUMER", "SERVICE_UNAVAILABLE"]
    assert socket.messages == list(range(2, 1102))


async def test_h17_a_chat_never_synced_gets_what_found_no_room_too(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    socket.room = False
    await push_many(harness, 1000)
    harness.deliver(connection, 7, 6, "chat_b")
    harness.deliver(connection, 8, 7, "chat_b")
    socket.room = True
    connection.writable()
    await asyncio.sleep(1)
    late = [frame.sequence for frame in socket.frames if isinstance(frame, MessageFrame) and frame.chat_id == "chat_b"]
    assert late == [7, 8]
    harness.deliver(connection, 3, 2, "chat_b")
    await turns()
    assert socket.messages[-1] == 3, "and is delivered as it comes again"


async def test_h17_a_backlog_stays_in_the_bounded_buffer_and_not_in_the_socket(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    socket.room = False
    await push_many(harness, 900)
    socket.room = True
    written = socket.write

    def write_and_fill_up(frames: list[bytes]) -> None:
        written(frames)
        socket.room = False

    socket.write = write_and_fill_up  # type: ignore[assignment, method-assign]
    connection.writable()
    await turns()
    assert sum(len(frame) for frame in socket.writes[0]) < 2 * limits.FLUSH_BYTES_MAX
    assert len(socket.writes) == 1


async def test_fills_of_one_gateway_are_bounded(harness: GatewayHarness) -> None:
    connection, _ = await harness.connect()
    for number in range(60):
        harness.durability.chats[f"chat_{number}"] = [1]
        await ask(connection, a_sync(0, f"chat_{number}"))
    harness.durability.reads.clear()
    harness.durability.gate.clear()
    for number in range(60):
        harness.deliver(connection, 3, None, f"chat_{number}")
    await asyncio.sleep(1)
    assert len(harness.durability.reads) == limits.FILLS_IN_PROGRESS_MAX
    harness.durability.gate.set()
    await asyncio.sleep(1)
    assert len(harness.durability.reads) == 60

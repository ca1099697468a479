"""Sends, syncs and acks of a connection: order, limits, breaker, answers (H15, H25, S27, S28, S29, S30)."""

import asyncio

from seriatim.domain import limits
from seriatim.domain.errors import BreakerOpen, CounterMissing, NotAMember, OutcomeUnknown
from seriatim.protocol.codec import encode
from seriatim.protocol.frames import MessageAck, SendMessage
from tests.unit.connection.fakes import CHAT, UUID, a_receipt
from tests.unit.connection.gateway_harness import GatewayHarness, a_send, a_sync, an_ack, ask, turns

# --- sends ---------------------------------------------------------------------------------------------------------


async def test_h25_sends_reach_durability_in_the_order_of_arrival(harness: GatewayHarness) -> None:
    connection, _ = await harness.connect()
    for number in range(20):
        connection.received(encode(a_send(number)))
    ids = [draft.client_message_id for draft, _, _ in harness.durability.submitted]
    assert ids == [a_send(number).client_message_id for number in range(20)]


async def test_a_send_is_answered_with_its_receipt_and_the_clients_own_spelling(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    await ask(connection, SendMessage(client_message_id=UUID.upper(), chat_id=CHAT, content="Hi", request_id="r-1"))
    draft, deadline, _ = harness.durability.submitted[0]
    assert draft.client_message_id == UUID
    assert deadline == harness.clock.monotonic() + 5
    harness.durability.answer(0, a_receipt(7))
    await turns()
    [ack] = socket.frames
    assert isinstance(ack, MessageAck)
    assert (ack.client_message_id, ack.request_id, ack.sequence) == (UUID.upper(), "r-1", 7)


async def test_s27_a_failed_send_is_answered_with_its_error(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    await ask(connection, a_send(0), a_send(1), a_send(2))
    harness.durability.answer(0, NotAMember("no"))
    harness.durability.answer(1, OutcomeUnknown("away"))
    harness.durability.answer(2, CounterMissing(CHAT))
    await turns()
    assert socket.codes == ["NOT_A_MEMBER", "SERVICE_UNAVAILABLE", "INTERNAL_ERROR"]
    assert [error.client_message_id for error in socket.errors] == [
        a_send(number).client_message_id for number in range(3)
    ]
    assert socket.errors[2].retry_after_seconds == 60


async def test_s29_a_send_above_the_rate_is_refused_and_touches_nothing(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    await ask(connection, *[a_send(number) for number in range(25)])
    assert len(harness.durability.submitted) == 20
    assert socket.codes == ["RATE_LIMITED"] * 5
    assert socket.errors[0].retry_after_seconds == 1
    assert socket.errors[0].client_message_id == a_send(20).client_message_id


async def test_s29_a_flood_is_closed_after_its_error(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    for number in range(221):
        await ask(connection, a_send(number))
    assert socket.closed == (1008, "rate_limited")
    assert socket.codes == ["RATE_LIMITED"] * 201


async def test_s30_the_101st_request_in_progress_is_asked_to_retry_later(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    harness.durability.gate.clear()
    await ask(connection, *[a_sync(0) for _ in range(101)])
    assert socket.codes == ["SERVER_BUSY"]
    assert socket.errors[0].retry_after_seconds == 1
    assert socket.errors[0].chat_id == CHAT


async def test_s30_a_queue_full_for_30_seconds_sheds_the_connection(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    harness.durability.gate.clear()
    await asyncio.sleep(7)
    await ask(connection, *[a_sync(0) for _ in range(101)])
    await asyncio.sleep(29.9)
    assert socket.is_open
    await asyncio.sleep(0.2)
    assert socket.closed == (1013, "load_shedding")


async def test_s30_a_place_is_free_again_once_the_answer_left(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    await ask(connection, *[a_sync(0) for _ in range(300)])
    await turns(400)
    assert "SERVER_BUSY" in socket.codes
    asked = len(socket.batches)
    await ask(connection, a_sync(0))
    assert len(socket.batches) == asked + 1


async def test_answers_that_the_client_does_not_read_are_bounded(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    socket.room = False
    harness.durability.gate.clear()
    for _ in range(400):
        await ask(connection, a_sync(0))
    assert socket.closed == (1013, "load_shedding")
    assert len(socket.frames) <= 201


# --- the breaker ---------------------------------------------------------------------------------------------------


async def fail_sends(harness: GatewayHarness, count: int, error: type[OutcomeUnknown | NotAMember]) -> None:
    [connection] = harness.gateway.connections.values()
    for number in range(count):
        await ask(connection, a_send(number))
        harness.durability.answer(-1, error("no"))


async def test_b2_failed_drafts_refuse_no_other_draft_however_many_they_are(harness: GatewayHarness) -> None:
    """Which dependency fails is known below, by its calls: a gateway asks each time, and passes the answer on."""
    connection, _ = await harness.connect()
    for error in (OutcomeUnknown, NotAMember):
        await fail_sends(harness, 8, error)
    await ask(connection, a_send(20))
    assert len(harness.durability.submitted) == 17
    assert not harness.gateway.breaker_open


async def test_s28_what_an_open_breaker_says_is_passed_on_and_counts_as_open_until_its_time_is_over(
    harness: GatewayHarness,
) -> None:
    connection, socket = await harness.connect()
    await ask(connection, a_send(1))
    harness.durability.answer(-1, BreakerOpen("no", retry_after_seconds=20.0))
    await asyncio.sleep(0)
    assert (socket.codes[-1], socket.errors[-1].retry_after_seconds) == ("SERVICE_UNAVAILABLE", 20.0)
    assert harness.gateway.breaker_open
    await asyncio.sleep(19.9)
    assert harness.gateway.breaker_open
    await asyncio.sleep(0.1)
    assert not harness.gateway.breaker_open


async def test_s28_the_breaker_stops_sends_and_not_syncs(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    await ask(connection, a_send(1))
    harness.durability.answer(-1, BreakerOpen("no", retry_after_seconds=20.0))
    await ask(connection, a_sync(0))
    assert len(socket.batches) == 1


# --- syncs ---------------------------------------------------------------------------------------------------------


async def test_at_most_five_syncs_are_in_progress_and_the_others_follow(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    harness.durability.gate.clear()
    await ask(connection, *[a_sync(0, f"chat_{number}") for number in range(8)])
    assert len(harness.durability.reads) == 5
    harness.durability.gate.set()
    await turns(20)
    assert [batch.chat_id for batch in socket.batches] == [f"chat_{number}" for number in range(8)]


async def test_a_sync_is_in_progress_until_its_batch_was_written(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    socket.room = False
    await ask(connection, *[a_sync(0, f"chat_{number}") for number in range(8)])
    assert len(harness.durability.reads) == 5
    socket.room = True
    connection.writable()
    await turns(20)
    assert len(socket.batches) == 8


async def test_failed_syncs_make_room_for_the_next(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    harness.durability.failures = [OutcomeUnknown("away") for _ in range(7)]
    await ask(connection, *[a_sync(0, f"chat_{number}") for number in range(8)])
    await turns(20)
    assert (len(socket.errors), len(socket.batches)) == (7, 1)


async def test_a_batch_cut_for_its_size_leaves_the_chat_syncing(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    harness.durability.content = "\x01" * 4096
    harness.durability.chats[CHAT] = list(range(1, 41))
    await ask(connection, a_sync(0))
    [batch] = socket.batches
    assert batch.has_more
    assert batch.next_sequence == batch.messages[-1].sequence + 1
    harness.deliver(connection, 41, 40)
    await asyncio.sleep(1)
    assert socket.messages == []


async def test_a_bug_in_a_sync_is_an_internal_error_to_the_client(harness: GatewayHarness) -> None:
    seen: list[object] = []
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
    connection, socket = await harness.connect()
    harness.durability.failures = [ZeroDivisionError()]  # type: ignore[list-item]
    await ask(connection, a_sync(0))
    loop.set_exception_handler(handler)
    assert socket.codes == ["INTERNAL_ERROR"]
    assert [type(failure) for failure in seen] == [ZeroDivisionError]


# --- acks ----------------------------------------------------------------------------------------------------------


async def test_an_ack_of_what_was_received_is_passed_on(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1, 2, 3])
    await ask(connection, an_ack(2))
    assert harness.durability.acks == [(CHAT, 2)]
    assert socket.frames == []


async def test_h15_an_ack_beyond_what_was_sent_is_clamped(harness: GatewayHarness) -> None:
    connection, _ = await harness.synced([1, 2, 3])
    await ask(connection, an_ack(10**15))
    assert harness.durability.acks == [(CHAT, 3)]


async def test_h15_what_still_waits_in_the_buffer_is_not_acknowledged(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1, 2, 3])
    socket.room = False
    harness.deliver(connection, 4, 3)
    await turns()
    await ask(connection, an_ack(4))
    assert harness.durability.acks == [(CHAT, 3)]


async def test_h15_an_ack_of_a_chat_never_synced_changes_nothing(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    harness.deliver(connection, 4, 3)
    await ask(connection, an_ack(4))
    assert harness.durability.acks == [(CHAT, 0)], "0 moves nothing and asks only whether the client is a member"
    assert socket.codes == []


async def test_an_ack_of_a_chat_never_seen_here_is_one_call_and_takes_no_place_any_longer(
    harness: GatewayHarness,
) -> None:
    connection, _ = await harness.connect()
    for calls in (1, 2):
        await ask(connection, an_ack(4))
        assert harness.durability.acks == [(CHAT, 0)] * calls
        assert connection._inbound.in_progress == 0


async def test_an_outsiders_ack_of_a_chat_never_synced_is_refused(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    harness.durability.failures = [NotAMember("not a member")]
    await ask(connection, an_ack(4))
    assert socket.codes == ["NOT_A_MEMBER"]


async def test_acks_of_a_chat_are_joined_and_the_highest_wins(harness: GatewayHarness) -> None:
    connection, _ = await harness.synced(list(range(1, 10)))
    harness.durability.gate.clear()
    await ask(connection, an_ack(1))
    await ask(connection, an_ack(5), an_ack(9), an_ack(7))
    assert harness.durability.acks == [(CHAT, 1)]
    harness.durability.gate.set()
    await turns()
    assert harness.durability.acks == [(CHAT, 1), (CHAT, 9)]


async def test_a_stale_ack_costs_no_call(harness: GatewayHarness) -> None:
    connection, _ = await harness.synced([1, 2, 3])
    await ask(connection, an_ack(3))
    await ask(connection, an_ack(2), an_ack(3))
    assert harness.durability.acks == [(CHAT, 3)]


async def test_an_ack_that_failed_is_repeated_until_it_is_stored(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1, 2, 3])
    harness.durability.failures = [OutcomeUnknown("away"), OutcomeUnknown("away")]
    await ask(connection, an_ack(2))
    await asyncio.sleep(5)
    assert socket.codes == []
    assert harness.durability.acks == [(CHAT, 2)] * 3


async def test_an_ack_is_not_repeated_for_ever(harness: GatewayHarness) -> None:
    connection, _ = await harness.synced([1, 2, 3])
    harness.durability.failures = [OutcomeUnknown("away") for _ in range(100)]
    await ask(connection, an_ack(2))
    await asyncio.sleep(300)
    assert len([each for each in harness.durability.acks if each == (CHAT, 2)]) == limits.ACK_TRIES_MAX


async def test_only_a_non_member_gets_an_error_for_an_ack_that_failed(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1, 2, 3])
    harness.durability.failures = [NotAMember("gone")]
    await ask(connection, an_ack(3))
    assert socket.codes == ["NOT_A_MEMBER"]
    assert harness.durability.acks == [(CHAT, 3)]


async def test_an_ack_gives_its_place_in_the_queue_back(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced(list(range(1, 301)), after=299)
    for sequence in range(1, 301):
        await ask(connection, an_ack(sequence))
    assert socket.codes == []
    assert harness.durability.acks[-1] == (CHAT, 300)

"""The server's end of a connection, by events and the clock: greeting, liveness, lifetime, closing."""

import pytest

from seriatim.protocol.codec import encode
from seriatim.protocol.frames import Ack, ClientFrame, CloseReason, Heartbeat, SendMessage, SyncRequest
from seriatim.protocol.server_session import (
    Action,
    AnswerHeartbeat,
    Close,
    Ignored,
    Ping,
    RecordAck,
    Reply,
    ServerSession,
    Submit,
    Sync,
)

UUID = "550E8400-E29B-41D4-A716-446655440000"
SEND = SendMessage(client_message_id=UUID, chat_id="chat_a", content="Hi", request_id="r-1")
SYNC = SyncRequest(chat_id="chat_a", last_acked_sequence=42)
ACK = Ack(chat_id="chat_a", last_acked_sequence=42)


def session(*, greeted: bool = True, expires_at: float = 1e9, rotates_at: float = 1e9) -> ServerSession:
    made = ServerSession("user_1", "conn_1", now=0.0, expires_at=expires_at, rotates_at=rotates_at)
    if greeted:
        made.greeted(0.0)
    return made


def received(machine: ServerSession, frame: ClientFrame | str, now: float = 0.0) -> list[Action]:
    return list(machine.received(frame if isinstance(frame, str) else encode(frame), now))


def codes(actions: list[Action]) -> list[str]:
    return [action.frame.code for action in actions if isinstance(action, Reply)]


# --- requests ------------------------------------------------------------------------------------------------------


def test_a_send_becomes_a_draft_by_the_tokens_user_with_a_lower_case_key() -> None:
    [action] = received(session(), SEND)
    assert isinstance(action, Submit)
    assert action.draft.sender_id == "user_1"
    assert action.draft.origin_connection_id == "conn_1"
    assert action.draft.client_message_id == UUID.lower()


def test_a_sends_answer_will_echo_the_id_as_it_was_sent() -> None:
    [action] = received(session(), SEND)
    assert isinstance(action, Submit)
    assert (action.echo.client_message_id, action.echo.request_id) == (UUID, "r-1")


def test_the_other_requests_are_handed_on() -> None:
    machine = session()
    assert received(machine, SYNC) == [Sync(SYNC)]
    assert received(machine, ACK) == [RecordAck(ACK)]
    assert received(machine, Heartbeat(request_id="h-1")) == [AnswerHeartbeat("h-1")]


def test_an_unknown_type_is_counted_and_not_answered() -> None:
    assert received(session(), '{"type":"typing_started"}') == [Ignored("typing_started")]


# --- greeting ------------------------------------------------------------------------------------------------------


def test_frames_before_the_greeting_wait_and_are_handled_in_order_after_it() -> None:
    machine = session(greeted=False)
    assert received(machine, SYNC) == []
    assert received(machine, ACK) == []
    assert machine.greeted(1.0) == [Sync(SYNC), RecordAck(ACK)]


def test_frames_before_the_greeting_are_bounded_and_the_rest_is_refused() -> None:
    machine = session(greeted=False)
    for _ in range(100):
        assert received(machine, SYNC) == []
    assert codes(received(machine, SYNC)) == ["SERVER_BUSY"]
    assert len(machine.greeted(1.0)) == 100


# --- broken clients ------------------------------------------------------------------------------------------------


def test_s27_an_invalid_frame_is_answered_each_time() -> None:
    machine = session()
    assert [codes(received(machine, "nonsense")) for _ in range(9)] == [["INVALID_MESSAGE"]] * 9


def test_ten_invalid_frames_in_a_minute_are_a_protocol_error_sent_after_the_error() -> None:
    machine = session()
    for second in range(9):
        received(machine, "nonsense", now=float(second))
    actions = received(machine, "nonsense", now=59.0)
    assert codes(actions) == ["INVALID_MESSAGE"]
    assert actions[-1] == Close(CloseReason.PROTOCOL_ERROR)


def test_ten_invalid_frames_over_more_than_a_minute_are_forgiven() -> None:
    machine = session()
    for number in range(100):
        assert Close(CloseReason.PROTOCOL_ERROR) not in received(machine, "nonsense", now=number * 6.7)


def test_only_malformed_frames_count_toward_the_protocol_error() -> None:
    machine = session()
    large = SendMessage(client_message_id=UUID, chat_id="chat_a", content="x" * 5000)
    for _ in range(50):
        [reply] = received(machine, large)
        assert codes([reply]) == ["MESSAGE_TOO_LARGE"]


# --- liveness ------------------------------------------------------------------------------------------------------


def test_a_ping_leaves_every_30_seconds() -> None:
    machine = session()
    assert machine.next_timer() == 30.0
    assert machine.timer(29.9) == []
    assert machine.timer(30.0) == [Ping()]
    machine.pong_received()
    assert machine.next_timer() == 60.0
    assert machine.timer(60.0) == [Ping()]


def test_an_unanswered_ping_ends_the_connection_after_10_seconds() -> None:
    machine = session()
    machine.timer(30.0)
    assert machine.next_timer() == 40.0
    assert machine.timer(39.9) == []
    assert machine.timer(40.0) == [Close(CloseReason.IDLE_TIMEOUT)]


@pytest.mark.parametrize("sign", ["pong", "frame"])
def test_any_sign_of_life_answers_a_ping(sign: str) -> None:
    machine = session()
    machine.timer(30.0)
    machine.pong_received() if sign == "pong" else received(machine, Heartbeat(), now=35.0)
    assert machine.timer(40.0) == []


# --- lifetime ------------------------------------------------------------------------------------------------------


def test_the_connection_ends_with_its_token() -> None:
    machine = session(expires_at=12.0)
    assert machine.next_timer() == 12.0
    assert machine.timer(12.0) == [Close(CloseReason.TOKEN_EXPIRED)]


def test_an_old_connection_is_rotated() -> None:
    machine = session(rotates_at=13.0)
    assert machine.next_timer() == 13.0
    assert machine.timer(13.0) == [Close(CloseReason.MAX_CONNECTION_AGE)]


# --- closing -------------------------------------------------------------------------------------------------------


def test_requests_during_a_drain_are_refused_and_may_be_sent_elsewhere() -> None:
    machine = session()
    machine.drain()
    actions = received(machine, SEND)
    assert codes(actions) == ["SERVICE_UNAVAILABLE"]
    assert isinstance(actions[0], Reply)
    assert actions[0].frame.retryable
    assert actions[0].frame.client_message_id == UUID
    assert codes(received(machine, SYNC)) == ["SERVICE_UNAVAILABLE"]


def test_acks_flushed_during_a_drain_still_count() -> None:
    machine = session()
    machine.drain()
    assert received(machine, ACK) == [RecordAck(ACK)]


def test_nothing_is_answered_after_the_close() -> None:
    machine = session()
    machine.close()
    assert received(machine, SEND) == []
    assert received(machine, "nonsense") == []
    assert machine.timer(1e12) == []


def test_frames_that_waited_for_a_greeting_that_never_came_are_dropped() -> None:
    machine = session(greeted=False)
    received(machine, SEND)
    machine.close()
    assert machine.greeted(1.0) == []

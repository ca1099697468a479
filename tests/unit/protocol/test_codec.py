"""Text to frames: what is refused, what is forgiven, and what the answer to a bad frame says."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from seriatim.domain import limits
from seriatim.domain.errors import BreakerOpen, MessageTooLarge
from seriatim.domain.message import Message
from seriatim.protocol.codec import (
    BadFrame,
    Echo,
    UnknownType,
    decode_client_frame,
    decode_server_frame,
    decode_valid_send,
    encode,
    encode_batch,
    error_frame,
)
from seriatim.protocol.frames import (
    Ack,
    ClientFrame,
    ConnectionClosing,
    ConnectionEstablished,
    Heartbeat,
    SendMessage,
    SyncRequest,
    message_frame,
)

UUID = "550E8400-e29b-41d4-a716-446655440000"
SEND = {"type": "send_message", "client_message_id": UUID, "chat_id": "chat_a", "content": "Hi"}
SYNC = {"type": "sync_request", "chat_id": "chat_a", "last_acked_sequence": 42}
ACK = {"type": "ack", "chat_id": "chat_a", "last_acked_sequence": 42}


def decode(fields: dict[str, Any]) -> object:
    return decode_client_frame(json.dumps(fields))


def refused(text: str | bytes) -> BadFrame:
    with pytest.raises(BadFrame) as caught:
        decode_client_frame(text)
    return caught.value


def code(fields: dict[str, Any]) -> str:
    return refused(json.dumps(fields)).error.code


# --- what is accepted ----------------------------------------------------------------------------------------------


def test_a_send_keeps_the_clients_spelling_of_its_id() -> None:
    assert decode(SEND) == SendMessage(client_message_id=UUID, chat_id="chat_a", content="Hi")


def test_unknown_fields_are_ignored() -> None:
    assert decode(SYNC | {"colour": {"deep": [1]}}) == SyncRequest(chat_id="chat_a", last_acked_sequence=42)


def test_an_optional_field_that_is_null_is_absent() -> None:
    assert decode(SEND | {"content_type": None, "request_id": None}) == decode(SEND)
    assert decode(SYNC | {"limit": None}) == decode(SYNC)


def test_an_enveloped_frame_is_read_as_a_flat_one() -> None:
    fields = dict(SEND)
    assert decode({"type": fields.pop("type"), "request_id": "r-1", "payload": fields}) == SendMessage(
        client_message_id=UUID, chat_id="chat_a", content="Hi", request_id="r-1"
    )


def test_an_envelope_does_not_change_what_stands_at_the_top() -> None:
    assert decode(ACK | {"payload": {"type": "heartbeat", "last_acked_sequence": 1}}) == decode(ACK)


def test_a_payload_that_is_no_object_is_just_an_unknown_field() -> None:
    assert decode(ACK | {"payload": "text"}) == Ack(chat_id="chat_a", last_acked_sequence=42)


@pytest.mark.parametrize("request_id", ["", "x" * 65, 7, ["r"]])
def test_a_malformed_request_id_is_ignored(request_id: object) -> None:
    assert decode({"type": "heartbeat", "request_id": request_id}) == Heartbeat(request_id=UNSET)


def test_a_larger_limit_is_cut_to_500() -> None:
    frame = decode(SYNC | {"limit": 501})
    assert isinstance(frame, SyncRequest)
    assert frame.limit == 500


def test_an_unknown_type_is_reported_and_not_refused() -> None:
    assert decode({"type": "typing_started"}) == UnknownType("typing_started")


def test_whitespace_is_a_message() -> None:
    assert isinstance(decode(SEND | {"content": " "}), SendMessage)


def test_content_is_measured_in_bytes_and_the_limit_itself_is_allowed() -> None:
    assert isinstance(decode(SEND | {"content": "é" * (limits.CONTENT_BYTES_MAX // 2)}), SendMessage)
    assert code(SEND | {"content": "é" * (limits.CONTENT_BYTES_MAX // 2) + "x"}) == "MESSAGE_TOO_LARGE"


# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "null", '"x"', "{}", '{"type": 7}', '{"type": null}', b"\xff", b'{"type":"\xff"}']
)
def test_s27_what_is_no_object_with_a_type_is_invalid(text: str | bytes) -> None:
    assert refused(text).error.code == "INVALID_MESSAGE"


@pytest.mark.parametrize("value", [True, 47.0, "47", None, -1, limits.SEQUENCE_MAX + 1, 10**400])
def test_a_sequence_is_a_json_integer_that_everybody_can_hold(value: object) -> None:
    assert code(SYNC | {"last_acked_sequence": value}) == "INVALID_MESSAGE"


def test_a_sync_may_begin_at_0_but_an_ack_may_not() -> None:
    assert isinstance(decode(SYNC | {"last_acked_sequence": 0}), SyncRequest)
    assert code(ACK | {"last_acked_sequence": 0}) == "INVALID_MESSAGE"


@pytest.mark.parametrize("limit", [0, -1, True, "9", 1.0])
def test_a_limit_that_is_no_positive_integer_is_invalid(limit: object) -> None:
    assert code(SYNC | {"limit": limit}) == "INVALID_MESSAGE"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("client_message_id", "550e8400-e29b-11d4-a716-446655440000"),
        ("client_message_id", 7),
        ("chat_id", "a b"),
        ("chat_id", "x" * 65),
        ("chat_id", None),
        ("content", ""),
        ("content", 7),
        ("content_type", 7),
    ],
)
def test_s27_a_bad_field_is_named(field: str, value: object) -> None:
    bad = refused(json.dumps(SEND | {field: value}))
    assert bad.error.code == "INVALID_MESSAGE"
    assert bad.error.details["field"] == field


def test_s27_another_content_type_is_refused() -> None:
    assert code(SEND | {"content_type": "text/html"}) == "INVALID_CONTENT_TYPE"


def test_checks_run_in_the_order_shape_size_content_type() -> None:
    large, html = {"content": "x" * 5000}, {"content_type": "text/html"}
    assert code(SEND | large | html | {"chat_id": 7}) == "INVALID_MESSAGE"
    assert code(SEND | large | html) == "MESSAGE_TOO_LARGE"


def test_a_frame_above_64_kib_is_refused_unread() -> None:
    assert refused(json.dumps(SEND | {"more": "x" * limits.FRAME_BYTES_MAX})).error.code == "INVALID_MESSAGE"


def test_a_bad_frame_echoes_what_was_readable() -> None:
    bad = refused(json.dumps(SEND | {"content": "", "request_id": "r-1"}))
    assert bad.echo == Echo(request_id="r-1", client_message_id=UUID, chat_id="chat_a")


def test_a_lone_surrogate_is_refused_with_an_echo_so_that_the_outbox_can_let_go() -> None:
    bad = refused(json.dumps(SEND | {"content": "\ud83d"}))
    assert bad.error.code == "INVALID_MESSAGE"
    assert bad.echo.client_message_id == UUID


def test_an_echo_is_always_encodable() -> None:
    bad = refused(json.dumps(SEND | {"content": "\ud83d", "chat_id": "\ud83d", "request_id": "x" * 65}))
    assert (bad.echo.chat_id, bad.echo.request_id) == (UNSET, UNSET)
    encode(error_frame(bad.error, bad.echo))


def test_a_request_id_with_one_lone_surrogate_among_other_characters_is_not_echoed() -> None:
    bad = refused(json.dumps(SEND | {"content": "", "request_id": "ä\ud83d"}))
    assert bad.echo.request_id is UNSET
    encode(error_frame(bad.error, bad.echo))


def test_nesting_without_end_is_refused() -> None:
    assert refused('{"type":' + "[" * 60_000).error.code == "INVALID_MESSAGE"


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
_types = st.sampled_from(["send_message", "ack", "sync_request", "heartbeat"]) | _json
_names = ["client_message_id", "chat_id", "content", "content_type", "last_acked_sequence", "limit", "payload"]
_fields = st.fixed_dictionaries({"type": _types}, optional=dict.fromkeys([*_names, "request_id"], _json))


@given(st.text() | st.binary() | _fields.map(json.dumps))
def test_whatever_a_client_sends_the_answer_is_a_frame_or_a_bad_frame(text: str | bytes) -> None:
    try:
        frame = decode_client_frame(text)
    except BadFrame as bad:
        encode(error_frame(bad.error, bad.echo))
    else:
        assert isinstance(frame, UnknownType) or decode_client_frame(encode(frame)) == frame


@given(st.text() | st.binary() | _fields.map(json.dumps))
def test_whatever_a_server_sends_a_client_is_not_thrown_off(text: str | bytes) -> None:
    with contextlib.suppress(BadFrame):
        decode_server_frame(text)


# --- what the server sends -----------------------------------------------------------------------------------------


def message(sequence: int, content: str = "Hi") -> Message:
    return Message(
        message_id=f"msg_{sequence}",
        chat_id="chat_a",
        sequence=sequence,
        sender_id="user_1",
        client_message_id=UUID.lower(),
        content=content,
        content_type="text/plain",
        created_at="2026-01-30T14:30:00.000Z",
    )


@given(st.text(st.characters(codec="utf-8"), min_size=1), st.integers(1, limits.SEQUENCE_MAX))
def test_a_server_frame_survives_the_wire(content: str, sequence: int) -> None:
    frame = message_frame(message(sequence, content), None)
    assert decode_server_frame(encode(frame)) == frame


def test_a_push_names_its_type_first_and_an_unknown_predecessor_as_null() -> None:
    text = encode(message_frame(message(7), None))
    assert text.startswith(b'{"type":"message",')
    assert json.loads(text)["prev_sequence"] is None


def test_what_is_unset_is_absent_on_the_wire() -> None:
    assert json.loads(encode(ConnectionClosing(reason="idle_timeout", reconnect_allowed=True))) == {
        "type": "connection_closing",
        "reason": "idle_timeout",
        "reconnect_allowed": True,
    }


def test_a_client_ignores_unknown_fields_and_reports_unknown_types() -> None:
    assert decode_server_frame('{"type":"heartbeat_ack","server_time":"t","mood":1}') is not None
    assert decode_server_frame('{"type":"presence","user":1}') == UnknownType("presence")


def test_a_client_refuses_a_known_type_that_does_not_fit() -> None:
    with pytest.raises(BadFrame):
        decode_server_frame('{"type":"message"}')


def test_the_greeting_says_what_a_client_may_rely_on() -> None:
    greeting = ConnectionEstablished(
        connection_id="conn_1",
        user_id="user_1",
        device_id=UUID,
        server_time="2026-01-30T14:30:00.000Z",
        gateway_id="gw_1",
    )
    assert json.loads(encode(greeting)) == {
        "type": "connection_established",
        "connection_id": "conn_1",
        "user_id": "user_1",
        "device_id": UUID,
        "server_time": "2026-01-30T14:30:00.000Z",
        "heartbeat_interval_ms": 30_000,
        "protocol_version": 1,
        "gateway_id": "gw_1",
        "limits": {"max_content_bytes": 4096, "send_rate_per_second": 10, "send_burst": 20, "sync_limit_max": 500},
    }


def test_an_error_frame_says_whether_and_when_to_retry() -> None:
    frame = error_frame(BreakerOpen("later", retry_after_seconds=12), Echo(chat_id="chat_a"))
    assert (frame.code, frame.retryable, frame.retry_after_seconds) == ("SERVICE_UNAVAILABLE", True, 12)
    assert (frame.chat_id, frame.request_id, frame.details) == ("chat_a", UNSET, UNSET)


def test_an_error_frame_carries_the_details() -> None:
    assert error_frame(MessageTooLarge("too large")).details == {"max_bytes": limits.CONTENT_BYTES_MAX}


# --- batches -------------------------------------------------------------------------------------------------------


def test_a_batch_names_the_predecessor_of_each_item_but_the_first() -> None:
    made = encode_batch("chat_a", [message(3), message(5), message(6)], through=7, has_more=False)
    assert [item.prev_sequence for item in made.frame.messages] == [None, 3, 5]


def test_the_last_batch_has_no_next_sequence() -> None:
    made = encode_batch("chat_a", [message(3)], through=7, has_more=False)
    assert (made.frame.has_more, made.frame.next_sequence, made.through) == (False, None, 7)


def test_h24_a_page_without_messages_still_advances() -> None:
    made = encode_batch("chat_a", [], through=7, has_more=True)
    assert (made.frame.has_more, made.frame.next_sequence, made.through) == (True, 8, 7)


def test_a_batch_is_cut_at_512_kib_and_says_where_to_go_on() -> None:
    messages = [message(sequence, "\x01" * 4096) for sequence in range(1, 101)]
    made = encode_batch("chat_a", messages, through=120, has_more=False, request_id="r" * 64)
    kept = len(made.frame.messages)
    assert len(made.encoded) <= limits.BATCH_BYTES_MAX
    assert len(made.encoded) > limits.BATCH_BYTES_MAX - 30_000, "cut more than needed"
    assert (made.frame.has_more, made.frame.next_sequence, made.through) == (True, kept + 1, kept)


def test_a_batch_is_cut_no_earlier_than_needed_and_never_too_late() -> None:
    messages = [message(sequence, "x" * 1500) for sequence in range(1, 501)]
    made = encode_batch("chat_a", messages, through=500, has_more=False)
    average = len(made.encoded) / len(made.frame.messages)
    assert limits.BATCH_BYTES_MAX - 2 * average < len(made.encoded) <= limits.BATCH_BYTES_MAX


def test_a_batch_that_fits_is_not_cut() -> None:
    messages = [message(sequence) for sequence in range(1, 501)]
    assert len(encode_batch("chat_a", messages, through=500, has_more=False).frame.messages) == 500


# --- the fast path of a send ------------------------------------------------------------------------------------------

odd = st.sampled_from(
    [None, "", "x", "x" * 65, 7, True, ["x"], UUID, "chat_a", "text/plain", "text/html", {"content": "x"}]
)
sends = st.fixed_dictionaries(
    {"type": st.sampled_from(["send_message", "send_message", "send_message", "ack", None])},
    optional={
        "client_message_id": st.just(UUID) | odd,
        "chat_id": st.just("chat_a") | odd,
        "content": st.text(min_size=1, max_size=20) | odd,
        "content_type": st.just("text/plain") | odd,
        "request_id": st.text(max_size=70) | odd,
        "payload": st.just({"request_id": "r", "content_type": "text/plain"}) | odd,
        "later": odd,
    },
)


@given(fields=sends)
def test_a_send_read_by_the_fast_path_is_the_send_that_the_full_decoder_reads(fields: dict[str, object]) -> None:
    text = json.dumps(fields)
    fast = decode_valid_send(text)
    if fast is not None:
        assert encode(fast) == encode(frame_of(decode_client_frame(text)))


def test_a_send_without_fault_takes_the_fast_path() -> None:
    for content in ("Hi", "x" * limits.CONTENT_BYTES_MAX, "\u00e9" * (limits.CONTENT_BYTES_MAX // 2)):
        fields = {**SEND, "content": content, "request_id": "r", "content_type": "text/plain"}
        assert decode_valid_send(json.dumps(fields)) is not None


@pytest.mark.parametrize(
    "content", ["", "x" * (limits.CONTENT_BYTES_MAX + 1), "\u00e9" * (limits.CONTENT_BYTES_MAX // 2 + 1)]
)
def test_content_of_a_wrong_size_is_left_to_the_full_decoder(content: str) -> None:
    assert decode_valid_send(json.dumps({**SEND, "content": content})) is None


def frame_of(decoded: ClientFrame | UnknownType) -> ClientFrame:
    assert not isinstance(decoded, UnknownType)
    return decoded

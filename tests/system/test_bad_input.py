"""What broken and hostile clients send: answered as specified, nothing changes, and everybody goes on."""

import base64
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seriatim.domain import limits
from tests.system.raw_websocket import PING, PONG, TEXT, RawWebSocket, framed, handshake
from tests.system.server_process import ServerProcess, serving, until, with_limits
from tests.system.users import ANSWER_S, Reply, User, request

Json = dict[str, Any]
KEY = "550e8400-e29b-41d4-a716-446655440000"
ALICE, BOB = "+4915112345678", "+4915112345679"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("bad") / "data") as running:
        yield running


@pytest.fixture
def alice(server: ServerProcess) -> User:
    return User(server, ALICE)


@pytest.fixture
def chat_id(alice: User, server: ServerProcess) -> str:
    """With one message in it."""
    chat_id = alice.create_group(User(server, BOB))
    with alice.connect() as websocket:
        websocket.send(chat_id, "first")
    return chat_id


# --- frames -----------------------------------------------------------------------------------------------------------

SEND = {"type": "send_message", "chat_id": "{chat}", "client_message_id": KEY, "content": "hi"}
SYNC = {"type": "sync_request", "chat_id": "{chat}", "last_acked_sequence": 0}
ACK = {"type": "ack", "chat_id": "{chat}", "last_acked_sequence": 1}


def _with(frame: Json, **changes: object) -> str:
    return json.dumps({name: value for name, value in {**frame, **changes}.items() if value is not ...})


BAD_FRAMES = {
    "nothing": "",
    "not JSON": "hello",
    "half a frame": '{"type":"heartbeat"',
    "two frames in one": '{"type":"heartbeat"}{"type":"heartbeat"}',
    "not an object": "[]",
    "a number": "1",
    "null": "null",
    "nested without end": "[" * 30_000,
    "an object nested without end": '{"a":' * 10_000,
    "no type": "{}",
    "a type that is no text": '{"type":7}',
    "not a number": '{"type":"sync_request","chat_id":"{chat}","last_acked_sequence":NaN}',
    "a lone surrogate": _with(SEND, content="\ud800"),
    "true for a sequence": _with(SYNC, last_acked_sequence=True),
    "47.0 for a sequence": _with(SYNC, last_acked_sequence=47.0),
    "text for a sequence": _with(SYNC, last_acked_sequence="47"),
    "a negative sequence": _with(SYNC, last_acked_sequence=-1),
    "a sequence beyond 2^53": _with(SYNC, last_acked_sequence=2**53),
    "a sequence beyond everything": _with(SYNC, last_acked_sequence=10**400),
    "no sequence": _with(SYNC, last_acked_sequence=...),
    "a limit of nothing": _with(SYNC, limit=0),
    "true for a limit": _with(SYNC, limit=True),
    "an ack of nothing": _with(ACK, last_acked_sequence=0),
    "true for an ack": _with(ACK, last_acked_sequence=True),
    "1.0 for an ack": _with(ACK, last_acked_sequence=1.0),
    "no chat": _with(SEND, chat_id=...),
    "an empty chat id": _with(SEND, chat_id=""),
    "a chat id with a slash": _with(SEND, chat_id="chat/../x"),
    "a chat id with a null": _with(SEND, chat_id="chat\x00x"),
    "a chat id of another script": _with(SYNC, chat_id="chat_测试"),
    "a chat id too long": _with(ACK, chat_id="c" * 65),
    "no client_message_id": _with(SEND, client_message_id=...),
    "a client_message_id that is no UUID": _with(SEND, client_message_id="1"),
    "a client_message_id of version 1": _with(SEND, client_message_id="550e8400-e29b-11d4-a716-446655440000"),
    "no content": _with(SEND, content=...),
    "empty content": _with(SEND, content=""),
    "content that is no text": _with(SEND, content=["hi"]),
    "a content type that is no text": _with(SEND, content_type=1),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_bad_frame_is_answered_and_the_connection_goes_on(alice: User, chat_id: str, name: str) -> None:
    text = BAD_FRAMES[name].replace("{chat}", chat_id)
    with alice.connect() as websocket:
        websocket.socket.send(text)
        error = websocket.error()
        assert (error["code"], error["retryable"]) == ("INVALID_MESSAGE", False)
        assert error["message"]
        assert websocket.is_usable()
        after = websocket.sync(chat_id)
        assert [each["content"] for each in after["messages"]] == ["first"]
        assert websocket.send(chat_id, "second")["sequence"] == 2


@pytest.mark.parametrize("name", ["a lone surrogate", "empty content", "a content type that is no text"])
def test_a_refused_send_is_named_so_that_its_author_does_not_repeat_it_for_ever(
    alice: User, chat_id: str, name: str
) -> None:
    with alice.connect() as websocket:
        websocket.socket.send(BAD_FRAMES[name].replace("{chat}", chat_id))
        error = websocket.error()
        assert (error["client_message_id"], error["chat_id"]) == (KEY, chat_id)


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"typing_started","chat_id":"{chat}"}',
        '{"type":"launch_missiles","payload":{"at":"{chat}"}}',
        '{"type":"message_ack","sequence":9007199254740991}',
        '{"type":""}',
    ],
)
def test_an_unknown_type_is_not_answered_and_changes_nothing(alice: User, chat_id: str, text: str) -> None:
    with alice.connect() as websocket:
        for _ in range(20):  # also not after many: it is no mistake
            websocket.socket.send(text.replace("{chat}", chat_id))
        assert websocket.is_usable()


def test_unknown_fields_are_ignored_and_none_can_name_another_sender(alice: User, chat_id: str) -> None:
    with alice.connect() as websocket:
        websocket.post_send(chat_id, "hi", sender_id="user_eve", sequence=99, message_id="msg_eve", created_at="1970")
        ack = websocket.receive("message_ack")
        [_, kept] = websocket.sync(chat_id)["messages"]
    assert (ack["sequence"], kept["sequence"]) == (2, 2)
    assert kept["sender_id"] == alice.user_id
    assert kept["message_id"] == ack["message_id"] != "msg_eve"


def test_an_ack_beyond_the_end_counts_as_the_newest_message_and_poisons_nothing(alice: User, chat_id: str) -> None:
    with alice.connect() as websocket:
        websocket.sync(chat_id)
        websocket.post("ack", chat_id=chat_id, last_acked_sequence=10**15)
        until(lambda: _watermark(alice, chat_id) == 1, "the ack is stored")
        assert websocket.send(chat_id, "second")["sequence"] == 2
        assert _watermark(alice, chat_id) == 1
    refused = alice.call("PATCH", f"/delivery-state/{chat_id}", {"last_acked_sequence": 3})
    assert (refused.status, refused.json["error"]["code"]) == (422, "UNPROCESSABLE_ENTITY")
    assert _watermark(alice, chat_id) == 1


def _watermark(user: User, chat_id: str) -> object:
    [state] = user.call("GET", f"/delivery-state?chat_ids={chat_id}").data
    return state["last_acked_sequence"]


def test_a_cursor_beyond_the_end_is_an_empty_page_and_no_error(alice: User, chat_id: str) -> None:
    with alice.connect() as websocket:
        batch = websocket.sync(chat_id, after=2**53 - 1)
        assert (batch["messages"], batch["has_more"], batch["next_sequence"]) == ([], False, None)


# --- sockets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        bytes((0x81, 0x02)) + b"{}",  # not masked
        bytes((0xC1, 0x82)) + bytes(4) + b"{}",  # compressed, though no extension was negotiated
        framed(b"x", 3),  # an unknown opcode
        framed(b"x" * 126, PING),
        framed(b"", 0),  # goes on with nothing
        framed(b"x", PING, fin=False),
        bytes((0x81, 0xFF)) + b"\xff" * 8 + bytes(4),  # longer than anything
        framed(b"{", TEXT, fin=False) + framed(b"{", TEXT, fin=False),
    ],
)
def test_whatever_breaks_the_protocol_ends_that_socket_and_no_other(
    server: ServerProcess, alice: User, data: bytes
) -> None:
    with RawWebSocket(server, alice.access_token) as websocket, User(server, BOB).connect() as bystander:
        websocket.socket.sendall(data)
        assert websocket.close_code() in (1002, 1009)
        assert bystander.is_usable()


def test_a_ping_is_answered_and_an_unsolicited_pong_is_not(alice: User) -> None:
    with RawWebSocket(alice.server, alice.access_token) as websocket:
        websocket.socket.sendall(framed(b"who goes there", PONG) + framed(b"you", PING))
        assert websocket.next() == (PONG, b"you")


def test_sockets_that_vanish_at_any_moment_leave_nothing_behind(server: ServerProcess, alice: User) -> None:
    """Cut off in the middle of a handshake, of a frame, of an answer; with and without a goodbye."""
    hello = handshake(alice.access_token)
    frame = framed(b'{"type":"heartbeat"}')
    whole = hello + frame * 3
    for end in (0, 1, 40, len(hello) - 1, len(hello), len(hello) + 1, len(hello) + 9, len(whole)):
        for abrupt in (False, True):
            raw = socket.create_connection((server.host, server.port), timeout=ANSWER_S)
            raw.sendall(whole[:end])
            if abrupt:  # a reset instead of an end
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            raw.close()
    until(lambda: server.metric("gateway_connections_active") == 0, "all are forgotten")
    with alice.connect() as websocket:
        assert websocket.is_usable()
    assert [line["event"] for line in server.lines() if line["level"] in ("error", "critical")] == []


def test_slow_handshakes_are_given_up_and_delay_no_other_client(tmp_path: Path) -> None:
    """A byte at a time, and nothing at all: both are closed, and meanwhile everyone else is served."""
    hasty = with_limits(tmp_path, HANDSHAKE_S=1.0)
    with serving(tmp_path / "data", command=hasty) as server:
        alice = User(server, ALICE)
        hello = handshake(alice.access_token)
        slow = [socket.create_connection((server.host, server.port), timeout=ANSWER_S) for _ in range(100)]
        try:
            for raw in slow[:50]:
                raw.sendall(hello[:60])
            with alice.connect() as websocket:
                assert websocket.is_usable()
            _dribble(slow[0], hello[60:])
            assert [_rest(raw)[:13] for raw in slow[1:]] == [b"HTTP/1.1 408 "] * 99
        finally:
            for raw in slow:
                raw.close()
        assert server.metric("gateway_connection_timeout_total") >= 100
        with alice.connect() as websocket:
            assert websocket.is_usable()


def _dribble(raw: socket.socket, data: bytes) -> None:
    """A byte now and then, until the server has had enough."""
    raw.settimeout(0.05)
    for number in range(len(data)):
        try:
            raw.sendall(data[number : number + 1])
            assert raw.recv(13) in (b"HTTP/1.1 408 ", b"")
            return
        except TimeoutError:
            continue  # it is still patient
        except ConnectionError:
            return
    raise AssertionError("the handshake took as long as it liked")


def _rest(raw: socket.socket) -> bytes:
    found = b""
    try:
        while data := raw.recv(4096):
            found += data
    except ConnectionResetError:
        pass
    return found


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_body_over_64_kib_is_413_and_one_of_64_kib_is_read(alice: User) -> None:
    envelope = len(json.dumps({"display_name": "Ada", "padding": ""}))
    fits = alice.call(
        "PATCH", "/users/me", {"display_name": "Ada", "padding": "x" * (limits.BODY_BYTES_MAX - envelope)}
    )
    assert fits.status == 200
    reply = alice.call(
        "PATCH", "/users/me", {"display_name": "Bea", "padding": "x" * (limits.BODY_BYTES_MAX - envelope + 1)}
    )
    assert (reply.status, reply.json["error"]["code"]) == (413, "PAYLOAD_TOO_LARGE")
    assert reply.json["error"]["details"]["max_bytes"] == limits.BODY_BYTES_MAX
    assert alice.call("GET", "/users/me").data["display_name"] == "Ada"


def test_a_head_without_end_is_refused(server: ServerProcess) -> None:
    with socket.create_connection((server.host, server.port), timeout=ANSWER_S) as raw:
        raw.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X-Long: x\r\n" * limits.HEAD_BYTES_MAX)
        assert raw.recv(12) == b"HTTP/1.1 431"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "BAD_REQUEST"),
        (b"[]", "BAD_REQUEST"),
        (b"\xff", "BAD_REQUEST"),
        (b'{"type":"group","member_ids":[true]}', "VALIDATION_ERROR"),
        (b'{"type":"writers","member_ids":[]}', "VALIDATION_ERROR"),
        (b'{"type":"group","name":"\\ud800","member_ids":["user_x"]}', "VALIDATION_ERROR"),
    ],
)
def test_a_bad_body_is_400_with_a_request_id_and_makes_no_chat(alice: User, body: bytes, code: str) -> None:
    before = len(alice.call("GET", "/chats").data)
    reply = _post(alice, "/api/v1/chats", body)
    assert (reply.status, reply.json["error"]["code"]) == (400, code)
    assert reply.json["error"]["request_id"] == reply.headers["x-request-id"]
    assert len(alice.call("GET", "/chats").data) == before


@pytest.mark.parametrize(
    "path", ["/chats/..%2Fusers", "/chats/%00", "/chats/chat_%E6%B5%8B", "/chats/" + "c" * 65, "/users/%2e%2e"]
)
def test_an_id_with_odd_characters_is_404(alice: User, path: str) -> None:
    reply = alice.call("GET", path)
    assert (reply.status, reply.json["error"]["code"]) == (404, "NOT_FOUND")


def test_a_forged_foreign_or_stale_cursor_is_400(alice: User, chat_id: str, server: ServerProcess) -> None:
    with alice.connect() as websocket:
        websocket.send(chat_id, "second")
    other = alice.create_group(User(server, BOB))
    cursor = alice.call("GET", f"/chats/{chat_id}/messages?limit=1").json["pagination"]["next_cursor"]
    assert alice.call("GET", f"/chats/{chat_id}/messages?cursor={cursor}").status == 200
    flipped = ("B" if cursor[0] == "A" else "A") + cursor[1:]
    made_up = base64.urlsafe_b64encode(b'{"v":1,"after":0}').decode()
    for forged in (flipped, cursor[:-4], cursor + "AAAA", made_up, "x" * 2000, "%00", "..", "%F0%9F%8E%89"):
        reply = alice.call("GET", f"/chats/{chat_id}/messages?cursor={forged}")
        assert (reply.status, reply.json["error"]["code"]) == (400, "BAD_REQUEST"), forged
    for foreign in (f"/chats/{other}/messages?cursor={cursor}", f"/chats?cursor={cursor}"):
        reply = alice.call("GET", foreign)
        assert (reply.status, reply.json["error"]["code"]) == (400, "BAD_REQUEST"), foreign


def test_what_is_not_http_is_refused_and_the_server_goes_on(server: ServerProcess) -> None:
    for rubbish in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"SSH-2.0-x\r\n\r\n", b"\x00" * 100):
        with socket.create_connection((server.host, server.port), timeout=ANSWER_S) as raw:
            raw.sendall(rubbish)
            assert _rest(raw)[:12] in (b"HTTP/1.1 400", b"")
    assert request(server, "GET", "/health").status == 200


def _post(user: User, path: str, body: bytes) -> Reply:
    connection = http.client.HTTPConnection(user.server.host, user.server.port, timeout=ANSWER_S)
    headers = {"Authorization": f"Bearer {user.access_token}", "Content-Type": "application/json"}
    try:
        connection.request("POST", path, body, headers)
        return Reply(connection.getresponse())
    finally:
        connection.close()

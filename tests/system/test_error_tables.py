"""Every row of the tables of the WebSocket protocol (docs/spec/websocket.md), produced by a test.

Here are those that a process can be brought to; the tables say which test produces the others.
"""

import asyncio
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seriatim.domain import limits
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.protocol.asyncapi import ERROR_CODES
from seriatim.protocol.frames import CloseReason
from tests.support.forged_tokens import forgeries
from tests.system.handshake_client import public_pem, server_key, short_lived_token, token_with, try_handshake
from tests.system.raw_websocket import BINARY, TEXT, RawWebSocket, framed
from tests.system.server_process import ServerProcess, serving, with_limits
from tests.system.users import User, WebSocketClient, request

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
HERE, CONNECTION = "tests/system/test_error_tables.py", "tests/unit/connection"
ALICE, BOB = "+4915112345678", "+4915112345679"

# --- the tables: each row, and a test that produces it ----------------------------------------------------------------

ERRORS = {
    "INVALID_MESSAGE": "tests/system/test_bad_input.py::test_a_bad_frame_is_answered_and_the_connection_goes_on",
    "MESSAGE_TOO_LARGE": f"{HERE}::test_a_text_above_4096_bytes_is_answered_message_too_large",
    "INVALID_CONTENT_TYPE": f"{HERE}::test_another_content_type_is_answered_invalid_content_type",
    "NOT_A_MEMBER": "tests/system/test_access.py::"
    "test_an_outsider_is_refused_with_every_frame_and_cannot_tell_whether_the_chat_exists",
    "UNAUTHORIZED": f"{HERE}::test_an_expired_token_is_answered_unauthorized_and_closed_with_token_expired",
    "RATE_LIMITED": f"{HERE}::test_a_flood_is_answered_rate_limited_and_closed_if_it_goes_on",
    "SERVER_BUSY": f"{HERE}::test_a_full_inbound_queue_is_answered_server_busy",
    "SERVICE_UNAVAILABLE": "tests/system/test_full_disk.py::"
    "test_a_full_disk_refuses_sends_loses_nothing_and_works_again_once_there_is_room",
    "INTERNAL_ERROR": f"{HERE}::test_a_chat_whose_counter_is_gone_is_answered_internal_error",
    "SLOW_CONSUMER": "tests/system/test_slow_consumer.py::"
    "test_a_client_that_stops_reading_is_warned_given_five_seconds_notified_and_closed",
}
# Codes that clients must know and this server has no occasion to send: why.
RESERVED_ERRORS = {
    "FORBIDDEN": "a connected member may do all that a frame can ask for; other scopes are 401 before",
    "NOT_FOUND": "reserved by the specification; a chat that is not there is NOT_A_MEMBER",
}
REFUSALS = {
    (400, "invalid_request"): f"{HERE}::test_a_malformed_handshake_is_refused_with_400_invalid_request",
    (400, "unsupported_version"): f"{HERE}::test_an_unknown_version_is_refused_with_400_unsupported_version",
    (401, "invalid_token"): f"{HERE}::test_a_bad_token_is_refused_with_401_invalid_token",
    (401, "token_revoked"): "tests/system/test_access.py::"
    "test_r20_a_revoked_session_has_its_sockets_closed_and_its_next_request_refused",
    (429, "rate_limited"): f"{HERE}::test_too_many_handshakes_are_refused_with_429_rate_limited",
    (503, "service_unavailable"): "tests/system/test_drain.py::"
    "test_while_it_drains_newcomers_get_503_and_later_requests_service_unavailable",
}
CLOSINGS = {
    "server_shutdown": "tests/system/test_drain.py::"
    "test_a_drain_under_load_tells_everyone_loses_nothing_and_ends_with_0",
    "max_connection_age": f"{HERE}::test_an_old_connection_is_closed_with_max_connection_age",
    "idle_timeout": f"{HERE}::test_a_half_open_socket_is_closed_with_idle_timeout",
    "upstream_failure": f"{CONNECTION}/test_gateway_accept.py::"
    "test_a_connection_that_cannot_be_registered_is_closed_as_upstream_failure",
    "load_shedding": f"{HERE}::test_a_client_that_asks_and_does_not_read_is_closed_with_load_shedding",
    "slow_consumer": "tests/system/test_slow_consumer.py::"
    "test_a_client_that_stops_reading_is_warned_given_five_seconds_notified_and_closed",
    "rate_limited": f"{HERE}::test_a_flood_is_answered_rate_limited_and_closed_if_it_goes_on",
    "token_expired": f"{HERE}::test_an_expired_token_is_answered_unauthorized_and_closed_with_token_expired",
    "protocol_error": f"{HERE}::test_ten_bad_frames_are_closed_with_protocol_error",
    "duplicate_connection": f"{HERE}::test_a_second_connection_of_a_device_closes_the_first_with_duplicate_connection",
    "session_revoked": "tests/system/test_access.py::"
    "test_r20_a_revoked_session_has_its_sockets_closed_and_its_next_request_refused",
}
CLOSE_CODES = {
    1003: f"{HERE}::test_what_is_not_text_ends_the_socket",
    1007: f"{HERE}::test_what_is_not_text_ends_the_socket",
    1009: f"{HERE}::test_what_is_not_text_ends_the_socket",
    1011: f"{CONNECTION}/test_listener_websocket.py::test_a_bug_met_by_one_frame_closes_its_connection_alone_with_1011",
}


@pytest.mark.parametrize(
    "named", sorted({*ERRORS.values(), *REFUSALS.values(), *CLOSINGS.values(), *CLOSE_CODES.values()})
)
def test_the_test_that_produces_a_row_exists(named: str) -> None:
    path, _, name = named.partition("::")
    assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


def test_the_tables_have_all_rows() -> None:
    assert {*ERRORS, *RESERVED_ERRORS} == set(ERROR_CODES)
    assert set(CLOSINGS) == {reason.value for reason in CloseReason}


# --- users and a server that the tests of a row share ----------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("tables") / "data") as running:
        yield running


@pytest.fixture
def alice(server: ServerProcess) -> User:
    """A new device each time."""
    return User(server, ALICE)


@pytest.fixture
def chat_id(alice: User, server: ServerProcess) -> str:
    return alice.create_group(User(server, BOB))


# --- errors ----------------------------------------------------------------------------------------------------------


def test_a_text_above_4096_bytes_is_answered_message_too_large(alice: User, chat_id: str) -> None:
    with alice.connect() as websocket:
        websocket.post_send(chat_id, "é" * 2048 + "x")
        error = websocket.error()
        assert (error["code"], error["retryable"]) == ("MESSAGE_TOO_LARGE", False)
        assert error["details"]["max_bytes"] == 4096
        assert websocket.send(chat_id, "é" * 2048)["sequence"] == 1


def test_another_content_type_is_answered_invalid_content_type(alice: User, chat_id: str) -> None:
    with alice.connect() as websocket:
        key = websocket.post_send(chat_id, "<b>hi</b>", content_type="text/html", request_id="r-1")
        error = websocket.error()
        assert (error["code"], error["retryable"]) == ("INVALID_CONTENT_TYPE", False)
        assert (error["client_message_id"], error["chat_id"], error["request_id"]) == (key, chat_id, "r-1")
        assert websocket.send(chat_id, "hi")["sequence"] == 1


def test_a_flood_is_answered_rate_limited_and_closed_if_it_goes_on(alice: User, chat_id: str) -> None:
    """A client that sends on without waiting is refused 200 times a minute, and then closed."""
    with RawWebSocket(alice.server, alice.access_token) as websocket:
        *answers, closing = _flood(websocket, chat_id)
        assert websocket.close_code() == 1008
    assert (closing["reason"], closing["reconnect_allowed"]) == ("rate_limited", True)
    refused = [answer for answer in answers if answer["type"] == "error"]
    assert len(refused) == 201
    for error in refused:
        assert (error["code"], error["retryable"], error["chat_id"]) == ("RATE_LIMITED", True, chat_id)
        assert error["retry_after_seconds"] >= 1
    acked = [answer["sequence"] for answer in answers if answer["type"] == "message_ack"]
    assert len(acked) >= limits.SEND_BURST_MAX
    assert acked == list(range(1, len(acked) + 1)), "a refused send takes no sequence"


def _flood(websocket: RawWebSocket, chat_id: str) -> list[Json]:
    answers = list[Json]()
    while True:
        websocket.send(*(_send(chat_id) for _ in range(40)))
        for _ in range(40):
            answers.append(websocket.frame())
            if answers[-1]["type"] == "connection_closing":
                return answers


def test_a_full_inbound_queue_is_answered_server_busy(alice: User, chat_id: str) -> None:
    """The 101st question that waits for its answer is one too many; the hundred before it are answered."""
    too_many = 20
    with RawWebSocket(alice.server, alice.access_token) as websocket:
        sync = {"type": "sync_request", "chat_id": chat_id, "last_acked_sequence": 0}
        websocket.send(
            *({**sync, "request_id": f"r-{number}"} for number in range(limits.INBOUND_REQUESTS_MAX + too_many))
        )
        answers = [websocket.frame() for _ in range(limits.INBOUND_REQUESTS_MAX + too_many)]
        refused = [answer for answer in answers if answer["type"] == "error"]
        assert [answer["request_id"] for answer in refused] == [f"r-{100 + number}" for number in range(too_many)]
        for error in refused:
            assert (error["code"], error["retryable"]) == ("SERVER_BUSY", True)
            assert error["retry_after_seconds"] == 1
        websocket.send(sync)
        assert websocket.frame()["type"] == "message_batch"


def test_a_chat_whose_counter_is_gone_is_answered_internal_error(tmp_path: Path) -> None:
    """An operator must repair that chat; the others go on, and the other chat's sends are not slowed."""
    data = tmp_path / "data"
    with serving(data) as server:
        alice, bob = User(server, ALICE), User(server, BOB)
        broken, whole = alice.create_group(bob), alice.create_group(bob)
        assert server.stop() == 0
    asyncio.run(_lose_counter(data, broken))
    with serving(data) as server:
        alice.server = server
        with alice.connect() as websocket:
            for _ in range(10):  # more than it takes to open the breaker
                websocket.post_send(broken, "anybody there?")
                error = websocket.error()
                assert (error["code"], error["retryable"]) == ("INTERNAL_ERROR", True)
                assert (error["retry_after_seconds"], error["chat_id"]) == (60, broken)
            assert websocket.send(whole, "here we are")["sequence"] == 1
        assert server.metric("durability_counter_corruption_total") >= 1


async def _lose_counter(data: Path, chat_id: str) -> None:
    folder = Folder.open(data, create=False)
    await folder.writer.commit("lose", lambda transaction: transaction.delete(rows.counter_key(chat_id)), timeout_s=5.0)
    await folder.close()


# --- handshakes that are refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"X_Device_ID": "my device"},
        {"X_Device_ID": "550e8400-e29b-11d4-a716-446655440000"},
        {"Sec_WebSocket_Key": "short"},
    ],
)
def test_a_malformed_handshake_is_refused_with_400_invalid_request(alice: User, headers: dict[str, str]) -> None:
    reply = try_handshake(alice.server, alice.access_token, **headers)
    assert (reply.status, reply.json["error"]) == (400, "invalid_request")
    assert set(reply.json) == {"error", "message", "details"}


def test_an_unknown_version_is_refused_with_400_unsupported_version(alice: User) -> None:
    reply = try_handshake(alice.server, alice.access_token, "/v2/ws")
    assert (reply.status, reply.json["error"]) == (400, "unsupported_version")
    assert reply.json["details"] == {"supported_versions": [1]}


def test_a_bad_token_is_refused_with_401_invalid_token(server: ServerProcess, alice: User) -> None:
    kid, key = server_key(server.data)
    bad = forgeries(alice.access_token, kid=kid, public_pem=public_pem(key))
    bad = {name: token for name, token in bad.items() if _fits_a_header(token)}
    assert len(bad) > 20
    bad["expired"] = short_lived_token(server.data, alice, -1)
    bad["another scope"] = token_with(server.data, alice, scope="billing")
    for name, token in bad.items():
        reply = try_handshake(server, token)
        assert (reply.status, reply.json["error"]) == (401, "invalid_token"), name
        rest = request(server, "GET", "/api/v1/users/me", Authorization=f"Bearer {token}")
        assert (rest.status, rest.json["error"]["code"]) == (401, "UNAUTHORIZED"), name
    assert try_handshake(server, None).json["details"]["reason"] == "token_missing"
    stolen = try_handshake(server, alice.access_token, X_Device_ID=str(uuid.uuid4()))
    assert (stolen.status, stolen.json["error"]) == (401, "invalid_token")
    assert stolen.json["details"]["reason"] == "device_mismatch"


def _fits_a_header(token: str) -> bool:
    """The others cannot even be sent: HTTP has its own limits. Spaces around a token are no part of it."""
    return token.isascii() and len(token) < 8000 and token == token.strip()


def test_too_many_handshakes_are_refused_with_429_rate_limited(tmp_path: Path) -> None:
    """In an environment where the limits are not lifted."""
    with serving(tmp_path / "data", env="dev") as server:
        for _ in range(limits.ATTEMPTS_PER_ADDRESS_MAX):
            assert try_handshake(server, None).status == 401
        reply = try_handshake(server, None)
    assert (reply.status, reply.json["error"]) == (429, "rate_limited")
    assert 1 <= reply.json["retry_after_seconds"] <= 60
    assert int(reply.headers["retry-after"]) == reply.json["retry_after_seconds"]


# --- closings --------------------------------------------------------------------------------------------------------


def test_an_old_connection_is_closed_with_max_connection_age(tmp_path: Path) -> None:
    young = with_limits(tmp_path, CONNECTION_AGE_MAX_S=0.5, CONNECTION_AGE_JITTER_S=0.0)
    with serving(tmp_path / "data", command=young) as server, User(server, ALICE).connect() as websocket:
        frame, code = websocket.closing()
    assert (frame["reason"], frame["reconnect_allowed"], code) == ("max_connection_age", True, 1001)


def test_a_half_open_socket_is_closed_with_idle_timeout(tmp_path: Path) -> None:
    """A peer that takes what is sent and never says anything, as a device that has lost its network."""
    nervous = with_limits(tmp_path, PING_INTERVAL_S=2.5, PONG_TIMEOUT_S=2.0)
    with serving(tmp_path / "data", command=nervous) as server:
        alice = User(server, ALICE)
        with RawWebSocket(server, alice.access_token) as dead, User(server, BOB).connect() as alive:
            *_, closing = dead.frames()
            assert (closing["reason"], closing["reconnect_allowed"]) == ("idle_timeout", True)
            assert alive.is_usable(), "a client that answers pings stays"
        assert server.metric("gateway_connection_timeout_total") >= 1


def test_a_client_that_asks_and_does_not_read_is_closed_with_load_shedding(alice: User) -> None:
    with RawWebSocket(alice.server, alice.access_token) as websocket:
        websocket.socket.sendall(framed(b'{"type":"heartbeat"}') * 2000)
        *answers, closing = websocket.frames()
    assert (closing["reason"], closing["reconnect_allowed"]) == ("load_shedding", True)
    assert {answer["type"] for answer in answers} <= {"heartbeat_ack"}


def test_an_expired_token_is_answered_unauthorized_and_closed_with_token_expired(
    server: ServerProcess, alice: User
) -> None:
    with WebSocketClient(server, short_lived_token(server.data, alice, 2)) as websocket:
        warning = websocket.error()
        frame, code = websocket.closing()
    assert (warning["code"], warning["retryable"]) == ("UNAUTHORIZED", False)
    assert (frame["reason"], frame["reconnect_allowed"], code) == ("token_expired", True, 1008)


def test_ten_bad_frames_are_closed_with_protocol_error(alice: User, chat_id: str) -> None:
    with alice.connect() as websocket:
        for _ in range(10):
            websocket.socket.send("{")
            assert websocket.error()["code"] == "INVALID_MESSAGE"
        frame, code = websocket.closing()
    assert (frame["reason"], frame["reconnect_allowed"], code) == ("protocol_error", True, 1008)


def test_a_second_connection_of_a_device_closes_the_first_with_duplicate_connection(alice: User) -> None:
    with alice.connect() as first, alice.connect() as second:
        frame, code = first.closing()
        assert (frame["reason"], frame["reconnect_allowed"], code) == ("duplicate_connection", False, 1008)
        assert second.is_usable()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (framed(b"{}", BINARY), 1003),
        (framed(b'{"type":"\xff"}', TEXT), 1007),
        (framed(b" " * 65_537, TEXT), 1009),
    ],
)
def test_what_is_not_text_ends_the_socket(alice: User, data: bytes, code: int) -> None:
    with RawWebSocket(alice.server, alice.access_token) as websocket:
        websocket.socket.sendall(data)
        assert websocket.close_code() == code
    with alice.connect() as again:
        assert again.is_usable()


def _send(chat_id: str) -> Json:
    return {"type": "send_message", "chat_id": chat_id, "client_message_id": str(uuid.uuid4()), "content": "hi"}

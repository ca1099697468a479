"""`seriatim serve` as a real process: from the first start to the last signal."""

import json
import re
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosedOK

from tests.support.metric_names import PRESENT
from tests.system.server_process import START_S, ServerProcess, command, serving, until
from tests.system.users import ANSWER_S, User, WebSocketClient, request

ALICE, BOB = "+4915112345678", "+4915112345679"
OTHERS = ("+4915112345611", "+4915112345622")  # who ask for a code, too


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Shared by the tests that leave it as it was."""
    with serving(tmp_path_factory.mktemp("served") / "data") as running:
        yield running


def test_two_people_sign_in_and_one_receives_what_the_other_sends(server: ServerProcess) -> None:
    alice, bob = User(server, ALICE), User(server, BOB)
    chat_id = alice.create_group(bob)
    with alice.connect() as sending, bob.connect() as receiving:
        receiving.sync(chat_id)
        acked = sending.send(chat_id, "good morning")
        received = receiving.receive("message")
    assert (acked["sequence"], received["sequence"]) == (1, 1)
    assert received["message_id"] == acked["message_id"]
    assert (received["sender_id"], received["content"]) == (alice.user_id, "good morning")
    [kept] = bob.call("GET", f"/chats/{chat_id}/messages").data
    assert (kept["message_id"], kept["content"]) == (acked["message_id"], "good morning")


def test_a_line_of_the_log_is_an_object_and_the_first_one_says_where_the_server_listens(server: ServerProcess) -> None:
    first = server.lines()[0]
    assert first["event"] == "listening"
    assert first["url"] == f"http://127.0.0.1:{server.port}"
    assert [Path(path).name for path in first["keys_created"]][1:] == ["otp.pepper", "otp.key", "cursor.key"]


def test_documentation_and_health_are_on_the_public_port_and_metrics_only_on_the_internal_one(
    server: ServerProcess,
) -> None:
    for path in ("/docs", "/api/v1/openapi.json", "/asyncapi.json", "/health", "/health/ready"):
        assert request(server, "GET", path).status == 200, path
    assert request(server, "GET", "/metrics").status == 404
    metrics = request(server, "GET", "/metrics", port=server.internal_port)
    assert metrics.headers["content-type"].startswith("text/plain")
    assert re.search(r'^gateway_connections_active\{instance="[^"]+"\} 0\.0$', metrics.text, re.MULTILINE)
    names = [line.partition("{")[0] for line in metrics.text.splitlines()]
    assert [name for name in PRESENT if name not in names] == []
    ready = request(server, "GET", "/health/ready", port=server.internal_port)
    assert ready.json == {"ready": True, "parts": {"store": True, "events": True, "gateway": True, "fanout": True}}


def test_the_internal_listener_takes_no_clients(server: ServerProcess) -> None:
    assert request(server, "GET", "/v1/ws").status == 426
    assert request(server, "GET", "/v1/ws", port=server.internal_port).status == 404


def test_a_second_server_on_the_folder_is_refused_in_one_line(server: ServerProcess) -> None:
    second = command("serve", "--port", "0", "--internal", "off", "--data", str(server.data), cwd=server.data.parent)
    assert (second.returncode, second.stdout) == (2, "")
    assert second.stderr == (
        f"Error: the data folder {server.data} is in use by process {server.process.pid}; stop that server, or name "
        "another folder\n"
    )


def test_a_port_that_is_taken_is_refused_in_one_line(server: ServerProcess, tmp_path: Path) -> None:
    second = command("serve", "--port", str(server.port), "--internal", "off", "--data", "d", cwd=tmp_path)
    assert second.returncode == 2
    assert re.fullmatch(rf"Error: cannot listen on 127.0.0.1:{server.port}: .+ --port\n", second.stderr)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--port", "eighty"), "port (flag --port): 'eighty' is not a whole number from 0 to 65535"),
        (("--env", "prod"), "otp_sender (default): "),
        (("--store", "dynamodb:"), "store (flag --store): takes embedded: or dynamodb://"),
        (("--data", "occupied"), "occupied holds letter.txt but no FORMAT file"),
        (("--data", "occupied/letter.txt"), "occupied/letter.txt is a file; name a folder"),
        (("--keys", "badkeys"), "badkeys/a.pem is damaged"),
        (("--tls-cert", "occupied/letter.txt", "--tls-key", "occupied/letter.txt"), "do not work"),
        (("--host", "192.0.2.1"), "cannot listen on 192.0.2.1:"),
    ],
)
def test_what_an_operator_can_mend_is_reported_in_one_line_without_a_traceback(
    tmp_path: Path, flags: tuple[str, ...], complaint: str
) -> None:
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "letter.txt").write_text("dear", encoding="utf-8")
    (tmp_path / "badkeys").mkdir(mode=0o700)
    (tmp_path / "badkeys" / "a.pem").touch(mode=0o600)
    refused = command("serve", "--port", "0", "--internal", "off", *flags, cwd=tmp_path)
    assert refused.returncode == 2, refused.stderr
    assert complaint in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert refused.stdout == ""


def test_a_refused_start_leaves_no_keys_in_a_foreign_folder(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear", encoding="utf-8")
    command("serve", "--port", "0", "--internal", "off", "--data", str(tmp_path), cwd=tmp_path)
    assert [each.name for each in tmp_path.iterdir() if each.name != "LOCK"] == ["letter.txt"]


# --- the operator's shortcut ------------------------------------------------------------------------------------------


def test_a_user_added_while_the_server_runs_has_a_token_that_works_at_once(server: ServerProcess) -> None:
    added = _user_add(server.data, "+4915100000001", "--token")
    user_id, token = added.splitlines()
    me = request(server, "GET", "/api/v1/users/me", Authorization=f"Bearer {token}").data
    assert (me["user_id"], me["display_name"]) == (user_id, "Ada")
    with WebSocketClient(server, token) as websocket:
        assert websocket.greeting["user_id"] == user_id


def test_a_user_added_without_a_server_is_there_when_it_starts(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data) as server:
        assert server.stop() == 0
    added = json.loads(_user_add(data, "+4915100000002", "--token", "--json"))
    assert added["created"] is True
    with serving(data) as server:
        me = request(server, "GET", "/api/v1/users/me", Authorization=f"Bearer {added['access_token']}").data
    assert me["user_id"] == added["user_id"]


def test_the_same_phone_is_the_same_user_with_and_without_a_server(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data) as server:
        first = _user_add(data, "+4915100000003")
        server.kill()  # the socket it leaves behind must not confuse the next command
    assert stat.S_ISSOCK((data / "operator.sock").stat().st_mode)
    assert _user_add(data, "+4915100000003") == first


def test_only_the_owner_of_the_folder_may_talk_to_the_operators_socket(server: ServerProcess) -> None:
    assert stat.S_IMODE((server.data / "operator.sock").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("phone", "name", "complaint"),
    [("0151", "Ada", "a phone number is written like"), ("+4915112345678", " ", "a name has 1 to 64 characters")],
)
def test_a_user_who_cannot_be_is_refused_in_one_line(tmp_path: Path, phone: str, name: str, complaint: str) -> None:
    refused = command("user", "add", "--phone", phone, "--name", name, cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert complaint in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_user_for_a_folder_that_is_not_there_is_refused_and_makes_none(tmp_path: Path) -> None:
    refused = command("user", "add", "--phone", ALICE, "--name", "Ada", "--data", "typo", cwd=tmp_path)
    assert refused.returncode == 2
    assert "there is no data folder typo" in refused.stderr
    assert not (tmp_path / "typo").exists()


def _user_add(data: Path, phone: str, *flags: str) -> str:
    done = command("user", "add", "--data", str(data), "--phone", phone, "--name", "Ada", *flags, cwd=data.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- how it ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_the_server_notifies_clients_and_the_exit_code_is_0(
    tmp_path: Path, which: signal.Signals
) -> None:
    with serving(tmp_path / "data") as server:
        alice = User(server, ALICE)
        with alice.connect() as websocket:
            server.signal(which)
            closing = websocket.receive("connection_closing")
            assert closing["reason"] == "server_shutdown"
            with pytest.raises(ConnectionClosedOK) as closed:
                websocket.socket.recv(timeout=ANSWER_S)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1001
        assert server.wait() == 0
        assert [line["event"] for line in server.lines()][-2:] == ["draining", "stopped"]
        assert not (server.data / "operator.sock").exists()


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        line = _deaf_socket(server, User(server, ALICE).access_token)
        try:
            server.signal(signal.SIGTERM)
            server.wait_for_event("draining")
            server.signal(signal.SIGTERM)
            assert server.process.wait(START_S) == 130
        finally:
            line.close()


def test_what_was_acknowledged_survives_a_kill_and_the_chat_goes_on(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data) as server:
        alice, bob = User(server, ALICE), User(server, BOB)
        chat_id = alice.create_group(bob)
        with alice.connect() as websocket:
            acks = [websocket.send(chat_id, f"number {number}") for number in range(5)]
            server.kill()
    with serving(data) as server:
        alice.server = bob.server = server
        with alice.connect() as sending, bob.connect() as receiving:
            batch = receiving.sync(chat_id)
            assert [each["message_id"] for each in batch["messages"]] == [ack["message_id"] for ack in acks]
            after = sending.send(chat_id, "afterwards")
            assert receiving.receive("message")["message_id"] == after["message_id"]


def test_a_part_that_dies_takes_the_process_with_it_and_says_which(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(
        "from seriatim.engines.embedded.sweep import Sweeper\n"
        "async def sweep(self, now_ms):\n"
        "    raise RuntimeError('a bug, and what somebody wrote')\n"
        "Sweeper.sweep = sweep\n"
        "from seriatim.cli.main import main\n"
        "main()\n",
        encoding="utf-8",
    )
    server = ServerProcess(tmp_path / "data", command=(sys.executable, str(broken)))
    try:
        assert server.wait() == 1
        lines = {line["event"]: line for line in server.lines()}
        assert lines["task_died"]["level"] == "critical"
        assert "sweep has ended by itself" in lines["task_died"]["note"]
        assert lines["task_failure"]["error"] == "RuntimeError"
        assert "what somebody wrote" not in server.log
    finally:
        server.end()


def _deaf_socket(server: ServerProcess, token: str) -> socket.socket:
    """A WebSocket whose client never reads: it holds the drain up for as long as that may take."""
    raw = socket.create_connection((server.host, server.port), timeout=ANSWER_S)
    raw.sendall(
        f"GET /v1/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    )
    assert raw.recv(12) == b"HTTP/1.1 101"
    return raw


# --- what the log does not say ----------------------------------------------------------------------------------------


def test_no_token_code_text_or_phone_number_is_in_the_log_of_a_whole_run(tmp_path: Path) -> None:
    content = "meet me at the old mill"
    with serving(tmp_path / "data", "--log-level", "debug", env="dev") as server:
        for phone_number in (ALICE, *OTHERS):
            request(server, "POST", "/api/v1/auth/request-otp", {"phone_number": phone_number})
        codes = _printed_codes(server, 1 + len(OTHERS))
        alice = User(server, ALICE, otp=codes[ALICE[-2:]])
        chat_id = _alone_with_bob(server, alice)
        with WebSocketClient(server, alice.access_token) as websocket:
            websocket.send(chat_id, content)
            websocket.post("send_message", chat_id=chat_id, content=content)
        request(server, "GET", f"/v1/ws?token={alice.access_token}")
        request(
            server, "GET", f"/api/v1/chats?cursor={alice.access_token}", Authorization=f"Bearer {alice.access_token}x"
        )
        refresh = {"refresh_token": alice.refresh_token}
        request(server, "POST", "/api/v1/auth/refresh", refresh, X_Device_ID=alice.device_id)
        request(server, "POST", "/api/v1/auth/refresh", refresh, X_Device_ID=alice.device_id)  # reuse: an audit event
        assert server.stop() == 0
    assert "auth.refresh_token_reuse" in server.log
    assert '"event":"request"' in server.log
    # Six digits may well be a part of some number: of one code that is likely once in a thousand runs, of all of them
    # never.
    assert not all(code in server.log for code in codes.values())
    for secret in (content, "old mill", alice.refresh_token.partition(".")[2], ALICE, ALICE[1:]):
        assert secret not in server.log
    for part in alice.access_token.split("."):
        assert part not in server.log
    assert ALICE not in server.console
    assert content not in server.console


def _printed_codes(server: ServerProcess, count: int) -> dict[str, str]:
    """By the last two digits of the phone number, which are all that is printed of it."""
    found: dict[str, str] = {}

    def printed() -> bool:
        found.update(re.findall(r"one-time code for \+49\*+(\d\d): (\d{6})\n", server.console))
        return len(found) == count

    until(printed, "the codes are printed")
    return found


def _alone_with_bob(server: ServerProcess, alice: User) -> str:
    bob = _user_add(server.data, BOB).strip()
    chat_id = alice.call("POST", "/chats", {"type": "direct", "member_ids": [bob]}).data["chat_id"]
    assert isinstance(chat_id, str)
    return chat_id

"""The tools beside a real server: they see what it stored, disturb nothing, and raise no alarm."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.server_process import ServerProcess, command, serving
from tests.system.users import User

ANN, BOB = "+4915112345671", "+4915112345672"
SECRET = "what only the two of them should read"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "data") as running:
        yield running


def tool(server: ServerProcess, *arguments: str) -> tuple[int, str]:
    done = command(*arguments, "--data", str(server.data), cwd=server.data.parent)
    return done.returncode, done.stdout


def test_checks_while_people_write_and_after_a_kill_find_nothing(server: ServerProcess) -> None:
    ann, bob = User(server, ANN), User(server, BOB)
    chat_id = ann.create_group(bob)
    assert ann.call("POST", "/chats", {"type": "direct", "member_ids": [bob.user_id]}).status == 201
    done = threading.Event()

    def write() -> None:
        with ann.connect() as websocket:
            while not done.wait(0.1):  # ten a second are accepted
                websocket.send(chat_id, SECRET)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = [tool(server, "check", "--json", "--recheck-seconds", "1") for _ in range(3)]
    finally:
        done.set()
        writer.join()
    assert [(code, json.loads(answer)["violations"]) for code, answer in found] == [(0, 0)] * 3
    server.kill()
    code, answer = tool(server, "check", "--json", "--recheck-seconds", "0")
    assert code == 0, answer
    # No client acknowledged anything, so there is no watermark to look at.
    assert [line["invariant"] for line in json.loads(answer)["invariants"] if not line["looked_at"]] == ["I4"]


def test_data_show_beside_the_server_shows_rows_and_hides_what_users_wrote(server: ServerProcess) -> None:
    ann = User(server, ANN)
    chat_id = ann.create_group(User(server, BOB))
    with ann.connect() as websocket:
        websocket.send(chat_id, SECRET)
    code, shown = tool(server, "data", "show", "--limit", "1000")
    assert code == 0
    assert chat_id in shown
    for hidden in (SECRET, ANN, ann.refresh_token):
        assert hidden not in shown
    code, stats = tool(server, "data", "stats", "--json")
    assert (code, json.loads(stats)["tables"]["messages"]["rows"]) == (0, 1)


def test_a_folder_is_not_compacted_beside_its_server(server: ServerProcess) -> None:
    refused = command("data", "compact", "--data", str(server.data), cwd=server.data.parent)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"in use by process {server.process.pid}" in refused.stderr
    server.stop()
    assert tool(server, "data", "compact")[0] == 0

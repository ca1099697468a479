"""What an operator does beside a running server: follow a message to its readers, and revive a chat that is halted."""

import json
from pathlib import Path

from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.disk import Disk
from tests.system.server_process import command, serving, until, with_limits
from tests.system.users import User

ANN, BOB = "+4915112345678", "+4915112345679"


def test_a_message_is_followed_to_the_gateway_of_its_reader_while_the_server_runs(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        ann, bob = User(server, ANN), User(server, BOB)
        chat_id = ann.create_group(bob)

        def trace(*which: str) -> dict[str, object]:
            ended = command("trace", "--chat", chat_id, *which, "--json", "--data", str(server.data), cwd=tmp_path)
            found = json.loads(ended.stdout)
            assert isinstance(found, dict)
            assert ended.returncode == (0 if found["arrived"] else 1)
            return found

        with ann.connect() as websocket:
            sequence = str(websocket.send(chat_id, "do not show this")["sequence"])
            until(lambda: trace("--sequence", sequence)["arrived"] is True, "it is fanned out")
            with bob.connect() as reader:
                reader.sync(chat_id)
                reader.post("ack", chat_id=chat_id, last_acked_sequence=1)
                until(lambda: _delivered(trace("--sequence", sequence))[bob.user_id], "Bob's ack")
                found = trace("--sequence", sequence)
                assert _delivered(found) == {ann.user_id: False, bob.user_id: True}
                assert _connections(found) == {ann.user_id: 1, bob.user_id: 1}
                assert "do not show this" not in json.dumps(found)
        until(lambda: _connections(trace("--sequence", sequence)) == {ann.user_id: 0, bob.user_id: 0}, "both left")


def test_a_chat_that_lost_its_counter_is_revived_by_the_running_server(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data) as server:
        ann, bob = User(server, ANN), User(server, BOB)
        chat_id, other = ann.create_group(bob), ann.create_group(bob, name="them")
        with ann.connect() as websocket:
            for number in range(3):
                websocket.send(chat_id, f"number {number}")
        assert server.stop() == 0
    disk = Disk(data / "store", create=False)
    disk.write({rows.counter_key(chat_id): None})
    disk.close()
    with serving(data, command=with_limits(tmp_path, RECOVERY_QUIET_S=0.05)) as server:
        ann.server = server
        with ann.connect() as websocket:
            websocket.post_send(chat_id, "halted")
            assert websocket.error()["code"] == "INTERNAL_ERROR"
            assert websocket.send(other, "this one goes on")["sequence"] == 1
            repair = command("counters", "repair", "--chat", chat_id, "--data", str(data), cwd=tmp_path)
            assert (repair.returncode, "number 4" in repair.stdout) == (0, True), repair.stderr
            assert websocket.send(chat_id, "revived")["sequence"] == 4
        again = command("counters", "repair", "--chat", chat_id, "--data", str(data), cwd=tmp_path)
        assert (again.returncode, "exists" in again.stderr) == (2, True)


def _delivered(found: dict[str, object]) -> dict[str, bool]:
    members = found["members"]
    assert isinstance(members, list)
    return {each["user_id"]: each["delivered"] for each in members}


def _connections(found: dict[str, object]) -> dict[str, int]:
    members = found["members"]
    assert isinstance(members, list)
    return {each["user_id"]: len(each["connections"]) for each in members}

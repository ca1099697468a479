"""A disk without room, as the process meets it: no file may grow. Sends fail for a while, and nothing is lost.

And a disk that is read-only. Each is named in the log, with what to do, and no client is told of it.
"""

import asyncio
import resource
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.system.devices import Device, Refused, faults, same, signed_in
from tests.system.server_process import COMMAND, ServerProcess, serving, until, with_limits
from tests.system.users import User, request

USERS = 4


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs Linux: the limits of another process")
async def test_a_full_disk_refuses_sends_loses_nothing_and_works_again_once_there_is_room(tmp_path: Path) -> None:
    """The breaker's pause is shortened: a client that waits half a minute in production waits a second here."""
    data = tmp_path / "data"
    with serving(data, command=_logging_to_a_pipe(with_limits(tmp_path, BREAKER_OPEN_S=1.0))) as server:
        users = await signed_in(lambda number: User(server, f"+4915100{number:06d}"), USERS)
        chat_id = await asyncio.to_thread(users[0].create_group, *users[1:])
        devices = [Device(each) for each in users]
        await asyncio.gather(*(device.connect() for device in devices))
        await asyncio.gather(*(device.sync(chat_id) for device in devices))
        await asyncio.gather(*(device.send(chat_id, f"before {number}") for number, device in enumerate(devices)))
        _fill(server)
        refusals = await asyncio.gather(*(_refused(device, chat_id) for device in devices))
        for error in [error for errors in refusals for error in errors]:
            assert (error["code"], error["retryable"]) == ("SERVICE_UNAVAILABLE", True)
            assert_plain(str(error["message"]), data)
        await asyncio.to_thread(_check_rest, users[0], data)
        await asyncio.to_thread(until, lambda: "part_unready" in server.log, "the log says that the store is away")
        _make_room(server)
        await asyncio.to_thread(
            until, lambda: request(server, "GET", "/health/ready").status == 200, "the folder is open again"
        )
        await asyncio.gather(*(_pay(device, chat_id) for device in devices))
        await asyncio.gather(*(device.send(chat_id, f"after {number}") for number, device in enumerate(devices)))
        history = [same(each) for each in await asyncio.to_thread(users[0].history, chat_id)]
        await asyncio.gather(*(device.has(len(history), chat_id) for device in devices))
        await asyncio.gather(*(device.close() for device in devices))
        assert server.stop() == 0
    lines = {line["event"]: line for line in server.lines()}
    assert {"store_failed", "request_unavailable", "part_unready"} <= lines.keys()
    for event in ("store_failed", "request_unavailable", "part_unready"):
        assert "File too large" in lines[event]["reason"], "the operator is told why"
        assert lines[event]["next_step"]
    texts = sorted(each["content"] for each in history)
    assert texts == sorted(f"{when} {number}" for when in ("before", "during", "after") for number in range(USERS))
    assert faults(devices) == []
    for device in devices:
        assert device.messages(chat_id) == history


def _logging_to_a_pipe(command: Sequence[str]) -> Sequence[str]:
    """Another process writes the file of the log, which can grow on when the server's own cannot."""
    return "bash", "-c", 'exec "$@" 2> >(cat >&2)', "bash", *command


def _fill(server: ServerProcess) -> None:
    """From now on no file of the server can grow."""
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (0, hard))


def _make_room(server: ServerProcess) -> None:
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))


async def _refused(device: Device, chat_id: str) -> list[dict[str, object]]:
    """One text, tried again as a client would: before it waits, and with the same id."""
    errors = list[dict[str, object]]()
    number = device.user.phone_number[-1]
    for attempt in range(3):
        try:
            await (device.resend(chat_id) if attempt else device.send(chat_id, f"during {number}"))
            raise AssertionError("a send was acknowledged though nothing can be written")
        except Refused as refused:
            errors.append(refused.error)
    return errors


async def _pay(device: Device, chat_id: str) -> None:
    """Until it is acknowledged, waiting as long as the server says."""
    async with asyncio.timeout(60):
        while device.unacked[chat_id]:
            try:
                await device.resend(chat_id)
            except Refused as refused:
                if refused.error["code"] != "SERVICE_UNAVAILABLE":
                    raise
                await asyncio.sleep(refused.error.get("retry_after_seconds", 1))


def assert_plain(text: str, data: Path) -> None:
    """What a client reads has no path, and none of the words of the disk."""
    for internal in (str(data), "/", ".log", "IO error", "RocksDB", "File too large", "data folder"):
        assert internal not in text.replace("application/json", ""), text


def _check_rest(user: User, data: Path) -> None:
    """F12: refused at once, with a word on when to come back."""
    other = user.user_id[:-1] + ("1" if user.user_id.endswith("0") else "0")
    for method, path, body in (
        ("PATCH", "/users/me", {"display_name": "Ada"}),
        ("POST", "/chats", {"type": "group", "member_ids": [other]}),
    ):
        reply = user.call(method, path, body)
        assert (reply.status, reply.json["error"]["code"]) == (503, "SERVICE_UNAVAILABLE"), reply.text
        assert_plain(reply.text, data)
        assert int(reply.headers["retry-after"]) >= 1
    assert request(user.server, "GET", "/health/ready").status == 503
    assert request(user.server, "GET", "/health").status == 200


def test_a_read_only_disk_is_refused_at_the_start_with_what_to_do(tmp_path: Path) -> None:
    """The file system is read-only in a mount namespace of its own: file modes would not stop the superuser."""
    data = tmp_path / "data"
    with serving(data) as server:
        assert server.stop() == 0
    mount = f"mount --bind {data} {data} && mount -o remount,ro,bind {data}"
    if subprocess.run(("unshare", "-rm", "sh", "-c", mount), capture_output=True).returncode:
        pytest.skip("a read-only disk: this system gives no mount namespace")
    command = f"{mount} && exec {shlex.join(COMMAND)} serve --port 0 --internal off --data {data}"
    ended = subprocess.run(("unshare", "-rm", "sh", "-c", command), capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert str(data) in ended.stderr
    assert "read-only" in ended.stderr.lower()
    assert "Traceback" not in ended.stderr

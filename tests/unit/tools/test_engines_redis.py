"""Real Redis as a child process; and, on this quickest of the engines, what holds for all of them."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import SystemRandom

import pytest

from tests.support.real_engines import real_engines
from tools.engines import ports
from tools.engines.engine import Engine
from tools.engines.errors import EngineFailed, EngineMissing
from tools.engines.ports import HOST, listens, spare_port
from tools.engines.redis import Redis

ROOT = Path(__file__).parents[3]
ELSEWHERE = "127.0.0.2"
"""Reaches a process that listens on every address, and none that listens on 127.0.0.1."""


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    with real_engines():
        Redis(tmp_path).require()
    with Redis.started(tmp_path / "redis") as engine:
        yield engine


def test_a_started_redis_answers_at_its_address(redis: Redis) -> None:
    assert redis.url == f"redis://127.0.0.1:{redis.port}"
    assert _ask(redis.port, "PING") == "+PONG"


def test_redis_listens_on_the_loopback_address_only(redis: Redis) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((ELSEWHERE, redis.port), 1)


def test_a_wiped_redis_is_empty_and_at_the_same_port(redis: Redis) -> None:
    port, before = redis.port, redis.pid
    assert _ask(port, "SET kept yes") == "+OK"
    redis.wipe()
    assert redis.port == port
    assert redis.pid != before
    assert _ask(port, "DBSIZE") == ":0"


@pytest.mark.parametrize("end", [Engine.stop, Engine.kill], ids=["stopped", "killed"])
def test_an_ended_redis_is_gone_and_comes_back_at_the_same_port(redis: Redis, end: object) -> None:
    assert callable(end)
    port = redis.port
    end(redis)
    assert not redis.is_running
    with pytest.raises(ConnectionRefusedError):
        _ask(port, "PING")
    redis.start()
    assert _ask(port, "PING") == "+PONG"


def test_starting_what_runs_changes_nothing(redis: Redis) -> None:
    before = redis.pid
    redis.start()
    assert redis.pid == before


def test_a_paused_redis_is_silent_until_it_is_resumed(redis: Redis) -> None:
    with socket.create_connection((HOST, redis.port), 5) as connection:
        redis.pause()
        connection.sendall(b"PING\r\n")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(64)
        redis.resume()
        connection.settimeout(5)
        assert connection.recv(64) == b"+PONG\r\n"


def test_a_paused_redis_can_still_be_stopped_in_order(redis: Redis) -> None:
    redis.pause()
    redis.stop()
    assert not redis.is_running
    assert "bye bye" in (redis.folder / "engine.log").read_text()


def test_what_does_not_run_cannot_be_paused(redis: Redis) -> None:
    redis.stop()
    with pytest.raises(EngineFailed, match="Redis is not running"):
        redis.pause()


def test_a_port_that_was_taken_meanwhile_is_given_up_for_another(redis: Redis, tmp_path: Path) -> None:
    spare = spare_port()
    offered = iter([redis.port, spare])
    second = Redis(tmp_path / "second", spare=lambda: next(offered))
    try:
        second.start()
        assert second.port == spare
        assert listens(second.pid, spare)
    finally:
        second.kill()


def test_a_port_whose_taker_left_before_the_second_check_is_given_up_all_the_same(redis: Redis, tmp_path: Path) -> None:
    spare = spare_port()
    offered = iter([redis.port, spare])

    class Late(Redis):
        def kill(self) -> None:
            super().kill()
            redis.stop()

    second = Late(tmp_path / "second", spare=lambda: next(offered))
    try:
        second.start()
        assert second.port == spare
    finally:
        second.kill()


def test_a_stranger_who_answers_at_the_port_is_not_taken_for_the_engine(redis: Redis, tmp_path: Path) -> None:
    second = Redis(tmp_path / "second", spare=lambda: redis.port)
    with pytest.raises(EngineFailed, match="Address already in use"):
        second.start()
    assert not second.is_running


def test_an_engine_that_ends_at_once_leaves_its_last_words(tmp_path: Path) -> None:
    class Broken(Redis):
        def command(self) -> list[str]:
            return ["sh", "-c", "echo the disk is on fire; exit 1"]

    with real_engines():
        Redis(tmp_path).require()
    with pytest.raises(EngineFailed, match="the disk is on fire"):
        Broken(tmp_path / "broken").start()


def test_an_engine_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    with real_engines():
        Redis(tmp_path).require()
    engine = Redis(tmp_path / "redis")
    thread = threading.Thread(target=engine.start)
    thread.start()
    task = Path(f"/proc/self/task/{thread.native_id}")
    try:
        thread.join()
        while task.exists():  # Python lets go of a thread a moment before the system does
            os.sched_yield()
        assert _ask(engine.port, "PING") == "+PONG"
    finally:
        engine.kill()


def test_an_engine_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    with real_engines():
        Redis(tmp_path).require()
    program = (
        "import sys, signal; from pathlib import Path; from tools.engines.redis import Redis\n"
        "engine = Redis(Path(sys.argv[1])); engine.start(); print(engine.port, flush=True); signal.pause()"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "redis")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as parent:
        try:
            assert parent.stdout is not None
            with socket.create_connection((HOST, int(parent.stdout.readline())), 5) as connection:
                connection.settimeout(10)
                connection.sendall(b"PING\r\n")
                assert connection.recv(64) == b"+PONG\r\n"
                parent.send_signal(signal.SIGKILL)
                assert connection.recv(1) == b""
        finally:
            parent.kill()


def test_a_missing_redis_is_named_with_the_package_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "setpriv").write_text("#!/bin/sh\n")
    (tmp_path / "setpriv").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineMissing, match=r"Redis was not run: .* Install the package redis-server"):
        Redis(tmp_path / "redis").start()


def test_a_spare_port_is_never_one_that_outgoing_connections_use() -> None:
    ephemeral_min = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(20_000 <= spare_port() < ephemeral_min for _ in range(50))


def test_no_port_is_spare_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine of two ports needs two, and an engine that is stopped finds its own port free when it comes back."""
    given = spare_port()
    monkeypatch.setattr(ports, "_chance", _First(given))
    assert spare_port() != given


def test_a_port_that_another_process_keeps_is_not_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "from tools.engines.ports import spare_port; print(spare_port(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        try:
            assert other.stdout is not None
            kept = int(other.stdout.readline())
            monkeypatch.setattr(ports, "_chance", _First(kept))
            assert spare_port() != kept
        finally:
            other.kill()


class _First(SystemRandom):
    """Picks this port first, then any."""

    def __init__(self, port: int) -> None:
        self._picks = [port]

    def choice(self, among: Sequence[int]) -> int:  # type: ignore[override]
        return self._picks.pop() if self._picks else super().choice(among)


def _ask(port: int, command: str) -> str:
    with socket.create_connection((HOST, port), 5) as connection, connection.makefile("rb") as answers:
        connection.sendall(command.encode() + b"\r\n")
        return answers.readline().decode().strip()

"""A server assembled in this process: what it is made of works together, and every part is watched and ended."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import ServiceUnavailable
from seriatim.engines.embedded.accounts import EmbeddedAccounts
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.sweep import Swept
from seriatim.runtime.config.settings import Settings
from seriatim.runtime.server.lifecycle import ListenAddresses, ServerProcess, StartupError, TaskDied
from seriatim.runtime.tools.operator import AddUserRequest, AddUserResponse, NoServerRunning, ServerRefused, ask
from seriatim.runtime.wiring.assemble import assemble
from seriatim.runtime.wiring.embedded_store import EmbeddedStore

ADA = AddUserRequest(phone_number="+4915112345678", display_name="Ada", with_token=True)


def _settings(tmp_path: Path, **given: str) -> Settings:
    return Settings(env="test", port=0, internal="127.0.0.1:0", data=str(tmp_path / "data"), **given)  # type: ignore[arg-type]


@asynccontextmanager
async def _assembled(settings: Settings) -> AsyncIterator[ServerProcess]:
    server = await assemble(settings, instance="here")
    try:
        yield server
    finally:
        await server.close()


def _public(listening: ListenAddresses) -> int:
    assert listening.public is not None
    return listening.public.port


def _store(server: ServerProcess) -> EmbeddedStore:
    assert isinstance(server.engines.store, EmbeddedStore)
    return server.engines.store


async def _get(port: int, path: str) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
        await writer.wait_closed()
    return int(head.split()[1]), body


async def test_a_stop_drains_and_leaves_neither_task_nor_socket(tmp_path: Path) -> None:
    async with _assembled(_settings(tmp_path)) as server:
        listening = await server.start()
        stop = asyncio.Event()
        waiting = asyncio.create_task(server.wait(stop))
        assert (await _get(_public(listening), "/health/ready"))[0] == 200
        stop.set()
        await waiting
        await server.drain()
    assert len(asyncio.all_tasks()) == 1
    assert not (tmp_path / "data" / "operator.sock").exists()


async def test_a_server_that_drains_or_cannot_reach_its_store_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _assembled(_settings(tmp_path)) as server:
        listening = await server.start()
        assert listening.internal is not None
        ports = (_public(listening), listening.internal.port)
        gateway = server.roles.gateway
        assert gateway is not None
        await gateway.drain()
        assert [(await _get(port, "/health/ready"))[0] for port in ports] == [503, 503]
        assert (await _get(ports[0], "/health"))[0] == 200
        gateway.draining = False
        assert [(await _get(port, "/health/ready"))[0] for port in ports] == [200, 200]

        async def read(*_: object, **__: object) -> None:
            raise ServiceUnavailable("no room")

        monkeypatch.setattr(_store(server).folder.writer, "read", read)
        assert [(await _get(port, "/health/ready"))[0] for port in ports] == [503, 503]
        status, text = await _get(ports[1], "/metrics")
        assert status == 200
        assert b'durability_dynamodb_available{instance="here"} 0.0' in text
        monkeypatch.undo()


@pytest.mark.parametrize("part", ["ingest", "fanout", "sweep"])
async def test_a_part_that_ends_ends_the_wait_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    async def dies() -> None:
        raise RuntimeError("a bug")

    async with _assembled(_settings(tmp_path)) as server:
        runs = _store(server).sweep_loop if part == "sweep" else getattr(server.roles, part)
        monkeypatch.setattr(runs, "run", dies)
        await server.start()
        with pytest.raises(TaskDied) as death:
            await server.wait(asyncio.Event())
        assert isinstance(death.value.__cause__, RuntimeError)
        monkeypatch.undo()


async def test_a_part_that_ends_without_a_failure_ends_the_wait_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ends() -> None:
        return

    async with _assembled(_settings(tmp_path)) as server:
        monkeypatch.setattr(_store(server).sweep_loop, "run", ends)
        await server.start()
        with pytest.raises(TaskDied, match="sweep has ended"):
            await server.wait(asyncio.Event())


async def test_a_start_that_fails_half_way_lets_go_of_everything(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = _settings(tmp_path)
        busy = Settings(env="test", port=taken.getsockname()[1], internal="off", data=settings.data)
        async with _assembled(busy) as server:
            with pytest.raises(StartupError, match="cannot listen on"):
                await server.start()
    assert len(asyncio.all_tasks()) == 1
    async with _assembled(settings) as server:
        await server.start()


async def test_keys_that_cannot_be_used_refuse_the_start_and_let_the_folder_go(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir(mode=0o700)
    (keys / "a.pem").touch(mode=0o600)
    for _ in range(2):
        with pytest.raises(StartupError, match="damaged"):
            await assemble(_settings(tmp_path, keys=str(keys)), instance="here")


async def test_what_has_expired_is_swept_while_the_server_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swept = asyncio.Event()

    async def sweep(now_ms: int) -> Swept:
        swept.set()
        return Swept(0, 0)

    async with _assembled(_settings(tmp_path)) as server:
        monkeypatch.setattr(_store(server).sweep_loop._sweeper, "sweep", sweep)
        await server.start()
        await asyncio.wait_for(swept.wait(), 5)


# --- the operator's socket --------------------------------------------------------------------------------------------


async def test_the_operators_socket_adds_users_and_refuses_in_words(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with _assembled(_settings(tmp_path)) as server:
        with pytest.raises(NoServerRunning):
            ask(data, "/users", ADA, AddUserResponse)
        await server.start()
        first = await asyncio.to_thread(ask, data, "/users", ADA, AddUserResponse)
        again = await asyncio.to_thread(ask, data, "/users", ADA, AddUserResponse)
        assert (first.created, again.created) == (True, False)
        assert first.user_id == again.user_id
        wrong = AddUserRequest(phone_number="0151", display_name="Ada")
        with pytest.raises(ServerRefused, match="a phone number is written like"):
            await asyncio.to_thread(ask, data, "/users", wrong, AddUserResponse)
        with pytest.raises(ServerRefused, match="no such path"):
            await asyncio.to_thread(ask, data, "/elsewhere", ADA, AddUserResponse)
        with pytest.raises(ServerRefused, match="no request for this path"):
            await asyncio.to_thread(ask, data, "/users", Settings(), AddUserResponse)


async def test_tokens_from_an_operator_never_make_more_sessions_than_a_user_may_have(tmp_path: Path) -> None:
    async with _assembled(_settings(tmp_path)) as server:
        operator = server.roles.operator
        assert operator is not None
        added = [await operator.add_user(ADA) for _ in range(limits.SESSIONS_PER_USER_MAX + 2)]
        accounts = EmbeddedAccounts(_store(server).folder)
        kept = await accounts.sessions_of(added[0].user_id, timeout_s=1.0)
    assert len(kept) == limits.SESSIONS_PER_USER_MAX
    assert added[-1].device_id in [each.device_id for each in kept]


async def test_a_socket_that_a_dead_server_left_is_replaced(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    data = tmp_path / "data"
    await Folder.open(data).close()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(data / "operator.sock"))
    async with _assembled(settings) as server:
        await server.start()
        assert (await asyncio.to_thread(ask, data, "/users", ADA, AddUserResponse)).created


async def test_a_path_too_long_for_a_socket_costs_the_socket_and_nothing_else(tmp_path: Path) -> None:
    data = tmp_path / ("d" * 120)
    settings = Settings(env="test", port=0, internal="off", data=str(data))
    async with _assembled(settings) as server:
        listening = await server.start()
        assert (await _get(_public(listening), "/health"))[0] == 200

"""Whether Redis is there: each role that needs it says so within a bounded time, and sees when it is back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from seriatim.domain import limits
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.runtime.config.roles import ProcessRole
from seriatim.runtime.config.settings import Settings
from seriatim.runtime.server.lifecycle import StartupError
from seriatim.runtime.telemetry.metrics import Metrics
from seriatim.runtime.wiring.engine_set import EngineSet
from seriatim.runtime.wiring.engines import open_engines
from tests.support.real_engines import real_engines
from tests.support.real_redis import Shard, ask, client_of, real_redis
from tests.support.tcp_proxy import TcpProxy

NOWHERE = "127.0.0.1:1"  # no process listens on this port
SLACK_S = 1.0  # of a busy machine
WITH_DIRECTORY = (ProcessRole.GATEWAY, ProcessRole.FANOUT, ProcessRole.API)


@asynccontextmanager
async def engines_of(role: ProcessRole, proxy: TcpProxy, folder: Path) -> AsyncIterator[tuple[EngineSet, Metrics]]:
    settings = Settings(
        env="test",
        roles=(role,),
        keys=str(folder),
        store=f"dynamodb://?endpoint=http://{NOWHERE}",
        events=f"kafka://{NOWHERE}",
        directory=f"redis://127.0.0.1:{proxy.port}",
        ingest=(NOWHERE,),
    )
    metrics = Metrics("here", (role,))
    engines = await open_engines(settings, metrics, SystemClock(), "run")
    try:
        yield engines, metrics
    finally:
        await engines.close()


async def _directory(engines: EngineSet) -> bool:
    """Answered in time, whatever the answer."""
    async with asyncio.timeout(limits.STORE_TIMEOUT_S + SLACK_S):
        return (await engines.availability())["directory"] is None


async def _until_it_is_back(engines: EngineSet) -> None:
    async with asyncio.timeout(5):
        while True:
            if await _directory(engines):
                return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("role", WITH_DIRECTORY)
async def test_redis_that_is_gone_or_deaf_fails_the_directory_in_time_and_is_seen_when_it_is_back(
    role: ProcessRole, tmp_path: Path
) -> None:
    redis = await asyncio.to_thread(real_redis)
    async with TcpProxy(redis.port) as proxy, engines_of(role, proxy, tmp_path) as (engines, _):
        assert await _directory(engines)
        proxy.cut()
        assert not await _directory(engines)
        proxy.restore()
        await _until_it_is_back(engines)
        proxy.stall()
        assert not await _directory(engines)
        proxy.resume()
        await _until_it_is_back(engines)


async def test_losses_of_redis_show_as_numbers(tmp_path: Path) -> None:
    redis = await asyncio.to_thread(real_redis)
    async with TcpProxy(redis.port) as proxy, engines_of(ProcessRole.GATEWAY, proxy, tmp_path) as (engines, metrics):
        engines.gateway_ports()

        def numbers() -> dict[str, Any]:
            return {name: count for read in metrics.engine_counters for name, count in read().items()}

        await _directory(engines)
        assert numbers() == {
            "redis_connections": 1,
            "redis_dials_failed": 0,
            "redis_calls_failed": 0,
            "redis_parcels_malformed": 0,
        }
        proxy.cut()
        while await _directory(engines):  # the loss may take a moment to arrive
            pass
        assert not await _directory(engines)
        found = numbers()
        assert found["redis_connections"] == 1
        assert found["redis_dials_failed"] >= 1
        assert found["redis_calls_failed"] >= 2
        proxy.restore()
        await _until_it_is_back(engines)
        assert numbers()["redis_connections"] == 2


async def test_a_redis_that_would_forget_what_it_must_not_is_warned_of_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    redis = await asyncio.to_thread(real_redis)
    async with TcpProxy(redis.port) as proxy, engines_of(ProcessRole.GATEWAY, proxy, tmp_path) as (engines, _):
        await engines.check_reachable()
        assert caplog.messages == []
        async with client_of(redis.url) as client:
            await ask(client, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            try:
                await engines.check_reachable()
            finally:
                await ask(client, "CONFIG", "SET", "maxmemory-policy", "noeviction")
        assert caplog.messages == ["redis_evicts"]


async def test_b5_a_process_does_not_start_with_a_node_of_a_cluster_and_says_why(tmp_path: Path) -> None:
    with real_engines():
        Shard(tmp_path).require()
    with Shard.started(tmp_path / "shard") as shard:
        async with TcpProxy(shard.port) as proxy, engines_of(ProcessRole.GATEWAY, proxy, tmp_path) as (engines, _):
            with pytest.raises(StartupError, match="cluster-enabled no"):
                await engines.check_reachable()
            assert not await _directory(engines)


async def test_a_redis_that_is_full_fails_the_directory_until_there_is_room(tmp_path: Path) -> None:
    redis = await asyncio.to_thread(real_redis)
    async with TcpProxy(redis.port) as proxy, engines_of(ProcessRole.GATEWAY, proxy, tmp_path) as (engines, _):
        assert await _directory(engines)
        async with client_of(redis.url) as client:
            await ask(client, "CONFIG", "SET", "maxmemory", 1)
            try:
                assert not await _directory(engines)
            finally:
                await ask(client, "CONFIG", "SET", "maxmemory", 0)
        assert await _directory(engines)


async def test_ingest_does_not_ask_for_redis_at_all(tmp_path: Path) -> None:
    redis = await asyncio.to_thread(real_redis)
    async with TcpProxy(redis.port) as proxy, engines_of(ProcessRole.INGEST, proxy, tmp_path) as (engines, _):
        assert list(await engines.availability()) == ["store"]
        assert proxy.attempts == 0

"""Whether Redis is there: each role that needs it says so within a bounded time, and sees when it is back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from seriatim.domain.limits import STORE_TIMEOUT_S
from seriatim.engines.memory.system_clock import SystemClock
from seriatim.runtime.distributed import DistributedWorld
from seriatim.runtime.metrics import Metrics
from seriatim.runtime.roles import Role
from seriatim.runtime.server import CannotStart
from seriatim.runtime.settings import Settings
from tests.support.cut_line import CutLine
from tests.support.real_engines import real_engines
from tests.support.real_redis import Shard, ask, client_of, real_redis

NOWHERE = "127.0.0.1:1"  # nobody listens on this port
SLACK_S = 1.0  # of a busy machine
WITH_DIRECTORY = (Role.GATEWAY, Role.FANOUT, Role.API)


@asynccontextmanager
async def world_of(role: Role, line: CutLine, folder: Path) -> AsyncIterator[tuple[DistributedWorld, Metrics]]:
    settings = Settings(
        env="test",
        roles=(role,),
        keys=str(folder),
        store=f"dynamodb://?endpoint=http://{NOWHERE}",
        events=f"kafka://{NOWHERE}",
        directory=f"redis://127.0.0.1:{line.port}",
        ingest=(NOWHERE,),
    )
    metrics = Metrics("here", (role,))
    world = await DistributedWorld.open(settings, metrics, SystemClock(), "run")
    try:
        yield world, metrics
    finally:
        await world.close()


async def _directory(world: DistributedWorld) -> bool:
    """Answered in time, whatever the answer."""
    async with asyncio.timeout(STORE_TIMEOUT_S + SLACK_S):
        return (await world.answers())["directory"]


async def _until_it_is_back(world: DistributedWorld) -> None:
    async with asyncio.timeout(5):
        while True:
            if await _directory(world):
                return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("role", WITH_DIRECTORY)
async def test_redis_that_is_gone_or_deaf_fails_the_directory_in_time_and_is_seen_when_it_is_back(
    role: Role, tmp_path: Path
) -> None:
    redis = await asyncio.to_thread(real_redis)
    async with CutLine(redis.port) as line, world_of(role, line, tmp_path) as (world, _):
        assert await _directory(world)
        line.cut()
        assert not await _directory(world)
        line.mend()
        await _until_it_is_back(world)
        line.deafen()
        assert not await _directory(world)
        line.hear()
        await _until_it_is_back(world)


async def test_losses_of_redis_show_as_numbers(tmp_path: Path) -> None:
    redis = await asyncio.to_thread(real_redis)
    async with CutLine(redis.port) as line, world_of(Role.GATEWAY, line, tmp_path) as (world, metrics):
        world.for_gateway()

        def numbers() -> dict[str, int]:
            return {tally.name: tally.counts[()] for ask in metrics.tallies for tally in ask()}

        await _directory(world)
        assert numbers() == {
            "redis_connections": 1,
            "redis_dials_failed": 0,
            "redis_calls_failed": 0,
            "redis_parcels_malformed": 0,
        }
        line.cut()
        while await _directory(world):  # the loss may take a moment to arrive
            pass
        assert not await _directory(world)
        found = numbers()
        assert found["redis_connections"] == 1
        assert found["redis_dials_failed"] >= 1
        assert found["redis_calls_failed"] >= 2
        line.mend()
        await _until_it_is_back(world)
        assert numbers()["redis_connections"] == 2


async def test_a_redis_that_would_forget_what_it_must_not_is_warned_of_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    redis = await asyncio.to_thread(real_redis)
    async with CutLine(redis.port) as line, world_of(Role.GATEWAY, line, tmp_path) as (world, _):
        await world.reach()
        assert caplog.messages == []
        async with client_of(redis.url) as client:
            await ask(client, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            try:
                await world.reach()
            finally:
                await ask(client, "CONFIG", "SET", "maxmemory-policy", "noeviction")
        assert caplog.messages == ["redis_evicts"]


async def test_b5_a_process_does_not_start_with_a_node_of_a_cluster_and_says_why(tmp_path: Path) -> None:
    with real_engines():
        Shard(tmp_path).require()
    with Shard.started(tmp_path / "shard") as shard:
        async with CutLine(shard.port) as line, world_of(Role.GATEWAY, line, tmp_path) as (world, _):
            with pytest.raises(CannotStart, match="cluster-enabled no"):
                await world.reach()
            assert not await _directory(world)


async def test_a_redis_that_is_full_fails_the_directory_until_there_is_room(tmp_path: Path) -> None:
    redis = await asyncio.to_thread(real_redis)
    async with CutLine(redis.port) as line, world_of(Role.GATEWAY, line, tmp_path) as (world, _):
        assert await _directory(world)
        async with client_of(redis.url) as client:
            await ask(client, "CONFIG", "SET", "maxmemory", 1)
            try:
                assert not await _directory(world)
            finally:
                await ask(client, "CONFIG", "SET", "maxmemory", 0)
        assert await _directory(world)


async def test_ingest_does_not_ask_for_redis_at_all(tmp_path: Path) -> None:
    redis = await asyncio.to_thread(real_redis)
    async with CutLine(redis.port) as line, world_of(Role.INGEST, line, tmp_path) as (world, _):
        assert list(await world.answers()) == ["store"]
        assert line.attempts == 0

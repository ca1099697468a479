"""A real Redis for tests: one server per test process, started by the first test that needs it, and spoken to by hand.

Time cannot be moved there. `pass_time` makes everything stored older instead, which is the same to every reader.
"""

import asyncio
import atexit
import functools
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

from seriatim.domain.errors import ServiceUnavailable
from seriatim.engines.redis.address import RedisAddress
from seriatim.engines.redis.client import RedisClient
from seriatim.engines.redis.connection import Argument, Reply
from seriatim.engines.redis.dial import RedisDialer
from tests.support.real_engines import real_engines
from tools.engines.ports import HOST
from tools.engines.redis import Redis

PATIENCE_S = 5.0
FAILOVER_S = 30.0
SERVICE = "chat"


def real_redis() -> Redis:
    """Running, whatever the test before did to it."""
    with real_engines():
        redis = _server()
        redis.start()
    return redis


def dialer(redis: Redis) -> RedisDialer:
    return RedisDialer(RedisAddress.parse(redis.url))


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[RedisClient]:
    client = RedisClient(RedisDialer(RedisAddress.parse(url)))
    try:
        yield client
    finally:
        await client.close()


async def ask(client: RedisClient, *command: Argument) -> Reply:
    [reply] = await client.call([command], timeout_s=PATIENCE_S)
    return reply


async def until(condition: Callable[[], bool], patience_s: float = 2 * PATIENCE_S) -> None:
    ends = asyncio.get_running_loop().time() + patience_s
    while not condition():
        assert asyncio.get_running_loop().time() < ends, "waited in vain"
        await asyncio.sleep(0.005)


async def until_it_answers(client: RedisClient) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await client.ping(timeout_s=1)
            except ServiceUnavailable:
                await asyncio.sleep(0.02)


async def replicate(redis: Redis, replica: Redis) -> None:
    """Returns once the replica has what the primary has."""
    async with client_of(redis.url) as primary, client_of(replica.url) as second:
        await ask(primary, "CONFIG", "SET", "repl-diskless-sync-delay", 0)
        await ask(second, "REPLICAOF", HOST, redis.port)
        assert await ask(primary, "SET", "a", "1") == b"OK"
        async with asyncio.timeout(FAILOVER_S):
            while await ask(primary, "WAIT", 1, 100) != 1:
                await ask(primary, "SET", "a", "1")


class Sentinel(Redis):
    """Watches `primary` under the name SERVICE, and puts a replica in its place when it is gone for 0.3 s."""

    name: ClassVar[str] = "Redis Sentinel"

    def __init__(self, folder: Path, primary: Redis) -> None:
        super().__init__(folder)
        self._primary = primary

    def prepare(self) -> None:
        lines = (
            f"port {self.port}",
            f"bind {HOST}",
            f"sentinel monitor {SERVICE} {HOST} {self._primary.port} 1",
            f"sentinel down-after-milliseconds {SERVICE} 300",
            f"sentinel failover-timeout {SERVICE} 3000",
        )
        (self.folder / "sentinel.conf").write_text("\n".join(lines))

    def command(self) -> list[str]:
        return [super().command()[0], "sentinel.conf", "--sentinel"]


class Shard(Redis):
    """A cluster of one: it holds every slot, and refuses what spans two."""

    def command(self) -> list[str]:
        return [*super().command(), "--cluster-enabled", "yes"]


class RawRedis:
    """A client for what no engine offers: to look, to age and to empty."""

    def __init__(self, redis: Redis) -> None:
        self.client = RedisClient(dialer(redis))

    async def ask(self, *command: Argument) -> Reply:
        return await ask(self.client, *command)

    async def keys(self) -> list[str]:
        return sorted(_texts(await self.ask("KEYS", "*")))

    async def texts(self, *command: Argument) -> list[str]:
        return _texts(await self.ask(*command))

    async def listeners(self, channel: str) -> int:
        match await self.ask("PUBSUB", "NUMSUB", channel):
            case [_, int(count)]:
                return count
        raise AssertionError("PUBSUB NUMSUB answers with a name and a number")

    async def pass_time(self, seconds: float) -> None:
        for key in await self.keys():
            await self.ask("EVAL", _AGE, 1, key, round(seconds * 1000))

    async def close(self) -> None:
        await self.client.close()


_AGE = """
local left_ms, passed_ms = redis.call('PTTL', KEYS[1]), tonumber(ARGV[1])
if redis.call('TYPE', KEYS[1]).ok == 'zset' then
  for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    redis.call('ZINCRBY', KEYS[1], string.format('%.0f', -passed_ms * 1000), member)
  end
end
if left_ms > 0 then redis.call('PEXPIRE', KEYS[1], left_ms - passed_ms) end
"""


@functools.cache
def _server() -> Redis:
    folder = Path(tempfile.mkdtemp(prefix="seriatim-redis-"))
    redis = Redis(folder / "redis")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(redis.kill)
    return redis


def _texts(reply: Reply) -> list[str]:
    assert isinstance(reply, list)
    return [each.decode() for each in reply if isinstance(each, bytes)]

"""Redis under contract: a real server, emptied for every test. Its time passes by making what it stores older."""

import asyncio
from collections.abc import Sequence

from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.redis.address import RedisAddress
from seriatim.engines.redis.client import RedisClient
from seriatim.engines.redis.dial import RedisDialer
from seriatim.engines.redis.directory import RedisDirectory
from seriatim.engines.redis.push import RedisPush, RedisPushSubscriber
from seriatim.engines.redis.quotas import RedisQuotas
from seriatim.engines.redis.revocations import RedisRevocations
from seriatim.ports.directory import Directory
from seriatim.ports.push import Push, PushReceiver, PushSubscriber
from seriatim.ports.quotas import Quotas
from seriatim.ports.revocations import Revocations
from tests.support.manual_clock import ManualClock
from tests.support.real_redis import PATIENCE_S, RawRedis, dialer, real_redis
from tests.support.tcp_proxy import TcpProxy


class RedisEngine:
    """Each handle is a process of its own, with its own connection. A pause is real time, since Redis is elsewhere."""

    looks = 150

    async def open(self) -> None:
        self.redis = real_redis()
        self.raw = RawRedis(self.redis)
        self._clients: list[RedisClient] = []
        await self.raw.ask("FLUSHALL")

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        await self.raw.close()

    async def pause(self) -> None:
        await asyncio.sleep(0.003)

    async def wipe(self) -> None:
        await self.raw.ask("FLUSHALL")

    def client(self) -> RedisClient:
        self._clients.append(RedisClient(dialer(self.redis)))
        return self._clients[-1]


class RedisDirectoryEngine(RedisEngine):
    def directory(self) -> Directory:
        return RedisDirectory(self.client())

    async def pass_time(self, seconds: float) -> None:
        await self.raw.pass_time(seconds)

    async def listed(self, user_id: str) -> Sequence[str]:
        return await self.raw.texts("SMEMBERS", f"user_connections:{user_id}")


class RedisPushEngine(RedisEngine):
    """Each gateway listens through a proxy of its own, which can be cut."""

    async def open(self) -> None:
        await super().open()
        self._subscribers: list[RedisPushSubscriber] = []
        self._proxies: dict[str, TcpProxy] = {}

    async def close(self) -> None:
        for subscriber in self._subscribers:
            await subscriber.close()
        for proxy in self._proxies.values():
            await proxy.close()
        await super().close()

    def push(self) -> Push:
        return RedisPush(self.client())

    def subscriber(self) -> PushSubscriber:
        return _SubscriberByLine(self)

    async def proxy(self, gateway_id: str) -> TcpProxy:
        if gateway_id not in self._proxies:
            self._proxies[gateway_id] = await TcpProxy(self.redis.port).__aenter__()
        return self._proxies[gateway_id]

    def subscriber_at(self, port: int) -> RedisPushSubscriber:
        self._subscribers.append(
            RedisPushSubscriber(RedisDialer(RedisAddress.parse(f"redis://127.0.0.1:{port}")), SystemClock())
        )
        return self._subscribers[-1]

    async def interrupt(self, gateway_id: str) -> None:
        self._proxies[gateway_id].cut()
        await self._listeners(gateway_id, 0)

    async def restore(self, gateway_id: str) -> None:
        self._proxies[gateway_id].restore()
        await self._listeners(gateway_id, 1)

    async def wipe(self) -> None:
        """What a restart does to subscriptions. The server itself is shared with tests that come after."""
        await self.raw.ask("CLIENT", "KILL", "TYPE", "pubsub")
        await self.raw.ask("FLUSHALL")

    async def _listeners(self, gateway_id: str, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await self.raw.listeners(f"gateway:{gateway_id}:deliver") != count:
                await self.pause()


class _SubscriberByLine(PushSubscriber):
    """Learns with the first call which gateway's proxy it takes."""

    def __init__(self, engine: RedisPushEngine) -> None:
        self._engine = engine
        self._subscriber: RedisPushSubscriber | None = None

    async def subscribe(self, gateway_id: str, receiver: PushReceiver, *, timeout_s: float) -> None:
        if self._subscriber is None:
            self._subscriber = self._engine.subscriber_at((await self._engine.proxy(gateway_id)).port)
        await self._subscriber.subscribe(gateway_id, receiver, timeout_s=timeout_s)

    async def unsubscribe(self, gateway_id: str) -> None:
        assert self._subscriber is not None
        await self._subscriber.unsubscribe(gateway_id)


class RedisQuotasEngine(RedisEngine):
    def quotas(self) -> Quotas:
        return RedisQuotas(self.client())

    async def advance(self, seconds: float) -> None:
        await self.raw.pass_time(seconds)


class RedisRevocationsEngine(RedisEngine):
    """Tokens and the epoch are dated by the clocks of processes, and only lifetimes by that of the server."""

    async def open(self) -> None:
        await super().open()
        self._clock = ManualClock()
        self._revocations = RedisRevocations(self.client(), self._clock)
        await self._revocations.begin(timeout_s=PATIENCE_S)

    def revocations(self) -> Revocations:
        return self._revocations

    async def wipe(self) -> None:
        """A process asks at once, as one of a deployment always does."""
        await super().wipe()
        await self._revocations.begin(timeout_s=PATIENCE_S)

    def now_s(self) -> int:
        return self._clock.now_s()

    async def advance(self, seconds: float) -> None:
        self._clock.advance(seconds)
        await self.raw.pass_time(seconds)

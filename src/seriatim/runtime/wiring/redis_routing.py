"""`directory = redis://`: connections, pushes, quotas and revocations in Redis, shared by all processes."""

import logging
from collections.abc import Mapping, Sequence

from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError, ServiceUnavailable
from seriatim.engines.redis.address import RedisAddress
from seriatim.engines.redis.client import RedisClient
from seriatim.engines.redis.connection import Unsupported
from seriatim.engines.redis.dial import RedisDialer
from seriatim.engines.redis.directory import RedisDirectory
from seriatim.engines.redis.push import RedisPush, RedisPushSubscriber
from seriatim.engines.redis.quotas import RedisQuotas
from seriatim.engines.redis.revocations import RedisRevocations
from seriatim.ports.clock import Clock
from seriatim.ports.directory import Directory
from seriatim.ports.push import Push, PushSubscriber
from seriatim.ports.quotas import Quotas
from seriatim.ports.revocations import Revocations
from seriatim.runtime.server.lifecycle import StartupError
from seriatim.runtime.telemetry.engine_counters import push_counters, redis_counters
from seriatim.runtime.telemetry.logs import log_event
from seriatim.runtime.telemetry.metrics import Metrics
from seriatim.runtime.wiring.engine_set import BackgroundTask, RoutingEngine

_log = logging.getLogger("seriatim")


class RedisRouting(RoutingEngine):
    """Connects when it is first used. Raises `ValueError` for a URL that is none."""

    def __init__(self, url: str, metrics: Metrics, clock: Clock) -> None:
        self.tasks: Sequence[BackgroundTask] = ()
        self._metrics = metrics
        self._clock = clock
        self._dialer = RedisDialer(RedisAddress.parse(url))
        self._client = RedisClient(self._dialer)
        self._subscribers: list[RedisPushSubscriber] = []
        metrics.engine_counters.append(lambda: redis_counters(self._dialer, self._client))

    def directory(self) -> Directory:
        return RedisDirectory(self._client)

    def push(self) -> Push:
        return RedisPush(self._client)

    def subscriber(self) -> PushSubscriber:
        subscriber = RedisPushSubscriber(self._dialer, self._clock)
        self._subscribers.append(subscriber)
        self._metrics.engine_counters.append(lambda: push_counters(subscriber))
        return subscriber

    def quotas(self) -> Quotas:
        return RedisQuotas(self._client)

    def revocations(self) -> Revocations:
        return RedisRevocations(self._client, self._clock)

    async def check_reachable(self) -> None:
        try:
            await self._client.ping(timeout_s=limits.STORE_TIMEOUT_S)
        except ServiceUnavailable as error:
            if isinstance(error.__cause__, Unsupported):
                raise StartupError(str(error.__cause__)) from error
            raise
        policy = await self._client.eviction_policy(timeout_s=limits.STORE_TIMEOUT_S)
        if policy not in (None, "noeviction"):
            log_event(
                _log,
                logging.WARNING,
                "redis_evicts",
                maxmemory_policy=policy,
                next_step="a full Redis would forget which tokens were revoked: set maxmemory-policy to noeviction",
            )

    async def availability(self) -> Mapping[str, str | None]:
        try:
            await self._client.write(timeout_s=limits.STORE_TIMEOUT_S)
        except SeriatimError as error:
            return {"directory": error.log_reason}
        return {"directory": None}

    async def close(self) -> None:
        for subscriber in self._subscribers:
            await subscriber.close()
        await self._client.close()

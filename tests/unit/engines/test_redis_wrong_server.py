"""Servers that answer and are not the one to talk to: a primary that became a replica, a node of a cluster."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import ServiceUnavailable
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.redis.address import RedisAddress
from seriatim.engines.redis.client import RedisClient
from seriatim.engines.redis.dial import RedisDialer
from seriatim.engines.redis.directory import RedisDirectory
from seriatim.engines.redis.push import RedisPush, RedisPushSubscriber
from seriatim.ports.push import CloseOrder, PushEnvelope
from tests.support.real_redis import FAILOVER_S, Shard, ask, client_of, replicate, until
from tests.support.tcp_proxy import TcpProxy
from tools.engines.ports import HOST
from tools.engines.redis import Redis

SOON_S = 5.0
ORDER = CloseOrder(connection_id="conn_1", reason="duplicate_connection")


class Inbox:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def received(self, envelopes: Sequence[PushEnvelope]) -> None:
        self.heard.extend("envelope" for _ in envelopes)

    def interrupted(self) -> None:
        self.heard.append("interrupted")

    def resumed(self) -> None:
        self.heard.append("resumed")


@pytest.fixture
def replica(tmp_path: Path, redis: Redis) -> Iterator[Redis]:
    with Redis.started(tmp_path / "replica") as engine:
        yield engine


@pytest.fixture
async def proxy(redis: Redis) -> AsyncIterator[TcpProxy]:
    """An address that leads to the primary, whichever server that is, as a name of a managed Redis does."""
    async with TcpProxy(redis.port) as opened:
        yield opened


@pytest.fixture
async def publisher(proxy: TcpProxy) -> AsyncIterator[RedisClient]:
    async with client_of(f"redis://{HOST}:{proxy.port}") as opened:
        yield opened


@pytest.fixture
async def subscriber(proxy: TcpProxy) -> AsyncIterator[RedisPushSubscriber]:
    opened = RedisPushSubscriber(RedisDialer(RedisAddress.parse(f"redis://{HOST}:{proxy.port}")), SystemClock())
    yield opened
    await opened.close()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"REDIS_ROLE_S": 0.05, "REDIS_PING_S": 0.1, "REDIS_REDIAL_S": 0.0}.items():
        monkeypatch.setattr(limits, name, seconds, raising=False)


@pytest.mark.usefixtures("hurried")
async def test_b4_a_publisher_leaves_a_redis_that_was_demoted_and_reaches_who_listens_at_the_new_primary(
    redis: Redis, replica: Redis, proxy: TcpProxy, publisher: RedisClient, subscriber: RedisPushSubscriber
) -> None:
    await replicate(redis, replica)
    await publisher.ping(timeout_s=SOON_S)
    await fail_over(redis, replica, proxy)
    inbox = Inbox()
    await subscriber.subscribe("gw_1", inbox, timeout_s=SOON_S)
    assert await published(publisher)
    await until(lambda: inbox.heard == ["envelope"])


@pytest.mark.usefixtures("hurried")
async def test_b4_a_subscription_leaves_a_redis_that_was_demoted_and_says_that_it_was_interrupted(
    redis: Redis, replica: Redis, proxy: TcpProxy, publisher: RedisClient, subscriber: RedisPushSubscriber
) -> None:
    await replicate(redis, replica)
    inbox = Inbox()
    await subscriber.subscribe("gw_1", inbox, timeout_s=SOON_S)
    await fail_over(redis, replica, proxy)
    await until(lambda: inbox.heard == ["interrupted", "resumed"], FAILOVER_S)
    assert await published(publisher)
    await until(lambda: inbox.heard == ["interrupted", "resumed", "envelope"])


@pytest.mark.usefixtures("hurried")
async def test_b4_who_only_reads_leaves_a_demoted_redis_too(
    redis: Redis, replica: Redis, proxy: TcpProxy, publisher: RedisClient
) -> None:
    """It may be cut off from the new primary, and knows of no registration that came since."""
    await replicate(redis, replica)
    await publisher.ping(timeout_s=SOON_S)
    await fail_over(redis, replica, proxy)
    async with client_of(replica.url) as there:
        assert await ask(there, "SET", "new", "1") == b"OK"
    directory = RedisDirectory(publisher)
    async with asyncio.timeout(FAILOVER_S):
        while proxy.attempts < 2:
            with contextlib.suppress(ServiceUnavailable):
                await directory.connections(["user_1"], timeout_s=SOON_S)
            await asyncio.sleep(0.01)
    assert await ask(publisher, "GET", "new") == b"1"


async def test_b4_the_role_is_asked_for_now_and_then_and_not_with_every_call(
    redis: Redis, publisher: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REDIS_ROLE_S", 3600.0)
    await publisher.ping(timeout_s=SOON_S)
    async with client_of(redis.url) as admin:
        await ask(admin, "CONFIG", "RESETSTAT")
        for _ in range(200):
            await publisher.ping(timeout_s=SOON_S)
        statistics = await ask(admin, "INFO", "commandstats")
    assert isinstance(statistics, bytes)
    assert b"cmdstat_ping:calls=200" in statistics
    assert b"cmdstat_role" not in statistics


async def test_b4_a_redis_that_does_not_show_its_role_is_used_without_it(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REDIS_ROLE_S", 0.0)
    async with client_of(redis.url) as admin:
        await ask(admin, "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-role", "-info")
        async with client_of(f"redis://app:secret@{HOST}:{redis.port}") as client:
            for _ in range(3):
                await client.ping(timeout_s=SOON_S)


async def test_b5_a_node_of_a_cluster_is_refused_when_it_is_dialled_and_the_reason_says_what_to_do(
    shard: Shard,
) -> None:
    async with client_of(shard.url) as client:
        with pytest.raises(ServiceUnavailable) as raised:
            await client.ping(timeout_s=SOON_S)
    assert "cluster" in str(raised.value.__cause__)
    assert "cluster-enabled no" in str(raised.value.__cause__)


async def published(client: RedisClient) -> bool:
    """As fanout does: again and again, whatever becomes of it, until a gateway listens."""
    push = RedisPush(client)
    async with asyncio.timeout(FAILOVER_S):
        while True:
            try:
                if list(await push.publish([("gw_1", ORDER)], timeout_s=SOON_S)) == [True]:
                    return True
            except ServiceUnavailable:
                pass
            await asyncio.sleep(0.01)


async def fail_over(redis: Redis, replica: Redis, proxy: TcpProxy) -> None:
    """As the command `FAILOVER` does: no connection is closed. From now on the address leads to the other server."""
    async with client_of(redis.url) as old, client_of(replica.url) as new:
        await ask(old, "FAILOVER", "TO", HOST, replica.port)
        async with asyncio.timeout(FAILOVER_S):
            while True:
                try:
                    await new.ping(timeout_s=SOON_S)  # a replica is not taken
                    break
                except ServiceUnavailable:
                    await asyncio.sleep(0.01)
    proxy.target_port = replica.port

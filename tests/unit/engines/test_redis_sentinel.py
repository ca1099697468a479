"""A primary, its replica and a sentinel that promotes the replica: no client has to be configured again."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import ServiceUnavailable
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.redis.address import RedisAddress
from seriatim.engines.redis.dial import RedisDialer
from seriatim.engines.redis.push import RedisPushSubscriber
from seriatim.engines.redis.revocations import RedisRevocations
from seriatim.ports.push import PushEnvelope
from seriatim.ports.revocations import Verdict
from tests.support.manual_clock import ManualClock
from tests.support.real_redis import (
    FAILOVER_S,
    SERVICE,
    Sentinel,
    ask,
    client_of,
    replicate,
    until,
    until_it_answers,
)
from tools.engines.ports import HOST, spare_port
from tools.engines.redis import Redis

SOON_S = 5.0


@pytest.fixture
def replica(tmp_path: Path, redis: Redis) -> Iterator[Redis]:
    with Redis.started(tmp_path / "replica") as engine:
        yield engine


@pytest.fixture
def sentinel(tmp_path: Path, redis: Redis) -> Iterator[Sentinel]:
    """Not started: it looks for replicas only now and then, so they come first."""
    engine = Sentinel(tmp_path / "sentinel", redis)
    yield engine
    engine.kill()


class Inbox:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def received(self, envelopes: Sequence[PushEnvelope]) -> None:
        self.heard.extend("envelope" for _ in envelopes)

    def interrupted(self) -> None:
        self.heard.append("interrupted")

    def resumed(self) -> None:
        self.heard.append("resumed")


async def test_after_a_failover_the_new_primary_is_found_and_vouches_for_no_older_token(
    redis: Redis, replica: Redis, sentinel: Sentinel
) -> None:
    await replicate(redis, replica)
    await asyncio.to_thread(sentinel.start)
    await until_it_knows_a_replica(sentinel)
    # The first of the sentinels is gone, as one of three may be.
    url = f"redis+sentinel://{HOST}:{spare_port()},{HOST}:{sentinel.port}/{SERVICE}"
    clock, inbox = ManualClock(), Inbox()
    subscriber = RedisPushSubscriber(RedisDialer(RedisAddress.parse(url)), SystemClock())
    async with client_of(url) as client:
        revocations = RedisRevocations(client, clock)
        await revocations.begin(timeout_s=SOON_S)
        clock.advance(60)
        issued_at_s = clock.now_s()
        assert await revocations.check("sess_1", "token_1", issued_at_s, timeout_s=SOON_S) is Verdict.CLEAR
        await ask(client, "WAIT", 1, 5000)
        await subscriber.subscribe("gw_1", inbox, timeout_s=SOON_S)
        try:
            replica.pause()  # and cut off, so that it never hears of the revocation
            await ask(client, "CLIENT", "KILL", "TYPE", "replica")
            await revocations.revoke("sess_1", "token_1", timeout_s=SOON_S)
            redis.kill()
            replica.resume()
            await until(lambda: inbox.heard == ["interrupted", "resumed"], FAILOVER_S)
            await until_it_answers(client)
            assert await ask(client, "EXISTS", "revocation_epoch") == 1
            assert await revocations.check("sess_1", "token_1", issued_at_s, timeout_s=SOON_S) is Verdict.UNSURE
            async with client_of(replica.url) as there:
                assert await ask(there, "PUBLISH", "gateway:gw_1:deliver", b"{}") == 1
        finally:
            await subscriber.close()


async def test_a_service_that_the_sentinel_does_not_know_is_named(redis: Redis, sentinel: Sentinel) -> None:
    sentinel.start()
    async with client_of(f"redis+sentinel://{HOST}:{sentinel.port}/other") as client:
        with pytest.raises(ServiceUnavailable) as raised:
            await client.ping(timeout_s=SOON_S)
        assert "knows no service 'other'" in str(raised.value.__cause__)


async def test_a_sentinel_in_the_place_of_a_server_is_recognised(redis: Redis, sentinel: Sentinel) -> None:
    sentinel.start()
    async with client_of(sentinel.url) as client:
        with pytest.raises(ServiceUnavailable) as raised:
            await client.ping(timeout_s=SOON_S)
        assert "redis+sentinel://" in str(raised.value.__cause__)


async def test_a_sentinel_that_hangs_is_passed_over(
    redis: Redis, sentinel: Sentinel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REDIS_SENTINEL_S", 0.2)
    monkeypatch.setattr(limits, "REDIS_DIAL_S", SOON_S)
    sentinel.start()
    hanging = Sentinel(tmp_path / "hanging", redis)
    try:
        hanging.start()
        hanging.pause()
        url = f"redis+sentinel://{HOST}:{hanging.port},{HOST}:{sentinel.port}/{SERVICE}"
        async with client_of(url) as client:
            await client.ping(timeout_s=SOON_S)
    finally:
        hanging.kill()


async def until_it_knows_a_replica(sentinel: Sentinel) -> None:
    reader, writer = await asyncio.open_connection(HOST, sentinel.port)
    try:
        async with asyncio.timeout(FAILOVER_S):
            while True:
                writer.write(f"SENTINEL REPLICAS {SERVICE}\r\n".encode())
                if (await reader.readline()).strip() != b"*0":
                    break
                await asyncio.sleep(0.05)
    finally:
        writer.close()
        await writer.wait_closed()

"""Quotas and revocations in a real Redis: what the contract cannot see, and what is left after a loss."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown, ServiceUnavailable
from seriatim.domain.message import TEXT, Message
from seriatim.engines.redis import dial
from seriatim.engines.redis.client import RedisClient
from seriatim.engines.redis.connection import Command, Reply
from seriatim.engines.redis.directory import RedisDirectory
from seriatim.engines.redis.push import RedisPush
from seriatim.engines.redis.quotas import RedisQuotas
from seriatim.engines.redis.revocations import RedisRevocations
from seriatim.ports.directory import CachedMembers, Registration
from seriatim.ports.push import MessageDelivery
from seriatim.ports.quotas import Tally
from seriatim.ports.revocations import Verdict
from tests.support.manual_clock import NOON_MS, ManualClock
from tests.support.real_redis import Shard, ask, client_of, dialer, until_it_answers
from tools.engines.redis import Redis

SOON_S = 5.0
NOON_S = NOON_MS // 1000
LATER_S = 2 * limits.TOKEN_ISSUED_LEEWAY_S


@pytest.fixture
async def client(redis: Redis) -> AsyncIterator[RedisClient]:
    async with client_of(redis.url) as opened:
        yield opened


@pytest.fixture
def quotas(client: RedisClient) -> RedisQuotas:
    return RedisQuotas(client)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def revocations(client: RedisClient, clock: ManualClock) -> RedisRevocations:
    return RedisRevocations(client, clock)


# --- quotas ----------------------------------------------------------------------------------------------------------


async def test_hits_of_many_processes_are_all_counted_and_each_knows_its_number(redis: Redis) -> None:
    async with client_of(redis.url) as one, client_of(redis.url) as two:
        hits = [RedisQuotas(each).hit("rl:a", window_s=60, timeout_s=SOON_S) for each in (one, two) for _ in range(50)]
        assert sorted([tally.count for tally in await asyncio.gather(*hits)]) == list(range(1, 101))


async def test_slides_of_many_processes_never_exceed_the_limit(redis: Redis) -> None:
    async with client_of(redis.url) as one, client_of(redis.url) as two:
        slides = [
            RedisQuotas(each).slide("rl:a", limit=30, window_s=60, timeout_s=SOON_S)
            for each in (one, two)
            for _ in range(50)
        ]
        counts = sorted([tally.count for tally in await asyncio.gather(*slides)])
        assert counts == [*range(1, 31), *[31] * 70]


async def test_every_counter_ends_by_itself(client: RedisClient, quotas: RedisQuotas) -> None:
    await quotas.hit("rl:a", window_s=60, timeout_s=SOON_S)
    await quotas.slide("rl:b", limit=3, window_s=60, timeout_s=SOON_S)
    await quotas.lock("otp_lockout:phone:c", seconds=60, timeout_s=SOON_S)
    for key in ("rl:a", "rl:b:sliding", "otp_lockout:phone:c"):
        left_ms = await ask(client, "PTTL", key)
        assert isinstance(left_ms, int)
        assert 50_000 < left_ms <= 60_000


async def test_a_counter_that_lost_its_end_is_given_one(client: RedisClient, quotas: RedisQuotas) -> None:
    """Otherwise a phone whose counter it is could never sign in again."""
    await ask(client, "SET", "rl:a", "5")
    assert await quotas.hit("rl:a", window_s=60, timeout_s=SOON_S) == Tally(6, 60)
    assert await ask(client, "PTTL", "rl:a") != -1


async def test_a_sliding_window_costs_no_more_than_its_limit(client: RedisClient, quotas: RedisQuotas) -> None:
    for _ in range(20):
        await quotas.slide("rl:a", limit=3, window_s=60, timeout_s=SOON_S)
    assert await ask(client, "ZCARD", "rl:a:sliding") == 3


async def test_counting_on_a_paused_redis_ends_in_time(redis: Redis, quotas: RedisQuotas) -> None:
    await quotas.hit("rl:a", window_s=60, timeout_s=SOON_S)
    redis.pause()
    began = time.monotonic()
    with pytest.raises(OutcomeUnknown):
        await quotas.hit("rl:a", window_s=60, timeout_s=0.2)
    assert time.monotonic() - began < 1.2
    redis.resume()


# --- revocations -----------------------------------------------------------------------------------------------------


async def test_revocations_are_the_keys_of_the_specification(
    client: RedisClient, revocations: RedisRevocations
) -> None:
    await revocations.begin(timeout_s=SOON_S)
    await revocations.revoke("sess_1", "token_1", timeout_s=SOON_S)
    assert await ask(client, "GET", "revocation_epoch") == str(NOON_S).encode()
    assert await ask(client, "TTL", "revocation_epoch") == -1
    for key in ("revoked_sid:sess_1", "revoked_jti:token_1"):
        left_s = await ask(client, "TTL", key)
        assert isinstance(left_s, int)
        assert limits.ACCESS_TOKEN_S < left_s <= limits.ACCESS_TOKEN_S + limits.TOKEN_ISSUED_LEEWAY_S


async def test_only_the_first_who_finds_no_epoch_sets_it(redis: Redis, client: RedisClient) -> None:
    first, late = RedisRevocations(client, ManualClock()), ManualClock()
    late.advance(100)
    slow = Overtaken(redis, first)
    try:
        await RedisRevocations(slow, late).begin(timeout_s=SOON_S)
    finally:
        await slow.close()
    assert await ask(client, "GET", "revocation_epoch") == str(NOON_S).encode()


async def test_a_token_must_be_younger_than_the_epoch_by_what_clocks_may_differ(revocations: RedisRevocations) -> None:
    await revocations.begin(timeout_s=SOON_S)
    for after_s, verdict in ((0, Verdict.UNSURE), (29, Verdict.UNSURE), (30, Verdict.CLEAR)):
        assert await revocations.check("sess_1", "token_1", NOON_S + after_s, timeout_s=SOON_S) is verdict


@pytest.mark.parametrize("epoch", ["", "soon", "-5"])
async def test_an_epoch_that_is_none_is_replaced(
    client: RedisClient, revocations: RedisRevocations, epoch: str
) -> None:
    await revocations.begin(timeout_s=SOON_S)
    await ask(client, "SET", "revocation_epoch", epoch)
    assert await revocations.check("sess_1", "token_1", NOON_S + LATER_S, timeout_s=SOON_S) is Verdict.UNSURE
    if epoch != "-5":
        assert await ask(client, "GET", "revocation_epoch") == str(NOON_S).encode()


async def test_after_a_restart_nothing_older_is_clear_though_the_disk_remembers(
    redis: Redis, client: RedisClient, revocations: RedisRevocations, clock: ManualClock
) -> None:
    """A snapshot may be older than the latest revocation: here it is."""
    await revocations.begin(timeout_s=SOON_S)
    clock.advance(LATER_S)
    issued_at_s = clock.now_s()
    assert await revocations.check("sess_1", "token_1", issued_at_s, timeout_s=SOON_S) is Verdict.CLEAR
    await ask(client, "SAVE")
    await revocations.revoke("sess_1", "token_1", timeout_s=SOON_S)
    redis.kill()
    redis.start()
    await until_it_answers(client)
    assert await ask(client, "EXISTS", "revocation_epoch") == 1
    clock.advance(1)
    for _ in range(2):
        assert await revocations.check("sess_1", "token_1", issued_at_s, timeout_s=SOON_S) is Verdict.UNSURE
    assert await ask(client, "GET", "revocation_epoch") == str(NOON_S + LATER_S + 1).encode()
    clock.advance(LATER_S)
    assert await revocations.check("sess_2", "token_2", clock.now_s(), timeout_s=SOON_S) is Verdict.CLEAR


async def test_a_slow_clock_never_moves_the_epoch_back(
    redis: Redis, client: RedisClient, revocations: RedisRevocations
) -> None:
    await revocations.begin(timeout_s=SOON_S)
    await ask(client, "SET", "revocation_server", "another")
    slow = RedisRevocations(client, ManualClock(NOON_MS - 3_600_000))
    await slow.begin(timeout_s=SOON_S)
    assert await ask(client, "GET", "revocation_epoch") == str(NOON_S).encode()


async def test_a_dead_redis_says_nothing_about_revocations(redis: Redis, revocations: RedisRevocations) -> None:
    await revocations.begin(timeout_s=SOON_S)
    redis.kill()
    with pytest.raises(ServiceUnavailable):
        await revocations.check("sess_1", "token_1", NOON_S + LATER_S, timeout_s=SOON_S)
    with pytest.raises(ServiceUnavailable):
        await revocations.revoke("sess_1", "token_1", timeout_s=SOON_S)


# --- shards ----------------------------------------------------------------------------------------------------------


async def test_routing_and_quotas_use_no_command_that_spans_two_shards(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster is refused, since the client follows no redirections. This is what supporting one rests on."""
    monkeypatch.setattr(dial, "_CLUSTER", re.compile(rb"(?!)"))
    async with client_of(shard.url) as client:
        await ask(client, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        await until_it_serves(client)
        directory, phone = RedisDirectory(client), registration("phone")
        await directory.register([phone, registration("laptop")], timeout_s=SOON_S)
        await ask(client, "DEL", "connection:laptop")
        assert await directory.connections(["user_1", "user_2"], timeout_s=SOON_S) == {"user_1": [phone]}
        assert list(await directory.gateway_connections("gw_1", timeout_s=SOON_S)) == [phone]
        await directory.unregister(phone, timeout_s=SOON_S)
        members = CachedMembers(7, ("user_1",))
        await directory.cache_members("chat_1", members, timeout_s=SOON_S)
        assert await directory.cached_members(["chat_1", "chat_2"], timeout_s=SOON_S) == {"chat_1": members}
        await directory.forget_members("chat_1", timeout_s=SOON_S)
        envelopes = [(gateway_id, delivery()) for gateway_id in ("gw_1", "gw_2")]
        assert list(await RedisPush(client).publish(envelopes, timeout_s=SOON_S)) == [False, False]
        quotas = RedisQuotas(client)
        assert await quotas.hit("rl:a", window_s=60, timeout_s=SOON_S) == Tally(1, 60)
        assert await quotas.slide("rl:a", limit=3, window_s=60, timeout_s=SOON_S) == Tally(1, 60)
        await quotas.lock("rl:c", seconds=60, timeout_s=SOON_S)


class Overtaken(RedisClient):
    """Another process begins to remember between this one's look and its own beginning."""

    def __init__(self, redis: Redis, other: RedisRevocations) -> None:
        super().__init__(dialer(redis))
        self._other = other

    async def call(self, commands: Sequence[Command], *, timeout_s: float) -> list[Reply]:
        await self._other.begin(timeout_s=timeout_s)
        return await super().call(commands, timeout_s=timeout_s)


async def until_it_serves(client: RedisClient) -> None:
    async with asyncio.timeout(SOON_S):
        while True:
            try:
                await ask(client, "GET", "a")
                return
            except ServiceUnavailable:
                await asyncio.sleep(0.02)


def registration(name: str) -> Registration:
    return Registration(
        connection_id=name,
        user_id="user_1",
        device_id="device_1",
        session_id="sess_1",
        gateway_id="gw_1",
        connected_at="2026-01-30T14:30:00.000Z",
    )


def delivery() -> MessageDelivery:
    message = Message(
        message_id="msg_1",
        chat_id="chat_1",
        sequence=1,
        sender_id="user_1",
        client_message_id="550e8400-e29b-41d4-a716-446655440000",
        content="Hi",
        content_type=TEXT,
        created_at="2026-01-30T14:30:00.000Z",
    )
    return MessageDelivery(connection_ids=("phone",), message=message, prev_sequence=None)

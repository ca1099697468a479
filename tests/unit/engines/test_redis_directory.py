"""The directory in a real Redis: its keys, and what the contract cannot see."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Sequence

import pytest

from seriatim.domain.errors import ServiceUnavailable
from seriatim.engines.redis.client import RedisClient
from seriatim.engines.redis.connection import Command, Reply
from seriatim.engines.redis.directory import RedisDirectory
from seriatim.ports.directory import CachedMembers, Registration
from tests.support.real_redis import ask, client_of, dialer, until_it_answers
from tools.engines.redis import Redis

SOON_S = 5.0


@pytest.fixture
async def client(redis: Redis) -> AsyncIterator[RedisClient]:
    async with client_of(redis.url) as opened:
        yield opened


@pytest.fixture
def directory(client: RedisClient) -> RedisDirectory:
    return RedisDirectory(client)


async def test_a_registration_is_three_keys_with_a_lifetime(client: RedisClient, directory: RedisDirectory) -> None:
    await directory.register([connection("phone")], timeout_s=SOON_S)
    entry = await ask(client, "GET", "connection:phone")
    assert isinstance(entry, bytes)
    assert json.loads(entry) == {
        "user_id": "user_1",
        "device_id": "device_phone",
        "session_id": "sess_phone",
        "gateway_id": "gw_1",
        "connected_at": "2026-01-30T14:30:00.000Z",
    }
    for key in ("user_connections:user_1", "gateway_connections:gw_1"):
        assert await ask(client, "SMEMBERS", key) == [b"phone"]
    assert await lifetimes_s(client) == {
        "connection:phone": 60,
        "gateway_connections:gw_1": 60,
        "user_connections:user_1": 60,
    }


async def test_w2_a_renewal_that_reaches_redis_after_the_unregistering_does_not_revive_the_connection(
    redis: Redis, client: RedisClient, directory: RedisDirectory
) -> None:
    """By another link, as after a broken one whose last commands Redis had not read yet."""
    await directory.register([connection("phone"), connection("laptop")], timeout_s=SOON_S)
    await directory.unregister(connection("phone"), timeout_s=SOON_S)
    async with client_of(redis.url) as broken:
        await RedisDirectory(broken).register([connection("phone"), connection("laptop")], timeout_s=SOON_S)
    assert await directory.connections(["user_1"], timeout_s=SOON_S) == {"user_1": [connection("laptop")]}
    assert list(await directory.gateway_connections("gw_1", timeout_s=SOON_S)) == [connection("laptop")]
    assert (await lifetimes_s(client))["connection:phone"] == 60  # the mark of its end expires as well


async def test_members_and_their_version_live_equally_long(client: RedisClient, directory: RedisDirectory) -> None:
    await directory.cache_members("chat_1", CachedMembers(7, ("user_1", "user_2")), timeout_s=SOON_S)
    assert await lifetimes_s(client) == {"chat_members:{chat_1}": 300, "chat_members_version:{chat_1}": 300}


async def test_members_without_a_version_and_a_version_without_members_are_nothing(
    client: RedisClient, directory: RedisDirectory
) -> None:
    for lost in ("chat_members:{chat_1}", "chat_members_version:{chat_1}"):
        await directory.cache_members("chat_1", CachedMembers(7, ("user_1",)), timeout_s=SOON_S)
        await ask(client, "DEL", lost)
        assert await directory.cached_members(["chat_1"], timeout_s=SOON_S) == {}


async def test_no_reader_ever_sees_one_list_with_the_version_of_another(redis: Redis) -> None:
    async with client_of(redis.url) as one, client_of(redis.url) as two, client_of(redis.url) as three:

        async def write(client: RedisClient, version: int) -> None:
            members = CachedMembers(version, tuple([f"user_{version}_{each}" for each in range(50)]))
            for _ in range(100):
                await RedisDirectory(client).cache_members("chat_1", members, timeout_s=SOON_S)

        async def read() -> None:
            for _ in range(200):
                for found in (await RedisDirectory(three).cached_members(["chat_1"], timeout_s=SOON_S)).values():
                    assert len(found.user_ids) == 50
                    assert all(each.startswith(f"user_{found.version}_") for each in found.user_ids)

        await asyncio.gather(write(one, 1), write(two, 2), read())


async def test_a_heartbeat_for_hundreds_is_found_again_whole(client: RedisClient, directory: RedisDirectory) -> None:
    given = [connection(f"conn_{each}", user_id=f"user_{each % 100}") for each in range(500)]
    await directory.register(given, timeout_s=SOON_S)
    found = await directory.connections([f"user_{each}" for each in range(100)], timeout_s=SOON_S)
    assert sorted([each for many in found.values() for each in many], key=name) == sorted(given, key=name)


async def test_operators_see_the_living_connections_of_a_gateway(
    client: RedisClient, directory: RedisDirectory
) -> None:
    await directory.register([connection("phone"), connection("laptop"), connection("tablet")], timeout_s=SOON_S)
    await directory.register([connection("tablet", gateway_id="gw_2")], timeout_s=SOON_S)
    await ask(client, "DEL", "connection:phone")
    assert list(await directory.gateway_connections("gw_1", timeout_s=SOON_S)) == [connection("laptop")]
    assert await ask(client, "SISMEMBER", "gateway_connections:gw_1", "phone") == 0
    assert list(await directory.gateway_connections("gw_3", timeout_s=SOON_S)) == []


async def test_an_entry_in_a_foreign_format_is_ignored(client: RedisClient, directory: RedisDirectory) -> None:
    await directory.register([connection("phone"), connection("laptop")], timeout_s=SOON_S)
    await ask(client, "SET", "connection:phone", '{"user_id":1}')
    found = await directory.connections(["user_1"], timeout_s=SOON_S)
    assert found == {"user_1": [connection("laptop")]}


@pytest.mark.parametrize("before", ["SREM", "GET"])
async def test_a_heartbeat_during_the_removal_of_the_dead_is_not_undone(redis: Redis, before: str) -> None:
    """Its connection was dead when we looked, and is alive by the time that we remove it."""
    gateway = RedisClient(dialer(redis))
    looking = Meddled(redis, gateway, before)
    try:
        await RedisDirectory(gateway).register([connection("phone"), connection("laptop")], timeout_s=SOON_S)
        await ask(gateway, "DEL", "connection:phone")
        await RedisDirectory(looking).connections(["user_1"], timeout_s=SOON_S)
        found = await RedisDirectory(gateway).connections(["user_1"], timeout_s=SOON_S)
        assert sorted([each.connection_id for each in found["user_1"]]) == ["laptop", "phone"]
    finally:
        await looking.close()
        await gateway.close()


async def test_a_lost_redis_is_filled_again_by_the_next_heartbeat(redis: Redis, client: RedisClient) -> None:
    directory = RedisDirectory(client)
    await directory.register([connection("phone")], timeout_s=SOON_S)
    redis.kill()
    with pytest.raises(ServiceUnavailable):
        await directory.connections(["user_1"], timeout_s=SOON_S)
    redis.start()
    await until_it_answers(client)
    assert await directory.connections(["user_1"], timeout_s=SOON_S) == {}
    await directory.register([connection("phone")], timeout_s=SOON_S)
    assert await directory.connections(["user_1"], timeout_s=SOON_S) == {"user_1": [connection("phone")]}


class Meddled(RedisClient):
    """Between the look and the removal a gateway's heartbeat renews the phone: just before the last such command."""

    def __init__(self, redis: Redis, gateway: RedisClient, before: str) -> None:
        super().__init__(dialer(redis))
        self._gateway = RedisDirectory(gateway)
        self._before = before
        self._has_removed = False

    async def call(self, commands: Sequence[Command], *, timeout_s: float) -> list[Reply]:
        names = [command[0] for command in commands]
        if self._before in names and ("SREM" in names or self._has_removed):
            await self._gateway.register([connection("phone")], timeout_s=timeout_s)
        self._has_removed |= "SREM" in names
        return await super().call(commands, timeout_s=timeout_s)


def connection(name: str, *, user_id: str = "user_1", gateway_id: str = "gw_1") -> Registration:
    return Registration(
        connection_id=name,
        user_id=user_id,
        device_id=f"device_{name}",
        session_id=f"sess_{name}",
        gateway_id=gateway_id,
        connected_at="2026-01-30T14:30:00.000Z",
    )


def name(registration: Registration) -> str:
    return registration.connection_id


async def lifetimes_s(client: RedisClient) -> dict[str, int]:
    """To ten seconds, which are enough for the slowest machine."""
    keys = await ask(client, "KEYS", "*")
    assert isinstance(keys, list)
    found: dict[str, int] = {}
    for key in keys:
        assert isinstance(key, bytes)
        left_s = await ask(client, "TTL", key)
        assert isinstance(left_s, int)
        found[key.decode()] = math.ceil(left_s / 10) * 10
    return found

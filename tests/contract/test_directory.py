"""The contract of the directory. Each promise quotes its sentence of ports/directory.py."""

from collections.abc import Awaitable, Callable

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown
from seriatim.ports import directory as port
from seriatim.ports.directory import CachedMembers, Registration
from tests.contract.event_engines import DIRECTORIES, SOON_S, DirectoryEngine, MemoryDirectoryEngine, Suite, keep

SUITE: Suite[DirectoryEngine] = Suite(port)
HEARTBEAT_S = limits.REGISTRATION_TTL_S / 2


@SUITE.promise
async def a_registration_is_found_whole_by_other_processes(engine: DirectoryEngine) -> None:
    """Live connections of each user; users without any are left out."""
    phone, laptop, other = connection("phone"), connection("laptop"), connection("tablet", user_id="user_2")
    await engine.directory().register([phone, laptop, other], timeout_s=SOON_S)
    found = await engine.directory().connections(["user_1", "user_2", "user_3"], timeout_s=SOON_S)
    assert set(found) == {"user_1", "user_2"}
    assert sorted(found["user_1"], key=name) == [laptop, phone]
    assert list(found["user_2"]) == [other]


@SUITE.promise
async def a_registration_is_found_for_its_lifetime_and_not_longer(engine: DirectoryEngine) -> None:
    """Writes or renews each registration whole; it is found for `REGISTRATION_TTL_S` from now on."""
    await engine.directory().register([connection("phone")], timeout_s=SOON_S)
    await engine.pass_time(limits.REGISTRATION_TTL_S - 1)
    assert await names(engine) == ["phone"]
    await engine.pass_time(1.1)
    assert await names(engine) == []


@SUITE.promise
async def a_heartbeat_renews_the_registration(engine: DirectoryEngine) -> None:
    """Writes or renews each registration whole; it is found for `REGISTRATION_TTL_S` from now on."""
    directory = engine.directory()
    await directory.register([connection("phone")], timeout_s=SOON_S)
    await engine.pass_time(HEARTBEAT_S)
    await directory.register([connection("phone")], timeout_s=SOON_S)
    await engine.pass_time(limits.REGISTRATION_TTL_S - 1)
    assert await names(engine) == ["phone"]


@SUITE.promise
async def a_heartbeat_rebuilds_the_registration_after_a_loss(engine: DirectoryEngine) -> None:
    """Writes or renews each registration whole; it is found for `REGISTRATION_TTL_S` from now on."""
    directory = engine.directory()
    await directory.register([connection("phone")], timeout_s=SOON_S)
    await engine.wipe()
    assert await names(engine) == []
    await directory.register([connection("phone")], timeout_s=SOON_S)
    assert await names(engine) == ["phone"]


@SUITE.promise
async def a_registration_that_moved_is_found_at_its_new_gateway(engine: DirectoryEngine) -> None:
    """Writes or renews each registration whole; it is found for `REGISTRATION_TTL_S` from now on."""
    await engine.directory().register([connection("phone", gateway_id="gw_1")], timeout_s=SOON_S)
    await engine.directory().register([connection("phone", gateway_id="gw_2")], timeout_s=SOON_S)
    found = await engine.directory().connections(["user_1"], timeout_s=SOON_S)
    assert [each.gateway_id for each in found["user_1"]] == ["gw_2"]


@SUITE.promise
async def an_unregistered_connection_is_gone_and_its_siblings_stay(engine: DirectoryEngine) -> None:
    """The connection is not found any more; the user's other connections are."""
    await engine.directory().register([connection("phone"), connection("laptop")], timeout_s=SOON_S)
    await engine.directory().unregister(connection("phone"), timeout_s=SOON_S)
    assert await names(engine) == ["laptop"]
    await engine.directory().unregister(connection("laptop"), timeout_s=SOON_S)
    assert await names(engine) == []


@SUITE.promise
async def a_renewal_that_is_applied_after_the_unregistering_changes_nothing(engine: DirectoryEngine) -> None:
    """A `register` of the same connection that is applied later, within `REGISTRATION_TTL_S`, changes nothing."""
    await engine.directory().register([connection("phone"), connection("laptop")], timeout_s=SOON_S)
    await engine.directory().unregister(connection("phone"), timeout_s=SOON_S)
    await engine.directory().register([connection("phone"), connection("laptop")], timeout_s=SOON_S)
    assert await names(engine) == ["laptop"]
    await engine.pass_time(limits.REGISTRATION_TTL_S - 1)
    await engine.directory().register([connection("phone")], timeout_s=SOON_S)
    assert await names(engine) == ["laptop"]
    await engine.directory().unregister(connection("tablet"), timeout_s=SOON_S)
    await engine.directory().register([connection("tablet")], timeout_s=SOON_S)
    assert await names(engine) == ["laptop"]


@SUITE.promise
async def a_living_device_does_not_revive_a_dead_one(engine: DirectoryEngine) -> None:
    """Live connections of each user; users without any are left out. Expired ones are removed when found."""
    directory = engine.directory()
    await directory.register([connection("phone"), connection("laptop")], timeout_s=SOON_S)
    for _ in range(3):
        await engine.pass_time(HEARTBEAT_S)
        await directory.register([connection("laptop")], timeout_s=SOON_S)
    assert "phone" in await engine.listed("user_1")
    assert await names(engine) == ["laptop"]
    assert list(await engine.listed("user_1")) == ["laptop"]


@SUITE.promise
async def members_are_cached_with_the_version_they_were_read_at(engine: DirectoryEngine) -> None:
    """What was cached last of each chat, with its version; left out after `MEMBER_CACHE_TTL_S` or a loss."""
    await cache(engine, 7, "user_1", "user_2")
    assert await cached(engine) == (7, ["user_1", "user_2"])
    assert await cached(engine, "chat_2") is None
    await engine.wipe()
    assert await cached(engine) is None


@SUITE.promise
async def cached_members_are_forgotten_after_their_lifetime(engine: DirectoryEngine) -> None:
    """What was cached last of each chat, with its version; left out after `MEMBER_CACHE_TTL_S` or a loss."""
    await cache(engine, 7, "user_1")
    await engine.pass_time(limits.MEMBER_CACHE_TTL_S - 1)
    assert await cached(engine) == (7, ["user_1"])
    await engine.pass_time(1.1)
    assert await cached(engine) is None


@SUITE.promise
async def many_chats_are_asked_about_at_once_and_each_has_its_own_list(engine: DirectoryEngine) -> None:
    """What was cached last of each chat, with its version; left out after `MEMBER_CACHE_TTL_S` or a loss."""
    for number, chat_id in enumerate(("chat_1", "chat_3"), start=1):
        members = CachedMembers(number, (f"user_{number}", "user_9"))
        await engine.directory().cache_members(chat_id, members, timeout_s=SOON_S)
    found = await engine.directory().cached_members(["chat_3", "chat_2", "chat_1"], timeout_s=SOON_S)
    assert {chat_id: (each.version, sorted(each.user_ids)) for chat_id, each in found.items()} == {
        "chat_1": (1, ["user_1", "user_9"]),
        "chat_3": (2, ["user_2", "user_9"]),
    }
    assert await engine.directory().cached_members([], timeout_s=SOON_S) == {}


@SUITE.promise
async def a_new_list_replaces_the_old_one_together_with_its_version(engine: DirectoryEngine) -> None:
    """Replaces list and version together, never one without the other."""
    await cache(engine, 7, "user_1", "user_2")
    await cache(engine, 8, "user_2", "user_3")
    assert await cached(engine) == (8, ["user_2", "user_3"])
    await cache(engine, 3, "user_4")
    assert await cached(engine) == (3, ["user_4"])


@SUITE.promise
async def an_empty_list_is_not_cached_and_leaves_nothing_old_behind(engine: DirectoryEngine) -> None:
    """An empty list is not cached."""
    await cache(engine, 1)
    assert await cached(engine) is None
    await cache(engine, 7, "user_1")
    await cache(engine, 8)
    assert await cached(engine) is None


@SUITE.promise
async def forgotten_members_are_not_found(engine: DirectoryEngine) -> None:
    """The next `cached_members` finds nothing."""
    await cache(engine, 7, "user_1")
    await engine.directory().forget_members("chat_1", timeout_s=SOON_S)
    assert await cached(engine) is None


@SUITE.promise
async def a_call_without_time_left_ends_as_unknown(engine: DirectoryEngine) -> None:
    """It answers within that time or raises `OutcomeUnknown`."""
    with pytest.raises(OutcomeUnknown):
        await engine.directory().connections(["user_1"], timeout_s=0)


@pytest.mark.parametrize("engine", DIRECTORIES)
@pytest.mark.parametrize("promise", SUITE.promises)
async def test_the_directory_keeps(
    promise: Callable[[DirectoryEngine], Awaitable[None]], engine: Callable[[], DirectoryEngine]
) -> None:
    await keep(promise, engine)


def test_every_sentence_of_the_port_is_quoted() -> None:
    assert SUITE.unquoted() == []


async def test_operators_see_the_living_connections_of_a_gateway() -> None:
    engine = MemoryDirectoryEngine()
    await engine.directory().register([connection("phone"), connection("laptop")], timeout_s=SOON_S)
    await engine.directory().unregister(connection("phone"), timeout_s=SOON_S)
    assert list(engine.registry.gateway_connections("gw_1", engine.now_ms())) == [connection("laptop")]
    await engine.pass_time(limits.REGISTRATION_TTL_S)
    assert list(engine.registry.gateway_connections("gw_1", engine.now_ms())) == []


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


async def names(engine: DirectoryEngine) -> list[str]:
    """The connections of user_1 that anyone would find now."""
    found = await engine.directory().connections(["user_1"], timeout_s=SOON_S)
    return sorted([each.connection_id for each in found.get("user_1", ())])


async def cache(engine: DirectoryEngine, version: int, *user_ids: str) -> None:
    await engine.directory().cache_members("chat_1", CachedMembers(version, user_ids), timeout_s=SOON_S)


async def cached(engine: DirectoryEngine, chat_id: str = "chat_1") -> tuple[int, list[str]] | None:
    found = (await engine.directory().cached_members([chat_id], timeout_s=SOON_S)).get(chat_id)
    return None if found is None else (found.version, sorted(found.user_ids))

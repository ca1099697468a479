"""One process of several: what it is made of, what it is not told, and how it refuses to start."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from seriatim.engines.keys.key_folder import KeyFolder
from seriatim.engines.memory.system_clock import SystemClock
from seriatim.engines.rpc.durability import RpcDurability
from seriatim.runtime import server as server_module
from seriatim.runtime.assemble import assemble
from seriatim.runtime.cluster import Cluster, Sizes
from seriatim.runtime.distributed import DistributedWorld
from seriatim.runtime.dynamodb import StorePlace
from seriatim.runtime.roles import ALL_ROLES, Role
from seriatim.runtime.server import CannotStart, Server
from seriatim.runtime.settings import Settings

NOWHERE = "127.0.0.1:1"  # nobody listens on this port


def _settings(tmp_path: Path, *roles: Role, **given: Any) -> Settings:
    settings = Settings(
        env="test",
        port=0,
        internal="127.0.0.1:0",
        roles=roles,
        data=str(tmp_path / "data"),
        keys=str(tmp_path / "keys"),
        store=f"dynamodb://?endpoint=http://{NOWHERE}",
        events=f"kafka://{NOWHERE}",
        directory=f"redis://{NOWHERE}",
        rpc="127.0.0.1:0",
        ingest=(NOWHERE,),
    )
    return msgspec.structs.replace(settings, **given)


@pytest.fixture
def keys(tmp_path: Path) -> None:
    KeyFolder.open(tmp_path / "keys", create=True, clock=SystemClock())


async def _assembled(settings: Settings) -> Server:
    server = await assemble(settings, instance="here")
    await server.close()
    return server


@pytest.mark.parametrize("role", ALL_ROLES)
@pytest.mark.usefixtures("keys")
async def test_a_process_has_the_parts_of_its_role_and_no_others(tmp_path: Path, role: Role) -> None:
    roles = (await _assembled(_settings(tmp_path, role))).roles
    found = {
        Role.GATEWAY: roles.gateway,
        Role.INGEST: roles.ingest,
        Role.FANOUT: roles.fanout,
        Role.API: roles.operator,
    }
    assert [each for each, part in found.items() if part is not None] == [role]
    assert (roles.listener is not None) == (role is Role.INGEST)
    assert (roles.codes is not None) == (role is Role.API)


@pytest.mark.usefixtures("keys")
async def test_a_gateway_holds_neither_the_store_nor_the_event_log(tmp_path: Path) -> None:
    world = (await _assembled(_settings(tmp_path, Role.GATEWAY))).world
    assert isinstance(world, DistributedWorld)
    assert world._dynamo is None
    assert world._cluster is None
    assert isinstance(world.remote, RpcDurability)


async def test_ingest_holds_no_directory_and_needs_no_keys(tmp_path: Path) -> None:
    world = (await _assembled(_settings(tmp_path, Role.INGEST))).world
    assert isinstance(world, DistributedWorld)
    assert "_redis" not in vars(world)
    assert world.remote is None
    assert not (tmp_path / "keys").exists()


async def test_gateways_and_rest_ask_the_ingest_of_their_own_process_unless_others_are_named(tmp_path: Path) -> None:
    together = (Role.GATEWAY, Role.INGEST, Role.API)
    alone = await _assembled(_settings(tmp_path, *together, ingest=()))
    assert alone.world.remote is None
    assert alone.roles.gateway is not None
    assert alone.roles.gateway._services.durability is alone.roles.ingest
    named = await _assembled(_settings(tmp_path, *together))
    assert named.roles.gateway is not None
    assert named.roles.gateway._services.durability is named.world.remote


async def test_all_roles_on_shared_engines_run_in_one_process_without_a_port_for_others(tmp_path: Path) -> None:
    server = await _assembled(_settings(tmp_path, ingest=()))
    assert None not in (server.roles.gateway, server.roles.ingest, server.roles.fanout, server.roles.operator)
    assert server.roles.listener is None


async def test_rest_makes_keys_and_a_gateway_only_reads_them(tmp_path: Path) -> None:
    gateway, api = _settings(tmp_path, Role.GATEWAY), _settings(tmp_path, Role.API)
    with pytest.raises(CannotStart, match="name the folder that holds the keys"):
        await _assembled(gateway)
    assert (await _assembled(api)).keys_created
    assert (await _assembled(gateway)).keys_created == ()


@pytest.mark.parametrize("role", ALL_ROLES)
@pytest.mark.usefixtures("keys")
async def test_engines_that_stay_away_end_the_start_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: Role
) -> None:
    monkeypatch.setattr(server_module, "START_PATIENCE_S", 0.0)
    monkeypatch.setattr(server_module, "START_RETRY_S", 0.01)
    server = await assemble(_settings(tmp_path, role), instance="here")
    with pytest.raises(CannotStart, match="an engine is still away"):
        await server.start()
    await server.close()


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("store", "dynamodb://host?region=r"),
        ("store", "dynamodb://?regoin=r"),
        ("events", "kafka://"),
        ("directory", "redis://host:port"),
    ],
)
async def test_an_address_that_cannot_be_read_ends_the_start_with_a_sentence(
    tmp_path: Path, name: str, url: str
) -> None:
    with pytest.raises(CannotStart):
        await _assembled(_settings(tmp_path, **{name: url}, ingest=()))


def test_the_address_of_a_store_says_where_whose_and_which() -> None:
    place = StorePlace.parse("dynamodb://?region=eu-west-1&prefix=chat_&endpoint=http://localhost:8000")
    assert (place.region, place.prefix, place.endpoint) == ("eu-west-1", "chat_", "http://localhost:8000")
    assert StorePlace.parse("dynamodb://") == StorePlace()


def test_the_processes_of_a_cluster_are_told_no_more_than_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERIATIM_STORE", "of somebody else")
    cluster = Cluster(_settings(tmp_path), tmp_path, Sizes(), lambda line: None)
    told = {role: cluster._environment(role) for role in ALL_ROLES}
    engines = {
        role: [name for name in ("STORE", "EVENTS", "DIRECTORY") if f"SERIATIM_{name}" in told[role]] for role in told
    }
    assert engines == {
        Role.GATEWAY: ["DIRECTORY"],
        Role.INGEST: ["STORE", "EVENTS"],
        Role.FANOUT: ["STORE", "EVENTS", "DIRECTORY"],
        Role.API: ["STORE", "EVENTS", "DIRECTORY"],
    }
    assert told[Role.API]["SERIATIM_STORE"] == f"dynamodb://?endpoint=http://{NOWHERE}"
    assert [each.name for each in cluster.members] == [
        *("ingest-1", "ingest-2", "fanout-1", "fanout-2", "api-1", "gateway-1", "gateway-2")
    ]

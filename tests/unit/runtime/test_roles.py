"""One process of several: what it is made of, what it is not environments, and how it refuses to start."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from seriatim.domain import limits
from seriatim.engines.grpc.durability import GrpcDurability
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.keys.key_folder import KeyFolder
from seriatim.runtime.config.roles import ALL_ROLES, ProcessRole
from seriatim.runtime.config.settings import Settings
from seriatim.runtime.server.cluster import ClusterSizes, LocalCluster
from seriatim.runtime.server.lifecycle import ServerProcess, StartupError
from seriatim.runtime.wiring.assemble import assemble
from seriatim.runtime.wiring.dynamodb import DynamoDbUrl

NOWHERE = "127.0.0.1:1"  # no process listens on this port


def _settings(tmp_path: Path, *roles: ProcessRole, **given: Any) -> Settings:
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


async def _assembled(settings: Settings) -> ServerProcess:
    server = await assemble(settings, instance="here")
    await server.close()
    return server


@pytest.mark.parametrize("role", ALL_ROLES)
@pytest.mark.usefixtures("keys")
async def test_a_process_has_the_parts_of_its_role_and_no_others(tmp_path: Path, role: ProcessRole) -> None:
    roles = (await _assembled(_settings(tmp_path, role))).roles
    found = {
        ProcessRole.GATEWAY: roles.gateway,
        ProcessRole.INGEST: roles.ingest,
        ProcessRole.FANOUT: roles.fanout,
        ProcessRole.API: roles.operator,
    }
    assert [each for each, part in found.items() if part is not None] == [role]
    assert (roles.listener is not None) == (role is ProcessRole.INGEST)
    assert (roles.otp is not None) == (role is ProcessRole.API)


@pytest.mark.usefixtures("keys")
async def test_a_gateway_holds_neither_the_store_nor_the_event_log(tmp_path: Path) -> None:
    engines = (await _assembled(_settings(tmp_path, ProcessRole.GATEWAY))).engines
    assert engines.store is None
    assert engines.events is None
    assert isinstance(engines.remote, GrpcDurability)


async def test_ingest_holds_no_directory_and_needs_no_keys(tmp_path: Path) -> None:
    engines = (await _assembled(_settings(tmp_path, ProcessRole.INGEST))).engines
    assert engines.routing is None
    assert engines.remote is None
    assert not (tmp_path / "keys").exists()


async def test_gateways_and_rest_ask_the_ingest_of_their_own_process_unless_others_are_named(tmp_path: Path) -> None:
    together = (ProcessRole.GATEWAY, ProcessRole.INGEST, ProcessRole.API)
    alone = await _assembled(_settings(tmp_path, *together, ingest=()))
    assert alone.engines.remote is None
    assert alone.roles.gateway is not None
    assert alone.roles.gateway._context.durability is alone.roles.ingest
    named = await _assembled(_settings(tmp_path, *together))
    assert named.roles.gateway is not None
    assert named.roles.gateway._context.durability is named.engines.remote


async def test_all_roles_on_shared_engines_run_in_one_process_without_a_port_for_others(tmp_path: Path) -> None:
    server = await _assembled(_settings(tmp_path, ingest=()))
    assert None not in (server.roles.gateway, server.roles.ingest, server.roles.fanout, server.roles.operator)
    assert server.roles.listener is None


async def test_rest_makes_keys_and_a_gateway_only_reads_them(tmp_path: Path) -> None:
    gateway, api = _settings(tmp_path, ProcessRole.GATEWAY), _settings(tmp_path, ProcessRole.API)
    with pytest.raises(StartupError, match="name the folder that holds the keys"):
        await _assembled(gateway)
    assert (await _assembled(api)).keys_created
    assert (await _assembled(gateway)).keys_created == ()


@pytest.mark.parametrize("role", ALL_ROLES)
@pytest.mark.usefixtures("keys")
async def test_engines_that_stay_away_end_the_start_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: ProcessRole
) -> None:
    monkeypatch.setattr(limits, "START_TIMEOUT_S", 0.0)
    monkeypatch.setattr(limits, "START_RETRY_S", 0.01)
    server = await assemble(_settings(tmp_path, role), instance="here")
    with pytest.raises(StartupError, match="an engine is still away"):
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
    with pytest.raises(StartupError):
        await _assembled(_settings(tmp_path, **{name: url}, ingest=()))


def test_the_address_of_a_store_says_where_whose_and_which() -> None:
    place = DynamoDbUrl.parse("dynamodb://?region=eu-west-1&prefix=chat_&endpoint=http://localhost:8000")
    assert (place.region, place.prefix, place.endpoint) == ("eu-west-1", "chat_", "http://localhost:8000")
    assert DynamoDbUrl.parse("dynamodb://") == DynamoDbUrl()


def test_the_processes_of_a_cluster_get_no_more_settings_than_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERIATIM_STORE", "of somebody else")
    cluster = LocalCluster(_settings(tmp_path), tmp_path, ClusterSizes(), lambda line: None)
    environments = {role: cluster._environment(role) for role in ALL_ROLES}
    engines = {
        role: [name for name in ("STORE", "EVENTS", "DIRECTORY") if f"SERIATIM_{name}" in environments[role]]
        for role in environments
    }
    assert engines == {
        ProcessRole.GATEWAY: ["DIRECTORY"],
        ProcessRole.INGEST: ["STORE", "EVENTS"],
        ProcessRole.FANOUT: ["STORE", "EVENTS", "DIRECTORY"],
        ProcessRole.API: ["STORE", "EVENTS", "DIRECTORY"],
    }
    assert environments[ProcessRole.API]["SERIATIM_STORE"] == f"dynamodb://?endpoint=http://{NOWHERE}"
    assert [each.name for each in cluster.members] == [
        *("ingest-1", "ingest-2", "fanout-1", "fanout-2", "api-1", "gateway-1", "gateway-2")
    ]

"""deploy/compose and the Dockerfile agree with the code: settings, commands, ports, paths, engines, times."""

import re
from pathlib import Path

import pytest

from seriatim.operations.topics import PROFILES, defaults
from seriatim.runtime.config.roles import ALL_ROLES
from seriatim.runtime.config.settings import DNS, ENGINE_USERS, address, all_settings
from seriatim.runtime.server.cluster import END_S
from seriatim.runtime.wiring.dynamodb import DynamoDbUrl
from tests.unit.deploy.manifests import DEPLOY, Block, compose, config_check, flags, parse, seconds
from tools.engines.install import DYNAMODB, KAFKA
from tools.engines.kafka import SETTINGS

SERVICES: Block = compose()["services"]
ENGINES = ("dynamodb", "kafka", "redis")
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_role_is_a_service_beside_its_engines_and_two_tools() -> None:
    assert sorted(SERVICES) == sorted([*ALL_ROLES, *ENGINES, "tables", "topics"])
    assert [role for role in ("gateway", "ingest", "fanout") if SERVICES[role]["deploy"]["replicas"] < 2] == []


@pytest.mark.parametrize("role", ALL_ROLES)
def test_a_role_finds_nothing_wrong_with_its_settings(role: str) -> None:
    checked = config_check(role, SERVICES[role]["environment"])
    assert (checked.exit_code, checked.stderr) == (0, "")


@pytest.mark.parametrize("role", ALL_ROLES)
def test_a_role_gets_only_settings_of_its_command_and_only_engines_that_it_uses(role: str) -> None:
    environ = SERVICES[role]["environment"]
    assert [name for name in environ if name not in flags(role)] == []
    engines = [name for name in ENGINE_USERS if f"SERIATIM_{name.upper()}" in environ]
    assert engines == [name for name, users in ENGINE_USERS.items() if role in users]


@pytest.mark.parametrize("service", [*ALL_ROLES, "tables", "topics"])
def test_a_service_runs_a_command_that_there_is(service: str) -> None:
    assert parse(SERVICES[service]["command"])[0] == service


def test_the_tools_work_on_the_engines_that_the_roles_use() -> None:
    place = DynamoDbUrl.parse(SERVICES["ingest"]["environment"]["SERIATIM_STORE"])
    made = " ".join(SERVICES["tables"]["command"])
    assert f"--url {place.endpoint} --region {place.region}" in made
    assert ("--prefix" in made) == bool(place.prefix)
    assert f"--url {SERVICES['ingest']['environment']['SERIATIM_EVENTS']} " in " ".join(SERVICES["topics"]["command"])


@pytest.mark.parametrize("role", ALL_ROLES)
def test_a_role_has_more_time_to_end_than_it_takes(role: str) -> None:
    assert seconds(SERVICES[role]["stop_grace_period"]) > END_S


def test_nothing_starts_before_what_it_needs_is_ready() -> None:
    waits = {name: service.get("depends_on", {}) for name, service in SERVICES.items()}
    done, healthy = {"condition": "service_completed_successfully"}, {"condition": "service_healthy"}
    made = {"tables": done, "topics": done}
    assert waits["ingest"] == made
    assert waits["fanout"] == {**made, "redis": healthy}
    assert waits["api"] == {**made, "redis": healthy, "ingest": healthy}
    assert waits["gateway"] == {"redis": healthy, "ingest": healthy, "api": healthy}  # the api makes the keys
    assert (waits["tables"], waits["topics"]) == ({"dynamodb": healthy}, {"kafka": healthy})
    assert [name for name in ENGINES if "healthcheck" not in SERVICES[name]] == []


def test_only_rest_and_gateways_are_reached_from_outside_and_only_from_this_machine() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert sorted(published) == ["api", "gateway"]
    for name, [port] in published.items():
        assert port.startswith("127.0.0.1:")
        assert port.endswith(f":{SERVICES[name]['environment']['SERIATIM_PORT']}")


def test_gateways_and_rest_dial_ingest_where_it_listens() -> None:
    listens = address(SERVICES["ingest"]["environment"]["SERIATIM_RPC"])
    for role in ("gateway", "api"):
        place = address(SERVICES[role]["environment"]["SERIATIM_INGEST"].removeprefix(DNS))
        assert (place.host, place.port) == ("ingest", listens.port)


def test_gateways_read_the_keys_that_rest_makes() -> None:
    [kept], [read] = SERVICES["api"]["volumes"], SERVICES["gateway"]["volumes"]
    assert read == f"{kept}:ro"
    for role in ("api", "gateway"):
        assert kept.partition(":")[2] == SERVICES[role]["environment"]["SERIATIM_KEYS"]


def test_engines_are_of_the_versions_that_the_tests_run_on() -> None:
    [jar, _] = KAFKA.coordinates
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{jar.rpartition(':')[2]}"
    [jar] = DYNAMODB.coordinates
    assert SERVICES["dynamodb"]["image"] == f"amazon/dynamodb-local:{jar.rpartition(':')[2]}"


def test_the_broker_is_set_as_the_one_of_the_tests_and_as_topics_verify_wants_it() -> None:
    environ = {
        name.removeprefix("KAFKA_").replace("_", ".").lower(): value
        for name, value in SERVICES["kafka"]["environment"].items()
    }
    wanted = defaults(PROFILES["single"])
    assert {name: environ.get(name) for name in wanted} == dict(wanted)
    # Those only make the broker of tests start and end sooner.
    hasty = ("num.partitions", "broker.session", "broker.heartbeat")
    same = {name: value for name, value in SETTINGS.items() if not any(word in name for word in hasty)}
    assert {name: environ.get(name) for name in same} == same


def test_redis_keeps_nothing_on_disk_and_refuses_rather_than_forgets() -> None:
    words = SERVICES["redis"]["command"]
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert options["--maxmemory-policy"] == "noeviction"
    assert (options["--save"], options["--appendonly"]) == ("", "no")


def test_no_secret_is_in_a_file() -> None:
    text = (DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8")
    example = (DEPLOY / "compose" / ".env.example").read_text(encoding="utf-8")
    for setting in all_settings():
        if setting.secret:
            assert re.findall(rf"{setting.variable}: (?!\$\{{{setting.variable}:\?)", text) == []
            assert re.findall(rf"{setting.variable}=\S", example) == []


# --- the image --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ALL_ROLES)
def test_the_image_asks_for_readiness_where_a_role_answers(role: str) -> None:
    internal = address(SERVICES[role]["environment"]["SERIATIM_INTERNAL"])
    assert internal.host == "0.0.0.0"
    assert f"http://127.0.0.1:{internal.port}/health/ready" in DOCKERFILE


def test_the_image_runs_pinned_packages_as_an_unprivileged_user() -> None:
    assert re.search(r"^USER 10001:10001$", DOCKERFILE, re.MULTILINE)
    assert "PIP_CONSTRAINT=/src/requirements/dev.txt" in DOCKERFILE
    assert "'.[server,dynamodb,kafka,redis,rpc]'" in DOCKERFILE
    assert DOCKERFILE.rstrip().endswith('ENTRYPOINT ["seriatim"]\nCMD ["--help"]')
    assert SERVICES["api"]["environment"]["SERIATIM_KEYS"] in DOCKERFILE  # the folder must be ours before it is mounted


def test_what_the_image_is_built_of_is_sent_to_the_builder() -> None:
    copied = [name for line in re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()]
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert [name for name in copied if f"!{name}" not in ignored or not (DEPLOY.parent / name).exists()] == []

"""deploy/kubernetes agrees with the code: settings, commands, ports, paths, times, who may reach whom, and sizes."""

import os
import re
import shutil
from pathlib import Path

import pytest

from seriatim import __version__
from seriatim.domain import limits
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.keys.key_folder import KeyFolder
from seriatim.operations.topics import PARTITIONS
from seriatim.ports.event_log import MESSAGES
from seriatim.runtime.config.roles import ALL_ROLES
from seriatim.runtime.config.settings import DNS, ENGINE_USERS, address, all_settings
from seriatim.runtime.server.cluster import END_S
from seriatim.runtime.server.health import ProcessHealth
from seriatim.runtime.wiring.dynamodb import DynamoDbUrl
from tests.unit.deploy.manifests import (
    DEPLOY,
    Block,
    config_check,
    container,
    documents,
    environment,
    flags,
    of_kind,
    parse,
    pod,
)

WORKLOADS = of_kind("Deployment")
JOBS = of_kind("Job")
NAME = "app.kubernetes.io/name"
PORTS = {"SERIATIM_PORT": "public", "SERIATIM_INTERNAL": "internal", "SERIATIM_RPC": "rpc"}
SIZING = (DEPLOY.parent / "docs" / "sizing.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_role_has_a_deployment_an_account_a_budget_and_a_scaler() -> None:
    for kind in ("Deployment", "PodDisruptionBudget", "HorizontalPodAutoscaler"):
        assert sorted(of_kind(kind)) == sorted(ALL_ROLES), kind
    assert sorted(of_kind("ServiceAccount")) == sorted([*ALL_ROLES, "tables"])


def test_every_file_is_in_the_kustomization() -> None:
    files = [path.name for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")) if path.name != "kustomization.yaml"]
    text = (DEPLOY / "kubernetes" / "kustomization.yaml").read_text(encoding="utf-8")
    assert [name for name in files if f"  - {name}\n" not in text] == []
    assert f'newTag: "{__version__}"' in text


@pytest.mark.parametrize("role", ALL_ROLES)
def test_a_role_finds_nothing_wrong_with_its_settings_once_it_is_decided_how_codes_travel(role: str) -> None:
    environ = {**environment(WORKLOADS[role]), "SERIATIM_OTP_LOG_IN_PROD": "true"}
    checked = config_check(role, environ)
    assert (checked.exit_code, checked.stderr) == (0, "")


def test_as_it_is_committed_rest_refuses_to_print_codes() -> None:
    checked = config_check("api", environment(WORKLOADS["api"]))
    assert checked.exit_code == 2
    assert [line.split()[1] for line in checked.stderr.splitlines()] == ["otp_sender"]


@pytest.mark.parametrize("role", ALL_ROLES)
def test_a_role_gets_only_settings_of_its_command_and_only_engines_that_it_uses(role: str) -> None:
    environ = environment(WORKLOADS[role])
    assert [name for name in environ if name not in flags(role)] == []
    engines = [name for name in ENGINE_USERS if f"SERIATIM_{name.upper()}" in environ]
    assert engines == [name for name, users in ENGINE_USERS.items() if role in users]


def test_settings_of_the_config_map_are_settings() -> None:
    known = [setting.variable for setting in all_settings()]
    secret = [setting.variable for setting in all_settings() if setting.secret]
    given = of_kind("ConfigMap")["settings"]["data"]
    assert [name for name in given if name not in known or name in secret] == []


@pytest.mark.parametrize("name", [*WORKLOADS, *JOBS])
def test_a_container_runs_a_command_that_there_is(name: str) -> None:
    assert parse(container({**WORKLOADS, **JOBS}[name])["args"])[0] == name


def test_the_jobs_work_on_the_tables_and_topics_that_the_roles_use() -> None:
    place = DynamoDbUrl.parse(environment(WORKLOADS["ingest"])["SERIATIM_STORE"])
    words = container(JOBS["tables"])["args"]
    assert words[2:] == ["--region", place.region, "--prefix", place.prefix]
    assert container(JOBS["topics"])["args"][2:] == ["--url", "$(SERIATIM_EVENTS)", "--profile", "cluster"]
    assert environment(JOBS["topics"])["SERIATIM_EVENTS"] == environment(WORKLOADS["ingest"])["SERIATIM_EVENTS"]


@pytest.mark.parametrize("role", ALL_ROLES)
def test_ports_are_those_on_which_the_role_listens(role: str) -> None:
    environ = environment(WORKLOADS[role])
    listens = {PORTS[name]: int(value.rpartition(":")[2]) for name, value in environ.items() if name in PORTS}
    assert {port["name"]: port["containerPort"] for port in container(WORKLOADS[role])["ports"]} == listens
    for name in ("SERIATIM_HOST", "SERIATIM_INTERNAL", "SERIATIM_RPC"):
        assert environ.get(name, "0.0.0.0").partition(":")[0] == "0.0.0.0"


@pytest.mark.parametrize("role", ALL_ROLES)
def test_probes_ask_what_every_role_answers_on_its_internal_port(role: str) -> None:
    routes = [path for _, path in ProcessHealth.routes(_Anything())]
    for probe, path in (
        ("livenessProbe", "/health"),
        ("startupProbe", "/health"),
        ("readinessProbe", "/health/ready"),
    ):
        assert container(WORKLOADS[role])[probe]["httpGet"] == {"path": path, "port": "internal"}
        assert path in routes
    startup = container(WORKLOADS[role])["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] > limits.START_TIMEOUT_S


class _Anything(ProcessHealth):
    """Knows its routes, and nothing else."""

    def __init__(self) -> None:
        return


@pytest.mark.parametrize("role", ALL_ROLES)
def test_a_pod_has_more_time_to_end_than_it_takes(role: str) -> None:
    [_, pause] = container(WORKLOADS[role])["lifecycle"]["preStop"]["exec"]["command"]
    assert pod(WORKLOADS[role])["terminationGracePeriodSeconds"] > END_S + float(pause)


@pytest.mark.parametrize("name", [*WORKLOADS, *JOBS])
def test_a_pod_runs_without_privileges_and_gets_no_variables_but_the_settings(name: str) -> None:
    workload = {**WORKLOADS, **JOBS}[name]
    spec, inner = pod(workload), container(workload)["securityContext"]
    assert spec["enableServiceLinks"] is False
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert f"USER {spec['securityContext']['runAsUser']}:" in (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert inner["allowPrivilegeEscalation"] is False
    assert inner["readOnlyRootFilesystem"] is True
    assert inner["capabilities"] == {"drop": ["ALL"]}


# --- who reaches whom -------------------------------------------------------------------------------------------------


def test_ingest_is_found_by_a_name_that_stands_for_every_address() -> None:
    service = of_kind("Service")["ingest"]["spec"]
    assert service["clusterIP"] == "None"
    assert service["selector"] == {NAME: "ingest"}
    for role in ("gateway", "api"):
        place = address(environment(WORKLOADS[role])["SERIATIM_INGEST"].removeprefix(DNS))
        assert place.host == "ingest.seriatim.svc.cluster.local"
        assert [port["port"] for port in service["ports"]] == [place.port]


def test_the_internal_port_is_in_no_service_and_no_ingress() -> None:
    exposed = [port for service in of_kind("Service").values() for port in service["spec"]["ports"]]
    assert sorted({port["targetPort"] for port in exposed}) == ["public", "rpc"]
    assert "internal" not in str(of_kind("Ingress"))


def test_the_network_lets_in_clients_to_the_edge_planes_to_ingest_and_scrapers_to_metrics() -> None:
    rules = {name: each["spec"] for name, each in of_kind("NetworkPolicy").items()}
    assert rules["nobody"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    doors = {
        name: (_who(rule["podSelector"]), rule["ingress"][0].get("from"), rule["ingress"][0]["ports"][0]["port"])
        for name, rule in rules.items()
        if name != "nobody"
    }
    edge = {"matchExpressions": [{"key": NAME, "operator": "In", "values": ["gateway", "api"]}]}
    monitoring = {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    assert doors == {
        "clients": (["gateway", "api"], None, "public"),
        "between-planes": (["ingest"], [{"podSelector": edge}], "rpc"),
        "metrics": ([], [{"namespaceSelector": monitoring}], "internal"),
    }


def _who(selector: Block) -> list[str]:
    if "matchLabels" in selector:
        return [selector["matchLabels"][NAME]]
    return [value for each in selector.get("matchExpressions", ()) for value in each["values"]]


def test_sockets_go_to_gateways_and_the_rest_to_rest() -> None:
    [rule] = of_kind("Ingress")["seriatim"]["spec"]["rules"]
    backends = {path["path"]: path["backend"]["service"]["name"] for path in rule["http"]["paths"]}
    assert backends == {"/v1/ws": "gateway", "/": "api"}


def test_an_account_has_the_role_of_its_own_name_and_a_gateway_none() -> None:
    for name, account in of_kind("ServiceAccount").items():
        arn = account["metadata"].get("annotations", {}).get("eks.amazonaws.com/role-arn", "")
        assert arn.rpartition("/")[2] == ("" if name == "gateway" else f"seriatim-{name}")
    for role in ALL_ROLES:
        assert pod(WORKLOADS[role])["serviceAccountName"] == role
    assert pod(JOBS["tables"])["serviceAccountName"] == "tables"


# --- keys -------------------------------------------------------------------------------------------------------------


def test_rest_gets_all_keys_and_a_gateway_the_public_ones() -> None:
    secrets = {}
    for role in ("api", "gateway"):
        [volume] = [each["secret"] for each in pod(WORKLOADS[role])["volumes"] if each["name"] == "keys"]
        [mount] = [each for each in container(WORKLOADS[role])["volumeMounts"] if each["name"] == "keys"]
        assert mount["mountPath"] == environment(WORKLOADS[role])["SERIATIM_KEYS"]
        secrets[role] = volume
    assert secrets["api"] == {"secretName": "keys", "defaultMode": 0o440}
    assert secrets["gateway"] == {"secretName": "public-keys", "defaultMode": 0o440}


def test_keys_are_taken_from_a_folder_as_kubernetes_mounts_a_secret(tmp_path: Path) -> None:
    made = KeyFolder.open(tmp_path / "made", create=True, clock=SystemClock())
    mounted = tmp_path / "mounted"
    (mounted / "..2026").mkdir(parents=True)
    (mounted / "..data").symlink_to("..2026")
    for path in made.path.iterdir():
        shutil.copy(path, mounted / "..2026" / path.name)
        (mounted / "..2026" / path.name).chmod(0o440)
        (mounted / path.name).symlink_to(Path("..data") / path.name)
    os.chmod(mounted, 0o1777)
    found = KeyFolder.open(mounted, create=True, clock=SystemClock())
    assert found.created == []
    assert found.signing.kid == made.signing.kid


# --- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ALL_ROLES)
def test_requests_are_those_of_the_page_about_sizing(role: str) -> None:
    [row] = re.findall(rf"^\| {role} \| (\d+) \|.*\| (\S+) \| (\S+) \|$", SIZING, re.MULTILINE)
    requests = container(WORKLOADS[role])["resources"]["requests"]
    scaler = of_kind("HorizontalPodAutoscaler")[role]["spec"]
    assert row == (str(scaler["minReplicas"]), requests["cpu"], requests["memory"])
    assert "cpu" not in container(WORKLOADS[role])["resources"]["limits"]  # a throttled process misses heartbeats


def test_there_are_never_more_fanout_processes_than_partitions() -> None:
    assert of_kind("HorizontalPodAutoscaler")["fanout"]["spec"]["maxReplicas"] == PARTITIONS[MESSAGES]


def test_no_secret_is_among_the_documents() -> None:
    assert [each for each in documents() if each["kind"] == "Secret"] == []

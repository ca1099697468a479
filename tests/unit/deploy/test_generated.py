"""What is written from the code is committed as it would be written now, and Terraform makes what the code wants."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from seriatim.operations.permissions import GRANTS
from seriatim.operations.tables import TABLES
from seriatim.operations.topics import PROFILES, definitions
from tests.unit.deploy.manifests import of_kind
from tools.deploy.files import generated

ROOT = Path(__file__).parents[3]
TERRAFORM = ROOT / "deploy" / "terraform"


@pytest.mark.parametrize("path", generated(ROOT))
def test_a_written_file_is_as_it_would_be_written_now(path: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == generated(ROOT)[path], "run `make deploy-files`"


def test_no_policy_is_left_of_what_is_not_written_any_more() -> None:
    assert sorted(path.stem for path in (ROOT / "deploy" / "iam").iterdir()) == sorted(GRANTS)


def test_every_table_is_made_as_the_code_defines_it() -> None:
    made = _read("tables")["resource"]["aws_dynamodb_table"]
    assert list(made) == [table.name for table in TABLES]
    for table in TABLES:
        block = made[table.name]
        assert block["name"] == "${var.prefix}" + table.name
        assert (block["hash_key"], block.get("range_key")) == (table.partition.name, table.sort and table.sort.name)
        assert block.get("ttl") == (table.expiry and [{"attribute_name": table.expiry, "enabled": True}])
        assert block["point_in_time_recovery"] == [{"enabled": True}]
        assert block["deletion_protection_enabled"] is table.protected
        indexes = {each["name"]: each for each in block.get("global_secondary_index", ())}
        assert list(indexes) == [index.name for index in table.indexes]
        for index in table.indexes:
            found = indexes[index.name]
            assert found["projection_type"] == index.projection
            assert (found["hash_key"], found.get("range_key")) == (
                index.partition.name,
                index.sort and index.sort.name,
            )
        keys = [*re.findall(r"'(?:hash|range)_key': '(\w+)'", str(block))]
        assert sorted(each["name"] for each in block["attribute"]) == sorted(set(keys))


@pytest.mark.parametrize("profile", PROFILES)
def test_every_topic_is_made_as_the_code_defines_it_for_a_profile(profile: str) -> None:
    document = _read("topics")
    chosen = document["locals"]["kafka_profiles"][profile]
    numbers = {
        "${local.kafka_profiles[var.kafka_profile].replicas}": chosen["replicas"],
        "${tostring(local.kafka_profiles[var.kafka_profile].in_sync)}": str(chosen["in_sync"]),
    }
    made = document["resource"]["kafka_topic"].values()
    wanted = definitions(PROFILES[profile])
    assert [block["name"].removeprefix("${var.topic_prefix}") for block in made] == [topic.name for topic in wanted]
    for block, topic in zip(made, wanted, strict=True):
        assert block["partitions"] == topic.partitions
        assert numbers[block["replication_factor"]] == topic.replicas
        assert {name: numbers.get(value, value) for name, value in block["config"].items()} == dict(topic.settings)


def test_the_policies_of_terraform_say_the_same_as_the_files() -> None:
    documents = _read("policies")["data"]["aws_iam_policy_document"]
    for name in GRANTS:
        file = msgspec.json.decode((ROOT / "deploy" / "iam" / f"{name}.json").read_bytes())
        said = [
            (each["effect"], each["actions"], [_anywhere(resource) for resource in each["resources"]])
            for each in documents[name]["statement"]
        ]
        assert said == [(each["Effect"], each["Action"], each["Resource"]) for each in file["Statement"]]


def test_every_variable_and_every_resource_that_is_used_is_declared() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(TERRAFORM.iterdir()))
    declared = re.findall(r'^variable "(\w+)"', text, re.MULTILINE)
    assert sorted(set(re.findall(r"\bvar\.(\w+)", text))) == sorted(declared)
    for kind in ("aws_dynamodb_table", "aws_iam_policy"):
        there = [*{"aws_dynamodb_table": [table.name for table in TABLES], "aws_iam_policy": list(GRANTS)}[kind]]
        assert [name for name in re.findall(rf"\b{kind}\.(\w+)\.", text) if name not in there] == []


def test_a_role_is_made_for_every_account_of_kubernetes_that_needs_one() -> None:
    text = (TERRAFORM / "roles.tf").read_text(encoding="utf-8")
    made = re.findall(r"^    (\w+)\s+= aws_iam_policy\.(\w+)\.arn$", text, re.MULTILINE)
    assert [name for name, policy in made if name != policy] == []
    assert sorted(name for name, _ in made) == sorted(name for name in of_kind("ServiceAccount") if name != "gateway")


def _read(name: str) -> dict[str, Any]:
    document = msgspec.json.decode((TERRAFORM / f"{name}.tf.json").read_bytes())
    assert isinstance(document, dict)
    return document


def _anywhere(resource: str) -> str:
    return re.sub(r"\$\{aws_dynamodb_table\.(\w+)\.arn\}", r"arn:*:dynamodb:*:*:table/\1", resource)

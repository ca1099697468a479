"""Tables, topics and policies as Terraform reads them in JSON. The variables are in deploy/terraform/variables.tf."""

from collections.abc import Sequence

from seriatim.operations.permissions import GRANTS, TablePermission, statements
from seriatim.operations.tables import TABLES
from seriatim.operations.topics import PROFILES, TopicProfile, definitions
from seriatim.ports.tables import Attribute, Table
from seriatim.ports.topics import Topic

Block = dict[str, object]

WRITTEN = "Written by `make deploy-files` from the definitions in the code; a change here does not last."


def tables() -> Block:
    return {"//": WRITTEN, "resource": {"aws_dynamodb_table": {table.name: _table(table) for table in TABLES}}}


def topics() -> Block:
    """One definition for both profiles: they differ in two numbers, which are looked up."""
    [first, *_] = PROFILES.values()
    wanted = {_identifier(topic.name): _topic(topic) for topic in definitions(first)}
    return {
        "//": WRITTEN,
        "locals": {"kafka_profiles": {name: _profile(profile) for name, profile in PROFILES.items()}},
        "resource": {"kafka_topic": wanted},
    }


def policies() -> Block:
    documents = {name: {"statement": [_statement(each) for each in _statements(name)]} for name in GRANTS}
    named = {
        name: {
            "name": f"${{var.name}}-{name}",
            "description": f"Seriatim: what {name} may do with the tables",
            "policy": f"${{data.aws_iam_policy_document.{name}.json}}",
        }
        for name in GRANTS
    }
    return {
        "//": WRITTEN,
        "data": {"aws_iam_policy_document": documents},
        "resource": {"aws_iam_policy": named},
    }


# --- tables -----------------------------------------------------------------------------------------------------------


def _table(table: Table) -> Block:
    """A table that `var.provisioned` names has a fixed capacity; the others are billed by request."""
    block: Block = {
        "name": f"${{var.prefix}}{table.name}",
        "billing_mode": f'${{contains(keys(var.provisioned), "{table.name}") ? "PROVISIONED" : "PAY_PER_REQUEST"}}',
        **_capacity(table),
        **_keys(table.partition, table.sort),
        "attribute": [{"name": each.name, "type": each.kind} for each in _attributes(table)],
        "point_in_time_recovery": [{"enabled": bool(table.backups)}],
        "deletion_protection_enabled": bool(table.protected),
        "tags": "${var.tags}",
    }
    if table.indexes:
        block["global_secondary_index"] = [
            {
                "name": index.name,
                **_keys(index.partition, index.sort),
                "projection_type": index.projection,
                **_capacity(table),
            }
            for index in table.indexes
        ]
    if table.expiry is not None:
        block["ttl"] = [{"attribute_name": table.expiry, "enabled": True}]
    if table.protected:
        block["lifecycle"] = [{"prevent_destroy": True}]
    return block


def _capacity(table: Table) -> Block:
    return {f"{what}_capacity": f"${{try(var.provisioned.{table.name}.{what}, null)}}" for what in ("read", "write")}


def _keys(partition: Attribute, sort: Attribute | None) -> Block:
    keys: Block = {"hash_key": partition.name}
    return keys if sort is None else {**keys, "range_key": sort.name}


def _attributes(table: Table) -> Sequence[Attribute]:
    """Every attribute that is part of some key, once."""
    keys = [table.partition, table.sort, *(key for each in table.indexes for key in (each.partition, each.sort))]
    return list(dict.fromkeys(key for key in keys if key is not None))


# --- topics -----------------------------------------------------------------------------------------------------------


def _topic(topic: Topic) -> Block:
    return {
        "name": f"${{var.topic_prefix}}{topic.name}",
        "partitions": topic.partitions,
        "replication_factor": "${local.kafka_profiles[var.kafka_profile].replicas}",
        "config": {
            **topic.settings,
            "min.insync.replicas": "${tostring(local.kafka_profiles[var.kafka_profile].in_sync)}",
        },
        "lifecycle": [{"prevent_destroy": True}],
    }


def _profile(profile: TopicProfile) -> Block:
    return {"replicas": profile.replicas, "in_sync": profile.in_sync}


def _identifier(name: str) -> str:
    return name.replace(".", "_")


# --- policies ---------------------------------------------------------------------------------------------------------


def _statements(name: str) -> list[Block]:
    return statements(GRANTS[name], _resource)


def _resource(grant: TablePermission) -> str:
    table = f"${{aws_dynamodb_table.{grant.table}.arn}}"
    return table if grant.index is None else f"{table}/index/{grant.index}"


def _statement(statement: Block) -> Block:
    return {
        "effect": statement["Effect"],
        "actions": statement["Action"],
        "resources": statement["Resource"],
    }

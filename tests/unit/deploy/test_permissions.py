"""Who may do what with the tables: what is granted is what the handles of a role need, no less and no more."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from seriatim.domain import limits
from seriatim.engines.dynamodb.catalog import DynamoRoster
from seriatim.engines.dynamodb.inspection import DynamoInspection
from seriatim.engines.dynamodb.message_log import DynamoMessageLog
from seriatim.engines.dynamodb.store import DynamoStore, ReadOnlyStore
from seriatim.engines.dynamodb.table_control import DynamoTableControl
from seriatim.engines.dynamodb.table_reader import TableReader
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.operations.counter_repair import CounterRepairer
from seriatim.operations.permissions import GRANTS, READS, TablePermission
from seriatim.operations.tables import TABLES, create, definitions, verify
from seriatim.runtime.config.roles import ALL_ROLES, ProcessRole
from seriatim.runtime.config.settings import ENGINE_USERS, Settings
from seriatim.runtime.telemetry.metrics import Metrics
from seriatim.runtime.wiring.engines import open_engines
from tests.contract import (
    catalog_suite,
    codes_suite,
    counters_suite,
    members_suite,
    request_keys_suite,
    sessions_suite,
    slots_suite,
    users_suite,
)
from tests.contract.promises import Promise, keep
from tests.contract.store_data import CHAT, allocate, entry, found_group, message, persist
from tests.contract.store_engines import DynamoEngine
from tests.support.policies import Denied, Need, PolicedClient, allows, needs, policy
from tests.support.real_dynamodb import PATIENCE_S, PREFIX, CarefulClient, client_with_tables, real_dynamodb

SERVING = ("ingest", "fanout", "api")

# Together they do whatever the handles can do. All other promises are kept behind the same policies.
SHOWING: Sequence[Promise] = (
    counters_suite.a_later_allocation_lies_above_all_earlier_ones,
    counters_suite.a_stale_ack_never_lowers_the_watermark,
    counters_suite.a_clean_chat_is_forgotten_in_time,
    counters_suite.watermarks_of_many_are_as_of_now_and_say_since_when,
    slots_suite.the_newest_message_is_no_tombstone_and_not_above_the_bound,
    slots_suite.a_taken_key_cancels_all_of_it,
    slots_suite.a_lookup_shows_expired_keys_and_misses_a_lost_counter,
    catalog_suite.a_group_appears_whole,
    catalog_suite.the_chats_of_a_user_are_found_in_time,
    members_suite.the_chats_that_users_joined_lately_are_found_in_time,
    members_suite.an_admin_does_not_remove_an_admin,
    users_suite.who_signed_in_first_has_the_phone,
    users_suite.an_unknown_user_is_not_renamed_into_being,
    codes_suite.a_code_that_took_tries_is_still_the_pending_one,
    sessions_suite.a_session_is_as_of_now_for_gateways_too,
    sessions_suite.a_list_of_sessions_shows_them_as_they_are,
    request_keys_suite.a_finished_key_stays_finished,
)


async def test_a_role_is_granted_exactly_what_its_handles_need() -> None:
    used: dict[str, dict[Need, None]] = {role: {} for role in SERVING}

    class Noted(DynamoEngine):
        async def close(self) -> None:
            for role in SERVING:
                used[role].update(self.needs[role])
            await super().close()

    for promise in SHOWING:
        await keep(promise, Noted)
    assert {role: sorted(used[role]) for role in SERVING} == {role: _granted(role) for role in SERVING}


async def test_tables_are_made_mended_and_compared_with_the_rights_of_that_tool_alone() -> None:
    careful, prefix = CarefulClient(real_dynamodb().url), "policed_"
    police = PolicedClient(careful.plain, "tables", prefix=prefix)
    unprotected = {"DeletionProtectionEnabled": False}
    try:
        control = DynamoTableControl(police)
        await create(control, SystemClock(), prefix=prefix)
        for again in ("mended", "removed"):
            for table in definitions(prefix):
                until = careful.until(PATIENCE_S)
                await careful.plain.call("UpdateTable", {"TableName": table.name, **unprotected}, until=until)
                if again == "removed":
                    await careful.plain.call("DeleteTable", {"TableName": table.name}, until=until)
            if again == "mended":
                await create(control, SystemClock(), prefix=prefix)
                assert list(await verify(control, prefix=prefix)) == []
    finally:
        await careful.close()
    # DynamoDB Local has no backups, so no call switches them on.
    asked = {action for action, _ in police.needs} | {"UpdateContinuousBackups"}
    assert sorted(asked) == sorted({action for grant in GRANTS["tables"] for action in grant.actions})


async def test_the_checker_reads_every_table_that_it_looks_at_with_its_own_rights_alone() -> None:
    careful = await client_with_tables()
    police = PolicedClient(careful.plain, "check", prefix=PREFIX)
    rows = DynamoInspection(TableReader(police, prefix=PREFIX))
    try:
        await rows.estimated_rows()
        every = (rows.chats, rows.counters, rows.chats_with_slots, rows.memberships, rows.user_chats, rows.pairs)
        for table in (*every, rows.keys, rows.watermarks, rows.users, rows.phones, rows.sessions, rows.codes):
            assert [row async for row in table()] == []
        assert [row async for row in rows.user_sessions()] == []
        assert await rows.slot("chat_1", 1) is None
        assert await rows.key("chat_1", "key-1") is None
        assert not await rows.has_user_chat("user_1", "chat_1")
        assert not await rows.has_user_session("user_1", "sess_1")
    finally:
        await careful.close()
    looked_at = {resource for _, resource in police.needs}
    assert sorted(looked_at) == sorted({_resource(grant) for grant in GRANTS["check"]})


async def test_a_lost_counter_is_repaired_with_exactly_the_rights_of_that_tool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "RECOVERY_QUIET_S", 0.0)
    engine, clock = DynamoEngine(), SystemClock()
    await engine.open()
    try:
        await found_group(engine)
        log = engine.log()
        await allocate(log)
        await persist(log, entry(message(1)))
        await engine.lose_counter(CHAT)
        police = PolicedClient(engine.client, "counters", prefix=PREFIX)
        store = DynamoStore(police, clock, prefix=PREFIX)
        assert (await DynamoRoster(store).members(CHAT, timeout_s=5)).user_ids  # the tool looks first
        repairer = CounterRepairer(DynamoMessageLog(store), clock, highest_published=lambda chat_id: 1)
        repair = await repairer.repair(CHAT, margin=1)
    finally:
        await engine.close()
    assert (repair.allocated, repair.sealed) == (2, (2,))
    assert sorted(police.needs) == _granted("counters")


# --- what a policy says -----------------------------------------------------------------------------------------------


def test_there_is_a_policy_for_every_role_and_only_those_that_use_the_store_are_allowed_anything() -> None:
    assert [name for name in GRANTS if name not in ("tables", "check", "counters")] == list(ALL_ROLES)
    allowed = [role for role in ALL_ROLES if "Allow" in [each["Effect"] for each in policy(role)["Statement"]]]
    assert sorted(allowed) == sorted(ENGINE_USERS["store"])


def test_a_gateway_is_denied_everything() -> None:
    [statement] = policy("gateway")["Statement"]
    assert statement == {"Effect": "Deny", "Action": ["dynamodb:*"], "Resource": ["*"]}


@pytest.mark.parametrize("name", ["fanout", "check"])
def test_fanout_and_the_checker_are_allowed_to_read_and_nothing_else(name: str) -> None:
    actions = {action for each in policy(name)["Statement"] for action in each["Action"]}
    assert actions <= {f"dynamodb:{action}" for action in (*READS, "DescribeTable")}


@pytest.mark.parametrize("name", GRANTS)
def test_no_role_may_delete_a_counter_or_a_message_or_use_a_foreign_table(name: str) -> None:
    for action in ("DeleteItem", "BatchWriteItem", "PartiQLDelete", "DeleteTable"):
        assert not allows(policy(name), action, "chat_counters")
        assert not allows(policy(name), action, "messages")
    assert not any(allows(policy(name), action, "elses") for action in (*READS, "PutItem", "CreateTable"))


@pytest.mark.parametrize("name", GRANTS)
def test_a_grant_names_a_table_and_an_index_that_there_are(name: str) -> None:
    known = [_resource(TablePermission(table.name, ())) for table in TABLES]
    known += [
        _resource(TablePermission(table.name, (), index=index.name)) for table in TABLES for index in table.indexes
    ]
    assert [_resource(grant) for grant in GRANTS[name] if _resource(grant) not in known] == []


async def test_the_police_of_these_tests_stops_what_is_not_allowed() -> None:
    careful = CarefulClient("http://127.0.0.1:1")
    police = PolicedClient(careful, "fanout", prefix=PREFIX)
    put: dict[str, object] = {"TableName": f"{PREFIX}chat_counters", "Item": {}}
    until = careful.until(1)
    for operation, request in (
        ("PutItem", put),
        ("TransactWriteItems", {"TransactItems": [{"Put": put}]}),
        ("BatchGetItem", {"RequestItems": {f"{PREFIX}chat_counters": {}}}),
        ("Query", {"TableName": f"{PREFIX}chat_memberships", "IndexName": "user_chats-index"}),
    ):
        with pytest.raises(Denied):
            await police.call(operation, request, until=until)
    await careful.close()


def test_a_transaction_needs_what_its_parts_need() -> None:
    parts = [{kind: {"TableName": "chats"}} for kind in ("Put", "Update", "Delete", "ConditionCheck")]
    found = [action for action, _ in needs("TransactWriteItems", {"TransactItems": parts})]
    assert found == ["PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"]


# --- the same in the code: who only reads has nothing to write with ---------------------------------------------------


async def test_fanout_has_nothing_to_write_with(tmp_path: Path) -> None:
    nowhere = "127.0.0.1:1"
    settings = Settings(
        roles=(ProcessRole.FANOUT,),
        store=f"dynamodb://?endpoint=http://{nowhere}",
        events=f"kafka://{nowhere}",
        directory=f"redis://{nowhere}",
        data=str(tmp_path),
    )
    engines = await open_engines(settings, Metrics("here", settings.here), SystemClock(), "run")
    try:
        roster = engines.fanout_ports("group", "consumer").roster
        assert type(roster) is DynamoRoster
        assert type(roster._store) is ReadOnlyStore
    finally:
        await engines.close()


def test_what_only_reads_lacks_every_way_to_write() -> None:
    writes = [name for name in vars(DynamoStore) if not name.startswith("_")]
    assert {"put", "update", "update_returning", "delete", "transact", "write_request"} <= {*writes}
    assert [name for name in writes if hasattr(ReadOnlyStore, name)] == []


def _granted(role: str) -> list[Need]:
    return sorted((action, _resource(grant)) for grant in GRANTS[role] for action in grant.actions)


def _resource(grant: TablePermission) -> str:
    return grant.table if grant.index is None else f"{grant.table}/index/{grant.index}"


@pytest.mark.parametrize("name", [name for name in GRANTS if GRANTS[name]])
@pytest.mark.parametrize(
    "arn", ["arn:aws-cn:dynamodb:cn-north-1:111122223333:table/", "arn:aws-us-gov:dynamodb:us-gov-west-1:1111:table/"]
)
def test_f3_a_policy_allows_the_same_in_every_partition_of_aws(name: str, arn: str) -> None:
    for grant in GRANTS[name]:
        resource = grant.table if grant.index is None else f"{grant.table}/index/{grant.index}"
        for action in grant.actions:
            assert allows(policy(name), action, resource)
            assert allows(policy(name), action, resource, arn=arn)

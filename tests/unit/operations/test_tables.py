"""The tables of a deployment: made once, compared with what they should be, and every difference is reported."""

from collections.abc import AsyncIterator, Callable

import msgspec
import pytest

from seriatim.domain.errors import InternalError
from seriatim.engines.dynamodb import store
from seriatim.engines.dynamodb.table_control import DynamoTableControl
from seriatim.engines.dynamodb.transport.client import DynamoClient
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.operations.tables import TABLES, TableDifference, TablesNotReady, compare, create, definitions, verify
from seriatim.ports.tables import Attribute, Index, Table
from tests.support.manual_clock import ManualClock
from tests.support.real_dynamodb import PATIENCE_S, CarefulClient, real_dynamodb

PREFIX = "made_"


@pytest.fixture
async def client() -> AsyncIterator[DynamoClient]:
    careful = CarefulClient(real_dynamodb().url)
    yield careful.plain
    for table in definitions(PREFIX):
        for operation, request in (
            ("UpdateTable", {"TableName": table.name, "DeletionProtectionEnabled": False}),
            ("DeleteTable", {"TableName": table.name}),
        ):
            try:
                await careful.plain.call(operation, request, until=careful.until(PATIENCE_S))
            except InternalError:
                continue  # there is none
    await careful.close()


async def test_what_was_made_is_as_it_should_be(client: DynamoClient) -> None:
    control = DynamoTableControl(client)
    assert [each.found for each in await verify(control, prefix=PREFIX)] == ["missing"] * 11
    reported: list[str] = []
    made = await create(control, SystemClock(), prefix=PREFIX, report=reported.append)
    assert list(made) == [table.name for table in definitions(PREFIX)]
    assert list(await verify(control, prefix=PREFIX)) == []
    assert [line for line in reported if "chats: " in line] == ["made_chats: made", "made_chats: ready"]


async def test_making_them_again_makes_what_is_missing_and_keeps_the_rest(client: DynamoClient) -> None:
    control, until = DynamoTableControl(client), client.until(PATIENCE_S)
    await create(control, SystemClock(), prefix=PREFIX)
    item = {"chat_id": {"S": "chat_1"}}
    await client.call("PutItem", {"TableName": "made_chats", "Item": item}, until=until)
    await client.call("DeleteTable", {"TableName": "made_sessions"}, until=until)
    disabled = {"AttributeName": "ttl", "Enabled": False}
    request = {"TableName": "made_otp_requests", "TimeToLiveSpecification": disabled}
    await client.call("UpdateTimeToLive", request, until=until)
    found = await verify(control, prefix=PREFIX)
    assert list(found) == [
        TableDifference("made_sessions", "table", "there", "missing"),
        TableDifference("made_otp_requests", "expiry by", "ttl", "none"),
    ]
    assert list(await create(control, SystemClock(), prefix=PREFIX)) == ["made_sessions"]
    assert list(await verify(control, prefix=PREFIX)) == []
    answer = await client.call("GetItem", {"TableName": "made_chats", "Key": item}, until=until)
    assert b"chat_1" in answer


async def test_a_table_with_other_keys_is_reported_and_left_alone(client: DynamoClient) -> None:
    control = DynamoTableControl(client)
    wrong = Table(name="made_messages", partition=Attribute("chat_id"), sort=Attribute("sequence", "S"))
    await control.create(wrong, timeout_s=PATIENCE_S)
    await create(control, SystemClock(), prefix=PREFIX)
    found = await verify(control, prefix=PREFIX)
    assert list(found) == [TableDifference("made_messages", "sort key", "sequence (N)", "sequence (S)")]


async def test_a_table_that_is_never_ready_is_reported_in_the_end() -> None:
    clock = ManualClock()

    class Slow(DynamoTableControl):
        def __init__(self) -> None:
            return

        async def describe(self, name: str, *, timeout_s: float) -> Table | None:
            return None

        async def create(self, table: Table, *, timeout_s: float) -> None:
            return

        async def is_ready(self, name: str, *, timeout_s: float) -> bool:
            clock.advance(1000)
            return False

    with pytest.raises(TablesNotReady, match="again later"):
        await create(Slow(), clock)


def test_the_engine_and_the_definitions_name_the_same_tables_and_indexes() -> None:
    tables = (
        store.USERS,
        store.CHATS,
        store.MEMBERSHIPS,
        store.MESSAGES,
        store.COUNTERS,
        store.KEYS,
        store.DELIVERY,
        store.SESSIONS,
        store.CODES,
        store.PAIRS,
        store.REQUESTS,
    )
    assert tuple(table.name for table in TABLES) == tables
    indexes = [index.name for table in TABLES for index in table.indexes]
    assert indexes == ["phone_number-index", store.CHATS_OF_USER, store.DIRTY_CHATS, store.SESSIONS_OF_USER]


def test_only_what_can_be_forgotten_expires_and_the_rest_is_protected() -> None:
    expiring = ["idempotency_keys", "sessions", "otp_requests", "api_idempotency"]
    assert [table.name for table in TABLES if table.expiry] == expiring
    guarded = ["users", "chats", "chat_memberships", "messages", "chat_counters", "delivery_state"]
    assert [table.name for table in TABLES if table.protected] == guarded
    assert all(table.backups and table.on_demand for table in TABLES)


_INDEX = Index(name="i", partition=Attribute("b"), projection="ALL")
_TABLE = Table(
    name="t", partition=Attribute("a"), sort=Attribute("s", "N"), indexes=(_INDEX,), expiry="ttl", protected=True
)


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda table: msgspec.structs.replace(table, partition=Attribute("a", "N")), "partition key"),
        (lambda table: msgspec.structs.replace(table, partition=Attribute("x")), "partition key"),
        (lambda table: msgspec.structs.replace(table, sort=None), "sort key"),
        (lambda table: msgspec.structs.replace(table, expiry=None), "expiry by"),
        (lambda table: msgspec.structs.replace(table, expiry="other"), "expiry by"),
        (lambda table: msgspec.structs.replace(table, on_demand=False), "billing"),
        (lambda table: msgspec.structs.replace(table, backups=False), "point-in-time recovery"),
        (lambda table: msgspec.structs.replace(table, protected=False), "deletion protection"),
        (lambda table: msgspec.structs.replace(table, indexes=()), "index i"),
        (
            lambda table: msgspec.structs.replace(
                table, indexes=(_INDEX, msgspec.structs.replace(_INDEX, name="extra"))
            ),
            "index extra",
        ),
        (
            lambda table: msgspec.structs.replace(
                table, indexes=(msgspec.structs.replace(_INDEX, projection="KEYS_ONLY"),)
            ),
            "index i",
        ),
    ],
)
def test_each_kind_of_difference_is_found(spoil: Callable[[Table], Table], what: str) -> None:
    assert compare(_TABLE, _TABLE) == []
    [found] = compare(_TABLE, spoil(_TABLE))
    assert (found.table, found.what) == ("t", what)
    assert found.expected != found.found


def test_what_a_store_does_not_know_is_no_difference() -> None:
    assert compare(_TABLE, msgspec.structs.replace(_TABLE, backups=None, protected=None)) == []

"""Real DynamoDB Local as a child process: it answers on this machine only, and keeps its items."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.real_engines import real_engines
from tools.engines.dynamodb import DynamoDB, call


@pytest.fixture(scope="module")
def dynamodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoDB]:
    folder = tmp_path_factory.mktemp("dynamodb")
    with real_engines():
        DynamoDB(folder).require()
    with DynamoDB.started(folder) as engine:
        yield engine


def test_a_started_dynamodb_lists_its_tables(dynamodb: DynamoDB) -> None:
    assert dynamodb.url == f"http://127.0.0.1:{dynamodb.port}"
    assert "TableNames" in _call(dynamodb, "ListTables")


def test_dynamodb_listens_on_the_loopback_address_only(dynamodb: DynamoDB) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", dynamodb.port), 1)


def test_dynamodb_keeps_its_items_and_its_port_through_a_stop_and_a_kill(dynamodb: DynamoDB) -> None:
    port = dynamodb.port
    _call(
        dynamodb,
        "CreateTable",
        TableName="kept",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    _call(dynamodb, "PutItem", TableName="kept", Item={"id": {"S": "before the stop"}})
    dynamodb.stop()
    assert not dynamodb.is_running
    dynamodb.start()
    _call(dynamodb, "PutItem", TableName="kept", Item={"id": {"S": "before the kill"}})
    dynamodb.kill()
    dynamodb.start()
    assert dynamodb.port == port
    items = _call(dynamodb, "Scan", TableName="kept")["Items"]
    assert sorted(item["id"]["S"] for item in items) == ["before the kill", "before the stop"]


def _call(engine: DynamoDB, operation: str, **arguments: object) -> dict[str, Any]:
    status, body = call(engine.port, operation, json.dumps(arguments).encode())
    assert status == 200, body
    answer: dict[str, Any] = json.loads(body)
    return answer

"""`seriatim tables` on a real DynamoDB Local: what it prints, and its exit codes."""

import json
import socket

import pytest
from click.testing import CliRunner, Result

from seriatim.cli import tables
from seriatim.cli.main import main
from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown
from seriatim.engines.dynamodb.table_control import DynamoTableControl
from seriatim.engines.dynamodb.transport.client import DynamoClient, Request
from tests.support.real_dynamodb import real_dynamodb

PREFIX = "told_"


@pytest.fixture(scope="module")
def url() -> str:
    return real_dynamodb().url


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["tables", *arguments])


def test_tables_are_verified_made_and_verified_again(url: str) -> None:
    before = _run("verify", "--url", url, "--prefix", PREFIX)
    assert before.exit_code == 1
    assert "told_messages" in before.stdout
    assert "missing" in before.stdout
    assert before.stdout.endswith("11 tables compared: 11 differences.\n")
    made = _run("create", "--url", url, "--prefix", PREFIX)
    assert made.exit_code == 0, made.output
    assert made.stdout == "11 tables made: all as they should be.\n"
    assert "told_messages: made" in made.stderr
    again = _run("create", "--url", url, "--prefix", PREFIX, "--json")
    assert (again.exit_code, json.loads(again.stdout)) == (0, {"made": [], "differences": []})
    after = _run("verify", "--url", url, "--prefix", PREFIX, "--json")
    assert (after.exit_code, json.loads(after.stdout)) == (0, {"differences": []})


def test_a_difference_is_one_object_for_programs(url: str) -> None:
    found = _run("verify", "--url", url, "--prefix", "nowhere_", "--json")
    assert found.exit_code == 1
    [first, *_] = json.loads(found.stdout)["differences"]
    assert first == {"table": "nowhere_users", "what": "table", "expected": "there", "found": "missing"}


def test_a_store_that_cannot_be_reached_is_reported_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and no process listens
        refused = _run("verify", "--url", f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert refused.exit_code == 2
    assert refused.stdout == ""
    assert refused.stderr.startswith("Error: the store cannot be reached")
    assert refused.stderr.count("\n") == 1


def test_what_is_no_address_is_reported_in_one_line() -> None:
    refused = _run("create", "--url", "http://")
    assert refused.exit_code == 2
    assert "no address of DynamoDB" in refused.stderr


def test_f4_a_lost_connection_is_reported_and_the_tables_are_made_all_the_same(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every first call about a table arrives, and its answer is lost."""
    monkeypatch.setattr(limits, "PREPARE_BACKOFF_S", 0.001)
    monkeypatch.setattr(tables, "DynamoTableControl", lambda client: DynamoTableControl(_Forgetful(client)))
    made = _run("create", "--url", url, "--prefix", "lost_")
    assert made.exit_code == 0, made.output
    assert made.stdout == "11 tables made: all as they should be.\n"
    assert "lost_messages: the answer was lost; trying again in 0.001 s\n" in made.stderr
    again = _run("create", "--url", url, "--prefix", "lost_", "--json")
    assert (again.exit_code, json.loads(again.stdout)) == (0, {"made": [], "differences": []})


class _Forgetful(DynamoClient):
    def __init__(self, client: DynamoClient) -> None:
        self._behind = client
        self._done: set[tuple[str, object]] = set()

    async def call(self, operation: str, request: Request, *, until: float) -> bytes:
        answer = await self._behind.call(operation, request, until=until)
        what = (operation, request["TableName"])
        if what in self._done:
            return answer
        self._done.add(what)
        raise OutcomeUnknown("the answer was lost")

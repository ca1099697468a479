"""`seriatim check` on a real DynamoDB Local and a real Kafka: addresses and exit codes."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from seriatim.cli.main import main
from seriatim.engines.dynamodb import store as tables
from seriatim.operations.check import events
from seriatim.operations.check.invariants import INVARIANTS
from tests.support.real_dynamodb import PREFIX
from tests.unit.operations.populated_store import EMPTY, GROUP
from tests.unit.operations.shared_store import PopulatedSharedStore, shared_store


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
async def populated() -> AsyncIterator[PopulatedSharedStore]:
    async with shared_store() as populated:
        await populated.populate()
        yield populated


def store_of(populated: PopulatedSharedStore) -> str:
    return f"dynamodb://?endpoint={populated.url}&prefix={PREFIX}"


def events_of(populated: PopulatedSharedStore) -> str:
    return f"kafka://{populated.raw.cluster.bootstrap}?prefix={populated.raw.cluster.prefix}"


async def run(*arguments: str, store: str | None = None, events: str | None = None) -> Result:
    """With the settings in the environment, as the roles have them. What servers need besides is not there."""
    environ = {"SERIATIM_STORE": store, "SERIATIM_EVENTS": events, "SERIATIM_ENV": "prod"}
    command = ["check", "--recheck-seconds", "0", *arguments]
    return await asyncio.to_thread(CliRunner().invoke, main, command, env=environ)


def one_line(result: Result) -> str:
    """Of a check that could not look."""
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


async def test_a_sound_deployment_exits_with_0(populated: PopulatedSharedStore) -> None:
    result = await run(store=store_of(populated), events=events_of(populated))
    assert result.exit_code == 0, result.output
    assert "Every invariant holds" in result.stdout
    assert "not looked at" not in result.stdout
    by_flags = await run("--store", store_of(populated), "--events", events_of(populated), "--json")
    answer = json.loads(by_flags.stdout)
    assert (by_flags.exit_code, answer["violations"]) == (0, 0)
    assert (answer["store"], answer["events"]) == (store_of(populated), events_of(populated))


async def test_a_damaged_row_exits_with_1_and_is_named_with_what_to_do(populated: PopulatedSharedStore) -> None:
    await populated.rows.drop(tables.MESSAGES, {"chat_id": GROUP, "sequence": 3})
    result = await run(store=store_of(populated), events=events_of(populated))
    assert result.exit_code == 1
    assert "chat_group #3" in result.stdout
    assert INVARIANTS["I14"].advice in result.stdout
    assert "backup of the tables" in result.stdout


async def test_the_store_alone_can_be_looked_at_and_it_says_what_was_not(populated: PopulatedSharedStore) -> None:
    result = await run(store=store_of(populated))
    assert result.exit_code == 0
    assert f"since no event log was given: {', '.join(events.INVARIANTS)}." in result.stdout
    assert "Every invariant that was looked at holds" in result.stdout
    await populated.rows.drop(tables.COUNTERS, {"chat_id": EMPTY})
    broken = await run("--json", store=store_of(populated))
    assert (broken.exit_code, json.loads(broken.stdout)["violations"]) == (1, 1)


async def test_a_store_or_an_event_log_that_is_away_exits_with_2(
    populated: PopulatedSharedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seriatim.domain.limits.KAFKA_ADMIN_S", 1.0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and no process listens
        nowhere = f"127.0.0.1:{taken.getsockname()[1]}"
        no_store = await run(store=f"dynamodb://?endpoint=http://{nowhere}", events=events_of(populated))
        no_events = await run(store=store_of(populated), events=f"kafka://{nowhere}")
    assert "the store cannot be reached" in one_line(no_store)
    assert "Kafka answered" in one_line(no_events)


async def test_tables_or_topics_of_another_name_exit_with_2(populated: PopulatedSharedStore) -> None:
    no_table = await run(store=f"{store_of(populated)}other_", events=events_of(populated))
    no_topic = await run(store=store_of(populated), events=f"{events_of(populated)}other.")
    assert f"there is no table {PREFIX}other_users: see `seriatim tables verify`" in one_line(no_table)
    assert "other.messages.persisted" in one_line(no_topic)


async def test_a_row_that_cannot_be_read_exits_with_2_and_says_where(populated: PopulatedSharedStore) -> None:
    await populated.rows.change(tables.CHATS, {"chat_id": GROUP}, chat_type="crowd")
    result = await run(store=store_of(populated), events=events_of(populated))
    assert "a row of chats is not what this release writes" in one_line(result)


@pytest.mark.parametrize(
    ("store", "events", "reported"),
    [
        ("mysql://", None, "store (environment variable SERIATIM_STORE): takes embedded: or dynamodb://"),
        ("dynamodb://", "amqp://", "events (environment variable SERIATIM_EVENTS): takes embedded: or kafka://"),
        (None, "kafka://localhost:9092", "store (default): is embedded:, and events is not"),
        ("dynamodb://localhost", None, "store looks like dynamodb://?region="),
        ("dynamodb://?endpoint=http://localhost:1", "kafka://localhost/path", "is no address of Kafka"),
        ("dynamodb://?endpoint=http://localhost:1", "kafka://localhost?no.such=1", "an option that it does not take"),
    ],
)
async def test_addresses_that_are_none_exit_with_2(store: str | None, events: str | None, reported: str) -> None:
    assert reported in one_line(await run(store=store, events=events))


def test_the_help_says_that_servers_may_go_on() -> None:
    text = " ".join(CliRunner().invoke(main, ["check", "--help"]).stdout.split())
    assert "it may run while servers work" in text
    assert all(flag in text for flag in ("--data", "--store", "--events"))

"""`seriatim trace` and `counters repair` on engines that servers share: DynamoDB Local, Kafka and Redis."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from click.testing import CliRunner, Result

from seriatim.cli.main import main
from seriatim.domain import limits
from seriatim.durability.ingest import Ingest
from seriatim.engines.kafka.event_reader import KafkaEventReader
from seriatim.engines.redis.directory import RedisDirectory
from seriatim.ports.directory import Registration
from seriatim.ports.event_log import MESSAGES, Partition
from seriatim.runtime.server.health import FANOUT_GROUP
from tests.contract.consumers import Consumer
from tests.support.real_dynamodb import PREFIX, real_dynamodb
from tests.support.real_redis import client_of, real_redis
from tests.unit.operations.populated_store import ANN, BOB, CID, GROUP, TOPICS
from tests.unit.operations.shared_store import PopulatedSharedStore, shared_store
from tools.engines.dynamodb import REGION


@pytest.fixture
async def populated() -> AsyncIterator[PopulatedSharedStore]:
    async with shared_store() as opened:
        await opened.populate()
        yield opened


async def run(populated: PopulatedSharedStore, *arguments: str, directory: bool = True) -> Result:
    redis, store = await asyncio.to_thread(real_redis), await asyncio.to_thread(real_dynamodb)
    engines = {
        "SERIATIM_STORE": f"dynamodb://?endpoint={store.url}&region={REGION}&prefix={PREFIX}",
        "SERIATIM_EVENTS": f"kafka://{populated.raw.kafka.bootstrap}?prefix={populated.raw.cluster.prefix}",
        **({"SERIATIM_DIRECTORY": redis.url} if directory else {}),
    }
    return await asyncio.to_thread(CliRunner(env=engines).invoke, main, arguments)


async def steps(
    populated: PopulatedSharedStore, sequence: int, *, directory: bool = True
) -> tuple[dict[str, object], dict[str, object]]:
    """What was done, and whether each member is connected."""
    arguments = ("trace", "--chat", GROUP, "--sequence", str(sequence), "--json")
    found = json.loads((await run(populated, *arguments, directory=directory)).stdout)
    done = {step["name"]: step["done"] for step in found["steps"]}
    gateways = {
        each["user_id"]: each["connections"] and [one["gateway_id"] for one in each["connections"]]
        for each in found["members"]
    }
    return done, gateways


async def test_a_message_is_followed_across_the_engines_to_the_gateway_of_its_reader(
    populated: PopulatedSharedStore,
) -> None:
    everything = {"chat": True, "allocated": True, "stored": True, "published": True, "fanned out": True}
    done, _ = await steps(populated, 5)
    assert done == {**everything, "fanned out": False}
    await _handle_all(populated)
    async with client_of((await asyncio.to_thread(real_redis)).url) as client:
        directory = RedisDirectory(client)
        line = Registration(
            connection_id="conn_1",
            user_id=BOB,
            device_id="device",
            session_id="sess",
            gateway_id="gateway-7",
            connected_at="2026-01-30T12:00:00.000Z",
        )
        await directory.register([line], timeout_s=5)
        try:
            assert await steps(populated, 5) == (everything, {ANN: [], BOB: ["gateway-7"], CID: []})
        finally:
            await directory.unregister(line, timeout_s=5)
    assert await steps(populated, 5, directory=False) == (everything, {ANN: None, BOB: None, CID: None})


async def test_a_lost_counter_is_rebuilt_above_all_that_was_seen_and_the_chat_goes_on(
    populated: PopulatedSharedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RECOVERY_QUIET_S", 0.01)
    order = ("counters", "repair", "--chat", GROUP)
    refused = await run(populated, *order)
    assert (refused.exit_code, "exists" in refused.stderr) == (2, True)
    await populated.ingest.drain()  # its pipeline would write the mark it remembers
    await populated.rows.drop("chat_counters", {"chat_id": GROUP})
    planned = await run(populated, *order, "--dry-run")
    assert "would set the counter to 5" in planned.stdout
    done = await run(populated, *order)
    assert done.exit_code == 0
    assert "highest slot 5, highest event 5, highest watermark 5" in done.stdout
    populated.ingest = Ingest(log=populated.log, events=populated.events, clock=populated.clock, producer_id="ingest-2")
    assert (await populated.send(GROUP, ANN)).sequence == 6


async def test_engines_that_are_away_are_named_and_the_exit_code_says_that_nothing_was_read(
    populated: PopulatedSharedStore,
) -> None:
    nowhere = {"SERIATIM_STORE": "dynamodb://?endpoint=http://127.0.0.1:1", "SERIATIM_EVENTS": "kafka://127.0.0.1:1"}
    arguments = ("trace", "--chat", GROUP, "--sequence", "1")
    result = await asyncio.to_thread(CliRunner(env=nowhere).invoke, main, arguments)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)


async def _handle_all(populated: PopulatedSharedStore) -> None:
    """As fanout does: reads, handles, commits."""
    group = populated.raw.cluster.prefixed(FANOUT_GROUP)
    consumer = Consumer("one", KafkaEventReader(populated.raw.cluster, TOPICS, group, "one"), {})
    await consumer.open()
    ends: dict[Partition, int] = {}
    for record in await populated.raw.stored(MESSAGES):
        ends[record.partition] = record.offset + 1
    while len(consumer.handled) < sum(ends.values()):
        consumer.handled += await consumer.reader.poll(limit=100)
    for partition, offset in ends.items():
        await consumer.reader.commit(partition, offset, timeout_s=5)
    await consumer.reader.close()

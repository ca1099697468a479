"""Every role in processes of its own, on real engines: a message crosses them, and each shows its own numbers.

What they do when one of them is killed, stands still or is stopped, tests/system/faults shows."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from seriatim.domain.sharding import partition
from seriatim.engines.kafka.cluster import Cluster
from seriatim.operations.topics import PARTITIONS
from seriatim.ports.event_log import MESSAGES
from tests.support.real_redis import real_redis
from tests.system.deployment import Deployment, Process
from tests.system.devices import Device, Lost, signed_in
from tests.system.faults.write_load import RetryingDevice, WriteLoad
from tests.system.server_process import WAIT_S, until
from tests.system.users import User

EXAMPLE = Path(__file__).parents[3] / "examples" / "two_gateways.py"
USERS = 6

pytestmark = pytest.mark.timeout(300)


async def people_of(deployment: Deployment, first: int, count: int = USERS) -> list[User]:
    """Spread over the gateways."""
    gateways = deployment.gateways
    return await signed_in(
        lambda number: User(deployment.api, f"+49151{first + number:08d}", gateway=gateways[number % len(gateways)]),
        count,
    )


async def chatting(deployment: Deployment, first: int) -> WriteLoad:
    """Enter it. Who loses the own gateway goes to the other one."""
    users = await people_of(deployment, first)
    chat_id = await asyncio.to_thread(users[0].create_group, *users[1:])
    gateways = [*deployment.gateways, *deployment.gateways]
    return WriteLoad(
        [RetryingDevice(each, gateways[number % 2 :], [chat_id]) for number, each in enumerate(users)], [chat_id]
    )


async def test_a_message_crosses_two_gateways_and_everyone_sees_the_same(deployment: Deployment) -> None:
    async with await chatting(deployment, 1000) as load:
        await load.progress()
    assert load.errors == []
    await load.check_agreement()


def test_the_example_of_the_walkthrough_says_what_the_page_says(deployment: Deployment) -> None:
    places = [f"127.0.0.1:{each.port}" for each in (deployment.api, *deployment.gateways)]
    ended = subprocess.run(
        (sys.executable, str(EXAMPLE), *places), capture_output=True, text=True, timeout=60, check=True
    )
    ada, bob = ended.stdout.splitlines()
    assert ada.startswith(f"Ada,  at {places[1]}: acknowledged as number 1 after")
    assert bob.startswith(f"Bob,  at {places[2]}: 'Can you hear me over there?' after")


async def test_each_process_is_ready_for_its_own_reasons_and_shows_its_own_metrics(deployment: Deployment) -> None:
    parts = {each.role: each.ready() for each in deployment.all}
    assert {role: sorted(found) for role, found in parts.items()} == {
        "gateway": ["directory", "durability", "gateway"],
        "ingest": ["events", "ingest", "store"],
        "fanout": ["directory", "events", "fanout", "store"],
        "api": ["directory", "durability", "store"],
    }
    shown = {each.role: {line.split("{")[0] for line in each.metrics().splitlines()} for each in deployment.all}
    own = {
        "gateway": "gateway_connections_active",
        "ingest": "durability_chats_active",
        "fanout": "fanout_rebalances_total",
        "api": "rest_request_latency_seconds_count",
    }
    for role, names in shown.items():
        assert [other for other, name in own.items() if name in names] == [role]
    assert "rpc_ingest_processes" in shown["gateway"]


async def test_after_traffic_the_numbers_of_each_role_have_moved(deployment: Deployment) -> None:
    async with await chatting(deployment, 1500) as load:
        await load.progress()
    await load.check_agreement()
    expected = {
        "gateway": ("gateway_connections_rate_total", "gateway_redis_available", "redis_connections_total"),
        "ingest": (
            "durability_messages_persisted_rate_total",
            "durability_persist_latency_seconds_count",
            "sequence_allocation_latency_seconds_count",
            "durability_kafka_produce_latency_seconds_count",
            "durability_dynamodb_available",
            "durability_kafka_available",
            "dynamodb_calls_total",
        ),
        "fanout": ("fanout_messages_delivered_rate_total", "fanout_rebalances_total", "dynamodb_calls_total"),
        "api": ("rest_requests_total", "rest_request_latency_seconds_count", "redis_connections_total"),
    }
    for role, names in expected.items():
        of_role = [each for each in deployment.all if each.role == role]
        for name in names:
            await asyncio.to_thread(until, partial(_has_moved, of_role, name), f"{role} {name}")
    await asyncio.to_thread(until, lambda: _lag(deployment) == 0, "fanout has handled everything, and both can tell")
    for fanout in deployment.fanouts:
        text = fanout.metrics()
        assert "under_replicated_partitions{" in text
        assert "fanout_dlq_depth{" in text
        assert "fanout_kafka_consumer_lag_seconds{" in text


async def test_a_revoked_session_is_closed_on_its_gateway_and_refused_there_even_when_redis_forgot(
    deployment: Deployment,
) -> None:
    [ada] = await people_of(deployment, 5000, 1)
    with ada.connect() as websocket:
        assert ada.call("DELETE", f"/sessions/{ada.session_id}").status == 204
        assert websocket.error()["code"] == "UNAUTHORIZED"
        frame, code = websocket.closing()
        assert (frame["reason"], code) == ("session_revoked", 1008)
    await asyncio.to_thread(real_redis().wipe)  # now only the authority knows, by way of an ingest
    await asyncio.to_thread(until, lambda: all(each.is_ready() for each in deployment.all), "all see Redis again")
    device = Device(ada)
    with pytest.raises(Lost, match="401"):
        await device.connect()


async def test_s35_a_record_that_cannot_be_read_becomes_a_dead_letter_in_kafka_and_its_partition_flows(
    deployment: Deployment,
) -> None:
    async with await chatting(deployment, 6000) as load:
        await load.progress()
        before = _sum(deployment.fanouts, "fanout_dlq_rate_total")
        await asyncio.to_thread(_poison, deployment, load.chats[0])
        await load.until(lambda: _sum(deployment.fanouts, "fanout_dlq_rate_total") == before + 1, "a dead letter")
        await load.progress()
    await load.check_agreement()


# --- helpers ----------------------------------------------------------------------------------------------------------


def _poison(deployment: Deployment, chat_id: str) -> None:
    """Writes rubbish where the events of this chat are."""
    cluster = Cluster.parse(deployment.engines["SERIATIM_EVENTS"])
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    producer.produce(cluster.prefixed(MESSAGES), b"{", chat_id.encode(), partition(chat_id, PARTITIONS[MESSAGES]))
    assert producer.flush(WAIT_S) == 0


def _sum(processes: Sequence[Process], name: str) -> float:
    """Over all processes and labels."""
    lines = [line for each in processes for line in each.metrics().splitlines() if line.startswith(f"{name}{{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def _has_moved(processes: Sequence[Process], name: str) -> bool:
    return _sum(processes, name) > 0


def _lag(deployment: Deployment) -> float | None:
    """Of the whole group, as both of its processes see it; None while one of them has not looked yet."""
    if any("fanout_kafka_consumer_lag{" not in each.metrics() for each in deployment.fanouts):
        return None
    return _sum(deployment.fanouts, "fanout_kafka_consumer_lag")

"""Each engine is killed, stands still, is restarted or forgets while users write: nothing is lost, all comes back."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import pytest

from seriatim.domain import limits
from tests.support.real_redis import ask, client_of
from tests.support.soak import repeat
from tests.system.deployment import Process
from tests.system.devices import Device, Refused, faults, same, signed_in
from tests.system.faults.fault_deployment import FaultDeployment
from tests.system.faults.fault_list import ENGINE_KILLED, ENGINE_PAUSED, ENGINE_RESTARTED, FLUSHED
from tests.system.faults.network_proxies import ProxiedDynamoDB
from tests.system.users import User
from tools.engines.engine import Engine

pytestmark = pytest.mark.timeout(300)

UNSEEN_S = 2 * limits.PROBE_INTERVAL_MAX_S  # the bound once more, for a machine that does much else
PAUSED_S = limits.PERSIST_DEADLINE_S + 1  # longer than any timeout on the way of a message


@pytest.mark.parametrize("name", ["DynamoDB", "Kafka", "Redis"])
async def test_an_engine_that_is_killed_and_started_again_costs_time_and_no_message(
    fault_deployment: FaultDeployment, name: str
) -> None:
    """Redis comes back empty."""
    engine = _engine(fault_deployment, name)
    async with fault_deployment.under_load(ENGINE_KILLED[name]) as run:
        await asyncio.to_thread(engine.kill)
        await (run.load.progress() if name == "Redis" else run.until_noticed())
        if name == "DynamoDB":
            # S28: after five failures everybody is refused without asking, until a probe gets through.
            await run.load.until(
                lambda: all(_open(each) for each in fault_deployment.cluster.gateways), "breakers open"
            )
        await asyncio.to_thread(engine.start)
        run.mark_end()
        await run.load.until(
            lambda: not any(_open(each) for each in fault_deployment.cluster.gateways), "breakers close"
        )


@pytest.mark.parametrize("name", ["DynamoDB", "Kafka", "Redis"])
async def test_an_engine_that_stands_still_for_longer_than_all_timeouts_costs_time_and_no_message(
    fault_deployment: FaultDeployment, name: str
) -> None:
    engine = _engine(fault_deployment, name)
    async with fault_deployment.under_load(ENGINE_PAUSED[name]):
        await asyncio.to_thread(engine.pause)
        try:
            await asyncio.sleep(PAUSED_S)
        finally:
            engine.resume()


# A kill is the harder case; only Redis keeps something by ending in order.
@pytest.mark.parametrize("name", repeat(["Redis"], soak=["DynamoDB", "Kafka", "Redis"]))
async def test_an_engine_that_is_restarted_in_order_costs_time_and_no_message(
    fault_deployment: FaultDeployment, name: str
) -> None:
    engine = _engine(fault_deployment, name)
    async with fault_deployment.under_load(ENGINE_RESTARTED[name]):
        await asyncio.to_thread(engine.stop)
        await asyncio.to_thread(engine.start)


class AfterFlush(NamedTuple):
    """What users saw after Redis forgot everything. `new_chat`: what Bob was sent in a chat that nobody had synced."""

    errors: Sequence[str]
    new_chat: Sequence[str]
    device_faults: Sequence[str]


@pytest.fixture(scope="module")
def after_flush(fault_deployment: FaultDeployment) -> AfterFlush:
    """Observed once for two promises: either takes most of a minute."""
    return asyncio.run(_flush(fault_deployment))


def test_s43_everybody_is_found_again_within_a_heartbeat_after_redis_forgot_everything(after_flush: AfterFlush) -> None:
    """No connection breaks, so no process learns that anything was lost."""
    assert after_flush.errors == []


def test_b3_the_first_message_of_a_new_chat_is_seen_by_a_connected_member_though_redis_forgot_all_connections(
    after_flush: AfterFlush,
) -> None:
    """Fanout finds no connection of Bob, so that no push is sent; and Bob's client does not know of the chat."""
    assert after_flush.new_chat == ["first words"]
    assert after_flush.device_faults == []


async def _flush(fault_deployment: FaultDeployment) -> AfterFlush:
    gateways = fault_deployment.cluster.gateways
    users = await signed_in(  # others than those who write: a device has one connection
        lambda number: User(fault_deployment.cluster.api, f"+49151{100 + number:08d}", gateway=gateways[number]), 2
    )
    ann, bob = (Device(each) for each in users)
    async with fault_deployment.under_load(FLUSHED) as run, client_of(fault_deployment.redis.url) as client:
        await asyncio.gather(ann.connect(), bob.connect())
        chat_id = await asyncio.to_thread(ann.user.create_group, bob.user)
        assert await ask(client, "FLUSHALL") is not None
        flushed_at = time.monotonic()
        run.mark_begin()
        await ann.send(chat_id, "first words")
    with suppress(TimeoutError):
        async with asyncio.timeout(flushed_at + UNSEEN_S - time.monotonic()):
            while not bob.messages(chat_id):
                bob.arrived.clear()
                await bob.arrived.wait()
    await asyncio.gather(ann.close(), bob.close())
    return AfterFlush(run.load.errors, [each["content"] for each in bob.messages(chat_id)], faults((ann, bob)))


async def test_s41_a_message_refused_while_kafka_stood_still_is_published_once_by_its_repetition(
    fault_deployment: FaultDeployment,
) -> None:
    ann, bob = (Device(each) for each in fault_deployment.users[:2])
    ann.user.gateway, bob.user.gateway = fault_deployment.cluster.gateways
    chat_id = await asyncio.to_thread(ann.user.create_group, bob.user)
    for device in (ann, bob):
        await device.connect()
        await device.sync(chat_id)
    await asyncio.to_thread(fault_deployment.kafka.pause)
    try:
        with pytest.raises(Refused, match="SERVICE_UNAVAILABLE"):
            await ann.send(chat_id, "is anybody there?")
    finally:
        fault_deployment.kafka.resume()
    await ann.resend(chat_id)
    await bob.has(1, chat_id)
    await asyncio.gather(ann.close(), bob.close())
    assert faults((ann, bob)) == []
    history = await asyncio.to_thread(ann.user.history, chat_id)
    assert [same(each) for each in history] == bob.messages(chat_id) == ann.messages(chat_id)


def _open(gateway: Process) -> bool:
    return gateway.metric("gateway_circuit_breaker_open") > 0


def _engine(fault_deployment: FaultDeployment, name: str) -> Engine | ProxiedDynamoDB:
    others: dict[str, Engine] = {"Kafka": fault_deployment.kafka, "Redis": fault_deployment.redis}
    return others.get(name, fault_deployment.dynamodb)

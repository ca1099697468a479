"""Each engine is killed, stands still, is restarted or forgets while users write: nothing is lost, all comes back."""

import asyncio
from collections.abc import Iterator

import pytest

from seriatim.domain import limits
from tests.support.real_redis import ask, client_of
from tests.system.deployment import Process
from tests.system.devices import Device, Refused, faults, same
from tests.system.fault_deployment import FaultDeployment, deploy_for_faults
from tests.system.fault_list import ENGINE_KILLED, ENGINE_PAUSED, ENGINE_RESTARTED, FLUSHED
from tests.system.network_proxies import ProxiedDynamoDB
from tools.engines.engine import Engine
from tools.engines.engines import Engines

pytestmark = pytest.mark.timeout(300)

UNSEEN_S = 2 * limits.PROBE_INTERVAL_MAX_S  # the bound once more, for a machine that does much else
PAUSED_S = limits.PERSIST_DEADLINE_S + 1  # longer than any timeout on the way of a message


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FaultDeployment, Engines, ProxiedDynamoDB]]:
    with deploy_for_faults(tmp_path_factory.mktemp("faults")) as all_of_it:
        yield all_of_it


@pytest.fixture
def fault_deployment(everything: tuple[FaultDeployment, Engines, ProxiedDynamoDB]) -> FaultDeployment:
    return everything[0]


@pytest.fixture
def engines(everything: tuple[FaultDeployment, Engines, ProxiedDynamoDB]) -> Engines:
    return everything[1]


@pytest.fixture
def dynamodb(everything: tuple[FaultDeployment, Engines, ProxiedDynamoDB]) -> ProxiedDynamoDB:
    return everything[2]


@pytest.mark.parametrize("name", ["DynamoDB", "Kafka", "Redis"])
async def test_an_engine_that_is_killed_and_started_again_costs_time_and_no_message(
    fault_deployment: FaultDeployment, engines: Engines, dynamodb: ProxiedDynamoDB, name: str
) -> None:
    """Redis comes back empty."""
    engine = _engine(engines, dynamodb, name)
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
    fault_deployment: FaultDeployment, engines: Engines, dynamodb: ProxiedDynamoDB, name: str
) -> None:
    engine = _engine(engines, dynamodb, name)
    async with fault_deployment.under_load(ENGINE_PAUSED[name]):
        await asyncio.to_thread(engine.pause)
        try:
            await asyncio.sleep(PAUSED_S)
        finally:
            engine.resume()


@pytest.mark.parametrize("name", ["DynamoDB", "Kafka", "Redis"])
async def test_an_engine_that_is_restarted_in_order_costs_time_and_no_message(
    fault_deployment: FaultDeployment, engines: Engines, dynamodb: ProxiedDynamoDB, name: str
) -> None:
    engine = _engine(engines, dynamodb, name)
    async with fault_deployment.under_load(ENGINE_RESTARTED[name]):
        await asyncio.to_thread(engine.stop)
        await asyncio.to_thread(engine.start)


async def test_s43_everybody_is_found_again_within_a_heartbeat_after_redis_forgot_everything(
    fault_deployment: FaultDeployment, engines: Engines
) -> None:
    """No connection breaks, so nobody is told that anything was lost."""
    async with fault_deployment.under_load(FLUSHED) as run, client_of(engines.redis_url) as client:
        assert await ask(client, "FLUSHALL") is not None
    assert run.load.errors == []


async def test_b3_the_first_message_of_a_new_chat_is_seen_by_a_connected_member_though_redis_forgot_all_connections(
    fault_deployment: FaultDeployment, engines: Engines
) -> None:
    """Fanout finds no connection of Bob, so that no push is sent; and Bob's client does not know of the chat."""
    ann, bob = (Device(each) for each in fault_deployment.users[:2])
    ann.user.gateway, bob.user.gateway = fault_deployment.cluster.gateways
    await asyncio.gather(ann.connect(), bob.connect())
    chat_id = await asyncio.to_thread(ann.user.create_group, bob.user)
    async with client_of(engines.redis_url) as client:
        assert await ask(client, "FLUSHALL") is not None
    await ann.send(chat_id, "first words")
    try:
        async with asyncio.timeout(UNSEEN_S):
            while not bob.messages(chat_id):
                bob.arrived.clear()
                await bob.arrived.wait()
    finally:
        await asyncio.gather(ann.close(), bob.close())
    assert [each["content"] for each in bob.messages(chat_id)] == ["first words"]
    assert faults((ann, bob)) == []


async def test_s41_a_message_refused_while_kafka_stood_still_is_published_once_by_its_repetition(
    fault_deployment: FaultDeployment, engines: Engines
) -> None:
    ann, bob = (Device(each) for each in fault_deployment.users[:2])
    ann.user.gateway, bob.user.gateway = fault_deployment.cluster.gateways
    chat_id = await asyncio.to_thread(ann.user.create_group, bob.user)
    for device in (ann, bob):
        await device.connect()
        await device.sync(chat_id)
    await asyncio.to_thread(engines.kafka.pause)
    try:
        with pytest.raises(Refused, match="SERVICE_UNAVAILABLE"):
            await ann.send(chat_id, "is anybody there?")
    finally:
        engines.kafka.resume()
    await ann.resend(chat_id)
    await bob.has(1, chat_id)
    await asyncio.gather(ann.close(), bob.close())
    assert faults((ann, bob)) == []
    history = await asyncio.to_thread(ann.user.history, chat_id)
    assert [same(each) for each in history] == bob.messages(chat_id) == ann.messages(chat_id)


def _open(gateway: Process) -> bool:
    return gateway.metric("gateway_circuit_breaker_open") > 0


def _engine(engines: Engines, dynamodb: ProxiedDynamoDB, name: str) -> Engine | ProxiedDynamoDB:
    return {"Kafka": engines.kafka, "Redis": engines.redis}.get(name, dynamodb)

"""Connections between the parts are slow, or cut and restored, while users write: that costs time, and no message."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.real_engines import real_engines
from tests.system.deployment import deployed, engines_at
from tests.system.fault_deployment import FaultDeployment
from tests.system.fault_list import CUT, SLOW
from tests.system.network_proxies import NetworkProxies, ProxiedKafka, extra_gateway
from tests.system.users import Endpoint
from tools.engines.dynamodb import DynamoDB
from tools.engines.ports import HOST
from tools.engines.redis import Redis

pytestmark = pytest.mark.timeout(300)

DELAY_S = 0.2  # each way
CUT_S = 2.0


class ProxiedGateway:
    """Where a client finds a gateway: at the proxy of a route."""

    host = HOST

    def __init__(self, port: int) -> None:
        self.port = port


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FaultDeployment, NetworkProxies]]:
    """Every route between two processes can be cut. The third gateway is the one whose route to ingest can be, too."""
    folder = tmp_path_factory.mktemp("faults")
    with ExitStack() as opened:
        proxies = opened.enter_context(NetworkProxies())
        to_kafka = proxies.add("all_kafka")
        with real_engines():
            dynamodb = opened.enter_context(DynamoDB.started(folder / "dynamodb"))
            redis = opened.enter_context(Redis.started(folder / "redis"))
            kafka = ProxiedKafka(folder / "kafka", to_kafka)
            opened.callback(kafka.kill)
            kafka.start()
        to_kafka.target_port = kafka.port
        at = engines_at(
            f"http://{HOST}:{proxies.add('all_dynamodb', dynamodb.port).port}",
            kafka.bootstrap,
            f"redis://{HOST}:{proxies.add('all_redis', redis.port).port}",
        )
        deployment = opened.enter_context(deployed(folder, "--apis", "2", engines=at))
        ingests = [f"{HOST}:{proxies.add('gateway_ingest', each.rpc_port).port}" for each in deployment.ingests]
        third = opened.enter_context(extra_gateway(folder, at, ingests))
        endpoints: list[Endpoint] = [
            ProxiedGateway(proxies.add("client_gateway", deployment.gateways[0].port).port),
            deployment.gateways[1],
            third,
        ]
        yield FaultDeployment(folder, deployment, endpoints), proxies


ROUTES = list(CUT)


@pytest.mark.parametrize("route", ROUTES)
async def test_a_line_that_is_slow_makes_everything_slow_and_nothing_wrong(
    everything: tuple[FaultDeployment, NetworkProxies], route: str
) -> None:
    fault_deployment, proxies = everything
    before = proxies.traffic(route)
    async with fault_deployment.under_load(SLOW[route]) as run:
        assert proxies.traffic(route) > before, "nothing goes this way"
        proxies.delay(route, DELAY_S)
        try:
            await run.load.progress()
            await run.load.progress()
        finally:
            proxies.delay(route, 0)
    assert run.load.errors == []


@pytest.mark.parametrize("route", ROUTES)
async def test_a_line_that_is_cut_and_mended_costs_time_and_no_message(
    everything: tuple[FaultDeployment, NetworkProxies], route: str
) -> None:
    fault_deployment, proxies = everything
    before = proxies.traffic(route)
    async with fault_deployment.under_load(CUT[route]):
        assert proxies.traffic(route) > before, "nothing goes this way"
        await asyncio.to_thread(proxies.cut, route)
        try:
            await asyncio.sleep(CUT_S)
        finally:
            await asyncio.to_thread(proxies.restore, route)

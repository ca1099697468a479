"""The lines between the parts are slow, or cut and mended, while people write: that costs time, and no message."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.real_engines import real_engines
from tests.system.deployment import deployed, engines_at
from tests.system.fault_list import CUT, SLOW
from tests.system.lines import KafkaBehindALine, Lines, extra_gateway
from tests.system.people import Place
from tests.system.stage import Stage
from tools.engines.dynamodb import DynamoDB
from tools.engines.ports import HOST
from tools.engines.redis import Redis

pytestmark = pytest.mark.timeout(300)

DELAY_S = 0.2  # each way
CUT_S = 2.0


class Door:
    """Where a client finds a gateway: at the near end of a line."""

    host = HOST

    def __init__(self, port: int) -> None:
        self.port = port


@pytest.fixture(scope="module")
def staging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, Lines]]:
    """Every line between two processes can be cut. The third gateway is the one whose line to ingest can be, too."""
    folder = tmp_path_factory.mktemp("faults")
    with ExitStack() as opened:
        lines = opened.enter_context(Lines())
        to_kafka = lines.lay("all_kafka")
        with real_engines():
            dynamodb = opened.enter_context(DynamoDB.started(folder / "dynamodb"))
            redis = opened.enter_context(Redis.started(folder / "redis"))
            kafka = KafkaBehindALine(folder / "kafka", to_kafka)
            opened.callback(kafka.kill)
            kafka.start()
        to_kafka.target_port = kafka.port
        at = engines_at(
            f"http://{HOST}:{lines.lay('all_dynamodb', dynamodb.port).port}",
            kafka.bootstrap,
            f"redis://{HOST}:{lines.lay('all_redis', redis.port).port}",
        )
        deployment = opened.enter_context(deployed(folder, "--apis", "2", engines=at))
        ingests = [f"{HOST}:{lines.lay('gateway_ingest', each.rpc_port).port}" for each in deployment.ingests]
        third = opened.enter_context(extra_gateway(folder, at, ingests))
        doors: list[Place] = [
            Door(lines.lay("client_gateway", deployment.gateways[0].port).port),
            deployment.gateways[1],
            third,
        ]
        yield Stage(folder, deployment, doors), lines


LINES = list(CUT)


@pytest.mark.parametrize("line", LINES)
async def test_a_line_that_is_slow_makes_everything_slow_and_nothing_wrong(
    staging: tuple[Stage, Lines], line: str
) -> None:
    stage, lines = staging
    before = lines.traffic(line)
    async with stage.enduring(SLOW[line]) as storm:
        assert lines.traffic(line) > before, "nothing goes this way"
        lines.delay(line, DELAY_S)
        try:
            await storm.talk.goes_on()
            await storm.talk.goes_on()
        finally:
            lines.delay(line, 0)
    assert storm.talk.troubles == []


@pytest.mark.parametrize("line", LINES)
async def test_a_line_that_is_cut_and_mended_costs_time_and_no_message(staging: tuple[Stage, Lines], line: str) -> None:
    stage, lines = staging
    before = lines.traffic(line)
    async with stage.enduring(CUT[line]):
        assert lines.traffic(line) > before, "nothing goes this way"
        await asyncio.to_thread(lines.cut, line)
        try:
            await asyncio.sleep(CUT_S)
        finally:
            await asyncio.to_thread(lines.mend, line)

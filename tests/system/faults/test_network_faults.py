"""Connections between the parts are slow, or cut and restored, while users write: that costs time, and no message."""

import asyncio

import pytest

from tests.system.faults.fault_deployment import FaultDeployment
from tests.system.faults.fault_list import CUT, SLOW

pytestmark = pytest.mark.timeout(300)

DELAY_S = 0.2  # each way
CUT_S = 2.0


ROUTES = list(CUT)


@pytest.mark.parametrize("route", ROUTES)
async def test_a_line_that_is_slow_makes_everything_slow_and_nothing_wrong(
    fault_deployment: FaultDeployment, route: str
) -> None:
    proxies = fault_deployment.proxies
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
    fault_deployment: FaultDeployment, route: str
) -> None:
    proxies = fault_deployment.proxies
    before = proxies.traffic(route)
    async with fault_deployment.under_load(CUT[route]):
        assert proxies.traffic(route) > before, "nothing goes this way"
        await asyncio.to_thread(proxies.cut, route)
        try:
            await asyncio.sleep(CUT_S)
        finally:
            await asyncio.to_thread(proxies.restore, route)

"""Runs the async tests of this folder: in virtual time, or on both real event loops.

`harness`: a started gateway in virtual time. `@on_real_loops`: the test runs on asyncio's loop and on uvloop's. In all
of them an unhandled failure, or a task that was not ended, fails the test.
"""

import asyncio
import inspect
from typing import Any

import pytest
import uvloop

from tests.unit.connection.gateway_harness import GatewayHarness, LoopFactory, VirtualTimeLoop, run_on_loop

REAL_LOOPS: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def harness(request: pytest.FixtureRequest) -> GatewayHarness:
    """Started before the test and stopped after it. With `gateway_chance(x)`, x is every random number."""
    return GatewayHarness(getattr(request, "param", 0.0))


@pytest.fixture(params=list(REAL_LOOPS))
def real_loop(request: pytest.FixtureRequest) -> LoopFactory:
    return REAL_LOOPS[request.param]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Called in place of the plugin for real event loops, which has wrapped the coroutine function by now."""
    test = inspect.unwrap(pyfuncitem.obj)
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    harness = arguments.get("harness")
    work = harness.run(test(**arguments)) if isinstance(harness, GatewayHarness) else test(**arguments)
    loop_factory: Any = pyfuncitem.funcargs.get("real_loop", VirtualTimeLoop)
    run_on_loop(work, loop_factory)
    return True

"""Async tests that take a `harness` or a `cluster` run in virtual time, on the simulated loop of that harness.

Whatever the test itself asserts, the harness watches the promises that hold in every schedule, and fails the test when
one is broken. A folder of tests may override the two fixtures to run the same tests on other engines.
"""

import inspect
from collections.abc import Callable, Coroutine, Iterator
from random import Random
from typing import Any, TypeVar

import pytest

from seriatim.simulation.loop import SimulatedLoop
from seriatim.simulation.process import Process
from tests.support.cluster_harness import ClusterHarness
from tests.support.durability_harness import DurabilityHarness

H = TypeVar("H", bound=DurabilityHarness)

SEED = 1
HANGS_AFTER_S = 300.0  # virtual: far beyond every deadline


@pytest.fixture
def harness() -> Iterator[DurabilityHarness]:
    """The durability plane on engines in memory."""
    yield from opened(DurabilityHarness)


@pytest.fixture
def cluster() -> Iterator[ClusterHarness]:
    """All three planes on engines in memory: one process of each, and as many more as the test starts."""
    yield from opened(ClusterHarness)


def opened(kind: type[H]) -> Iterator[H]:
    harness = kind(SimulatedLoop(Random(SEED)))
    try:
        yield harness
    finally:
        harness.loop.close()
        harness.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Called in place of the plugin for real event loops, which has wrapped the coroutine function by now."""
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    harness = next((value for value in arguments.values() if isinstance(value, DurabilityHarness)), None)
    test = inspect.unwrap(pyfuncitem.obj)
    if harness is None or not inspect.iscoroutinefunction(test):
        return None
    run_in_virtual_time(harness, test(**arguments))
    return True


def simulate(schedule: Callable[[DurabilityHarness], Coroutine[Any, Any, None]]) -> None:
    """For a test that runs several schedules, each on a harness of its own."""
    for harness in opened(DurabilityHarness):
        run_in_virtual_time(harness, schedule(harness))


def run_in_virtual_time(harness: DurabilityHarness, schedule: Coroutine[Any, Any, None]) -> None:
    """Opens the harness, runs the schedule to its end, and checks the promises that hold in every schedule."""
    loop = harness.loop

    async def opened_first() -> None:
        await harness.open()
        await schedule

    main = Process(loop, "test", random=Random(SEED + 1)).spawn(opened_first())
    loop.run_until(HANGS_AFTER_S, main.done)
    assert main.done(), "the schedule hangs"
    main.result()
    harness.check()
    loop.close()
    assert not loop.failures, loop.failures

"""Async tests that take a `bench` or a `cluster` run in virtual time, on the simulated loop of that harness.

Whatever the test itself asserts, the harness watches the promises that hold in every schedule, and fails the test when
one is broken. A folder of tests may override the two fixtures to run the same tests on other engines.
"""

import inspect
from collections.abc import Iterator
from random import Random
from typing import TypeVar

import pytest

from seriatim.simulation.loop import SimulatedLoop
from tests.support.bench import Bench, run_in_virtual_time
from tests.support.cluster_harness import ClusterHarness

H = TypeVar("H", bound=Bench)


@pytest.fixture
def bench() -> Iterator[Bench]:
    """The durability plane on engines in memory."""
    yield from opened(Bench)


@pytest.fixture
def cluster() -> Iterator[ClusterHarness]:
    """All three planes on engines in memory: one process of each, and as many more as the test starts."""
    yield from opened(ClusterHarness)


def opened(kind: type[H]) -> Iterator[H]:
    harness = kind(SimulatedLoop(Random(1)))
    yield harness
    harness.loop.close()
    harness.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Called in place of the plugin for real event loops, which has wrapped the coroutine function by now."""
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    harness = next((value for value in arguments.values() if isinstance(value, Bench)), None)
    test = inspect.unwrap(pyfuncitem.obj)
    if harness is None or not inspect.iscoroutinefunction(test):
        return None
    run_in_virtual_time(harness, test(**arguments))
    return True

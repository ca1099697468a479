"""The contract of the clock. Each promise quotes its sentence of ports/clock.py."""

import asyncio
import time
from collections.abc import Callable, Sequence
from random import Random

import pytest

from seriatim.engines.inprocess.clock import SystemClock
from seriatim.ports import clock as port
from seriatim.ports.clock import Clock
from seriatim.simulation.loop import SimulatedLoop
from seriatim.simulation.process import EPOCH_MS, Process
from tests.contract.event_engines import Suite

SUITE: Suite[object] = Suite(port)  # type: ignore[type-var]


class System:
    """The machine's clock on asyncio's own loop."""

    epoch_ms = staticmethod(lambda: int(time.time() * 1000))

    def run(self, test: Callable[[Clock], object]) -> None:
        asyncio.run(test(SystemClock()))  # type: ignore[arg-type]


class Simulated:
    """A process of the simulator, whose wall clock is right."""

    epoch_ms = staticmethod(lambda: EPOCH_MS)

    def run(self, test: Callable[[Clock], object]) -> None:
        loop = SimulatedLoop(Random(1))
        process = Process(loop, "process", random=Random(2))
        loop.run_until_complete(process.spawn(test(process.clock)))  # type: ignore[arg-type]


CLOCKS = (System, Simulated)


@pytest.mark.parametrize("engine", CLOCKS)
def test_wall_clock(engine: type[System] | type[Simulated]) -> None:
    """Wall clock, milliseconds since 1970, UTC."""

    async def promise(clock: Clock) -> None:
        assert abs(clock.now_ms() - engine.epoch_ms()) < 5_000

    engine().run(promise)


@pytest.mark.parametrize("engine", CLOCKS)
def test_monotonic_time_is_the_loops_own(engine: type[System] | type[Simulated]) -> None:
    """Seconds that only grow; the event loop's own time. Timers run on the event loop, whose time is `monotonic`."""

    async def promise(clock: Clock) -> None:
        before = clock.monotonic()
        await asyncio.sleep(0.02)
        after = clock.monotonic()
        assert after - before >= 0.019
        assert abs(after - asyncio.get_running_loop().time()) < 0.5

    engine().run(promise)


@pytest.mark.parametrize("engine", CLOCKS)
def test_chance(engine: type[System] | type[Simulated]) -> None:
    """A number in [0, 1). An integer of that many random bits, fit for identifiers."""

    async def promise(clock: Clock) -> None:
        numbers = [clock.random() for _ in range(1000)]
        assert all(0 <= number < 1 for number in numbers)
        assert 0.4 < sum(numbers) / 1000 < 0.6
        bits = [clock.random_bits(80) for _ in range(1000)]
        assert len(set(bits)) == 1000
        assert all(0 <= each < 2**80 for each in bits)
        assert max(bits) > 2**79

    engine().run(promise)


def test_every_sentence_of_the_port_is_quoted() -> None:
    tests: Sequence[Callable[..., None]] = (
        test_wall_clock,
        test_monotonic_time_is_the_loops_own,
        test_chance,
    )
    quoted = " ".join(" ".join((test.__doc__ or "").split()) for test in tests)
    described = ("One process's clock.", "May be wrong: it decides speed, never safety.")
    assert [sentence for sentence in SUITE.unquoted() if sentence not in quoted and sentence not in described] == []

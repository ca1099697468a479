"""The sweep goes on whatever the store does, faster while there is much to do, and a bug in it is not hidden."""

import asyncio
import logging

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown
from seriatim.engines.embedded.sweep import Swept
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.runtime.server.sweep_loop import SweepLoop


class Scripted:
    """A sweeper whose results are known beforehand; it notes the pause before each sweep."""

    def __init__(self, *results: Swept | Exception) -> None:
        self._results = list(results)
        self.times: list[float] = []

    async def sweep(self, now_ms: int) -> Swept:
        self.times.append(asyncio.get_running_loop().time())
        if not self._results:
            raise EndOfScript
        result = self._results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


class EndOfScript(Exception):
    pass


async def _run(sweeper: Scripted, every_s: float) -> None:
    with pytest.raises(EndOfScript):
        await SweepLoop(sweeper, SystemClock(), every_s=every_s).run()


async def test_a_store_that_cannot_be_written_is_tried_again() -> None:
    sweeper = Scripted(OutcomeUnknown("no"), OutcomeUnknown("no"), Swept(0, 0))
    await _run(sweeper, every_s=0.0)
    assert len(sweeper.times) == 4


async def test_any_other_failure_ends_it_for_all_to_see() -> None:
    with pytest.raises(ZeroDivisionError):
        await SweepLoop(Scripted(ZeroDivisionError()), SystemClock(), every_s=0.0).run()


async def test_while_there_is_much_to_remove_the_next_sweep_comes_soon() -> None:
    sweeper = Scripted(Swept(keys=limits.SWEEP_ROWS_MAX, events=0), Swept(0, 0, sessions=limits.SWEEP_ROWS_MAX // 2))
    began = asyncio.get_running_loop().time()
    await _run(sweeper, every_s=60.0)
    assert sweeper.times[-1] - began >= 2 * limits.SWEEP_BUSY_PAUSE_S * 0.9


async def test_with_little_to_remove_it_waits_its_time() -> None:
    sweeper = Scripted(Swept(keys=1, events=0))
    began = asyncio.get_running_loop().time()
    await _run(sweeper, every_s=0.2)
    assert sweeper.times[-1] - began >= 0.19


async def test_a_clock_that_is_far_ahead_of_what_the_sweep_believes_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="seriatim"):
        await _run(Scripted(Swept(0, 0, held_back_s=limits.SWEEP_AHEAD_S)), every_s=0.0)
        assert caplog.records == []
        await _run(Scripted(Swept(0, 0, held_back_s=limits.SWEEP_AHEAD_S + 1)), every_s=0.0)
    assert [record.getMessage() for record in caplog.records] == ["clock_ahead"]

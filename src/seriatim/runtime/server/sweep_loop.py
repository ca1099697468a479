"""Removes what has expired from the data folder, a little at a time, for as long as the server runs."""

import asyncio
import logging
from typing import Protocol

from seriatim.domain import limits
from seriatim.domain.errors import ServiceUnavailable
from seriatim.engines.embedded.sweep import Swept
from seriatim.ports.clock import Clock
from seriatim.runtime.telemetry.failures import STORE_STEP
from seriatim.runtime.telemetry.logs import ThrottledLogger

_log = logging.getLogger("seriatim")


class Sweepable(Protocol):
    async def sweep(self, now_ms: int) -> Swept: ...


class SweepLoop:
    """`run` it until cancelled. A store that cannot be written is tried again; any other failure ends it: a bug."""

    def __init__(self, sweeper: Sweepable, clock: Clock, *, every_s: float) -> None:
        self._sweeper = sweeper
        self._clock = clock
        self._every_s = every_s
        self._throttled = ThrottledLogger(_log, every_s=60.0)

    async def run(self) -> None:
        while True:
            removed = await self._sweep()
            # After a full batch the next sweep comes soon: expiry must keep up with what is written.
            await asyncio.sleep(limits.SWEEP_BUSY_PAUSE_S if removed >= limits.SWEEP_ROWS_MAX // 2 else self._every_s)

    async def _sweep(self) -> int:
        try:
            swept = await self._sweeper.sweep(self._clock.now_ms())
        except ServiceUnavailable as error:
            self._throttled.log(logging.WARNING, "sweep_failed", reason=error.log_reason, next_step=STORE_STEP)
            return 0
        if swept.held_back_s > limits.SWEEP_AHEAD_S:
            self._throttled.log(
                logging.WARNING,
                "clock_ahead",
                seconds=round(swept.held_back_s),
                next_step="the wall clock jumped ahead, or the server was down for long; if the clock is wrong, "
                "correct it now: the sweep follows it little by little, and then removes what is live",
            )
        return swept.keys + swept.events + swept.codes + swept.sessions + swept.requests

"""How far fanout is behind in a log that has to be asked: now and then, so that no scrape of the metrics waits."""

import asyncio
import logging
from typing import Protocol

from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError
from seriatim.engines.kafka.lag import EventLogState
from seriatim.ports.clock import Clock
from seriatim.runtime.telemetry.failures import EVENTS_STEP
from seriatim.runtime.telemetry.logs import ThrottledLogger
from seriatim.runtime.wiring.engine_set import NO_BACKLOG, Backlog

_log = logging.getLogger("seriatim")


class LagSource(Protocol):
    async def read(self, *, timeout_s: float) -> EventLogState: ...


class LagMonitor:
    """`run` it until cancelled. `backlog` is what was last found, and nothing at all while the log does not answer."""

    def __init__(self, log: LagSource, clock: Clock) -> None:
        self.backlog: Backlog = NO_BACKLOG
        self.reason: str | None = None  # why the log did not answer when it was last asked
        self._log = log
        self._clock = clock
        self._throttled = ThrottledLogger(_log, every_s=60.0)

    async def run(self) -> None:
        while True:
            try:
                found = await self._log.read(timeout_s=limits.KAFKA_LAG_S)
                self.backlog, self.reason = self._backlog(found), None
            except SeriatimError as error:
                # An old number would hide that the lag is unknown.
                self.backlog, self.reason = NO_BACKLOG, error.log_reason
                self._throttled.log(logging.WARNING, "lag_unknown", reason=error.log_reason, next_step=EVENTS_STEP)
            await asyncio.sleep(limits.KAFKA_LAG_EVERY_S if self.reason is None else limits.KAFKA_LAG_RETRY_S)

    def _backlog(self, found: EventLogState) -> Backlog:
        waited_ms = 0 if found.oldest_ms is None else self._clock.now_ms() - found.oldest_ms
        return Backlog(
            lag_records=found.lag,
            ends=found.ends,
            lag_s=max(0, waited_ms) / 1000,
            dead_letters=found.dead_letters,
            under_replicated=found.under_replicated,
        )

"""Asks an event log now and then whether it takes events, also while nothing is sent: a metric must not wait for it."""

import asyncio
import logging
from collections.abc import Callable

from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError
from seriatim.runtime.telemetry.failures import EVENTS_STEP
from seriatim.runtime.telemetry.logs import ThrottledLogger

_log = logging.getLogger("seriatim")


class TopicMonitor:
    """`run` it until cancelled. `check` blocks, and raises while the log takes no events; `reason` is what it said."""

    def __init__(self, check: Callable[[], None]) -> None:
        self.reason: str | None = None
        self._check = check
        self._throttled = ThrottledLogger(_log, every_s=60.0)

    async def run(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self._check)
                self.reason = None
            except SeriatimError as error:
                self.reason = error.log_reason
                self._throttled.log(logging.ERROR, "events_unavailable", reason=self.reason, next_step=EVENTS_STEP)
            await asyncio.sleep(limits.PROBE_EVERY_S)

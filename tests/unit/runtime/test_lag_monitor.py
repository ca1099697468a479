"""How far fanout is behind is asked beside everything else, and an answer that did not come is not made up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import ServiceUnavailable
from seriatim.engines.kafka.lag import EventLogState
from seriatim.ports.event_log import MESSAGES, Partition
from seriatim.runtime.server.lag_monitor import LagMonitor
from seriatim.runtime.wiring.engine_set import NO_BACKLOG
from tests.support.manual_clock import ManualClock

FOUND = EventLogState(
    lag={Partition(MESSAGES, 1): 7},
    ends={Partition(MESSAGES, 1): 9},
    oldest_ms=4_000,
    dead_letters=2,
    under_replicated=3,
)


class Log:
    """Answers with what the test puts into `answers`, once it is there."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[EventLogState | ServiceUnavailable] = asyncio.Queue()
        self.asked = asyncio.Semaphore(0)

    async def read(self, *, timeout_s: float) -> EventLogState:
        self.asked.release()
        answer = await self.answers.get()
        if isinstance(answer, ServiceUnavailable):
            raise answer
        return answer


@asynccontextmanager
async def running_monitor(log: Log, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LagMonitor]:
    monkeypatch.setattr(limits, "KAFKA_LAG_EVERY_S", 0.0)
    monkeypatch.setattr(limits, "KAFKA_LAG_RETRY_S", 0.0)
    monitor = LagMonitor(log, ManualClock(now_ms=10_000))
    running = asyncio.create_task(monitor.run())
    try:
        await log.asked.acquire()
        yield monitor
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_the_backlog_is_reported_with_the_age_of_the_oldest_event(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    async with running_monitor(log, monkeypatch) as monitor:
        assert monitor.backlog == NO_BACKLOG
        assert monitor.reason is None
        log.answers.put_nowait(FOUND)
        await log.asked.acquire()
        assert (monitor.backlog.lag_records, monitor.backlog.lag_s) == ({Partition(MESSAGES, 1): 7}, 6.0)
        assert monitor.backlog.ends == {Partition(MESSAGES, 1): 9}
        assert (monitor.backlog.dead_letters, monitor.backlog.under_replicated) == (2, 3)


async def test_a_log_that_does_not_answer_leaves_no_number_of_before_and_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    async with running_monitor(log, monkeypatch) as monitor:
        log.answers.put_nowait(FOUND)
        await log.asked.acquire()
        log.answers.put_nowait(ServiceUnavailable("away"))
        await log.asked.acquire()
        assert (monitor.backlog, monitor.reason) == (NO_BACKLOG, "away")
        log.answers.put_nowait(FOUND)
        await log.asked.acquire()
        assert monitor.reason is None
        assert monitor.backlog.lag_s == 6.0

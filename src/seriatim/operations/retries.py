"""Tables and topics over a connection that may be lost: each call is retried a few times, which the ports allow.

What the store or the log refuses for good (wrong credentials, a wrong definition) is raised at once.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from seriatim.concurrency.retry import retry
from seriatim.domain import limits
from seriatim.domain.backoff import doubled_s
from seriatim.domain.errors import Conflict, OutcomeUnknown, ServiceUnavailable, Throttled
from seriatim.ports.clock import Clock
from seriatim.ports.tables import Table, TableControl
from seriatim.ports.topics import Topic, TopicControl

T = TypeVar("T")


class RetryingTableControl(TableControl):
    """`report` gets a line before every retry."""

    def __init__(self, control: TableControl, clock: Clock, report: Callable[[str], None]) -> None:
        self._control = control
        self._clock = clock
        self._report = report

    async def describe(self, name: str, *, timeout_s: float) -> Table | None:
        return await self._retry(name, lambda: self._control.describe(name, timeout_s=timeout_s))

    async def is_ready(self, name: str, *, timeout_s: float) -> bool:
        return await self._retry(name, lambda: self._control.is_ready(name, timeout_s=timeout_s))

    async def create(self, table: Table, *, timeout_s: float) -> None:
        await self._retry(table.name, lambda: self._control.create(table, timeout_s=timeout_s))

    async def adjust(self, table: Table, *, timeout_s: float) -> bool:
        return await self._retry(table.name, lambda: self._control.adjust(table, timeout_s=timeout_s))

    async def _retry(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        return await retry_preparation(name, call, (OutcomeUnknown, Throttled, Conflict), self._clock, self._report)


class RetryingTopicControl(TopicControl):
    """The same for topics. A broker that starts or moves fails in many ways: every `ServiceUnavailable` is retried."""

    def __init__(self, control: TopicControl, clock: Clock, report: Callable[[str], None]) -> None:
        self._control = control
        self._clock = clock
        self._report = report

    async def describe(self, names: Sequence[str], *, timeout_s: float) -> Mapping[str, Topic]:
        return await self._retry("topics", lambda: self._control.describe(names, timeout_s=timeout_s))

    async def defaults(self, *, timeout_s: float) -> Mapping[str, str]:
        return await self._retry("brokers", lambda: self._control.defaults(timeout_s=timeout_s))

    async def create(self, topic: Topic, *, timeout_s: float) -> None:
        await self._retry(topic.name, lambda: self._control.create(topic, timeout_s=timeout_s))

    async def adjust(self, topic: Topic, *, timeout_s: float) -> None:
        await self._retry(topic.name, lambda: self._control.adjust(topic, timeout_s=timeout_s))

    async def _retry(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        return await retry_preparation(name, call, (ServiceUnavailable,), self._clock, self._report)


async def retry_preparation(
    name: str,
    call: Callable[[], Awaitable[T]],
    refusals: tuple[type[ServiceUnavailable], ...],
    clock: Clock,
    report: Callable[[str], None],
) -> T:
    """At most `PREPARE_TRIES_MAX` times, and none that would begin after `PREPARE_TIMEOUT_S`."""
    began = clock.monotonic()
    tries = 0

    def pause_after(error: ServiceUnavailable) -> float | None:
        nonlocal tries
        tries += 1
        pause_s = doubled_s(tries - 1, first_s=limits.PREPARE_BACKOFF_S, max_s=limits.PREPARE_TIMEOUT_S)
        late = clock.monotonic() + pause_s - began > limits.PREPARE_TIMEOUT_S
        if tries == limits.PREPARE_TRIES_MAX or late:
            return None
        reason, _, _ = error.log_reason.partition(";")  # what follows is advice to a caller that does not repeat
        report(f"{name}: {reason}; trying again in {pause_s:g} s")
        return pause_s

    return await retry(call, pause_after, *refusals)

"""Tables and topics over a connection that may be lost: each call is repeated a few times, which the ports allow.

What the store or the log refuses for good (wrong credentials, a wrong definition) is raised at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from seriatim.domain import limits
from seriatim.domain.errors import Conflict, OutcomeUnknown, ServiceUnavailable, Throttled
from seriatim.ports.clock import Clock
from seriatim.ports.tables import Table, TableControl
from seriatim.ports.topics import Topic, TopicControl

T = TypeVar("T")


class RetryingTableControl(TableControl):
    """`tell` gets a line before every repetition."""

    def __init__(self, control: TableControl, clock: Clock, tell: Callable[[str], None]) -> None:
        self._control = control
        self._clock = clock
        self._tell = tell

    async def describe(self, name: str, *, timeout_s: float) -> Table | None:
        return await self._repeat(name, lambda: self._control.describe(name, timeout_s=timeout_s))

    async def is_ready(self, name: str, *, timeout_s: float) -> bool:
        return await self._repeat(name, lambda: self._control.is_ready(name, timeout_s=timeout_s))

    async def create(self, table: Table, *, timeout_s: float) -> None:
        await self._repeat(table.name, lambda: self._control.create(table, timeout_s=timeout_s))

    async def adjust(self, table: Table, *, timeout_s: float) -> bool:
        return await self._repeat(table.name, lambda: self._control.adjust(table, timeout_s=timeout_s))

    async def _repeat(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        return await repeated(name, call, (OutcomeUnknown, Throttled, Conflict), self._clock, self._tell)


class RetryingTopicControl(TopicControl):
    """The same for topics. A broker that starts or moves refuses in many words, so every refusal of Kafka's counts."""

    def __init__(self, control: TopicControl, clock: Clock, tell: Callable[[str], None]) -> None:
        self._control = control
        self._clock = clock
        self._tell = tell

    async def describe(self, names: Sequence[str], *, timeout_s: float) -> Mapping[str, Topic]:
        return await self._repeat("topics", lambda: self._control.describe(names, timeout_s=timeout_s))

    async def defaults(self, *, timeout_s: float) -> Mapping[str, str]:
        return await self._repeat("brokers", lambda: self._control.defaults(timeout_s=timeout_s))

    async def create(self, topic: Topic, *, timeout_s: float) -> None:
        await self._repeat(topic.name, lambda: self._control.create(topic, timeout_s=timeout_s))

    async def adjust(self, topic: Topic, *, timeout_s: float) -> None:
        await self._repeat(topic.name, lambda: self._control.adjust(topic, timeout_s=timeout_s))

    async def _repeat(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        return await repeated(name, call, (ServiceUnavailable,), self._clock, self._tell)


async def repeated(
    name: str,
    call: Callable[[], Awaitable[T]],
    refusals: tuple[type[ServiceUnavailable], ...],
    clock: Clock,
    tell: Callable[[str], None],
) -> T:
    """At most `PREPARE_TRIES_MAX` times, and none that would begin after `PREPARE_PATIENCE_S`."""
    began = clock.monotonic()
    tries = 1
    while True:
        try:
            return await call()
        except refusals as error:
            pause = limits.PREPARE_BACKOFF_S * 2 ** (tries - 1)
            late = clock.monotonic() + pause - began > limits.PREPARE_PATIENCE_S
            if tries == limits.PREPARE_TRIES_MAX or late:
                raise
            reason, _, _ = error.message.partition(";")  # what follows is advice to a caller that does not repeat
        tell(f"{name}: {reason}; trying again in {pause:g} s")
        await asyncio.sleep(pause)
        tries += 1

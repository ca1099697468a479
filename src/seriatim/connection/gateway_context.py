"""What all connections of a gateway share."""

import asyncio
from dataclasses import dataclass

from seriatim.connection.gap_timer import GapTimer
from seriatim.connection.head_probe import HeadProbe
from seriatim.connection.new_chat_probe import NewChatProbe
from seriatim.connection.observer import GatewayObserver
from seriatim.connection.task_group import FlushScheduler, TaskGroup
from seriatim.domain.errors import BreakerOpen
from seriatim.ports.clock import Clock
from seriatim.ports.durability import Durability


@dataclass(frozen=True, slots=True)
class GatewayContext:
    gateway_id: str
    durability: Durability
    clock: Clock
    breakers: "OpenBreakers"
    fill_slots: asyncio.Semaphore
    gap_timer: GapTimer
    head_probe: HeadProbe
    new_chat_probe: NewChatProbe
    tasks: TaskGroup
    flush_scheduler: FlushScheduler
    observe: GatewayObserver


class OpenBreakers:
    """Remembers until when a breaker of the durability plane is open, from the answers to this gateway's sends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = 0.0

    def record(self, refusal: BreakerOpen) -> None:
        self._until = max(self._until, self._clock.monotonic() + (refusal.retry_after_seconds or 0.0))

    @property
    def any_open(self) -> bool:
        return self._clock.monotonic() < self._until

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
    gaps: GapTimer
    probe: HeadProbe
    new_chats: NewChatProbe
    tasks: TaskGroup
    turn_end: FlushScheduler
    observe: GatewayObserver


class OpenBreakers:
    """Those of the durability plane that sends of this gateway met open, until the time in their answers is over."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = 0.0

    def heard(self, refusal: BreakerOpen) -> None:
        self._until = max(self._until, self._clock.monotonic() + (refusal.retry_after_seconds or 0.0))

    @property
    def any(self) -> bool:
        return self._clock.monotonic() < self._until

"""What all connections of a gateway share."""

import asyncio
from dataclasses import dataclass

from seriatim.connection.gaps import Gaps
from seriatim.connection.new_chats import NewChats
from seriatim.connection.observe import GatewayObserver
from seriatim.connection.probe import Probe
from seriatim.connection.tasks import Tasks, TurnEnd
from seriatim.domain.breaker import Breaker
from seriatim.ports.clock import Clock
from seriatim.ports.durability import Durability


@dataclass(frozen=True, slots=True)
class Services:
    gateway_id: str
    durability: Durability
    clock: Clock
    breaker: Breaker  # towards durability, for sends: reads may work while a send cannot
    fill_slots: asyncio.Semaphore
    gaps: Gaps
    probe: Probe
    new_chats: NewChats
    tasks: Tasks
    turn_end: TurnEnd
    observe: GatewayObserver

"""What an operator may ask of the one process that holds a data folder: a repair, and who is connected."""

from collections.abc import Mapping

import msgspec

from seriatim.domain.limits import STORE_TIMEOUT_S
from seriatim.engines.embedded.catalog import EmbeddedRoster
from seriatim.engines.embedded.event_log import EmbeddedEventLog
from seriatim.engines.embedded.folder import Folder
from seriatim.engines.embedded.message_log import EmbeddedMessageLog
from seriatim.engines.embedded.trail import FolderTrail
from seriatim.operations.counters import Repair
from seriatim.ports.clock import Clock
from seriatim.ports.directory import Directory, Registration
from seriatim.runtime.operator import order_of
from seriatim.runtime.repairing import RepairOrder, repair
from seriatim.runtime.small_app import Handler, Reply

REPAIR, CONNECTIONS = "/counters/repair", "/connections"


class AskConnections(msgspec.Struct, frozen=True):
    user_ids: tuple[str, ...]


class FoundConnections(msgspec.Struct, frozen=True):
    by_user: Mapping[str, tuple[Registration, ...]]


class Desk:
    def __init__(self, folder: Folder, events: EmbeddedEventLog, directory: Directory, clock: Clock) -> None:
        self._folder = folder
        self._events = events
        self._directory = directory
        self._clock = clock

    def routes(self) -> Mapping[tuple[str, str], Handler]:
        return {("POST", REPAIR): self._post_repair, ("POST", CONNECTIONS): self._post_connections}

    async def _post_repair(self, body: bytes) -> Reply:
        order = order_of(body, RepairOrder)
        return Reply(msgspec.json.encode(await repair_in(self._folder, self._events, self._clock, order)))

    async def _post_connections(self, body: bytes) -> Reply:
        asked = order_of(body, AskConnections).user_ids
        found = await self._directory.connections(asked, timeout_s=STORE_TIMEOUT_S)
        return Reply(msgspec.json.encode(FoundConnections({user: tuple(each) for user, each in found.items()})))


async def repair_in(folder: Folder, events: EmbeddedEventLog, clock: Clock, order: RepairOrder) -> Repair:
    return await repair(EmbeddedMessageLog(folder), EmbeddedRoster(folder), FolderTrail(events), clock, order)

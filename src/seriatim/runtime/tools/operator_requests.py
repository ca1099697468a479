"""What an operator may ask of the one process that holds a data folder: a repair, and who is connected."""

from collections.abc import Mapping

import msgspec

from seriatim.domain import limits
from seriatim.engines.embedded.catalog import EmbeddedRoster
from seriatim.engines.embedded.event_log import EmbeddedEventLog
from seriatim.engines.embedded.message_log import EmbeddedMessageLog
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.tools.event_trail import EmbeddedEventTrail
from seriatim.operations.counter_repair import Repair
from seriatim.ports.clock import Clock
from seriatim.ports.directory import Directory, Registration
from seriatim.runtime.server.plain_app import Handler, PlainResponse
from seriatim.runtime.tools.counter_repair import RepairRequest, repair
from seriatim.runtime.tools.operator import parse_request

REPAIR, CONNECTIONS = "/counters/repair", "/connections"


class ConnectionsRequest(msgspec.Struct, frozen=True):
    user_ids: tuple[str, ...]


class ConnectionsResponse(msgspec.Struct, frozen=True):
    by_user: Mapping[str, tuple[Registration, ...]]


class OperatorRequests:
    def __init__(self, folder: Folder, events: EmbeddedEventLog, directory: Directory, clock: Clock) -> None:
        self._folder = folder
        self._events = events
        self._directory = directory
        self._clock = clock

    def routes(self) -> Mapping[tuple[str, str], Handler]:
        return {("POST", REPAIR): self._post_repair, ("POST", CONNECTIONS): self._post_connections}

    async def _post_repair(self, body: bytes) -> PlainResponse:
        request = parse_request(body, RepairRequest)
        return PlainResponse(msgspec.json.encode(await repair_in(self._folder, self._events, self._clock, request)))

    async def _post_connections(self, body: bytes) -> PlainResponse:
        asked = parse_request(body, ConnectionsRequest).user_ids
        found = await self._directory.connections(asked, timeout_s=limits.STORE_TIMEOUT_S)
        return PlainResponse(
            msgspec.json.encode(ConnectionsResponse({user: tuple(each) for user, each in found.items()}))
        )


async def repair_in(folder: Folder, events: EmbeddedEventLog, clock: Clock, request: RepairRequest) -> Repair:
    return await repair(EmbeddedMessageLog(folder), EmbeddedRoster(folder), EmbeddedEventTrail(events), clock, request)

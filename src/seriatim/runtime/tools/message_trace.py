"""For `seriatim trace` and `seriatim counters`: which engines are asked, in a data folder or a deployment of several.

The folder is read beside its server; what only the server knows or may do, its socket is asked for.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TypeVar

import msgspec

from seriatim.domain.errors import SeriatimError, ServiceUnavailable
from seriatim.engines.embedded.event_log import PARTITIONS, EmbeddedEventLog
from seriatim.engines.embedded.storage.disk import DiskError
from seriatim.engines.embedded.storage.folder import Folder, FolderError
from seriatim.engines.embedded.storage.secondary import SecondaryStore
from seriatim.engines.embedded.tools.event_trail import SecondaryEventTrail
from seriatim.engines.embedded.tools.inspection import EmbeddedInspection
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.operations.counter_repair import Repair
from seriatim.operations.message_trace import Connections, MessageTrace, MessageTracer, Watermarks
from seriatim.ports.directory import Registration
from seriatim.ports.event_trail import EventTrail
from seriatim.ports.inspection import StoredRows
from seriatim.runtime.config.settings import EMBEDDED, Settings
from seriatim.runtime.server.health import FANOUT_GROUP
from seriatim.runtime.tools.counter_repair import RepairRequest
from seriatim.runtime.tools.data_folder import InspectionError
from seriatim.runtime.tools.operator import NoServerRunning, ServerRefused, ask
from seriatim.runtime.tools.operator_requests import (
    CONNECTIONS,
    REPAIR,
    ConnectionsRequest,
    ConnectionsResponse,
    repair_in,
)

REPAIR_S = 600.0  # a wide gap is closed slot by slot
T = TypeVar("T")
TraceQuery = Callable[[MessageTracer], Awaitable[MessageTrace]]


def trace(settings: Settings, query: TraceQuery) -> MessageTrace:
    """Raises `InspectionError`."""
    if settings.store == EMBEDDED:
        return _run(_trace_folder(settings, query))
    from seriatim.runtime.tools.shared_message_trace import trace_shared

    return _run(trace_shared(settings, query))


def repair_counter(settings: Settings, request: RepairRequest) -> Repair:
    """Raises `InspectionError`, also with why it was refused."""
    if settings.store != EMBEDDED:
        from seriatim.runtime.tools.shared_message_trace import repair_shared

        return _run(repair_shared(settings, request))
    try:
        return ask(settings.data_folder, REPAIR, request, Repair, timeout_s=REPAIR_S)
    except NoServerRunning:
        return _run(_repair_folder(settings, request))
    except ServerRefused as refusal:
        raise InspectionError(str(refusal)) from refusal
    except OSError as error:
        raise InspectionError(f"the server on {settings.data} does not answer: {error}") from error


def _run(work: Coroutine[object, object, T]) -> T:
    try:
        return asyncio.run(work)
    except (FolderError, DiskError) as error:
        raise InspectionError(str(error)) from error
    except SeriatimError as error:
        raise InspectionError(error.log_reason) from error


# --- a data folder ----------------------------------------------------------------------------------------------------


async def _trace_folder(settings: Settings, query: TraceQuery) -> MessageTrace:
    secondary = SecondaryStore(settings.data_folder)
    try:
        trail = SecondaryEventTrail(secondary)
        connections = _folder_connections(settings)
        return await query(tracer(EmbeddedInspection(secondary), trail, trail.watermarks, connections))
    finally:
        secondary.close()


def _folder_connections(settings: Settings) -> Connections:
    async def connections(user_ids: Sequence[str]) -> Mapping[str, Sequence[Registration]]:
        request = ConnectionsRequest(tuple(user_ids))
        try:
            found = await asyncio.to_thread(ask, settings.data_folder, CONNECTIONS, request, ConnectionsResponse)
        except NoServerRunning:
            return {}  # no server, no connections
        except (ServerRefused, OSError, msgspec.MsgspecError) as error:
            raise ServiceUnavailable("the server did not say who is connected") from error
        return found.by_user

    return connections


async def _repair_folder(settings: Settings, request: RepairRequest) -> Repair:
    folder = Folder.open(settings.data_folder, create=False)
    try:
        return await repair_in(folder, await EmbeddedEventLog.open(folder, PARTITIONS), SystemClock(), request)
    finally:
        await folder.close()


def tracer(
    rows: StoredRows, trail: EventTrail | None, watermarks: Watermarks, connections: Connections | None
) -> MessageTracer:
    return MessageTracer(rows, trail, watermarks, connections, group=FANOUT_GROUP)

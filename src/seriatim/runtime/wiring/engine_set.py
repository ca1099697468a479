"""The engines of one process, one for each of the settings `store`, `events`, `directory` and `ingest`, and which ports
each role is handed. `wiring/engines` chooses them by URL; the planes do not know which of them they got.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Protocol

import msgspec

from seriatim.ports.accounts import Accounts, Sessions
from seriatim.ports.atomic_store import AtomicStore
from seriatim.ports.catalog import Catalog, Roster, UserChats
from seriatim.ports.clock import Clock
from seriatim.ports.directory import Directory
from seriatim.ports.durability import Durability, History
from seriatim.ports.event_log import CHATS, MEMBERSHIPS, MESSAGES, DeadLetterWriter, EventReader, EventWriter, Partition
from seriatim.ports.message_log import DeliveryState, MessageLog
from seriatim.ports.push import Push, PushSubscriber
from seriatim.ports.quotas import Quotas
from seriatim.ports.request_keys import RequestKeys
from seriatim.ports.revocations import Revocations
from seriatim.runtime.server.plain_app import Handler
from seriatim.runtime.telemetry.metrics import Metrics

BackgroundTask = tuple[str, Callable[[], Coroutine[object, object, None]]]


# --- what each role is handed: the ports that it may have, and no others ----------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayPorts:
    """Neither the store nor the event log: a gateway asks an ingest for what is in them."""

    directory: Directory
    push: Push
    subscriber: PushSubscriber
    revocations: Revocations


@dataclass(frozen=True, kw_only=True, slots=True)
class IngestPorts:
    log: MessageLog
    events: EventWriter
    sessions: Sessions
    user_chats: UserChats
    atomic_store: AtomicStore | None = None  # where messages and events are in one store


@dataclass(frozen=True, kw_only=True, slots=True)
class FanoutPorts:
    """It reads, and writes nothing that lasts but dead letters."""

    reader: EventReader
    dead_letters: DeadLetterWriter
    roster: Roster
    directory: Directory
    push: Push


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiPorts:
    """It reads how far messages are delivered, and cannot write any."""

    accounts: Accounts
    catalog: Catalog
    delivery: DeliveryState
    events: EventWriter
    request_keys: RequestKeys
    quotas: Quotas
    revocations: Revocations
    directory: Directory
    push: Push


# --- engines, by setting ----------------------------------------------------------------------------------------------


class Engine(Protocol):
    """`tasks` run for as long as the process does, by name."""

    tasks: Sequence[BackgroundTask]

    async def check_reachable(self) -> None:
        """Raises `ServiceUnavailable` while the engine is away, and any other error when waiting will not help."""
        ...

    async def availability(self) -> Mapping[str, str | None]:
        """By part, as readiness names it: why it does not do its work; None: it does, as far as it is known without
        waiting for long.
        """
        ...

    async def close(self) -> None: ...


class StoreEngine(Engine, Protocol):
    """`store`: people, chats and messages. One handle per port, with no more rights than the port has."""

    def message_log(self) -> MessageLog: ...

    def atomic_store(self) -> AtomicStore | None:
        """None where messages and events are in different stores."""
        ...

    def sessions(self) -> Sessions: ...

    def user_chats(self) -> UserChats: ...

    def roster(self) -> Roster: ...

    def accounts(self) -> Accounts: ...

    def catalog(self) -> Catalog: ...

    def delivery_state(self) -> DeliveryState: ...

    def request_keys(self) -> RequestKeys: ...

    def operator_routes(self, directory: Directory) -> Mapping[tuple[str, str], Handler]:
        """What only the process that holds the store can do for an operator; empty where tools reach the store."""
        ...


class EventEngine(Engine, Protocol):
    """`events`: the event log. Call the factories of a role once."""

    def writer(self, role: str, *topics: str) -> EventWriter: ...

    def dead_letter_writer(self, role: str) -> DeadLetterWriter: ...

    def reader(self, group: str, consumer_id: str) -> EventReader: ...

    async def backlog(self) -> "Backlog": ...


class RoutingEngine(Engine, Protocol):
    """`directory`: who is connected where, pushes between processes, quotas and revocations."""

    def directory(self) -> Directory: ...

    def push(self) -> Push: ...

    def subscriber(self) -> PushSubscriber: ...

    def quotas(self) -> Quotas: ...

    def revocations(self) -> Revocations: ...


class DurabilityPlane(Durability, History, Protocol):
    """The durability plane, in this process or in others."""


class RemoteDurabilityPlane(DurabilityPlane, Sessions, Protocol):
    """`ingest`: the ingest processes, found and dialled by a background task."""

    @property
    def ready(self) -> Sequence[str]:
        """Those that take requests at this moment."""
        ...

    @property
    def breaker_open(self) -> bool:
        """One of them keeps failing: others get its chats, as long as there are any."""
        ...

    async def run(self) -> None: ...


class IngestListener(Protocol):
    """Where other processes reach the ingest of this one."""

    leaving: bool

    async def start(self, host: str, port: int) -> int:
        """Returns the port. Raises `OSError`."""
        ...

    async def leave(self) -> None:
        """Asks every gateway to use another ingest, and waits for them a little."""
        ...

    async def stop(self) -> None: ...


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Of the event log. None: this engine does not know."""

    lag_records: Mapping[Partition, int]
    ends: Mapping[Partition, int]  # of the same partitions: the offset of the next event
    lag_s: float | None
    dead_letters: int | None
    under_replicated: int | None = None  # partitions with fewer copies in step than they should have


NO_BACKLOG = Backlog(lag_records={}, ends={}, lag_s=None, dead_letters=None)


class EngineSet:
    """Opened for the roles of one process: an engine that no role here uses is None, and asking for it is a bug."""

    def __init__(
        self,
        metrics: Metrics,
        clock: Clock,
        *,
        store: StoreEngine | None,
        events: EventEngine | None,
        routing: RoutingEngine | None,
        remote: RemoteDurabilityPlane | None = None,
        tick_s: float,
    ) -> None:
        self.store = store
        self.events = events
        self.routing = routing
        self.remote = remote
        self._metrics = metrics
        self._clock = clock
        self._tick_s = tick_s

    @property
    def tasks(self) -> Sequence[BackgroundTask]:
        own = [("metrics", self._tick)] + ([] if self.remote is None else [("durability", self.remote.run)])
        return [*own, *(task for engine in self._engines() for task in engine.tasks)]

    # --- what each role is handed -------------------------------------------------------------------------------------

    def gateway_ports(self) -> GatewayPorts:
        routing = self._routing
        return GatewayPorts(
            directory=routing.directory(),
            push=routing.push(),
            subscriber=routing.subscriber(),
            revocations=routing.revocations(),
        )

    def ingest_ports(self) -> IngestPorts:
        store = self._store
        return IngestPorts(
            log=store.message_log(),
            events=self._events.writer("ingest", MESSAGES),
            sessions=store.sessions(),
            user_chats=store.user_chats(),
            atomic_store=store.atomic_store(),
        )

    def fanout_ports(self, group: str, consumer_id: str) -> FanoutPorts:
        routing, events = self._routing, self._events
        return FanoutPorts(
            reader=events.reader(group, consumer_id),
            dead_letters=events.dead_letter_writer("fanout"),
            roster=self._store.roster(),
            directory=routing.directory(),
            push=routing.push(),
        )

    def api_ports(self) -> ApiPorts:
        store, routing = self._store, self._routing
        return ApiPorts(
            accounts=store.accounts(),
            catalog=store.catalog(),
            delivery=store.delivery_state(),
            events=self._events.writer("api", MEMBERSHIPS, CHATS),
            request_keys=store.request_keys(),
            quotas=routing.quotas(),
            revocations=routing.revocations(),
            directory=routing.directory(),
            push=routing.push(),
        )

    def operator_routes(self) -> Mapping[tuple[str, str], Handler]:
        if self.store is None or self.routing is None:
            return {}
        return self.store.operator_routes(self.routing.directory())

    # --- all engines together -----------------------------------------------------------------------------------------

    async def check_reachable(self) -> None:
        """Raises `ServiceUnavailable` while an engine is away, and any other error when waiting will not help."""
        for engine in self._engines():
            await engine.check_reachable()

    async def availability(self) -> Mapping[str, str | None]:
        found: dict[str, str | None] = {}
        for engine in (self.store, self.routing, self.events):
            if engine is not None:
                found.update(await engine.availability())
        return found

    async def backlog(self) -> Backlog:
        return NO_BACKLOG if self.events is None else await self.events.backlog()

    async def close(self) -> None:
        """Each engine is closed, even if another fails to; those that write through others come first."""
        async with AsyncExitStack() as stack:
            for engine in (self.store, self.routing, self.events):
                if engine is not None:
                    stack.push_async_callback(engine.close)

    def _engines(self) -> Sequence[Engine]:
        return [engine for engine in (self.routing, self.store, self.events) if engine is not None]

    async def _tick(self) -> None:
        while True:
            self._metrics.tick(self._clock.monotonic())
            await asyncio.sleep(self._tick_s)

    @property
    def _store(self) -> StoreEngine:
        assert self.store is not None, "no role of this process has a store"
        return self.store

    @property
    def _events(self) -> EventEngine:
        assert self.events is not None, "no role of this process has an event log"
        return self.events

    @property
    def _routing(self) -> RoutingEngine:
        assert self.routing is not None, "no role of this process has a directory"
        return self.routing

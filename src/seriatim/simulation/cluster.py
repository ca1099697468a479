"""The servers of a simulated world: the unchanged planes, each in its process, over stores that outlive them."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any

import msgspec

from seriatim.connection.gateway import Gateway
from seriatim.connection.observer import GatewayObserver
from seriatim.domain.errors import SeriatimError
from seriatim.durability.ingest import Ingest
from seriatim.engines.inprocess.directory import MemoryDirectory, MemoryRegistry
from seriatim.engines.inprocess.push import MemoryChannels, MemoryPush, MemoryPushSubscriber
from seriatim.engines.inprocess.wire import Wire
from seriatim.fanout.consumer import FanoutService
from seriatim.fanout.observer import FanoutObserver
from seriatim.ports.directory import Registration
from seriatim.ports.event_log import CHATS, DEAD_LETTERS, MEMBERSHIPS, MESSAGES, Event, EventWriter, Record
from seriatim.ports.push import Delivery, Parcel
from seriatim.services.membership import MembershipService
from seriatim.simulation.checks.history import History
from seriatim.simulation.clients.link import Link
from seriatim.simulation.faults.local import BadChat, BadChatLog
from seriatim.simulation.faults.plan import Faults
from seriatim.simulation.faults.profiles import WireKind
from seriatim.simulation.grpc import IngestNode, RemoteDurability
from seriatim.simulation.loop import SimulatedLoop
from seriatim.simulation.process import Process
from seriatim.simulation.stores.atomic_store import MemoryOneStep
from seriatim.simulation.stores.catalog import MemoryCatalog, MemoryRoster, MemoryUserChats
from seriatim.simulation.stores.event_log import MemoryBroker, MemoryDeadLetterWriter, MemoryEventWriter
from seriatim.simulation.stores.event_reader import MemoryEventReader
from seriatim.simulation.stores.message_log import MemoryMessageLog
from seriatim.simulation.stores.tables import MemoryStore
from seriatim.simulation.trace import Trace
from seriatim.simulation.wire import SimulatedWire

GROUP = "fanout-workers"
PARTITIONS = {MESSAGES: 3, MEMBERSHIPS: 1, CHATS: 1, DEAD_LETTERS: 1}
LONG_WAY = 0.3  # of the lives of an ingest process whose store could take whole sends in one step
SESSION_TIMEOUT_S = 6.0  # until the group notices a dead consumer


class Stores:
    """Everything that survives every process: the authority, the event log, and the disposable routing."""

    def __init__(self, history: History) -> None:
        self.store = MemoryStore(history)
        self.broker = MemoryBroker(PARTITIONS, history)
        self.registry = WatchedRegistry(history)
        self.channels = MemoryChannels()


class WatchedRegistry(MemoryRegistry):
    """Shows the history a connection that is registered after it was unregistered."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history
        self._unregistered: dict[str, None] = {}

    def wipe(self) -> None:
        super().wipe()
        self._unregistered.clear()

    def register(self, registrations: Sequence[Registration], now_ms: int) -> None:
        super().register(registrations, now_ms)
        for each in registrations:
            if each.connection_id in self._unregistered and each.connection_id in self._connections:
                self._history.violate(
                    "unregistered_stays_gone", f"{each.connection_id} was unregistered, and is registered again"
                )

    def unregister(self, registration: Registration, now_ms: int) -> None:
        super().unregister(registration, now_ms)
        self._unregistered[registration.connection_id] = None


class Server:
    """A process under its name, restarted again and again. Subclasses say what runs in it."""

    def __init__(self, name: str, site: "Site") -> None:
        self.name = name
        self.site = site
        self.process: Process | None = None

    @property
    def up(self) -> bool:
        return self.process is not None and self.process.alive

    def start(self) -> None:
        site = self.site
        if self.process is None:
            self.process = Process(site.loop, self.name, random=site.random, skew_s=site.faults.skew_s())
        elif not self.process.alive:
            self.process = self.process.restart(random=site.random, skew_s=site.faults.skew_s())
        else:
            return
        site.note(self.process.lane, "starts")
        self.process.run(self.assemble, self.process)

    def crash(self) -> None:
        if self.process is not None and self.process.alive:
            self.site.note(self.process.lane, "CRASHES")
            self.process.crash()
            self.crashed(self.process)

    def leave(self) -> bool:
        """A deploy: the process finishes what it has begun, ends, and comes back. False: it knows no goodbye."""
        process = self.process
        if process is None or not process.alive or process.paused or process.leaving:
            return False
        goodbye = self.goodbye()
        if goodbye is None:
            return False
        self.site.note(process.lane, "leaves")
        process.leaving = True
        task = process.spawn(goodbye)
        task.add_done_callback(
            lambda _: self.site.loop.call_soon(self._left, process, context=self.site.loop.world.context)
        )
        return True

    def _left(self, process: Process) -> None:
        if process is self.process and process.alive:
            self.site.crash_and_restart(self)

    def assemble(self, process: Process) -> None:
        """Builds the plane and spawns its tasks."""

    def goodbye(self) -> Coroutine[Any, Any, None] | None:
        """What the plane does before it may be ended."""
        return None

    def crashed(self, process: Process) -> None:
        """What the rest of the world notices."""

    def wire(self, process: Process, kind: WireKind) -> SimulatedWire:
        return SimulatedWire(
            process, kind, self.site.faults, self.site.trace, crash=lambda: self.site.crash_and_restart(self)
        )


class Site:
    """What the servers share."""

    def __init__(
        self, loop: SimulatedLoop, random: Random, faults: Faults, history: History, trace: Trace, stores: Stores
    ) -> None:
        self.loop = loop
        self.random = random
        self.faults = faults
        self.history = history
        self.trace = trace
        self.stores = stores
        self.nodes: list[IngestNode] = []
        self.bad_chat: BadChat | None = None  # the one whose store calls go wrong
        self.forgetting = 0.0  # share of the events that do not say which message came before theirs
        self.crash_and_restart: Callable[[Server], None] = lambda server: None

    def note(self, lane: str, text: str) -> None:
        if self.trace.on:
            self.trace.note(self.loop.time(), lane, text)


class IngestServer(Server):
    def __init__(self, name: str, site: Site) -> None:
        super().__init__(name, site)
        self._node = IngestNode(name)
        site.nodes.append(self._node)

    def assemble(self, process: Process) -> None:
        stores = self.site.stores
        ingest = Ingest(
            log=self._log(process),
            events=ForgetfulWriter(
                MemoryEventWriter(stores.broker, self.wire(process, WireKind.EVENTS), process.clock.now_ms), self.site
            ),
            clock=process.clock,
            producer_id=process.lane,
            one_step=self._one_step(process),
            user_chats=MemoryUserChats(stores.store, self.wire(process, WireKind.STORE)),
        )
        self._node.begin(process, ingest)
        process.start(ingest.run())

    def goodbye(self) -> Coroutine[Any, Any, None] | None:
        return None if self._node.ingest is None else self._node.ingest.drain()

    def _log(self, process: Process) -> MemoryMessageLog:
        store, wire = self.site.stores.store, self.wire(process, WireKind.STORE)
        if not self.site.faults.profile.local:
            return MemoryMessageLog(store, wire)
        return BadChatLog(store, wire, self.site.random, lambda: self.site.bad_chat)

    def _one_step(self, process: Process) -> MemoryOneStep | None:
        """Some lives go the long way, as before there was another: what they leave undone, the next life finds."""
        stores = self.site.stores
        if not self.site.faults.profile.one_step or self.site.random.random() < LONG_WAY:
            return None
        return MemoryOneStep(stores.store, stores.broker, self.wire(process, WireKind.STORE), process.clock.now_ms)


class ForgetfulWriter:
    """Drops the predecessor from some events: legal, since it may be unknown, and so it must cost time only."""

    def __init__(self, events: EventWriter, site: Site) -> None:
        self._events = events
        self._site = site

    async def append(self, topic: str, events: Sequence[Event], *, timeout_s: float) -> None:
        if topic == MESSAGES and self._site.forgetting:
            events = [self._forget(event) for event in events]
        await self._events.append(topic, events, timeout_s=timeout_s)

    def _forget(self, event: Event) -> Event:
        if self._site.random.random() >= self._site.forgetting:
            return event
        record = msgspec.json.decode(event.value)
        record["payload"]["prev_sequence"] = None
        return msgspec.structs.replace(event, value=msgspec.json.encode(record))


class GatewayServer(Server):
    gateway: Gateway | None = None
    remote: RemoteDurability | None = None

    def __init__(self, name: str, site: Site) -> None:
        super().__init__(name, site)
        self.links: list[Link] = []

    def crashed(self, process: Process) -> None:
        """A process that dies leaves its sockets to the operating system, which resets them."""
        links, self.links = self.links, []
        for link in links:
            link.cut(gateway_after_s=0.0, device_after_s=0.01 + self.site.random.random())

    def assemble(self, process: Process) -> None:
        stores = self.site.stores
        directory_wire, push_wire = self.wire(process, WireKind.DIRECTORY), self.wire(process, WireKind.PUSH)
        self.remote = RemoteDurability(process, self.site.nodes, self.site.faults, self.site.history)
        self.gateway = Gateway(
            process.lane,
            self.remote,
            MemoryDirectory(stores.registry, directory_wire, process.clock.now_ms),
            MemoryPush(stores.channels, push_wire),
            MemoryPushSubscriber(stores.channels, push_wire),
            process.clock,
            observe=GatewayObserver(),
        )
        process.start(_again_and_again(self.gateway.run))

    def goodbye(self) -> Coroutine[Any, Any, None] | None:
        return None if self.gateway is None else self.gateway.drain()


class FanoutServer(Server):
    service: FanoutService | None = None

    def assemble(self, process: Process) -> None:
        stores, site = self.site.stores, self.site
        events, push = self.wire(process, WireKind.EVENTS), self.wire(process, WireKind.PUSH)
        self.service = FanoutService(
            MemoryEventReader(stores.broker, events, GROUP, process.lane),
            MemoryDeadLetterWriter(stores.broker, events, process.clock.now_ms),
            MemoryRoster(stores.store, self.wire(process, WireKind.STORE)),
            MemoryDirectory(stores.registry, self.wire(process, WireKind.DIRECTORY), process.clock.now_ms),
            _WatchedPush(stores.channels, push, site.history),
            process.clock,
            consumer_group=GROUP,
            consumer_id=process.lane,
            observe=_FanoutWatch(site.history),
        )
        process.start(_again_and_again(self.service.run))

    def goodbye(self) -> Coroutine[Any, Any, None] | None:
        return None if self.service is None else self.service.stop()

    def crashed(self, process: Process) -> None:
        """The group notices after the session timeout; and once more, should a request of the dead have come late."""
        loop, broker = self.site.loop, self.site.stores.broker
        for sessions in (1, 3):
            after_s = sessions * SESSION_TIMEOUT_S
            loop.call_later(after_s, broker.expel, GROUP, process.lane, context=loop.world.context)


class ApiServer(Server):
    members: MembershipService | None = None
    catalog: MemoryCatalog | None = None

    def assemble(self, process: Process) -> None:
        stores = self.site.stores
        self.catalog = MemoryCatalog(stores.store, self.wire(process, WireKind.STORE))
        self.members = MembershipService(
            catalog=self.catalog,
            events=MemoryEventWriter(stores.broker, self.wire(process, WireKind.EVENTS), process.clock.now_ms),
            directory=MemoryDirectory(stores.registry, self.wire(process, WireKind.DIRECTORY), process.clock.now_ms),
            clock=process.clock,
            producer_id=process.lane,
        )


async def _again_and_again(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """A supervisor: what cannot start now is started again a little later."""
    while True:
        try:
            return await run()
        except SeriatimError:
            await asyncio.sleep(1.0)


class _WatchedPush(MemoryPush):
    """Shows the history where fanout sends what."""

    def __init__(self, channels: MemoryChannels, wire: Wire, history: History) -> None:
        super().__init__(channels, wire)
        self._history = history

    async def publish(self, parcels: Sequence[tuple[str, Parcel]], *, timeout_s: float) -> Sequence[bool]:
        for _, parcel in parcels:
            if isinstance(parcel, Delivery):
                self._history.addressed(parcel)
        return await super().publish(parcels, timeout_s=timeout_s)


class _FanoutWatch(FanoutObserver):
    def __init__(self, history: History) -> None:
        self._history = history

    def handled(self, run: Sequence[Record]) -> None:
        for record in run:
            self._history.handled_record(record.partition, record.offset)


def servers_of(site: Site, *, ingests: int, gateways: int, fanouts: int) -> tuple[Sequence[Server], ...]:
    """Ingest processes, gateways, fanout workers, one REST process."""
    return (
        [IngestServer(f"ingest{number}", site) for number in range(1, ingests + 1)],
        [GatewayServer(f"gateway{number}", site) for number in range(1, gateways + 1)],
        [FanoutServer(f"fanout{number}", site) for number in range(1, fanouts + 1)],
        [ApiServer("api", site)],
    )

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
from seriatim.engines.inprocess.directory import InProcessDirectory, InProcessRegistry
from seriatim.engines.inprocess.push import InProcessChannels, InProcessPush, InProcessPushSubscriber
from seriatim.engines.inprocess.wire import Wire
from seriatim.fanout.consumer import FanoutConsumer
from seriatim.fanout.observer import FanoutObserver
from seriatim.ports.directory import Registration
from seriatim.ports.event_log import CHATS, DEAD_LETTERS, MEMBERSHIPS, MESSAGES, Event, EventWriter, Record
from seriatim.ports.push import MessageDelivery, PushEnvelope
from seriatim.services.membership import MembershipService
from seriatim.simulation.checks.history import WorldHistory
from seriatim.simulation.clients.socket import SimulatedSocket
from seriatim.simulation.faults.local import FaultyChat, FaultyChatLog
from seriatim.simulation.faults.plan import Faults
from seriatim.simulation.faults.profiles import WireKind
from seriatim.simulation.ingest_streams import IngestNode, SimulatedDurability
from seriatim.simulation.loop import SimulatedLoop
from seriatim.simulation.process import Process
from seriatim.simulation.stores.atomic_store import MemoryAtomicStore
from seriatim.simulation.stores.catalog import MemoryCatalog, MemoryRoster, MemoryUserChats
from seriatim.simulation.stores.event_log import MemoryBroker, MemoryDeadLetterWriter, MemoryEventWriter
from seriatim.simulation.stores.event_reader import MemoryEventReader
from seriatim.simulation.stores.message_log import MemoryMessageLog
from seriatim.simulation.stores.tables import MemoryStore
from seriatim.simulation.trace import Trace
from seriatim.simulation.wire import SimulatedWire

GROUP = "fanout-workers"
PARTITIONS = {MESSAGES: 3, MEMBERSHIPS: 1, CHATS: 1, DEAD_LETTERS: 1}
PIPELINE_ONLY = 0.3  # of the lives of an ingest process whose store offers atomic commits
SESSION_TIMEOUT_S = 6.0  # until the group notices a dead consumer


class SharedStores:
    """Everything that survives every process: the authority, the event log, and the disposable routing."""

    def __init__(self, history: WorldHistory) -> None:
        self.store = MemoryStore(history)
        self.broker = MemoryBroker(PARTITIONS, history)
        self.registry = ObservedRegistry(history)
        self.channels = InProcessChannels()


class ObservedRegistry(InProcessRegistry):
    """Shows the history a connection that is registered after it was unregistered."""

    def __init__(self, history: WorldHistory) -> None:
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

    def __init__(self, name: str, deployment: "Deployment") -> None:
        self.name = name
        self.deployment = deployment
        self.process: Process | None = None

    @property
    def up(self) -> bool:
        return self.process is not None and self.process.alive

    def start(self) -> None:
        deployment = self.deployment
        if self.process is None:
            self.process = Process(
                deployment.loop, self.name, random=deployment.random, skew_s=deployment.faults.skew_s()
            )
        elif not self.process.alive:
            self.process = self.process.restart(random=deployment.random, skew_s=deployment.faults.skew_s())
        else:
            return
        deployment.note(self.process.lane, "starts")
        self.process.run(self.assemble, self.process)

    def crash(self) -> None:
        if self.process is not None and self.process.alive:
            self.deployment.note(self.process.lane, "CRASHES")
            self.process.crash()
            self.on_crash(self.process)

    def leave(self) -> bool:
        """A deploy: the process finishes what it has begun, ends, and comes back. False: it has nothing to drain."""
        process = self.process
        if process is None or not process.alive or process.paused or process.leaving:
            return False
        drain = self.drain()
        if drain is None:
            return False
        self.deployment.note(process.lane, "leaves")
        process.leaving = True
        task = process.spawn(drain)
        task.add_done_callback(
            lambda _: self.deployment.loop.call_soon(self._left, process, context=self.deployment.loop.world.context)
        )
        return True

    def _left(self, process: Process) -> None:
        if process is self.process and process.alive:
            self.deployment.crash_and_restart(self)

    def assemble(self, process: Process) -> None:
        """Builds the plane and spawns its tasks."""

    def drain(self) -> Coroutine[Any, Any, None] | None:
        """What the plane finishes before its process ends."""
        return None

    def on_crash(self, process: Process) -> None:
        """What other processes notice of the crash."""

    def wire(self, process: Process, kind: WireKind) -> SimulatedWire:
        return SimulatedWire(
            process,
            kind,
            self.deployment.faults,
            self.deployment.trace,
            crash=lambda: self.deployment.crash_and_restart(self),
        )


class Deployment:
    """What the servers share."""

    def __init__(
        self,
        loop: SimulatedLoop,
        random: Random,
        faults: Faults,
        history: WorldHistory,
        trace: Trace,
        stores: SharedStores,
    ) -> None:
        self.loop = loop
        self.random = random
        self.faults = faults
        self.history = history
        self.trace = trace
        self.stores = stores
        self.ingest_nodes: list[IngestNode] = []
        self.faulty_chat: FaultyChat | None = None  # the one whose store calls go wrong
        self.predecessor_drop_rate = 0.0  # share of the events that do not say which message came before theirs
        self.crash_and_restart: Callable[[Server], None] = lambda server: None

    def note(self, lane: str, text: str) -> None:
        if self.trace.on:
            self.trace.note(self.loop.time(), lane, text)


class IngestServer(Server):
    def __init__(self, name: str, deployment: Deployment) -> None:
        super().__init__(name, deployment)
        self._node = IngestNode(name)
        deployment.ingest_nodes.append(self._node)

    def assemble(self, process: Process) -> None:
        stores = self.deployment.stores
        ingest = Ingest(
            log=self._log(process),
            events=PredecessorDroppingWriter(
                MemoryEventWriter(stores.broker, self.wire(process, WireKind.EVENTS), process.clock.now_ms),
                self.deployment,
            ),
            clock=process.clock,
            producer_id=process.lane,
            atomic_store=self._atomic_store(process),
            user_chats=MemoryUserChats(stores.store, self.wire(process, WireKind.STORE)),
        )
        self._node.begin(process, ingest)
        process.start(ingest.run())

    def drain(self) -> Coroutine[Any, Any, None] | None:
        return None if self._node.ingest is None else self._node.ingest.drain()

    def _log(self, process: Process) -> MemoryMessageLog:
        store, wire = self.deployment.stores.store, self.wire(process, WireKind.STORE)
        if not self.deployment.faults.profile.local:
            return MemoryMessageLog(store, wire)
        return FaultyChatLog(store, wire, self.deployment.random, lambda: self.deployment.faulty_chat)

    def _atomic_store(self, process: Process) -> MemoryAtomicStore | None:
        """Some lives of the process use the pipeline only: what they leave unpublished, the next life finds."""
        stores = self.deployment.stores
        if not self.deployment.faults.profile.atomic_store or self.deployment.random.random() < PIPELINE_ONLY:
            return None
        return MemoryAtomicStore(stores.store, stores.broker, self.wire(process, WireKind.STORE), process.clock.now_ms)


class PredecessorDroppingWriter:
    """Drops the predecessor from some events: legal, since it may be unknown, and so it must cost time only."""

    def __init__(self, events: EventWriter, deployment: Deployment) -> None:
        self._events = events
        self._deployment = deployment

    async def append(self, topic: str, events: Sequence[Event], *, timeout_s: float) -> None:
        if topic == MESSAGES and self._deployment.predecessor_drop_rate:
            events = [self._drop_predecessor(event) for event in events]
        await self._events.append(topic, events, timeout_s=timeout_s)

    def _drop_predecessor(self, event: Event) -> Event:
        if self._deployment.random.random() >= self._deployment.predecessor_drop_rate:
            return event
        record = msgspec.json.decode(event.value)
        record["payload"]["prev_sequence"] = None
        return msgspec.structs.replace(event, value=msgspec.json.encode(record))


class GatewayServer(Server):
    gateway: Gateway | None = None
    remote: SimulatedDurability | None = None

    def __init__(self, name: str, deployment: Deployment) -> None:
        super().__init__(name, deployment)
        self.sockets: list[SimulatedSocket] = []

    def on_crash(self, process: Process) -> None:
        """A process that dies leaves its sockets to the operating system, which resets them."""
        sockets, self.sockets = self.sockets, []
        for socket in sockets:
            socket.cut(gateway_after_s=0.0, device_after_s=0.01 + self.deployment.random.random())

    def assemble(self, process: Process) -> None:
        stores = self.deployment.stores
        directory_wire, push_wire = self.wire(process, WireKind.DIRECTORY), self.wire(process, WireKind.PUSH)
        self.remote = SimulatedDurability(
            process, self.deployment.ingest_nodes, self.deployment.faults, self.deployment.history
        )
        self.gateway = Gateway(
            process.lane,
            self.remote,
            InProcessDirectory(stores.registry, directory_wire, process.clock.now_ms),
            InProcessPush(stores.channels, push_wire),
            InProcessPushSubscriber(stores.channels, push_wire),
            process.clock,
            observe=GatewayObserver(),
        )
        process.start(_retry_start(self.gateway.run))

    def drain(self) -> Coroutine[Any, Any, None] | None:
        return None if self.gateway is None else self.gateway.drain()


class FanoutServer(Server):
    service: FanoutConsumer | None = None

    def assemble(self, process: Process) -> None:
        stores, deployment = self.deployment.stores, self.deployment
        events, push = self.wire(process, WireKind.EVENTS), self.wire(process, WireKind.PUSH)
        self.service = FanoutConsumer(
            MemoryEventReader(stores.broker, events, GROUP, process.lane),
            MemoryDeadLetterWriter(stores.broker, events, process.clock.now_ms),
            MemoryRoster(stores.store, self.wire(process, WireKind.STORE)),
            InProcessDirectory(stores.registry, self.wire(process, WireKind.DIRECTORY), process.clock.now_ms),
            _ObservedPush(stores.channels, push, deployment.history),
            process.clock,
            consumer_group=GROUP,
            consumer_id=process.lane,
            observe=_HandledRecords(deployment.history),
        )
        process.start(_retry_start(self.service.run))

    def drain(self) -> Coroutine[Any, Any, None] | None:
        return None if self.service is None else self.service.stop()

    def on_crash(self, process: Process) -> None:
        """The group notices after the session timeout; and once more, should a request of the dead have come late."""
        loop, broker = self.deployment.loop, self.deployment.stores.broker
        for sessions in (1, 3):
            after_s = sessions * SESSION_TIMEOUT_S
            loop.call_later(after_s, broker.expel, GROUP, process.lane, context=loop.world.context)


class ApiServer(Server):
    members: MembershipService | None = None
    catalog: MemoryCatalog | None = None

    def assemble(self, process: Process) -> None:
        stores = self.deployment.stores
        self.catalog = MemoryCatalog(stores.store, self.wire(process, WireKind.STORE))
        self.members = MembershipService(
            catalog=self.catalog,
            events=MemoryEventWriter(stores.broker, self.wire(process, WireKind.EVENTS), process.clock.now_ms),
            directory=InProcessDirectory(stores.registry, self.wire(process, WireKind.DIRECTORY), process.clock.now_ms),
            clock=process.clock,
            producer_id=process.lane,
        )


async def _retry_start(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """A supervisor: what cannot start now is started again after a second."""
    while True:
        try:
            return await run()
        except SeriatimError:
            await asyncio.sleep(1.0)


class _ObservedPush(InProcessPush):
    """Shows the history where fanout sends what."""

    def __init__(self, channels: InProcessChannels, wire: Wire, history: WorldHistory) -> None:
        super().__init__(channels, wire)
        self._history = history

    async def publish(self, envelopes: Sequence[tuple[str, PushEnvelope]], *, timeout_s: float) -> Sequence[bool]:
        for _, envelope in envelopes:
            if isinstance(envelope, MessageDelivery):
                self._history.push_addressed(envelope)
        return await super().publish(envelopes, timeout_s=timeout_s)


class _HandledRecords(FanoutObserver):
    def __init__(self, history: WorldHistory) -> None:
        self._history = history

    def handled(self, run: Sequence[Record]) -> None:
        for record in run:
            self._history.handled_record(record.partition, record.offset)


def build_servers(deployment: Deployment, *, ingests: int, gateways: int, fanouts: int) -> tuple[Sequence[Server], ...]:
    """Ingest processes, gateways, fanout workers, one REST process."""
    return (
        [IngestServer(f"ingest{number}", deployment) for number in range(1, ingests + 1)],
        [GatewayServer(f"gateway{number}", deployment) for number in range(1, gateways + 1)],
        [FanoutServer(f"fanout{number}", deployment) for number in range(1, fanouts + 1)],
        [ApiServer("api", deployment)],
    )

"""All three planes in virtual time, each in processes of its own, with real or scripted clients and scripted wires.

An async test that takes the fixture `cluster` runs on it (`tests/support/virtual_time.py`). Nothing fails unless the
test says so.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import ClassVar

import msgspec

from seriatim.connection.gateway import Gateway
from seriatim.connection.socket import ClientIdentity
from seriatim.domain.chat import Membership, Role
from seriatim.domain.errors import SeriatimError
from seriatim.domain.events import BadEvent, MessagePersisted, decode
from seriatim.domain.message import Message
from seriatim.domain.times import iso
from seriatim.engines.inprocess.directory import InProcessDirectory, InProcessRegistry
from seriatim.engines.inprocess.push import InProcessChannels, InProcessPush, InProcessPushSubscriber
from seriatim.fanout.consumer import FanoutConsumer
from seriatim.ports.event_log import CHATS, DEAD_LETTERS, MEMBERSHIPS, MESSAGES, Partition, Record
from seriatim.ports.push import MessageDelivery, PushEnvelope
from seriatim.services.membership import MembershipService
from seriatim.simulation.checks.history import WorldHistory
from seriatim.simulation.clients.device import Device
from seriatim.simulation.clients.device_faults import DeviceFaults
from seriatim.simulation.clients.socket import SimulatedSocket
from seriatim.simulation.faults.plan import Faults
from seriatim.simulation.faults.profiles import FaultProfile
from seriatim.simulation.ingest_streams import IngestNode, SimulatedDurability
from seriatim.simulation.loop import SimulatedLoop
from seriatim.simulation.process import Process
from seriatim.simulation.trace import Trace
from tests.support.durability_harness import CHAT, DurabilityHarness, Node
from tests.support.recording_observers import FanoutRecorder, GatewayRecorder
from tests.support.scripted_client import ScriptedClient
from tests.support.scripted_wire import ScriptedWire

GROUP = "fanout-workers"
MESSAGES_0, MEMBERSHIPS_0 = Partition(MESSAGES, 0), Partition(MEMBERSHIPS, 0)
TOKEN_S = 3600


class ClusterHarness(DurabilityHarness):
    """Adds gateways, fanout workers and clients. Once it is open there is one process of each kind."""

    ingest: Node
    gateway: "GatewayHost"
    fanout: "FanoutHost"
    members: MembershipService

    partitions: ClassVar[Mapping[str, int]] = {MESSAGES: 1, MEMBERSHIPS: 1, CHATS: 1, DEAD_LETTERS: 1}

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__(loop)
        self.registry = InProcessRegistry()
        self.channels = InProcessChannels()
        self.calm = Faults(
            Random(1), FaultProfile(name="calm", summary="nothing fails", partial_visibility=0.0), duration_s=0.0
        )
        self.no_faults = Faults(Random(1), FaultProfile(name="none", summary="nothing ever fails"), duration_s=0.0)
        self.no_faults.stop()
        self.history = WorldHistory(loop, Trace())  # sockets and devices report to one; its findings are not read here
        self.gateways: list[GatewayHost] = []

    async def open(self) -> None:
        self.ingest = self.node()
        self.ingest.process.start(self.ingest.ingest.run())
        self.gateway = await self.add_gateway("gateway-1")
        self.fanout = await self.add_fanout("fanout-1")
        self.members = MembershipService(
            catalog=self.ingest.catalog,
            events=self.ingest.events,
            directory=InProcessDirectory(self.registry, ScriptedWire(), self.now_ms),
            clock=self.ingest.clock,
            producer_id="api-1",
        )

    async def add_gateway(self, name: str) -> "GatewayHost":
        host = GatewayHost(self, name)
        self.gateways.append(host)
        await host.process.spawn(host.gateway.start())
        return host

    async def add_fanout(self, name: str) -> "FanoutHost":
        """Returns when the group has settled, so that what follows meets a known owner."""
        host = FanoutHost(self, name)
        await asyncio.sleep(1)
        return host

    # --- clients -----------------------------------------------------------------------------------------------------

    async def connect(self, user_id: str, device: str = "phone", *, to: "GatewayHost | None" = None) -> ScriptedClient:
        """A scripted client, connected and greeted."""
        host = to or self.gateway
        client = ScriptedClient(self.loop, host.process)
        client.connection = host.process.run(host.gateway.accept, client, self.identity(user_id, device))
        host.clients.append(client)
        await host.process.spawn(host.gateway.establish(client.connection))
        await self.until(lambda: client.greeted)
        return client

    async def synced(self, user_id: str, device: str = "phone", *, to: "GatewayHost | None" = None) -> ScriptedClient:
        """Connected, and in possession of everything CHAT holds."""
        client = await self.connect(user_id, device, to=to)
        await client.sync_all(after=0)
        return client

    def device(self, user_id: str, name: str) -> Device:
        """The real client session: it connects, sends, stores and reconnects by itself."""
        device = Device(
            self.loop,
            name,
            user_id,
            device_id=f"device_{name}",
            random=Random(name),
            history=self.history,
            trace=Trace(),
            dial=self._dial,
            list_chats=self._list_chats,
            faults=DeviceFaults(Random(name), self.no_faults),
            power_lost=Device.crash,
        )
        device.start()
        return device

    def identity(self, user_id: str, device: str) -> ClientIdentity:
        return ClientIdentity(
            user_id=user_id,
            device_id=f"device_{device}",
            session_id="sess_1",
            token_expires_at_ms=self.now_ms() + TOKEN_S * 1000,
        )

    def _dial(self, device: Device) -> None:
        """A load balancer with health checks: the newest gateway that is alive."""
        alive = [host for host in self.gateways if host.process.alive]
        if not alive:
            device.process.call_soon(device.refused)
            return
        host = alive[-1]
        socket = SimulatedSocket(host.process, device.process, device, self.calm)
        try:
            connection = host.process.run(host.gateway.accept, socket, self.identity(device.user_id, device.name))
        except SeriatimError:
            device.process.call_soon(device.refused)
            return
        host.sockets.append(socket)
        device.process.call_soon(device.socket_opened, socket)
        socket.accepted(connection)
        host.process.start(host.gateway.establish(connection))

    def _list_chats(self, device: Device) -> None:
        chats = [chat_id for chat_id in self.store.chats if device.user_id in self.store.members(chat_id)]
        device.process.call_soon(device.chats_listed, chats)

    # --- what happens ------------------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], bool], *, within_s: float = 5.0) -> None:
        """Returns as soon as the condition holds. Fails if it does not hold in time."""
        deadline = self.loop.time() + within_s
        while not condition():
            assert self.loop.time() < deadline, f"it did not happen within {within_s:g} s"
            await asyncio.sleep(0.001)

    def add_member_without_event(self, user_id: str) -> None:
        """A member is added without an event, and the cache of members is not invalidated."""
        row = self.counter()
        raised = msgspec.structs.replace(row, members_version=row.members_version + 1)
        self.store.put_counter(CHAT, raised)
        now = iso(self.now_ms())
        member = Membership(chat_id=CHAT, user_id=user_id, role=Role.MEMBER, joined_at=now, added_by=user_id)
        self.store.put_member(member, raised.members_version)

    def append_raw(self, value: bytes, *, partition: Partition = MESSAGES_0) -> None:
        """A record as another producer might write it."""
        self.broker.append(partition, [(CHAT.encode(), value, ())], self.now_ms())

    def deliver(self, client: ScriptedClient, message: Message, prev_sequence: int | None) -> None:
        """A push as fanout would send it."""
        envelope = MessageDelivery(
            connection_ids=(client.connection.connection_id,), message=message, prev_sequence=prev_sequence
        )
        host = next(host for host in self.gateways if client in host.clients)
        host.process.run(host.gateway.received, [envelope])

    # --- what is there now -------------------------------------------------------------------------------------------

    def next_offset(self, partition: Partition = MESSAGES_0) -> int:
        """The first record the fanout group has not committed."""
        return self.broker.committed(GROUP, partition) or 0

    def acknowledged(self, user_id: str) -> int:
        return self.store.watermarks.get((user_id, CHAT), 0)

    def dead_letters(self) -> Sequence[Record]:
        return self.broker.records(DEAD_LETTERS)

    def events(self, chat_id: str = CHAT) -> list[MessagePersisted]:
        """As in the durability harness, but here the log may also hold records that are no events."""
        decoded = [event for record in self.broker.records(MESSAGES) if (event := _persisted(record)) is not None]
        return [event for event in decoded if event.message.chat_id == chat_id]

    def appended(self, record: Record) -> None:
        if _persisted(record) is not None:
            super().appended(record)


def _persisted(record: Record) -> MessagePersisted | None:
    try:
        event = decode(record.key, record.value)
    except BadEvent:
        return None
    return event if isinstance(event, MessagePersisted) else None


class ProcessWire(ScriptedWire):
    """A wire into one process: what arrives runs there, and ends with it. It loses the next `pushes_to_lose` pushes."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self.pushes_to_lose = 0
        self._process = process

    def deliver(self, receive: Callable[[], None], *, lossy: bool = False) -> None:
        if lossy and self.pushes_to_lose:
            self.pushes_to_lose -= 1
        else:
            self._process.call_soon(receive)


class GatewayHost:
    """One gateway process."""

    def __init__(self, cluster: ClusterHarness, name: str) -> None:
        self._cluster = cluster
        self.process = Process(cluster.loop, name, random=Random(name))
        self.directory_wire, self.push_wire = ProcessWire(self.process), ProcessWire(self.process)
        self.recorded = GatewayRecorder()
        self.clients: list[ScriptedClient] = []
        self.sockets: list[SimulatedSocket] = []
        ingest = IngestNode(cluster.ingest.name)
        ingest.process, ingest.ingest = cluster.ingest.process, cluster.ingest.ingest
        self.gateway: Gateway = self.process.run(
            lambda: Gateway(
                name,
                SimulatedDurability(self.process, [ingest], cluster.calm, cluster.history),
                InProcessDirectory(cluster.registry, self.directory_wire, self.process.clock.now_ms),
                InProcessPush(cluster.channels, self.push_wire),
                InProcessPushSubscriber(cluster.channels, self.push_wire),
                self.process.clock,
                observe=self.recorded,
            )
        )

    def crash(self) -> None:
        """The process is gone: its sockets are reset, its subscription ends, its registrations stay behind."""
        self.process.crash()
        self._cluster.channels.interrupt(self.gateway.gateway_id)
        for client in self.clients:
            client.reset()
        for socket in self.sockets:
            socket.cut(gateway_after_s=0.0, device_after_s=0.05)


class FanoutHost:
    """One fanout process, polling from the start."""

    def __init__(self, cluster: ClusterHarness, name: str) -> None:
        self._cluster = cluster
        self.process = Process(cluster.loop, name, random=Random(name))
        clock = self.process.clock
        self.events_wire, self.dead_letters_wire = ProcessWire(self.process), ProcessWire(self.process)
        self.store_wire, self.directory_wire = ProcessWire(self.process), ProcessWire(self.process)
        self.push_wire = ProcessWire(self.process)
        self.push = FailingPush(cluster.channels, self.push_wire)
        self.recorded = FanoutRecorder()
        self.service: FanoutConsumer = self.process.run(
            lambda: FanoutConsumer(
                cluster.event_reader(self.events_wire, GROUP, name),
                cluster.dead_letter_writer(self.dead_letters_wire, clock),
                cluster.roster(self.store_wire),
                InProcessDirectory(cluster.registry, self.directory_wire, clock.now_ms),
                self.push,
                clock,
                consumer_group=GROUP,
                consumer_id=name,
                observe=self.recorded,
            )
        )
        self.process.start(self.service.run())

    async def stop(self) -> None:
        """As a deploy does: the consumer leaves its group first."""
        await self.process.spawn(self.service.stop())

    def crash(self) -> None:
        """The group notices at once, without a session timeout."""
        self.process.crash()
        self._cluster.broker.expel(GROUP, self.process.name)


class FailingPush(InProcessPush):
    """Raises an exception that no caller expects, for the next `bugs` calls."""

    bugs = 0

    async def publish(self, envelopes: Sequence[tuple[str, PushEnvelope]], *, timeout_s: float) -> Sequence[bool]:
        if self.bugs:
            self.bugs -= 1
            raise RuntimeError("a bug")
        return await super().publish(envelopes, timeout_s=timeout_s)

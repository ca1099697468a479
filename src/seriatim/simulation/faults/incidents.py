"""Carries out a seed's incidents: crashes, freezes, outages, wipes, lost counters, membership changes."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from seriatim.domain import limits
from seriatim.domain.chat import Chat, ChatType, Role
from seriatim.domain.errors import SeriatimError
from seriatim.domain.message import Message
from seriatim.domain.times import iso
from seriatim.engines.inprocess.wire import Wire
from seriatim.operations.counter_repair import CounterRepairer
from seriatim.simulation.clients.device import Device
from seriatim.simulation.cluster import GROUP, Server
from seriatim.simulation.faults.profiles import Incident, IncidentKind
from seriatim.simulation.process import Process
from seriatim.simulation.stores.catalog import MemoryCatalog
from seriatim.simulation.stores.message_log import MemoryMessageLog
from seriatim.simulation.stores.tables import MemoryStore

if TYPE_CHECKING:
    from seriatim.simulation.world import World

T = TypeVar("T")

CLOCK_JUMP_S = 2.0
DEPLOYS = 0.3  # a crash of an amount above it is a deploy: the process may say goodbye
LOST_SLOTS_MAX = 4  # with a counter, in about a third of its losses
DETECTION_S = 3.0  # until an end of a cut connection notices


class Incidents:
    """The incidents of a world. `end` restores what is still broken; `over` is true once all repairs are done."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._repairs = 0
        self._operator: Process | None = None
        self._creating: dict[str, None] = {}
        self.churned = False
        self._do: dict[IncidentKind, Callable[[Incident], str | None]] = {
            IncidentKind.CRASH: self._crash,
            IncidentKind.PAUSE: self._pause,
            IncidentKind.OUTAGE: self._outage,
            IncidentKind.WIPE: self._wipe,
            IncidentKind.INTERRUPT: self._interrupt,
            IncidentKind.REBALANCE: self._rebalance,
            IncidentKind.COUNTER_LOSS: self._lose_counter,
            IncidentKind.MEMBERSHIP: self._change_membership,
            IncidentKind.SLOW_READER: self._slow_reader,
            IncidentKind.RECONNECT: self._reconnect,
            IncidentKind.CLOCK_JUMP: self._clock_jump,
            IncidentKind.SYNC: self._sync_again,
            IncidentKind.NEW_CHAT: self._create_chat,
            IncidentKind.UNREADABLE: self._damage,
        }

    def plan(self) -> None:
        for incident in self._world.faults.incidents:
            self._world.at(incident.at, self._happen, incident)

    @property
    def over(self) -> bool:
        return self._repairs == 0

    def end(self) -> None:
        """Restores subscriptions, resumes readers, and makes every row readable."""
        world = self._world
        world.stores.store.unreadable.clear()
        for server in world.gateways:
            if server.process is not None:
                world.stores.channels.restore(server.process.lane)
        for device in world.devices:
            if device.socket is not None:
                device.socket.resume_reading()

    def _happen(self, incident: Incident) -> None:
        world = self._world
        if not world.faults.active:
            return
        done = self._do[incident.kind](incident)
        if done is not None:
            world.faults.count(incident.kind.value)
            world.deployment.note("world", done)

    # --- processes --------------------------------------------------------------------------------------------------

    def _crash(self, incident: Incident) -> str | None:
        everyone: list[Server | Device] = [*self._world.servers, *self._world.devices]
        victim = _one_of(everyone, incident)
        if isinstance(victim, Device):
            if not victim.process.alive:
                return None
            victim.crash()
            self._later(incident, self.revive, victim)
            return f"{victim.name} loses power"
        if not victim.up:
            return None
        if incident.amount > DEPLOYS and victim.leave():
            return f"{victim.name} is redeployed"
        victim.crash()
        self._later(incident, victim.start)
        return f"{victim.name} crashes"

    def revive(self, device: Device) -> None:
        if not device.process.alive:
            device.restart()

    def _pause(self, incident: Incident) -> str | None:
        everyone: list[Server | Device] = [*self._world.servers, *self._world.devices]
        process = _one_of(everyone, incident).process
        if process is None or not process.alive or process.paused:
            return None
        process.pause()
        self._later(incident, self._resume, process)
        return f"{process.lane} freezes for {incident.duration_s:.2f} s"

    def _resume(self, process: Process) -> None:
        if process.alive and process.paused:
            process.resume()

    def _clock_jump(self, incident: Incident) -> str | None:
        process = _one_of(self._world.servers, incident).process
        if process is None or not process.alive:
            return None
        process.clock.skew_s += incident.amount * CLOCK_JUMP_S
        return f"{process.lane}'s wall clock jumps by {incident.amount * CLOCK_JUMP_S:+.2f} s"

    # --- stores -----------------------------------------------------------------------------------------------------

    def _outage(self, incident: Incident) -> str | None:
        if incident.wire is None:
            return None
        self._world.faults.begin_outage(incident.wire, incident.at + incident.duration_s)
        return f"{incident.wire} is out for {incident.duration_s:.2f} s"

    def _wipe(self, incident: Incident) -> str:
        self._world.stores.registry.wipe()
        return "the directory is wiped"

    def _interrupt(self, incident: Incident) -> str | None:
        server = _one_of(self._world.gateways, incident)
        if server.process is None or not server.up:
            return None
        lane = server.process.lane
        self._world.stores.channels.interrupt(lane)
        self._later(incident, self._world.stores.channels.restore, lane)
        return f"{lane}'s subscription breaks for {incident.duration_s:.2f} s"

    def _rebalance(self, incident: Incident) -> str | None:
        server = _one_of(self._world.fanouts, incident)
        if server.process is None or not server.up:
            return None
        self._world.stores.broker.expel(GROUP, server.process.lane)
        return f"the group expels {server.process.lane}"

    def _damage(self, incident: Incident) -> str | None:
        """The chat's counter row and keys cannot be read, until an operator mends them."""
        world = self._world
        chat_id, store = world.chats[int(incident.target * len(world.chats))], world.stores.store
        if chat_id not in store.counters or chat_id in store.unreadable:
            return None
        store.unreadable[chat_id] = None
        world.history.damaged[chat_id] = None
        self._later(incident, store.unreadable.pop, chat_id, None)
        return f"rows of {chat_id} cannot be read for {incident.duration_s:.2f} s"

    def _lose_counter(self, incident: Incident) -> str | None:
        world = self._world
        chat_id = world.chats[int(incident.target * len(world.chats))]
        if chat_id not in world.stores.store.counters:
            return None
        lost = self._newest_settled(chat_id, int(incident.amount * LOST_SLOTS_MAX)) if incident.amount > 0 else []
        for message in lost:
            _lose(world.stores.store, message)
            world.history.message_lost(message)
        world.stores.store.unreadable.pop(chat_id, None)
        world.stores.store.lose_counter(chat_id)
        world.history.counters_lost[chat_id] = None
        self._repairs += 1
        self._later(incident, self._repair, chat_id)
        return f"the counter of {chat_id} is lost, and {[message.sequence for message in lost]} with it"

    def _newest_settled(self, chat_id: str, count: int) -> list[Message]:
        """What an older backup would lack. Only messages of a chat at rest, so that their loss is the only fault."""
        world = self._world
        if chat_id in world.history.counters_lost or world.stores.store.counters[chat_id].dirty_at_ms is not None:
            return []
        unsent = [entry.client_message_id for device in world.devices for entry in device.store.outbox()]
        found: list[Message] = []
        for _, slot in sorted(world.history.slots.get(chat_id, {}).items(), reverse=True)[:count]:
            if not isinstance(slot, Message) or slot.client_message_id in unsent:
                break
            found.append(slot)
        return found

    def _repair(self, chat_id: str) -> None:
        """As an operator does it: without faults on the wire, and with as many tries as it takes."""
        world = self._world
        if self._operator is None:
            self._operator = Process(world.loop, "operator", random=world.random)
        self._operator.start(self._repair_until_done(chat_id, self._operator))

    async def _repair_until_done(self, chat_id: str, operator: Process) -> None:
        world = self._world
        repairer = CounterRepairer(
            MemoryMessageLog(world.stores.store, Wire()),
            operator.clock,
            highest_published=lambda chat: world.history.highest_published.get(chat, 0),
        )
        while chat_id not in world.stores.store.counters:
            try:
                repair = await repairer.repair(chat_id)
                world.deployment.note(
                    "operator", f"repaired {chat_id}: counter {repair.allocated}, sealed {repair.sealed}"
                )
            except SeriatimError as error:
                world.deployment.note("operator", f"{chat_id}: {error}")
        self._repairs -= 1

    # --- people -----------------------------------------------------------------------------------------------------

    def _change_membership(self, incident: Incident) -> str | None:
        """The owner adds or removes a user; or a member leaves."""
        world = self._world
        api = world.api
        if not api.up or api.process is None or api.members is None or len(world.users) < 2:
            return None
        chat_id = world.chats[int(incident.target * len(world.chats))]
        user = world.users[1 + int(abs(incident.amount) * (len(world.users) - 1))]
        self.churned = True
        member = user in world.stores.store.members(chat_id)
        api.process.start(self._change(chat_id, user, member=member, leaves=incident.amount > 0))
        return f"{user} {'is to leave' if member else 'is to join'} {chat_id}"

    async def _change(self, chat_id: str, user: str, *, member: bool, leaves: bool) -> None:
        members, owner = self._world.api.members, self._world.users[0]
        if members is None:
            return
        try:
            if not member:
                await members.add(chat_id, user, Role.MEMBER, by=owner)
            elif leaves:
                await members.leave(chat_id, user)
            else:
                await members.remove(chat_id, user, by=owner)
        except SeriatimError as error:
            self._world.deployment.note("api", f"{chat_id} {user}: {error}")

    def _create_chat(self, incident: Incident) -> str | None:
        """The first user creates a chat with all others and sends a message: only a push announces the chat."""
        world = self._world
        api = world.api
        if not api.up or api.process is None or api.catalog is None:
            return None
        now = iso(api.process.clock.now_ms())
        chat = Chat(
            chat_id=f"chat_{len(world.chats) + len(self._creating) + 1}",
            chat_type=ChatType.GROUP,
            name=None,
            created_by=world.users[0],
            created_at=now,
            updated_at=now,
            member_count=len(world.users),
        )
        self._creating[chat.chat_id] = None
        api.process.start(self._create(api.catalog, chat, api.process.clock.now_ms()))
        return f"{chat.created_by} creates {chat.chat_id}"

    async def _create(self, catalog: MemoryCatalog, chat: Chat, now_ms: int) -> None:
        world = self._world
        try:
            await catalog.create_group(chat, world.users[1:], now_ms=now_ms, timeout_s=limits.API_TIMEOUT_S)
        except SeriatimError as error:
            world.deployment.note("api", f"{chat.chat_id}: {error}")
            return
        world.at(world.loop.time(), world.chat_created, chat.chat_id)

    def _slow_reader(self, incident: Incident) -> str | None:
        device = _one_of(self._world.devices, incident)
        socket = device.socket
        if socket is None or not device.process.alive:
            return None
        socket.reading = False
        self._later(incident, socket.resume_reading)
        return f"{device.name} stops reading for {incident.duration_s:.2f} s"

    def _reconnect(self, incident: Incident) -> str | None:
        device = _one_of(self._world.devices, incident)
        if device.socket is None:
            return None
        random = self._world.random
        device.socket.cut(gateway_after_s=DETECTION_S * random.random(), device_after_s=DETECTION_S * random.random())
        return f"{device.name}'s connection is cut"

    def _sync_again(self, incident: Incident) -> str | None:
        device = _one_of(self._world.devices, incident)
        if not device.process.alive or device.process.paused:
            return None
        device.process.run(device.sync_again)
        return f"{device.name} syncs again"

    # --- helpers ----------------------------------------------------------------------------------------------------

    def _later(self, incident: Incident, callback: Callable[..., object], *args: object) -> None:
        self._world.at(self._world.loop.time() + incident.duration_s, callback, *args)


def _lose(store: MemoryStore, message: Message) -> None:
    """As if the row and its key had never been written. No port can do that, so the tables are changed directly."""
    slots = store.slots(message.chat_id)
    del slots._at[message.sequence], store.keys[message.chat_id, message.client_message_id]
    slots._order.remove(message.sequence)


def _one_of(things: Sequence[T], incident: Incident) -> T:
    return things[int(incident.target * len(things))]

"""One schedule: a small world of chats, devices and servers, a time of faults, quiet time, final checks.

Everything that happens follows from the seed. `run_schedule` is what the runner calls.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from random import Random
from typing import TypeVar

from seriatim.domain.chat import Chat, ChatType, Membership, Role
from seriatim.domain.times import iso
from seriatim.ports.event_log import DEAD_LETTERS, MESSAGES, Partition
from seriatim.ports.message_log import ChatCounter
from seriatim.simulation.checks.final_checks import FinalState, check_final_state, check_quiescence
from seriatim.simulation.checks.first_messages import check_first_messages
from seriatim.simulation.checks.history import WorldHistory
from seriatim.simulation.checks.leftovers import check_leftovers, open_connections, unfinished_tasks
from seriatim.simulation.clients.device import Device
from seriatim.simulation.clients.device_faults import DeviceFaults
from seriatim.simulation.clients.network import Network
from seriatim.simulation.clients.pipelining_client import PipeliningClient
from seriatim.simulation.cluster import (
    GROUP,
    PARTITIONS,
    ApiServer,
    Deployment,
    FanoutServer,
    GatewayServer,
    Server,
    SharedStores,
    build_servers,
)
from seriatim.simulation.faults.incidents import Incidents
from seriatim.simulation.faults.local import CHATS, INGESTS, LocalFaultPlan
from seriatim.simulation.faults.plan import Faults, profile_named
from seriatim.simulation.loop import CallbackOrder, NoProgress, SimulatedLoop
from seriatim.simulation.process import EPOCH_MS
from seriatim.simulation.results import ScheduleResult
from seriatim.simulation.tight_limits import buffer_limit, high_water, limits_chance, tight_limits
from seriatim.simulation.trace import Trace

T = TypeVar("T")

FAULTS_S = 20.0  # sends and faults
QUIET_MAX_S = 170.0  # longer than every server timer that heals something, shorter than the client's own re-sync
LONG_QUIET_MAX_S = 400.0  # a new membership or a lost message shows only in a device's sync, every five minutes
SETTLED_S = 50.0  # after this every heartbeat has come round once
IDLE_S = 3.0  # pipelines end, registrations are removed
RECONNECTED_S = 4.0  # a device that lost its connection has a new one
CUT_UNNOTICED_S = 60.0  # longer than a gateway waits for a pong
FIRST_MESSAGES_S = 65.0  # the bound of first messages, and some seconds for a call lost before the world healed
PROMPT_DELIVERY_S = 8.0  # a push takes milliseconds; an own message above a hole is asked for after a few seconds
QUIET_CHECK_EVERY_S = 2.0
PREDECESSOR_DROP_RATE = 0.4  # of the events, in worlds whose publishers do not always know a message's predecessor
# Shares of the worlds; each is drawn on its own.
DROPPING_WORLDS = 0.25  # some events do not name the message before theirs
PIPELINING_WORLDS = 0.25  # a client sends without waiting for answers
FALSE_ACK_WORLDS = 0.3  # devices ack what they were never sent
POISON_WORLDS = 0.2  # the event log holds a record that is no event
MANY_CHATS_WORLDS = 0.3  # up to three chats
REUSED_IDS = 0.03  # of the sends use an id that was used before, mostly by another user


def run_schedule(
    seed: int, *, profile: str = "mixed", mutant: str | None = None, trace: Trace | None = None
) -> ScheduleResult:
    """The same seed gives the same run, under any hash seed and on any machine."""
    removed: AbstractContextManager[object] = nullcontext()
    if mutant is not None:
        from seriatim.simulation.mutants.catalogue import MUTANTS

        removed = MUTANTS[mutant].apply()
    with removed, tight_limits(limits_chance(seed), profile):
        return World(seed, profile, trace or Trace()).run()


class World:
    """Built, run and checked once."""

    def __init__(self, seed: int, profile: str, trace: Trace) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.faults = Faults(Random(seed ^ 0x5E71A71), profile_named(profile), duration_s=FAULTS_S)
        order = CallbackOrder.SHUFFLED if self.faults.shuffled else CallbackOrder.POSSIBLE
        self.loop = SimulatedLoop(Random(seed ^ 0x0DDBA11), order=order)
        self.trace = trace
        self.history = WorldHistory(self.loop, trace)
        self.stores = SharedStores(self.history)
        self.deployment = Deployment(self.loop, self.random, self.faults, self.history, trace, self.stores)
        self.deployment.crash_and_restart = self._crash_and_restart
        self.deployment.predecessor_drop_rate = PREDECESSOR_DROP_RATE if self.random.random() < DROPPING_WORLDS else 0.0
        local = self.faults.profile.local
        owners = 1 if self.faults.profile.atomic_store else INGESTS if local else 1 + self._upto(2)
        ingests, gateways, fanouts, apis = build_servers(
            self.deployment, ingests=owners, gateways=1 + self._upto(2), fanouts=1 + self._upto(2)
        )
        self.servers: list[Server] = [*ingests, *gateways, *fanouts, *apis]
        self.gateways = [server for server in gateways if isinstance(server, GatewayServer)]
        self.fanouts = [server for server in fanouts if isinstance(server, FanoutServer)]
        self.api = next(server for server in apis if isinstance(server, ApiServer))
        self.network = Network(self.loop, self.random, self.faults, self.gateways, self.api, self.history)
        self.device_faults = DeviceFaults(Random(seed ^ 0xDA12C), self.faults)
        self.users = [f"user_{letter}" for letter in "abcd"[: 2 + self._upto(3)]]
        chats = 1 + self._upto(3 if self.random.random() < MANY_CHATS_WORLDS else 2)
        self.chats = [f"chat_{number}" for number in range(1, 1 + (CHATS if local else chats))]
        self.devices = self._devices()
        self.incidents = Incidents(self)
        self.sends = 0
        self.created: dict[str, None] = {}  # chats that were created in trouble
        self.pipelining_client: PipeliningClient | None = None
        self.locality = LocalFaultPlan(self) if local else None

    # --- the schedule -----------------------------------------------------------------------------------------------

    def run(self) -> ScheduleResult:
        try:
            self._populate()
            for server in self.servers:
                server.start()
            for device in self.devices:
                self.at(self.random.random() * 2, device.start)
            self._plan_sends()
            if self.random.random() < FALSE_ACK_WORLDS:
                self._plan_false_acks()
            if self.random.random() < POISON_WORLDS:
                self.at(FAULTS_S * self.random.random(), self._poison)
            if self.random.random() < PIPELINING_WORLDS:
                self._plan_pipelining_client()
            self.incidents.plan()
            if self.locality is not None:
                self.locality.plan()
            self.loop.run_until(FAULTS_S)
            self._heal()
            self._run_until_quiet()
            # Before the final sends: a later message may carry an earlier one along.
            check_quiescence(self._final_state())
            self._final_sends()
            self._check_final_state()
        except NoProgress as error:
            self.history.violate("quiescent_liveness", str(error))
        result = self._result()
        self.loop.close()
        return result

    def _populate(self) -> None:
        """Chats, counters and memberships as a REST call would have left them. The first user owns every chat."""
        now = iso(EPOCH_MS)
        store = self.stores.store
        for chat_id in self.chats:
            members = [user for user in self.users if user == self.users[0] or self.random.random() < 0.85]
            store.chats[chat_id] = Chat(
                chat_id=chat_id,
                chat_type=ChatType.GROUP,
                name=None,
                created_by=self.users[0],
                created_at=now,
                updated_at=now,
                member_count=len(members),
            )
            store.put_counter(
                chat_id,
                ChatCounter(allocated=0, published_through=0, published_message=0, members_version=1, dirty_at_ms=None),
            )
            for user in members:
                role = Role.OWNER if user == self.users[0] else Role.MEMBER
                row = Membership(chat_id=chat_id, user_id=user, role=role, joined_at=now, added_by=self.users[0])
                store.put_member(row, 1)
                store.index_member(chat_id, user)

    def _plan_sends(self) -> None:
        """Bursts and pauses: some sends together, some after the pipelines have gone idle."""
        at = 1.5
        for number in range(6 + self._upto(12)):
            at += self.random.random() * (0.05 if self.random.random() < 0.6 else 3.0)
            if at > FAULTS_S * 0.9:
                break
            device = self._one_of(self.devices)
            member_of = [chat for chat in self.chats if device.user_id in self.stores.store.members(chat)]
            if member_of:
                self.at(at, self._send, device, self._one_of(member_of), f"m{number}")

    def _plan_false_acks(self) -> None:
        """Devices ack messages that they were never sent."""
        for _ in range(self._upto(4)):
            device, chat_id = self._one_of(self.devices), self._one_of(self.chats)
            unseen = 10**15 if self.random.random() < 0.5 else 1 + self._upto(20)
            self.history.false_ackers[device.user_id] = None
            self.at(2 + self.random.random() * FAULTS_S, device.ack_unseen, chat_id, unseen)

    def _plan_pipelining_client(self) -> None:
        """A client that sends without waiting for answers."""
        self.pipelining_client = PipeliningClient(
            self.loop,
            self.users[0],
            self._one_of(self.chats),
            random=self.random,
            history=self.history,
            dial=self.network.dial,
        )
        self.at(
            1.5 + self.random.random() * FAULTS_S / 2, self.pipelining_client.process.run, self.pipelining_client.start
        )

    def _poison(self) -> None:
        """A record that is no event gets into the event log."""
        broker = self.stores.broker
        partition = Partition(MESSAGES, self._upto(PARTITIONS[MESSAGES]))
        self.history.poison[partition, broker.end_offsets(MESSAGES)[partition]] = None
        self.deployment.note("world", f"poison in {partition.topic}/{partition.number}")
        broker.append(partition, [(b"chat_1", b"{not json", ())], EPOCH_MS)

    def _send(self, device: Device, chat_id: str, content: str) -> None:
        self.sends += 1
        waiting = [entry.client_message_id for entry in device.store.outbox()]
        used = [key for chat, key in self.history.sends if chat == chat_id and key not in waiting]
        if used and self.random.random() < REUSED_IDS:
            client_message_id = used[-1]  # the first sender keeps it, and the first text stays
        else:
            text = f"{self.random.getrandbits(128):032x}"
            client_message_id = f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}"
        device.process.run(device.send, chat_id, client_message_id, content)

    def chat_created(self, chat_id: str) -> None:
        """The creator's devices know the chat; those of the other members do not."""
        self.created[chat_id] = None
        self.chats.append(chat_id)
        devices = [device for device in self.devices if device.user_id == self.users[0]]
        self._send(self._one_of(devices), chat_id, "first words")

    def _expect_first_messages(self) -> None:
        """A device that stays connected must have seen them after FIRST_MESSAGES_S, also if pushes were lost."""
        published = {chat_id: list(self.history.published.get(chat_id, ())) for chat_id in self.created}
        sockets = [(device, device.socket) for device in self.devices if device.socket is not None]
        self.at(self.loop.time() + FIRST_MESSAGES_S, check_first_messages, self.history, published, sockets)

    def _heal(self) -> None:
        """No new faults; what broke is repaired. From here on every message must arrive."""
        self.deployment.note("world", "heals")
        self._expect_first_messages()
        self.faults.stop()
        self.incidents.end()
        if self.locality is not None:
            self.locality.end()
        for server in self.servers:
            if server.process is not None and server.process.paused:
                server.process.resume()
            server.start()
        for device in self.devices:
            if device.process.paused:
                device.process.resume()
            if not device.process.alive:
                device.restart()
            device.process.run(device.resume)

    def _run_until_quiet(self) -> None:
        patient = self.incidents.churned or self.history.lost
        end = self.loop.time() + (LONG_QUIET_MAX_S if patient else QUIET_MAX_S)
        while self.loop.time() < end:
            self.loop.run_until(min(self.loop.time() + QUIET_CHECK_EVERY_S, end))
            for device in self.devices:
                device.process.run(device.resume)
            if self._is_quiet():
                return

    def _final_sends(self) -> None:
        """In a healthy world a message is pushed to every device of every member, before the next sync."""
        self.loop.run_until(max(self.loop.time(), FAULTS_S + SETTLED_S))
        before = self._change_network()
        if all(not device.unsettled for device in self.devices):
            for chat_id in self.chats:
                members = [device for device in self.devices if self._member(device, chat_id)]
                self._send(self._one_of(members), chat_id, "last words")
        self.loop.run_until(self.loop.time() + PROMPT_DELIVERY_S)
        for chat_id in self.chats:
            newest = self.history.newest.get(chat_id, 0)
            for device in self.devices:
                if self._member(device, chat_id) and device.store.cursor(chat_id) < newest:
                    self.history.violate(
                        "prompt_delivery",
                        f"{device.name} had not got {chat_id} #{newest} after {PROMPT_DELIVERY_S:g} calm seconds",
                    )
        self._run_until_quiet()
        old = unfinished_tasks(self.deployment.ingest_nodes, self.gateways)
        self.loop.run_until(self.loop.time() + IDLE_S)
        check_leftovers(
            self.history, self.deployment.ingest_nodes, self.gateways, self.stores.registry, before=before, old=old
        )

    def _change_network(self) -> dict[str, None]:
        """A device changes its network and reconnects at once, while a gateway still holds its old connection.

        Returns the connections before that. Unless clocks disagree, the old one is closed when the new one is accepted.
        """
        before = open_connections(self.gateways)
        device = self._one_of(self.devices)
        if device.socket is not None:
            self.deployment.note("world", f"{device.name} changes its network")
            device.socket.cut(gateway_after_s=CUT_UNNOTICED_S, device_after_s=0.0)
            self.loop.run_until(self.loop.time() + RECONNECTED_S)
        return before

    def _member(self, device: Device, chat_id: str) -> bool:
        return device.user_id in self.stores.store.members(chat_id)

    def _is_quiet(self) -> bool:
        """Everything is sent, published, delivered and acknowledged: waiting longer would show nothing new."""
        if not self.incidents.over or any(device.unsettled for device in self.devices):
            return False
        if any(counter.dirty_at_ms is not None for counter in self.stores.store.counters.values()):
            return False
        if any(self.stores.broker.lag(GROUP).values()):
            return False
        if any(
            self.history.watermarks.get((device.user_id, chat_id), 0) < self.history.newest.get(chat_id, 0)
            for device in self.devices
            for chat_id in self.chats
            if self._member(device, chat_id)
        ):
            return False
        return all(
            device.store.cursor(chat_id) >= self.history.newest.get(chat_id, 0)
            for device in self.devices
            for chat_id in self.chats
            if self._member(device, chat_id)
        )

    def _check_final_state(self) -> None:
        for failure in self.loop.failures:
            self.history.violate("unhandled_exception", f"{failure.process}: {failure.text}")
        check_final_state(self._final_state())

    def _final_state(self) -> FinalState:
        lag = self.stores.broker.lag(GROUP)
        return FinalState(
            history=self.history,
            store=self.stores.store,
            devices=[device.report() for device in self.devices],
            dead_letters=self.stores.broker.records(DEAD_LETTERS),
            lag={f"{partition.topic}/{partition.number}": count for partition, count in lag.items()},
            buffers_max=high_water(),
            buffer_limit=buffer_limit(),
        )

    def _result(self) -> ScheduleResult:
        return ScheduleResult(
            seed=self.seed,
            virtual_seconds=self.loop.time(),
            sends=self.sends,
            acks=self.history.acks,
            faults=self.faults.counts,
            violations=tuple(self.history.violations),
            events_run=self.loop.events_run,
            digest=self.trace.digest() if self.trace.on else self.loop.fingerprint(),
        )

    # --- helpers ----------------------------------------------------------------------------------------------------

    def _devices(self) -> list[Device]:
        return [self._device(user, number) for user in self.users for number in range(1 + (self.random.random() < 0.4))]

    def _device(self, user: str, number: int) -> Device:
        return Device(
            self.loop,
            f"{user[-1]}{number + 1}",
            user,
            device_id=f"{user}-{number}",
            random=self.random,
            history=self.history,
            trace=self.trace,
            dial=self.network.dial,
            list_chats=self.network.list_chats,
            faults=self.device_faults,
            power_lost=self._device_lost_power,
        )

    def _device_lost_power(self, device: Device) -> None:
        """A device cannot crash in the middle of its own step, so the world powers it off."""
        self.at(self.loop.time(), self._power_off, device)

    def _power_off(self, device: Device) -> None:
        if device.process.alive:
            device.crash()
            self.at(self.loop.time() + self.device_faults.power_off_s(), self.incidents.revive, device)

    def _crash_and_restart(self, server: Server) -> None:
        server.crash()
        self.at(self.loop.time() + 0.05 + 3 * self.random.random(), server.start)

    def at(self, when: float, callback: Callable[..., object], *args: object) -> None:
        """The world does something at that time."""
        self.loop.call_at(when, callback, *args, context=self.loop.world.context)

    def _upto(self, count: int) -> int:
        return int(self.random.random() * count)

    def _one_of(self, things: Sequence[T]) -> T:
        return things[int(self.random.random() * len(things))]

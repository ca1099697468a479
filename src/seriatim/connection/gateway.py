"""All connections of one process: opens, registers, drains and closes them, and hands them their pushes."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Mapping, Sequence

from seriatim.connection.gap_timer import GapTimer
from seriatim.connection.gateway_context import GatewayContext, OpenBreakers
from seriatim.connection.head_probe import HeadProbe
from seriatim.connection.new_chat_probe import NewChatProbe
from seriatim.connection.observer import GatewayObserver
from seriatim.connection.registrations import Registrations, is_older
from seriatim.connection.session.chat_cursor import PushedMessage
from seriatim.connection.session.connection import Connection
from seriatim.connection.socket import ClientIdentity, Socket
from seriatim.connection.task_group import FlushScheduler, TaskGroup, report
from seriatim.domain import ids, limits
from seriatim.domain.errors import Draining, SeriatimError, ServerBusy, ServiceUnavailable
from seriatim.domain.times import iso
from seriatim.ports.clock import Clock
from seriatim.ports.directory import Directory, Registration
from seriatim.ports.durability import Durability
from seriatim.ports.push import MessageDelivery, Push, PushEnvelope, PushSubscriber
from seriatim.protocol.codec import encode
from seriatim.protocol.frames import CloseReason, message_frame

_CLOSE_REASONS = {reason.value: reason for reason in CloseReason}


class Gateway:
    """`gateway_id` is new at every start of a process. Call `start`, then `open` per socket, then `drain` and `stop`.

    `flush_delay_turns`: for how many turns of the loop a frame waits for others of its socket, to leave in one write.
    Not while only a few sockets have frames: then the wait would save nothing.
    """

    def __init__(
        self,
        gateway_id: str,
        durability: Durability,
        directory: Directory,
        push: Push,
        subscriber: PushSubscriber,
        clock: Clock,
        *,
        observe: GatewayObserver | None = None,
        flush_delay_turns: int = 0,
    ) -> None:
        observe = observe or GatewayObserver()
        self.gateway_id = gateway_id
        self.connections: dict[str, Connection] = {}
        self.draining = False
        self._clock = clock
        self._subscriber = subscriber
        self._observe = observe
        self._registrations = Registrations(directory, push, observe)
        self._tasks = TaskGroup()
        self._loops = TaskGroup()
        self._head_probe = HeadProbe(durability, observe)
        self._new_chat_probe = NewChatProbe(durability, clock, observe)
        self._context = GatewayContext(
            gateway_id=gateway_id,
            durability=durability,
            clock=clock,
            breakers=OpenBreakers(clock),
            fill_slots=asyncio.Semaphore(limits.FILLS_IN_PROGRESS_MAX),
            gap_timer=GapTimer(),
            head_probe=self._head_probe,
            new_chat_probe=self._new_chat_probe,
            tasks=self._tasks,
            flush_scheduler=FlushScheduler(flush_delay_turns, few=limits.FLUSH_FEW_SOCKETS),
            observe=observe,
        )
        self._arrivals = 0
        self._subscribed = False
        self._resumed = asyncio.Event()
        self._empty = asyncio.Event()

    # --- lifecycle ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Subscribes, so that the first connection misses no push; starts the loops that renew and probe."""
        await self._subscriber.subscribe(self.gateway_id, self, timeout_s=limits.REGISTRATION_TIMEOUT_S)
        self._set_subscribed(True)
        self._loops.start(self._renew_registrations())
        self._loops.start(self._probe_heads())
        self._loops.start(self._probe_new_chats())

    async def run(self) -> None:
        """Starts, serves until cancelled, stops."""
        await self.start()
        try:
            await asyncio.Event().wait()
        finally:
            await self.stop()

    async def drain(self) -> None:
        """Refuses new connections, answers accepted requests, closes every connection; takes DRAIN_S at most."""
        self.draining = True
        if self.connections:
            self._empty.clear()
            await self._drain_connections()
        await self._tasks.join()

    async def _drain_connections(self) -> None:
        """Announces the shutdown to all, then waits until the last one has closed."""
        try:
            async with asyncio.timeout(limits.DRAIN_S):
                for count, connection in enumerate(list(self.connections.values()), start=1):
                    connection.drain(int(limits.DRAIN_RECONNECT_SPREAD_MS * self._clock.random()))
                    if count % limits.DRAIN_ANNOUNCEMENTS_MAX == 0:
                        await asyncio.sleep(0)
                await self._empty.wait()
        except TimeoutError:
            for connection in list(self.connections.values()):
                connection.close(CloseReason.SERVER_SHUTDOWN)

    async def stop(self) -> None:
        """Closes the connections that are left and ends all tasks."""
        self.draining = True
        self._loops.cancel()
        for connection in list(self.connections.values()):
            connection.close(CloseReason.SERVER_SHUTDOWN)
        self._context.gap_timer.close()
        await self._loops.join()
        await self._tasks.join()
        await self._subscriber.unsubscribe(self.gateway_id)

    @property
    def ready(self) -> bool:
        return self._subscribed and not self.draining and len(self.connections) < limits.CONNECTIONS_PER_GATEWAY_MAX

    @property
    def breaker_open(self) -> bool:
        """Sends were refused by an open breaker of the durability plane, and their `retry_after` is not over."""
        return self._context.breakers.any_open

    # --- connections --------------------------------------------------------------------------------------------------

    async def open(self, socket: Socket, identity: ClientIdentity) -> Connection:
        """`accept`, then `establish`: for sockets that send nothing before the greeting."""
        connection = self.accept(socket, identity)
        await self.establish(connection)
        return connection

    def accept(self, socket: Socket, identity: ClientIdentity) -> Connection:
        """A connection that takes frames and pushes already, and holds them until it is established.

        Raises the error to refuse the handshake with.
        """
        if self.draining:
            raise Draining("this server is shutting down; try another")
        if not self._subscribed:
            raise ServiceUnavailable("new connections cannot be reached for the moment", retry_after_seconds=1)
        if len(self.connections) >= limits.CONNECTIONS_PER_GATEWAY_MAX:
            raise ServerBusy("this server is full; try another", retry_after_seconds=1)
        ulid = ids.new_ulid(self._clock.now_ms(), self._clock.random_bits)
        self._arrivals += 1
        connection = Connection(
            ids.CONNECTION + ulid, identity, socket, self._context, arrival=self._arrivals, ended=self._ended
        )
        self.connections[connection.connection_id] = connection
        self._observe.connection_opened()
        return connection

    async def establish(self, connection: Connection) -> None:
        """Registers, then greets: a client that syncs after the greeting misses nothing. Then its older ones close."""
        registration = self._registration(connection)
        try:
            await self._registrations.add(registration)
        except SeriatimError as error:
            self._observe.directory_failed("register", error)
            connection.close(CloseReason.UPSTREAM_FAILURE)
            return
        if connection.closed:  # meanwhile: its removal may have come before the registration
            await self._registrations.remove(registration)
            return
        connection.greet()
        await self._evict(registration)

    async def _evict(self, registration: Registration) -> None:
        """Closes the older connections of the same device. Of two that arrive together, exactly one must stay.

        Within this gateway the order of arrival decides, whatever the wall clock says. A connection of another gateway
        that seems newer stays: its clock may be ahead, and two connections do less harm than none.
        """
        elsewhere = []
        for other in await self._registrations.same_device(registration):
            if other.connection_id in self.connections:
                self._close(self._earlier(other, registration).connection_id, CloseReason.DUPLICATE_CONNECTION)
            elif other.gateway_id != self.gateway_id and is_older(other, registration):
                elsewhere.append(other)
        if elsewhere:
            await self._registrations.close_elsewhere(elsewhere)

    def _earlier(self, one: Registration, other: Registration) -> Registration:
        return one if self._arrival(one) < self._arrival(other) else other

    def _arrival(self, registration: Registration) -> int:
        connection = self.connections.get(registration.connection_id)
        return 0 if connection is None else connection.arrival

    def _close(self, connection_id: str, reason: CloseReason) -> None:
        if (connection := self.connections.get(connection_id)) is not None:
            connection.close(reason)

    def _ended(self, connection: Connection, reason: CloseReason | None) -> None:
        del self.connections[connection.connection_id]
        self._observe.connection_closed(reason)
        self._tasks.start(self._registrations.remove(self._registration(connection)))
        if not self.connections:
            self._empty.set()

    def _registration(self, connection: Connection) -> Registration:
        return Registration(
            connection_id=connection.connection_id,
            user_id=connection.identity.user_id,
            device_id=connection.identity.device_id,
            session_id=connection.identity.session_id,
            gateway_id=self.gateway_id,
            connected_at=iso(connection.connected_at_ms),
        )

    # --- pushes -------------------------------------------------------------------------------------------------------

    def received(self, envelopes: Sequence[PushEnvelope]) -> None:
        """Groups the envelopes by connection: one `deliver` each. A message is encoded once for all connections."""
        runs: defaultdict[str, list[PushedMessage]] = defaultdict(list)
        for envelope in envelopes:
            if isinstance(envelope, MessageDelivery):
                message, prev_sequence = envelope.message, envelope.prev_sequence
                frame = encode(message_frame(message, prev_sequence))
                pushed = (message.chat_id, message.sequence, prev_sequence, frame)
                for connection_id in envelope.connection_ids:
                    runs[connection_id].append(pushed)
            else:
                self._deliver(runs)
                runs = defaultdict(list)
                if (reason := _CLOSE_REASONS.get(envelope.reason)) is not None:
                    self._close(envelope.connection_id, reason)
        self._deliver(runs)

    def _deliver(self, runs: Mapping[str, Sequence[PushedMessage]]) -> None:
        for connection_id, run in runs.items():
            connection = self.connections.get(connection_id)
            if connection is None:
                self._observe.unknown_connection(len(run))
                continue
            try:
                connection.deliver(run)
            except Exception as failure:  # of one connection: the others still get theirs
                report(failure)

    def interrupted(self) -> None:
        self._set_subscribed(False)

    def resumed(self) -> None:
        """Pushes may have been lost: probe at once."""
        self._set_subscribed(True)
        self._resumed.set()

    def _set_subscribed(self, subscribed: bool) -> None:
        self._subscribed = subscribed
        self._observe.subscription(subscribed)

    # --- loops --------------------------------------------------------------------------------------------------------

    async def _renew_registrations(self) -> None:
        while True:
            # Up to a fifth early: gateways started together drift apart, and each is renewed twice before it expires.
            await asyncio.sleep(limits.PING_INTERVAL_S * (1 - 0.2 * self._clock.random()))
            await _report_failure(self._registrations.renew())

    async def _probe_heads(self) -> None:
        while True:
            spread = limits.PROBE_INTERVAL_MAX_S - limits.PROBE_INTERVAL_S
            await self._resumed_within(limits.PROBE_INTERVAL_S + spread * self._clock.random())
            if self._resumed.is_set():
                self._resumed.clear()
                await _report_failure(self._registrations.renew())
            await _report_failure(self._head_probe.probe())

    async def _probe_new_chats(self) -> None:
        while True:
            await asyncio.sleep(limits.NEW_CHATS_TICK_S)
            await _report_failure(self._new_chat_probe.probe())

    async def _resumed_within(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._resumed.wait()
        except TimeoutError:
            pass


async def _report_failure(step: Awaitable[None]) -> None:
    """A failure of one round must not end the loop."""
    try:
        await step
    except Exception as failure:
        report(failure)

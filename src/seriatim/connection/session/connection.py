"""One client's connection: its session decides, this performs. The socket is handed in; its owner reports events.

Frames bound for the socket in one turn of the loop leave in one write. One timer serves all that depends on time.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from msgspec import UNSET, UnsetType

from seriatim.connection.gateway_context import GatewayContext
from seriatim.connection.session.acks import Acks
from seriatim.connection.session.chat_cursor import PushedMessage
from seriatim.connection.session.chat_delivery import ChatDelivery
from seriatim.connection.session.inbound import InboundQueue
from seriatim.connection.session.outbound import OutboundBuffer, Pressure
from seriatim.connection.session.sends import Sends
from seriatim.connection.session.syncs import Syncs
from seriatim.connection.socket import ClientIdentity, Socket
from seriatim.connection.task_group import TaskGroup
from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError
from seriatim.domain.times import iso
from seriatim.protocol.codec import Echo, encode, error_frame
from seriatim.protocol.frames import (
    CloseReason,
    ConnectionClosing,
    ConnectionEstablished,
    ErrorFrame,
    HeartbeatAck,
    ServerFrame,
    SyncRequest,
)
from seriatim.protocol.server_session import (
    Action,
    AnswerHeartbeat,
    Close,
    Ping,
    RecordAck,
    Reply,
    ServerSession,
    SessionPhase,
    Submit,
    Sync,
    busy,
    echo,
)


class Connection:
    """`ended` is called once, when nothing more will leave: with the reason if the server closed, else None.

    `arrival` numbers the connections of a gateway in the order in which they came.
    """

    def __init__(
        self,
        connection_id: str,
        identity: ClientIdentity,
        socket: Socket,
        services: GatewayContext,
        *,
        arrival: int,
        ended: "Callable[[Connection, CloseReason | None], None]",
    ) -> None:
        now, clock = services.clock.monotonic(), services.clock
        self.connection_id = connection_id
        self.identity = identity
        self.connected_at_ms = clock.now_ms()
        self.arrival = arrival
        self.closed = False
        self._socket = socket
        self._services = services
        self._ended = ended
        self._greeted = False
        self._session = ServerSession(
            identity.user_id,
            connection_id,
            now=now,
            expires_at=now + (identity.token_expires_at_ms - self.connected_at_ms) / 1000,
            rotates_at=now + limits.CONNECTION_AGE_MAX_S + limits.CONNECTION_AGE_JITTER_S * clock.random(),
        )
        self._inbound = InboundQueue()
        self._outbound = OutboundBuffer()
        self._tasks = TaskGroup(services.tasks)
        user_id = identity.user_id
        self._chats = ChatDelivery(
            user_id,
            self._outbound,
            services,
            tasks=self._tasks,
            watcher=self,
            changed=self._wake,
            overwhelmed=partial(self.close, CloseReason.LOAD_SHEDDING),
        )
        self._sends = Sends(
            self._chats,
            services,
            inbound=self._inbound,
            answered=self._answer_request,
            refused=self._refuse_request,
            rejected=self._reject,
            flooded=partial(self.close, CloseReason.RATE_LIMITED),
        )
        self._syncs = Syncs(
            user_id, self._chats, services, tasks=self._tasks, answered=self._batch, refused=self._refuse_request
        )
        self._acks = Acks(
            user_id,
            self._chats,
            services,
            tasks=self._tasks,
            admit=self._admit,
            done=self._acknowledged,
            refused=self._reject,
        )
        self._flushes = False
        self._timer_handle: asyncio.TimerHandle | None = None
        self._arm()

    # --- the socket reports -------------------------------------------------------------------------------------------

    def received(self, text: str | bytes) -> None:
        now = self._services.clock.monotonic()
        self._perform(self._session.received(text, now), now)

    def ponged(self) -> None:
        self._session.heard()

    def writable(self) -> None:
        """There is room again."""
        self._wake()

    def lost(self) -> None:
        """The socket is gone. What was not sent is owed no longer: the client syncs when it comes back."""
        self._end(None)

    # --- the gateway asks ---------------------------------------------------------------------------------------------

    def greet(self) -> None:
        """The connection is registered: the greeting leaves first, then what waited for it."""
        if self.closed or self._greeted:
            return
        self._greeted = True
        clock = self._services.clock
        greeting = ConnectionEstablished(
            connection_id=self.connection_id,
            user_id=self.identity.user_id,
            device_id=self.identity.device_id,
            server_time=iso(clock.now_ms()),
            gateway_id=self._services.gateway_id,
        )
        self._outbound.greet(encode(greeting))
        self._perform(self._session.greeted(now := clock.monotonic()), now)
        self._wake()

    def deliver(self, run: Sequence[PushedMessage]) -> None:
        """Pushes, in the order in which they came, encoded once for all who get them."""
        if self._session.phase in _TAKES_PUSHES:
            self._chats.deliver(run)

    def head(self, chat_id: str, sequence: int) -> None:
        """The chat is published up to here: what is missing is read back."""
        if self._session.phase is SessionPhase.OPEN:
            self._chats.head(chat_id, sequence)

    def drain(self, reconnect_delay_ms: int) -> None:
        """Announces the shutdown. Requests that were accepted are answered, then the connection closes."""
        if not self._greeted:
            self.close(CloseReason.SERVER_SHUTDOWN)
        elif self._session.phase is SessionPhase.OPEN:
            self._session.drain()
            self._write()
            closing = self._closing(CloseReason.SERVER_SHUTDOWN, reconnect_delay_ms)
            self._outbound.refuse_pushes()
            self._answer(closing)

    def close(self, reason: CloseReason) -> None:
        """The last frame says why. To a client that does not read, only answers and warnings still go before it."""
        if self.closed:
            return
        if self._session.phase is SessionPhase.DRAINING:
            self._finish(CloseReason.SERVER_SHUTDOWN)
            return
        if not self._greeted:
            self._outbound.last_words()  # a client that was never greeted gets only the reason
        self._write()
        if reason in (CloseReason.TOKEN_EXPIRED, CloseReason.SESSION_REVOKED):
            self._services.observe.rejected(_UNAUTHORIZED.code)
            self._outbound.answer_last(encode(_UNAUTHORIZED))
        self._outbound.answer_last(encode(self._closing(reason, self._reconnect_delay_ms(reason))))
        self._finish(reason)

    @property
    def waiting(self) -> int:
        """Pushes that the client has not taken yet."""
        return self._outbound.waiting

    # --- performing ---------------------------------------------------------------------------------------------------

    def _perform(self, actions: Iterable[Action], now: float) -> None:
        for action in actions:
            if self.closed:
                return
            match action:
                case Submit():
                    self._sends.submit(action, now)
                case Sync():
                    self._sync(action.request)
                case RecordAck():
                    self._acks.acknowledge(action.ack)
                case Reply():
                    self._services.observe.rejected(action.frame.code)
                    self._answer(action.frame)
                case AnswerHeartbeat():
                    now_ms = self._services.clock.now_ms()
                    self._answer(HeartbeatAck(server_time=iso(now_ms), request_id=action.request_id))
                case Ping():
                    self._socket.ping()
                case Close():
                    self.close(action.reason)
                case _:  # Ignored: mypy reports an action that no case above performs
                    self._services.observe.unknown_frame(action.type)

    def _sync(self, request: SyncRequest) -> None:
        if self._admit(echo(request)):
            self._syncs.request(request)

    def _admit(self, to: Echo) -> bool:
        """Takes a place in the inbound queue, or says that it is full."""
        if self._inbound.admit(self._services.clock.monotonic()):
            return True
        self._reject(busy(), to)
        return False

    def _acknowledged(self) -> None:
        self._inbound.release()
        self._wake()

    # --- answering ----------------------------------------------------------------------------------------------------

    def _reject(self, error: SeriatimError, to: Echo) -> None:
        """Answers a request that was never accepted."""
        self._services.observe.rejected(error.code)
        self._answer(error_frame(error, to))

    def _refuse_request(self, error: SeriatimError, to: Echo) -> None:
        """Answers a request that was accepted, with an error."""
        self._services.observe.rejected(error.code)
        self._answer_request(error_frame(error, to))

    def _answer(self, frame: ServerFrame) -> None:
        self._answer_request(frame, request=False)

    def _answer_request(self, frame: ServerFrame, *, request: bool = True) -> None:
        """Answers a request that was accepted: its place in the queue is free once this has left."""
        if self.closed:
            return
        if not self._outbound.answer(encode(frame), request=request):
            self.close(CloseReason.LOAD_SHEDDING)  # it asks and does not read
        elif not self._flushes:
            self._wake()

    def _batch(self, frame: bytes) -> None:
        self._outbound.batch(frame)
        self._wake()

    def _wake(self) -> None:
        """One flush per turn of the loop, after everything that happens in it."""
        if not self._flushes and not self.closed:
            self._flushes = True
            self._services.turn_end.call(self._flush)

    def _flush(self) -> None:
        self._flushes = False
        self._write()
        if self.closed:
            return
        outbound = self._outbound
        if outbound.uneasy and self._greeted:
            pressure = outbound.assess(self._services.clock.monotonic())
            if pressure is not None:
                self._pressed(pressure)
        if self._session.phase is _DRAINING and outbound.idle and not self._inbound.in_progress:
            self._finish(CloseReason.SERVER_SHUTDOWN)
        else:
            self._arm()

    def _write(self) -> None:
        outbound, socket = self._outbound, self._socket
        while self._greeted and not self.closed and socket.writable:
            chunk = outbound.take(limits.FLUSH_BYTES_MAX)
            if chunk is None:
                return
            socket.write(chunk.frames)
            if answered := chunk.answers + chunk.batches:
                self._inbound.release(answered)
            if chunk.batches:
                self._syncs.written(chunk.batches)
            elif chunk.last:
                return

    def _pressed(self, pressure: Pressure) -> None:
        match pressure:
            case Pressure.WARNED:
                self._services.observe.buffer_high(self._outbound.waiting)
            case Pressure.CRITICAL:
                self._services.observe.slow_consumer()
                self._warn(_slow_consumer(self._outbound.waiting))
            case Pressure.RECOVERED:
                self._chats.drained()

    def _warn(self, frame: ErrorFrame) -> None:
        """Handed to the socket even if it is full: once per episode, and the grace period counts from here."""
        self._services.observe.rejected(frame.code)
        self._socket.write((encode(frame),))

    # --- time ---------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        if self._timer_handle is not None and self._inbound.full_since is None and self._outbound.close_at is None:
            return  # the session's own times only move away, except in `_timer`, which has no handle then
        shed_at, close_at = self._inbound.shed_at(), self._outbound.close_at
        at = self._session.next_timer()
        for other in (shed_at, close_at):
            if other is not None and other < at:
                at = other
        if self._timer_handle is not None:
            if self._timer_handle.when() <= at:
                return  # it fires early enough, and looks again
            self._timer_handle.cancel()
        self._timer_handle = asyncio.get_running_loop().call_at(at, self._timer)

    def _timer(self) -> None:
        self._timer_handle = None
        now = self._services.clock.monotonic()
        shed_at, close_at = self._inbound.shed_at(), self._outbound.close_at
        if close_at is not None and now >= close_at:
            self.close(CloseReason.SLOW_CONSUMER)
        elif shed_at is not None and now >= shed_at:
            self.close(CloseReason.LOAD_SHEDDING)
        else:
            self._perform(self._session.timer(now), now)
        if not self.closed:
            self._arm()

    # --- closing ------------------------------------------------------------------------------------------------------

    def _closing(self, reason: CloseReason, reconnect_delay_ms: int | UnsetType) -> ConnectionClosing:
        return ConnectionClosing(
            reason=reason.value,
            reconnect_allowed=reason.reconnect_allowed,
            reconnect_delay_ms=reconnect_delay_ms,
            sync_from_sequence=self._chats.hints() or UNSET,
        )

    def _reconnect_delay_ms(self, reason: CloseReason) -> int | UnsetType:
        """Whatever may hit many clients at once must not bring them all back at once."""
        if reason in (CloseReason.SERVER_SHUTDOWN, CloseReason.UPSTREAM_FAILURE, CloseReason.LOAD_SHEDDING):
            return int(limits.DRAIN_RECONNECT_SPREAD_MS * self._services.clock.random())
        return UNSET

    def _finish(self, reason: CloseReason) -> None:
        if frames := self._outbound.last_words():
            self._socket.write(frames)
        self._socket.close(reason.code, reason.value)
        self._end(reason)

    def _end(self, reason: CloseReason | None) -> None:
        if self.closed:
            return
        self.closed = True
        self._session.close()
        if self._timer_handle is not None:
            self._timer_handle.cancel()
        self._tasks.cancel()
        self._chats.forget_all()
        self._ended(self, reason)


# A member of an enum costs ten times as much by way of its class, and every push and every write asks.
_DRAINING, _TAKES_PUSHES = SessionPhase.DRAINING, (SessionPhase.GREETING, SessionPhase.OPEN)

_UNAUTHORIZED = ErrorFrame(
    code="UNAUTHORIZED",
    message="your token is not valid any more; connect with a new one, or sign in again",
    retryable=False,
)


def _slow_consumer(waiting: int) -> ErrorFrame:
    return ErrorFrame(
        code="SLOW_CONSUMER",
        message="you read more slowly than you are sent to; catch up or be disconnected",
        retryable=False,
        grace_period=limits.SLOW_CONSUMER_GRACE_S,
        details={"buffer_size": waiting, "buffer_limit": limits.OUTBOUND_FRAMES_MAX},
    )

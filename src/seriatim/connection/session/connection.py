"""One client's connection: the `ServerSession` decides, the connection performs its actions.

All frames of one turn of the loop leave in one write. One timer serves all deadlines.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from msgspec import UNSET, UnsetType

from seriatim.connection.gateway_context import GatewayContext
from seriatim.connection.session.acks import Acks
from seriatim.connection.session.chat_cursor import PushedMessage
from seriatim.connection.session.chat_delivery import ChatDelivery
from seriatim.connection.session.inbound import InboundQueue
from seriatim.connection.session.outbound import OutboundBuffer, Pressure
from seriatim.connection.session.responder import Responder
from seriatim.connection.session.sends import Sends
from seriatim.connection.session.syncs import Syncs
from seriatim.connection.socket import ClientIdentity, Socket
from seriatim.connection.task_group import TaskGroup
from seriatim.domain import limits
from seriatim.domain.times import iso
from seriatim.protocol.codec import encode
from seriatim.protocol.frames import (
    CloseReason,
    ConnectionClosing,
    ConnectionEstablished,
    ErrorFrame,
    HeartbeatAck,
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
)


class Connection:
    """`ended` is called once, when no more frame will be written: with the reason if the server closed, else None.

    `arrival` numbers the connections of a gateway in the order of `Gateway.accept`.
    """

    def __init__(
        self,
        connection_id: str,
        identity: ClientIdentity,
        socket: Socket,
        context: GatewayContext,
        *,
        arrival: int,
        ended: "Callable[[Connection, CloseReason | None], None]",
    ) -> None:
        now, clock = context.clock.monotonic(), context.clock
        self.connection_id = connection_id
        self.identity = identity
        self.connected_at_ms = clock.now_ms()
        self.arrival = arrival
        self.closed = False
        self._socket = socket
        self._context = context
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
        self._tasks = TaskGroup(context.tasks)
        self._responder = Responder(self._inbound, self._outbound, context, flush=self._flush, close=self.close)
        user_id, responder, tasks = identity.user_id, self._responder, self._tasks
        self._delivery = ChatDelivery(user_id, self._outbound, responder, context, tasks=tasks, watcher=self)
        self._sends = Sends(self._delivery, responder, context)
        self._syncs = Syncs(user_id, self._delivery, responder, context, tasks=tasks)
        self._acks = Acks(user_id, self._delivery, responder, context, tasks=tasks)
        self._timer_handle: asyncio.TimerHandle | None = None
        self._set_timer()

    # --- the socket calls ---------------------------------------------------------------------------------------------

    def received(self, text: str | bytes) -> None:
        now = self._context.clock.monotonic()
        self._perform(self._session.received(text, now), now)

    def pong_received(self) -> None:
        self._session.pong_received()

    def writable(self) -> None:
        """The socket's write buffer has room again."""
        self._responder.schedule_flush()

    def lost(self) -> None:
        """The socket has closed. Unsent messages are dropped: the client syncs when it reconnects."""
        self._end(None)

    # --- the gateway calls --------------------------------------------------------------------------------------------

    def greet(self) -> None:
        """The connection is registered: the greeting leaves first, then the frames that waited for it."""
        if self.closed or self._greeted:
            return
        self._greeted = True
        clock = self._context.clock
        greeting = ConnectionEstablished(
            connection_id=self.connection_id,
            user_id=self.identity.user_id,
            device_id=self.identity.device_id,
            server_time=iso(clock.now_ms()),
            gateway_id=self._context.gateway_id,
        )
        self._outbound.greet(encode(greeting))
        self._perform(self._session.greeted(now := clock.monotonic()), now)
        self._responder.schedule_flush()

    def deliver(self, run: Sequence[PushedMessage]) -> None:
        """Pushes in the order in which they came, each encoded once for all its connections."""
        if self._session.phase in _TAKES_PUSHES:
            self._delivery.deliver(run)

    def head(self, chat_id: str, sequence: int) -> None:
        """The chat is published up to here: missing messages are read back."""
        if self._session.phase is SessionPhase.OPEN:
            self._delivery.head(chat_id, sequence)

    def drain(self, reconnect_delay_ms: int) -> None:
        """Announces the shutdown. Requests that were accepted are answered, then the connection closes."""
        if not self._greeted:
            self.close(CloseReason.SERVER_SHUTDOWN)
        elif self._session.phase is SessionPhase.OPEN:
            self._session.drain()
            self._write()
            closing = self._closing(CloseReason.SERVER_SHUTDOWN, reconnect_delay_ms)
            self._outbound.refuse_pushes()
            self._responder.answer(closing, request=False)

    def close(self, reason: CloseReason) -> None:
        """The last frame says why. A client that does not read gets only answers and warnings before it."""
        if self.closed:
            return
        if self._session.phase is SessionPhase.DRAINING:
            self._finish(CloseReason.SERVER_SHUTDOWN)
            return
        if not self._greeted:
            self._outbound.take_answers()  # a client that was not greeted gets only the reason
        self._write()
        if reason in (CloseReason.TOKEN_EXPIRED, CloseReason.SESSION_REVOKED):
            self._context.observe.rejected(_UNAUTHORIZED.code)
            self._outbound.add_closing(encode(_UNAUTHORIZED))
        self._outbound.add_closing(encode(self._closing(reason, self._reconnect_delay_ms(reason))))
        self._finish(reason)

    @property
    def waiting(self) -> int:
        """Pushes that wait for the client to read."""
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
                    self._syncs.request(action.request)
                case RecordAck():
                    self._acks.acknowledge(action.ack)
                case Reply():
                    self._context.observe.rejected(action.frame.code)
                    self._responder.answer(action.frame, request=False)
                case AnswerHeartbeat():
                    now_ms = self._context.clock.now_ms()
                    self._responder.answer(
                        HeartbeatAck(server_time=iso(now_ms), request_id=action.request_id), request=False
                    )
                case Ping():
                    self._socket.ping()
                case Close():
                    self.close(action.reason)
                case _:  # Ignored: mypy reports an action that no case above performs
                    self._context.observe.unknown_frame(action.type)

    # --- writing ------------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._responder.flush_scheduled = False
        self._write()
        if self.closed:
            return
        outbound = self._outbound
        if outbound.needs_assessment and self._greeted:
            pressure = outbound.assess(self._context.clock.monotonic())
            if pressure is not None:
                self._handle_pressure(pressure)
        if self._session.phase is _DRAINING and outbound.idle and not self._inbound.in_progress:
            self._finish(CloseReason.SERVER_SHUTDOWN)
        else:
            self._set_timer()

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

    def _handle_pressure(self, pressure: Pressure) -> None:
        match pressure:
            case Pressure.WARNED:
                self._context.observe.buffer_high(self._outbound.waiting)
            case Pressure.CRITICAL:
                self._context.observe.slow_consumer()
                self._warn(_slow_consumer(self._outbound.waiting))
            case Pressure.RECOVERED:
                self._delivery.drained()

    def _warn(self, frame: ErrorFrame) -> None:
        """Written even to a full socket: the grace period counts from here. Once per period."""
        self._context.observe.rejected(frame.code)
        self._socket.write((encode(frame),))

    # --- time ---------------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        if self._timer_handle is not None and self._inbound.full_since is None and self._outbound.close_at is None:
            return  # the session's own times only get later, except in `_timer`, which has no handle then
        shed_at, close_at = self._inbound.shed_at(), self._outbound.close_at
        at = self._session.next_timer()
        for other in (shed_at, close_at):
            if other is not None and other < at:
                at = other
        if self._timer_handle is not None:
            if self._timer_handle.when() <= at:
                return  # it fires early enough, and is set again then
            self._timer_handle.cancel()
        self._timer_handle = asyncio.get_running_loop().call_at(at, self._timer)

    def _timer(self) -> None:
        self._timer_handle = None
        now = self._context.clock.monotonic()
        shed_at, close_at = self._inbound.shed_at(), self._outbound.close_at
        if close_at is not None and now >= close_at:
            self.close(CloseReason.SLOW_CONSUMER)
        elif shed_at is not None and now >= shed_at:
            self.close(CloseReason.LOAD_SHEDDING)
        else:
            self._perform(self._session.timer(now), now)
        if not self.closed:
            self._set_timer()

    # --- closing ------------------------------------------------------------------------------------------------------

    def _closing(self, reason: CloseReason, reconnect_delay_ms: int | UnsetType) -> ConnectionClosing:
        return ConnectionClosing(
            reason=reason.value,
            reconnect_allowed=reason.reconnect_allowed,
            reconnect_delay_ms=reconnect_delay_ms,
            sync_from_sequence=self._delivery.sync_hints() or UNSET,
        )

    def _reconnect_delay_ms(self, reason: CloseReason) -> int | UnsetType:
        """Reasons that close many connections at once must not bring all clients back at once."""
        if reason in (CloseReason.SERVER_SHUTDOWN, CloseReason.UPSTREAM_FAILURE, CloseReason.LOAD_SHEDDING):
            return int(limits.DRAIN_RECONNECT_SPREAD_MS * self._context.clock.random())
        return UNSET

    def _finish(self, reason: CloseReason) -> None:
        if frames := self._outbound.take_answers():
            self._socket.write(frames)
        self._socket.close(reason.code, reason.value)
        self._end(reason)

    def _end(self, reason: CloseReason | None) -> None:
        if self.closed:
            return
        self.closed = self._responder.closed = True
        self._session.close()
        if self._timer_handle is not None:
            self._timer_handle.cancel()
        self._tasks.cancel()
        self._delivery.forget_all()
        self._ended(self, reason)


# Read once: a member of an enum costs ten times as much by way of its class, and every push and write compares.
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

"""The server's end of one connection as a state machine without sockets: text, pongs and time in, actions out.

It decides about the greeting, pings, the lifetime and the closing. A request becomes an action for its owner.
"""

from collections.abc import Sequence
from enum import Enum

import msgspec
from msgspec import UNSET

from seriatim.domain import limits
from seriatim.domain.errors import Draining, InvalidMessage, SeriatimError, ServerBusy
from seriatim.domain.message import Draft
from seriatim.protocol.codec import BadFrame, Echo, UnknownType, decode_client_frame, decode_valid_send, error_frame
from seriatim.protocol.frames import (
    Ack,
    ClientFrame,
    CloseReason,
    ErrorFrame,
    Heartbeat,
    Maybe,
    SendMessage,
    SyncRequest,
)
from seriatim.protocol.rate_window import RateWindow

# --- actions ----------------------------------------------------------------------------------------------------------


class Reply(msgspec.Struct, frozen=True):
    """Answer at once."""

    frame: ErrorFrame


class Submit(msgspec.Struct, frozen=True, gc=False):
    """Have this stored, in the order of these actions. The answer repeats the client's own spelling of its id."""

    draft: Draft
    client_message_id: str
    request_id: Maybe

    @property
    def echo(self) -> Echo:
        return Echo(request_id=self.request_id, client_message_id=self.client_message_id, chat_id=self.draft.chat_id)


class Sync(msgspec.Struct, frozen=True):
    request: SyncRequest


class RecordAck(msgspec.Struct, frozen=True):
    ack: Ack


class AnswerHeartbeat(msgspec.Struct, frozen=True):
    """Answer a heartbeat with the time."""

    request_id: Maybe


class Ping(msgspec.Struct, frozen=True):
    pass


class Close(msgspec.Struct, frozen=True):
    reason: CloseReason


class Ignored(msgspec.Struct, frozen=True):
    """A frame of an unknown type: count it, do not answer."""

    type: str


Action = Reply | Submit | Sync | RecordAck | AnswerHeartbeat | Ping | Close | Ignored


class SessionPhase(Enum):
    GREETING = "greeting"  # not registered yet: frames wait
    OPEN = "open"
    DRAINING = "draining"  # closing was announced: what was accepted is still answered
    CLOSED = "closed"


# Read once: a member of an enum costs ten times as much by way of its class, and every frame compares.
_GREETING, _DRAINING, _CLOSED = SessionPhase.GREETING, SessionPhase.DRAINING, SessionPhase.CLOSED

# --- the state machine ------------------------------------------------------------------------------------------------


class ServerSession:
    """`now` is monotonic seconds everywhere. `expires_at` and `rotates_at` end the session on time."""

    def __init__(self, user_id: str, connection_id: str, *, now: float, expires_at: float, rotates_at: float) -> None:
        self.phase = SessionPhase.GREETING
        self._user_id = user_id
        self._connection_id = connection_id
        self._expires_at = expires_at
        self._rotates_at = rotates_at
        self._ping_at = now + limits.PING_INTERVAL_S
        self._pong_by: float | None = None  # None while no ping is unanswered
        self._early: list[str | bytes] = []
        self._invalid = RateWindow(limits.INVALID_FRAMES_MAX, limits.INVALID_FRAMES_WINDOW_S)

    def received(self, text: str | bytes, now: float) -> Sequence[Action]:
        self._pong_by = None  # any frame counts as a pong
        phase = self.phase
        if phase is _CLOSED:
            return ()
        if phase is _GREETING:
            return self._too_early(text)
        frame: ClientFrame | None = decode_valid_send(text)
        if frame is None:
            try:
                other = decode_client_frame(text)
            except BadFrame as bad:
                return self._refused(bad, now)
            if isinstance(other, UnknownType):
                return (Ignored(other.type),)
            frame = other
        if phase is _DRAINING:
            return self._too_late(frame)
        if not isinstance(frame, SendMessage):
            return (self._requested(frame),)
        client_message_id = frame.client_message_id
        draft = Draft(
            chat_id=frame.chat_id,
            sender_id=self._user_id,
            client_message_id=client_message_id.lower(),
            content=frame.content,
            content_type=frame.content_type,
            origin_connection_id=self._connection_id,
        )
        return (Submit(draft, client_message_id, frame.request_id),)

    def pong_received(self) -> None:
        """The client is alive."""
        self._pong_by = None

    def greeted(self, now: float) -> list[Action]:
        """The greeting is queued: frames that came before it are handled now, in order."""
        if self.phase is not SessionPhase.GREETING:
            return []
        self.phase = SessionPhase.OPEN
        early, self._early = self._early, []
        return [action for text in early for action in self.received(text, now)]

    def drain(self) -> None:
        """Closing was announced; requests from now on are refused."""
        if self.phase is not SessionPhase.CLOSED:
            self.phase = SessionPhase.DRAINING
            self._early = []

    def close(self) -> None:
        self.phase = SessionPhase.CLOSED
        self._early = []

    def timer(self, now: float) -> list[Action]:
        """Call it at `next_timer`; an earlier call does nothing."""
        if self.phase is SessionPhase.CLOSED:
            return []
        if self._pong_by is not None and now >= self._pong_by:
            return [Close(CloseReason.IDLE_TIMEOUT)]
        if now >= self._expires_at:
            return [Close(CloseReason.TOKEN_EXPIRED)]
        if now >= self._rotates_at:
            return [Close(CloseReason.MAX_CONNECTION_AGE)]
        if now < self._ping_at:
            return []
        self._ping_at = now + limits.PING_INTERVAL_S
        self._pong_by = now + limits.PONG_TIMEOUT_S
        return [Ping()]

    def next_timer(self) -> float:
        at = min(self._ping_at, self._expires_at, self._rotates_at)
        return at if self._pong_by is None else min(at, self._pong_by)

    def _too_early(self, text: str | bytes) -> Sequence[Action]:
        if len(self._early) < limits.INBOUND_REQUESTS_MAX:
            self._early.append(text)
            return ()
        try:
            frame = decode_client_frame(text)
        except BadFrame as bad:
            return (Reply(error_frame(bad.error, bad.echo)),)
        return () if isinstance(frame, UnknownType) else (Reply(error_frame(busy(), echo(frame))),)

    def _refused(self, bad: BadFrame, now: float) -> Sequence[Action]:
        reply = Reply(error_frame(bad.error, bad.echo))
        # Only malformed frames count: content that is too large or of a wrong type may come from a user.
        if isinstance(bad.error, InvalidMessage) and self._invalid.add(now):
            return reply, Close(CloseReason.PROTOCOL_ERROR)
        return (reply,)

    def _too_late(self, frame: ClientFrame) -> Sequence[Action]:
        """Clients flush their acks after the closing was announced; other requests must go to another server."""
        if isinstance(frame, Ack):
            return (RecordAck(frame),)
        return () if isinstance(frame, Heartbeat) else (Reply(error_frame(draining(), echo(frame))),)

    def _requested(self, frame: SyncRequest | Ack | Heartbeat) -> Action:
        match frame:
            case SyncRequest():
                return Sync(frame)
            case Ack():
                return RecordAck(frame)
            case Heartbeat():
                return AnswerHeartbeat(frame.request_id)


def echo(frame: ClientFrame) -> Echo:
    match frame:
        case SendMessage():
            return Echo(request_id=frame.request_id, client_message_id=frame.client_message_id, chat_id=frame.chat_id)
        case Ack() | SyncRequest():
            return Echo(request_id=frame.request_id, client_message_id=UNSET, chat_id=frame.chat_id)
        case Heartbeat():
            return Echo(request_id=frame.request_id)


def busy() -> SeriatimError:
    return ServerBusy("too many requests wait on this connection", retry_after_seconds=1)


def draining() -> SeriatimError:
    return Draining("this server is shutting down; reconnect and send it again")

"""The client's side of the wire: events in, actions out (docs/spec/websocket.md#what-a-client-does).

All that must survive a crash is in the ClientStore; a new session over the same store continues where the last one was.
"""

from enum import Enum, auto

from msgspec import UNSET, UnsetType

from seriatim.client.acks import PendingAcks
from seriatim.client.actions import Action, ChatLeft, Connect, Deliver, Disconnect, ListChats, Ready, Stopped, Transmit
from seriatim.client.catch_up import CatchUp, ChatSync
from seriatim.client.outbox import Outbox
from seriatim.client.store import ClientStore
from seriatim.client.timeline import as_message, own_message
from seriatim.client.timers import TimerQueue, earliest
from seriatim.domain import limits
from seriatim.domain.backoff import RandomSource, client_backoff_s
from seriatim.domain.message import Message
from seriatim.protocol.codec import UnknownType
from seriatim.protocol.frames import (
    Ack,
    ConnectionClosing,
    ConnectionEstablished,
    ErrorFrame,
    MessageAck,
    MessageBatch,
    MessageFrame,
    ServerFrame,
    SyncRequest,
)


class ClientState(Enum):
    DISCONNECTED = auto()
    BACKOFF = auto()
    CONNECTING = auto()  # until the greeting
    SYNCING = auto()
    READY = auto()
    CLOSING = auto()


class SessionTimer(Enum):
    RECONNECT = auto()
    GREETING = auto()
    CLOSED = auto()  # the socket should have closed by now
    LIST = auto()
    RESYNC = auto()


class ClientSession:
    """Call the event methods in the order things happen, perform what they return, and call `timer` at `next_timer`.

    `now` is in seconds, never goes backwards while the session lives, and is comparable after a restart (the age of
    an outbox entry depends on it): wall clock at the start plus what has passed since. `chance` gives a number in
    [0, 1). After `disconnected` no frame of the old socket may be handed in.
    """

    def __init__(self, store: ClientStore, chance: RandomSource) -> None:
        self.state = ClientState.DISCONNECTED
        self.user_id = ""
        self._store = store
        self._chance = chance
        self._outbox = Outbox(store, chance)
        self._pending_acks = PendingAcks()
        self._timers: TimerQueue[SessionTimer] = TimerQueue()
        self._catch_up = CatchUp(store, chance, {})
        self._attempts = 0  # since READY was last reached
        self._hint_s = 0.0
        self._floors: dict[str, int] = {}
        self._listing = False
        self._listed = False
        self._list_failures = 0
        self._stop_reason: str | None = None

    # --- events: the connection ---------------------------------------------------------------------------------------

    def start(self, now: float) -> list[Action]:
        if self.state is not ClientState.DISCONNECTED:
            return []
        self._stop_reason = None
        self._attempts = 0
        self._hint_s = 0.0
        return self._connect()

    def connected(self, now: float) -> list[Action]:
        """The socket is open. Nothing is sent before the server's greeting."""
        if self.state is ClientState.CONNECTING:
            self._timers.set(SessionTimer.GREETING, now + limits.CLIENT_GREETING_WAIT_S)
        return []

    def disconnected(self, now: float, *, retry_after_s: float = 0.0, fatal: str | None = None) -> list[Action]:
        """The socket has closed, or never opened. `fatal`: the reason of a refusal that no retry will change."""
        if self.state in (ClientState.DISCONNECTED, ClientState.BACKOFF):
            return []
        self._stop_reason = self._stop_reason or fatal
        self._outbox.close()
        self._pending_acks.disconnected(now)
        self._timers.clear()
        self._catch_up = CatchUp(self._store, self._chance, {})
        self._listing = self._listed = False
        if self._stop_reason is not None:
            return self._stopped()
        self.state = ClientState.BACKOFF
        self._timers.set(
            SessionTimer.RECONNECT,
            now + client_backoff_s(self._attempts, max(self._hint_s, retry_after_s), self._chance),
        )
        self._attempts += 1
        self._hint_s = 0.0
        return []

    def stop(self, now: float) -> list[Action]:
        """Closes cleanly. Unsent messages stay in the outbox."""
        if self.state is ClientState.DISCONNECTED:
            return []
        self._stop_reason = self._stop_reason or "stopped"
        if self.state is ClientState.BACKOFF:
            self._timers.clear()
            return self._stopped()
        acks = self._transmit(self._pending_acks.flush(now)) if self._may_transmit else []
        self._close(now)
        return [*acks, Disconnect()]

    # --- events: the user ---------------------------------------------------------------------------------------------

    def send(self, chat_id: str, client_message_id: str, content: str, now: float) -> list[Action]:
        """Stores the message and sends it when its turn comes. Raises Refused if no server would accept it."""
        actions = self._outbox.add(chat_id, client_message_id, content, now)
        if self._listed and self._may_transmit:
            self._catch_up.add(chat_id)
        return [*actions, *self._continue(now)]

    def resend(self, chat_id: str, client_message_id: str, now: float) -> list[Action]:
        """After Failed or ConsentNeeded: sends it again."""
        self._outbox.resend(chat_id, client_message_id, now)
        if self._listed and self._may_transmit:
            self._catch_up.add(chat_id)
        return self._continue(now)

    def discard(self, chat_id: str, client_message_id: str, now: float) -> list[Action]:
        """After Failed or ConsentNeeded: removes it."""
        self._outbox.discard(chat_id, client_message_id)
        return []

    # --- events: REST and time ----------------------------------------------------------------------------------------

    def chats_listed(self, chat_ids: list[str], now: float) -> list[Action]:
        if not self._listing:
            return []
        self._listing = False
        self._list_failures = 0
        return self._begin_sync(chat_ids, now)

    def listing_failed(self, now: float, *, retry_after_s: float = 0.0) -> list[Action]:
        """The list is requested again later; until then the chats that this device knows are synced."""
        if not self._listing:
            return []
        self._listing = False
        self._timers.set(SessionTimer.LIST, now + client_backoff_s(self._list_failures, retry_after_s, self._chance))
        self._list_failures += 1
        return self._begin_sync([] if self._listed else list(self._store.chats()), now)

    def timer(self, now: float) -> list[Action]:
        actions: list[Action] = []
        for alarm in self._timers.due(now):
            actions += self._timer_due(alarm, now)
        if self._may_transmit:
            self._catch_up.timer(now)
            actions += self._transmit(self._pending_acks.timer(now))
        return [*actions, *self._continue(now)]

    def next_timer(self) -> float | None:
        if not self._may_transmit:
            return self._timers.next()
        return earliest(
            self._timers.next(), self._catch_up.next_timer(), self._pending_acks.due_at, self._outbox.next_timer()
        )

    # --- events: frames -----------------------------------------------------------------------------------------------

    def received(self, frame: ServerFrame | UnknownType, now: float) -> list[Action]:
        if self.state is ClientState.CONNECTING:
            return self._greeted(frame, now) if isinstance(frame, ConnectionEstablished) else []
        if self.state not in (ClientState.SYNCING, ClientState.READY, ClientState.CLOSING):
            return []
        match frame:
            case MessageFrame():
                actions = self._pushed(frame, now)
            case MessageAck():
                actions = self._acknowledged(frame, now)
            case MessageBatch():
                actions = self._paged(frame, now)
            case ErrorFrame():
                actions = self._refused(frame, now)
            case ConnectionClosing():
                actions = self._closing(frame, now)
            case _:
                return []
        return [*actions, *self._continue(now)]

    def _greeted(self, frame: ConnectionEstablished, now: float) -> list[Action]:
        self.state = ClientState.SYNCING
        self.user_id = frame.user_id
        self._timers.cancel(SessionTimer.GREETING)
        self._timers.set(SessionTimer.RESYNC, self._resync_at(now))
        self._catch_up = CatchUp(self._store, self._chance, self._floors)
        self._floors = {}
        return self._list()

    def _pushed(self, frame: MessageFrame, now: float) -> list[Action]:
        chat = self._catch_up.chat(frame.chat_id)
        actions: list[Action] = []
        if chat is None:
            # Nothing announces a membership: the push is how one learns of a new chat. Before the list has come, the
            # chat is most likely in it.
            actions = self._list() if self._listed else []
            chat = self._catch_up.add(frame.chat_id)
        # An own message may stand just below the push, its ack still on the way: then only a named predecessor counts.
        up_to_date = chat.up_to_date and not self._outbox.has(frame.chat_id)
        fresh = chat.timeline.push(as_message(frame), frame.prev_sequence, up_to_date=up_to_date)
        if fresh is None:
            self._catch_up.missed(chat, frame.sequence)
            return actions
        return [*actions, *self._deliver(chat, fresh, now)] if fresh else actions

    def _acknowledged(self, frame: MessageAck, now: float) -> list[Action]:
        """This connection gets no push of its own message: the ack takes its place."""
        key = frame.client_message_id.lower()
        entry = self._outbox.find(frame.chat_id, key)
        chat = self._catch_up.add(frame.chat_id)
        fresh: list[Message] = []
        if entry is None or frame.content_differs is True:
            # The user gave the entry up, or the server holds an earlier text under this id. It counts the message as
            # shown to this connection; its text is only known after a sync.
            if chat.timeline.lacks(frame.sequence):
                self._catch_up.missed(chat, frame.sequence)
        else:
            fresh = chat.timeline.place_own(own_message(entry, frame, self.user_id))
            if chat.timeline.has_hole:
                self._catch_up.sync_if_hole_stays(chat, now)
        return [*self._outbox.settle(frame.chat_id, key, frame.sequence), *self._deliver(chat, fresh, now)]

    def _paged(self, frame: MessageBatch, now: float) -> list[Action]:
        chat = self._catch_up.running(frame.chat_id, frame.request_id)
        if chat is None:
            return []
        fresh, requests = self._catch_up.page(chat, frame, now)
        actions = self._deliver(chat, fresh, now)
        if chat.synced and self._may_transmit:
            self._outbox.open(frame.chat_id)
        # Once the connection is closing the next page is left for the next one.
        return [*actions, *(self._transmit(requests) if self._may_transmit else [])]

    def _refused(self, frame: ErrorFrame, now: float) -> list[Action]:
        """An error that answers neither a send, a sync nor an ack needs no action."""
        hint_s = _seconds(frame.retry_after_seconds)
        # A token that ran out is no fault of the message; the server closes and a new token is fetched.
        retryable = frame.retryable or frame.code == "UNAUTHORIZED"
        if isinstance(frame.client_message_id, str):
            key = frame.client_message_id.lower()
            chat_id = frame.chat_id if isinstance(frame.chat_id, str) else self._outbox.chat_in_flight(key)
            if chat_id is None:
                return []
            if not retryable:
                return self._outbox.refuse(chat_id, key, frame.code)
            self._outbox.postpone(chat_id, key, hint_s, now)
            return []
        if isinstance(frame.chat_id, str) and frame.request_id is UNSET and retryable:
            self._ack_refused(frame.chat_id, now)  # our syncs bear an id, so this answers an ack
            return []
        chat = self._catch_up.running(frame.chat_id, frame.request_id) if isinstance(frame.chat_id, str) else None
        if chat is None:
            return []
        if not retryable:
            return self._left(chat, frame.code)
        self._catch_up.failed(chat, hint_s, now)
        return []

    def _ack_refused(self, chat_id: str, now: float) -> None:
        chat = self._catch_up.chat(chat_id)
        if chat is not None and chat.synced:
            self._pending_acks.refused(chat_id, chat.timeline.cursor, now)

    def _left(self, chat: ChatSync, code: str) -> list[Action]:
        chat_id = chat.timeline.chat_id
        self._catch_up.drop(chat)
        # What waits for this chat is still offered once: the server acks what it stored before, and refuses the rest.
        self._outbox.open(chat_id)
        return [ChatLeft(chat_id=chat_id, code=code)]

    def _closing(self, frame: ConnectionClosing, now: float) -> list[Action]:
        """Answers to earlier requests may still follow; the server closes the socket."""
        acks = self._transmit(self._pending_acks.flush(now)) if self._may_transmit else []
        if isinstance(frame.reconnect_delay_ms, int):
            self._hint_s = frame.reconnect_delay_ms / 1000
        if isinstance(frame.sync_from_sequence, dict):
            self._floors = frame.sync_from_sequence
        if not frame.reconnect_allowed:
            self._stop_reason = self._stop_reason or frame.reason
        self._close(now)
        return acks

    # --- steps --------------------------------------------------------------------------------------------------------

    def _connect(self) -> list[Action]:
        self.state = ClientState.CONNECTING
        return [Connect()]

    def _close(self, now: float) -> None:
        self.state = ClientState.CLOSING
        self._outbox.close()
        self._timers.clear()
        self._timers.set(SessionTimer.CLOSED, now + limits.DRAIN_S)

    def _stopped(self) -> list[Action]:
        self.state = ClientState.DISCONNECTED
        return [Stopped(reason=self._stop_reason or "stopped")]

    def _list(self) -> list[Action]:
        if self._listing:
            return []
        self._listing = True
        self._timers.cancel(SessionTimer.LIST)
        return [ListChats()]

    def _begin_sync(self, chat_ids: list[str], now: float) -> list[Action]:
        if not self._may_transmit:
            return []
        self._listed = True
        for chat_id in [*chat_ids, *self._outbox.chats()]:
            self._catch_up.add(chat_id)
        return self._continue(now)

    def _deliver(self, chat: ChatSync, fresh: list[Message], now: float) -> list[Action]:
        actions: list[Action] = []
        for message in fresh:
            if message.sender_id == self.user_id:
                actions += self._outbox.settle(message.chat_id, message.client_message_id.lower(), message.sequence)
            actions.append(Deliver(message=message))
        # Before the chat's sync is complete the server does not know what this connection holds.
        if self._may_transmit and chat.synced:
            actions += self._transmit(
                self._pending_acks.stored(chat.timeline.chat_id, chat.timeline.cursor, len(fresh), now)
            )
        return actions

    def _continue(self, now: float) -> list[Action]:
        """Whatever just happened, there may be room for another sync or send."""
        if not self._may_transmit:
            return []
        actions = self._transmit(self._catch_up.start(now)) if self._listed else []
        if self.state is ClientState.SYNCING and self._listed and self._catch_up.complete:
            self.state = ClientState.READY
            self._attempts = 0
            actions.append(Ready())
        return [*actions, *self._outbox.pump(now)]

    def _timer_due(self, alarm: SessionTimer, now: float) -> list[Action]:
        match alarm:
            case SessionTimer.RECONNECT:
                return self._connect()
            case SessionTimer.GREETING | SessionTimer.CLOSED:
                self._close(now)
                return [Disconnect()]
            case SessionTimer.LIST:
                return self._list()
            case SessionTimer.RESYNC:
                self._timers.set(SessionTimer.RESYNC, self._resync_at(now))
                self._catch_up.want_all()
                self._pending_acks.ack_again()
                return self._list()  # no frame announces a membership; this bounds how long a new chat goes unnoticed

    def _resync_at(self, now: float) -> float:
        """Up to a fifth early, so that clients that reconnected together do not sync together."""
        return now + limits.CLIENT_RESYNC_EVERY_S * (1 - limits.CLIENT_BACKOFF_SPREAD_RATIO * self._chance())

    def _transmit(self, frames: list[Ack] | list[SyncRequest]) -> list[Action]:
        return [Transmit(frame=frame) for frame in frames]

    @property
    def _may_transmit(self) -> bool:
        return self.state is ClientState.SYNCING or self.state is ClientState.READY


def _seconds(hint: float | UnsetType) -> float:
    return 0.0 if hint is UNSET else max(float(hint), 0.0)

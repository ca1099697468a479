"""A user's device: the real client session over a durable store, driven by the virtual network. It may crash too."""

from collections.abc import Callable
from random import Random
from typing import ParamSpec

from seriatim.client.actions import Action, Connect, Deliver, Disconnect, Failed, ListChats, Stopped, Transmit
from seriatim.client.session import ClientSession, ClientState, SessionTimer
from seriatim.client.store import MemoryClientStore, OutboxEntry
from seriatim.domain.message import Message
from seriatim.protocol.codec import UnknownType, decode_server_frame, encode
from seriatim.protocol.frames import (
    Ack,
    ConnectionClosing,
    ErrorFrame,
    MessageAck,
    MessageBatch,
    MessageFrame,
    ServerFrame,
    SyncRequest,
)
from seriatim.simulation.checks.final_checks import DeviceReport
from seriatim.simulation.checks.history import WorldHistory
from seriatim.simulation.clients.device_faults import Decision, DeviceFaults, PowerLost
from seriatim.simulation.clients.socket import SimulatedSocket
from seriatim.simulation.loop import SimulatedLoop
from seriatim.simulation.process import Process
from seriatim.simulation.trace import Trace

P = ParamSpec("P")


class DeviceStore(MemoryClientStore):
    """A device's disk. It outlives crashes and records when a message was stored. Power may fail before a write."""

    def __init__(
        self,
        user_id: str,
        device: str,
        history: WorldHistory,
        now: Callable[[], float],
        before_write: Callable[[], None],
    ) -> None:
        super().__init__()
        self._user_id = user_id
        self._device = device
        self._history = history
        self._now = now
        self._before_write = before_write
        self.stored_at: dict[tuple[str, int], float] = {}

    def put_message(self, message: Message) -> None:
        self._before_write()
        super().put_message(message)
        self.stored_at.setdefault((message.chat_id, message.sequence), self._now())

    def advance_cursor(self, chat_id: str, sequence: int) -> None:
        self._before_write()
        moved = sequence > self.cursor(chat_id)
        super().advance_cursor(chat_id, sequence)
        if moved:
            self._history.cursor_advanced(self._user_id, self._device, chat_id, sequence)

    def outbox_add(self, entry: OutboxEntry) -> None:
        self._before_write()
        super().outbox_add(entry)

    def outbox_remove(self, chat_id: str, client_message_id: str) -> None:
        self._before_write()
        super().outbox_remove(chat_id, client_message_id)

    def outbox_mark_failed(self, chat_id: str, client_message_id: str, code: str) -> None:
        self._before_write()
        super().outbox_mark_failed(chat_id, client_message_id, code)


class Device:
    """Connects, sends, stores, reconnects. `dial` opens a socket to some gateway; `list_chats` calls the REST API.

    `power_lost`: called when the device loses power in the middle of a step; the world powers it off and on again.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        name: str,
        user_id: str,
        *,
        device_id: str,
        random: Random,
        history: WorldHistory,
        trace: Trace,
        dial: Callable[["Device"], None],
        list_chats: Callable[["Device"], None],
        faults: DeviceFaults,
        power_lost: Callable[["Device"], None],
    ) -> None:
        self.name = name
        self.user_id = user_id
        self.device_id = device_id
        self.socket: SimulatedSocket | None = None
        self.store = DeviceStore(user_id, name, history, loop.time, faults.before_write)
        self.delivered: dict[str, list[int]] = {}
        self._loop = loop
        self._random = random
        self._history = history
        self._trace = trace
        self._dial = dial
        self._list_chats = list_chats
        self._faults = faults
        self._power_lost = power_lost
        self._powered_off = False
        self.process = Process(loop, name, random=random)
        self.session = ClientSession(self.store, random.random)
        self._timer_at: float | None = None
        self._connected_at = 0.0
        self._views: dict[str, ConnectionView] = {}

    # --- what the world does to it ----------------------------------------------------------------------------------

    def start(self) -> None:
        self.process.call_soon(lambda: self._dispatch(self.session.start, self._now()))

    def send(self, chat_id: str, client_message_id: str, content: str) -> None:
        if self.process.alive:
            self._note(f"sends {chat_id} {client_message_id[:8]} {content!r}")
            self._dispatch(self.session.send, chat_id, client_message_id, content, self._now())

    def ack_unseen(self, chat_id: str, sequence: int) -> None:
        if self.socket is not None:
            self._note(f"acks {chat_id} #{sequence}, which it may never have seen")
            self.socket.send(encode(Ack(chat_id=chat_id, last_acked_sequence=sequence)))

    def sync_again(self) -> None:
        """The client's periodic sync is due now; its usual period is longer than the time of faults."""
        if self.session.state in (ClientState.SYNCING, ClientState.READY) and not self._powered_off:
            self.session._timers.set(SessionTimer.RESYNC, self._now())
            self._dispatch(self.session.timer, self._now())

    def crash(self) -> None:
        """Power off: the session is gone, the disk stays."""
        self.process.crash()
        if self.socket is not None:
            self.socket.cut(gateway_after_s=self._random.random() * 2, device_after_s=0.0)
            self.socket = None

    def restart(self) -> None:
        self.process = self.process.restart(random=self._random)
        self.session = ClientSession(self.store, self._random.random)
        self._timer_at = None
        self._powered_off = False
        self.start()

    def resume(self) -> None:
        """The user opens the app again, after the server had closed the connection for good."""
        if self.process.alive and self.session.state is ClientState.DISCONNECTED:
            self._dispatch(self.session.start, self._now())

    # --- what the network reports -----------------------------------------------------------------------------------

    def socket_opened(self, socket: SimulatedSocket) -> None:
        if socket.gone:  # a device that stood still hears of the end before the beginning
            self.refused()
            return
        self.socket = socket
        self._connected_at = self._now()
        self._views = {}
        self._dispatch(self.session.connected, self._now())

    def refused(self) -> None:
        self._dispatch(self.session.disconnected, self._now())

    def frame_arrived(self, socket: SimulatedSocket, frame: bytes) -> None:
        if socket is not self.socket:
            return
        decoded = decode_server_frame(frame)
        self._observe(decoded)
        self._dispatch(self.session.received, decoded, self._now())

    def socket_closed(self, socket: SimulatedSocket) -> None:
        if socket is self.socket:
            self.socket = None
            self._note("is disconnected")
            self._dispatch(self.session.disconnected, self._now())

    def chats_listed(self, chat_ids: list[str] | None) -> None:
        if chat_ids is None:
            self._dispatch(self.session.listing_failed, self._now())
        else:
            self._dispatch(self.session.chats_listed, chat_ids, self._now())

    # --- inside -----------------------------------------------------------------------------------------------------

    def _dispatch(self, event: Callable[P, list[Action]], *args: P.args, **kwargs: P.kwargs) -> None:
        """Hands an event to the session and performs what it returns, unless power is lost during one of its writes."""
        if self._powered_off:
            return
        try:
            actions = event(*args, **kwargs)
        except PowerLost:
            self._powered_off = True
            self._note("loses power before a write")
            self._power_lost(self)
        else:
            self._perform(actions)

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Transmit(frame=frame):
                    if self.socket is not None:
                        self.socket.send(encode(frame))
                    if isinstance(frame, SyncRequest):
                        self._view(frame.chat_id).sync_requested()
                case Deliver(message=message):
                    self.delivered.setdefault(message.chat_id, []).append(message.sequence)
                    self._note(f"has {message.chat_id} #{message.sequence} {message.content!r}")
                case Connect():
                    self._dial(self)
                case Disconnect():
                    self._close_socket()
                case ListChats():
                    self._list_chats(self)
                case Stopped(reason=reason):
                    self._note(f"stays away: {reason}")
                case Failed():
                    self._decide_later(action)
                case _:
                    pass
        self._set_timer()

    def _decide_later(self, failed: Failed) -> None:
        decision = self._faults.decision()
        if decision is not Decision.KEEP:
            self.process.call_later(self._faults.decision_delay_s(), self._decide, failed, decision)

    def _decide(self, failed: Failed, decision: Decision) -> None:
        self._note(f"{decision} {failed.chat_id} {failed.client_message_id[:8]}")
        answer = self.session.discard if decision is Decision.DISCARD else self.session.resend
        self._dispatch(answer, failed.chat_id, failed.client_message_id, self._now())

    def _close_socket(self) -> None:
        if self.socket is None:
            self.process.call_soon(self.refused)
        else:
            self.socket.close_by_client()

    def _set_timer(self) -> None:
        due = self.session.next_timer()
        if due is not None and (self._timer_at is None or due < self._timer_at):
            self._timer_at = due
            self.process.call_at(max(due, self._loop.time()), self._tick, due)

    def _tick(self, due: float) -> None:
        if self._timer_at != due:
            return  # an earlier one was set meanwhile
        self._timer_at = None
        self._dispatch(self.session.timer, self._now())

    def _now(self) -> float:
        return self._loop.time()

    def _observe(self, frame: ServerFrame | UnknownType) -> None:
        if self._trace.on:
            self._note(f"<- {_described(frame)}")
        match frame:
            case MessageFrame(chat_id=chat_id, sequence=sequence):
                self._history.message_shown(self.user_id, self.name, chat_id, sequence)
                self._view(chat_id).pushed(sequence)
            case MessageBatch(chat_id=chat_id, messages=messages, has_more=has_more):
                for item in messages:
                    self._history.message_shown(self.user_id, self.name, chat_id, item.sequence)
                self._view(chat_id).paged([item.sequence for item in messages], complete=not has_more)
            case MessageAck(chat_id=chat_id, sequence=sequence):
                self._view(chat_id).acked(sequence)
            case _:
                pass

    def _view(self, chat_id: str) -> "ConnectionView":
        view = self._views.get(chat_id)
        if view is None:
            view = self._views[chat_id] = ConnectionView(self, chat_id, self._history, since=self._connected_at)
        return view

    def _note(self, text: str) -> None:
        if self._trace.on:
            self._trace.note(self._loop.time(), self.process.lane, text)

    @property
    def unsettled(self) -> bool:
        """Not ready, or with an unsent message that may still be sent."""
        return self.session.state is not ClientState.READY or any(
            entry.failed_code is None for entry in self.store.outbox()
        )

    def report(self) -> DeviceReport:
        return DeviceReport(
            name=self.name,
            user_id=self.user_id,
            ready=self.session.state is ClientState.READY,
            messages={
                chat_id: {message.sequence: message for message in self.store.messages(chat_id)}
                for chat_id in self.store.chats()
            },
            stored_at=self.store.stored_at,
            delivered=self.delivered,
            outbox=self.store.outbox(),
        )


class ConnectionView:
    """What one connection was shown of one chat. Once synced, no message may be skipped on it or pushed twice."""

    def __init__(self, device: Device, chat_id: str, history: WorldHistory, *, since: float) -> None:
        self._device = device
        self._chat_id = chat_id
        self._history = history
        self._floor: int | None = None  # the device's cursor when this connection had synced the chat
        self._since = since
        self._seen: dict[int, None] = {}
        self._pushed: dict[int, None] = {}  # since the last sync was asked for

    def sync_requested(self) -> None:
        """A sync may repeat what was sent, and what was sent before it may still be in flight."""
        self._pushed = {}

    def paged(self, sequences: list[int], *, complete: bool) -> None:
        self._seen.update(dict.fromkeys(sequences))
        if complete and self._floor is None:
            self._floor = max([self._device.store.cursor(self._chat_id), *sequences])

    def acked(self, sequence: int) -> None:
        self._seen[sequence] = None

    def pushed(self, sequence: int) -> None:
        if self._history.was_removed(self._chat_id, self._device.user_id, since=self._since):
            self._floor = None  # a removal ends what a sync began, and the page may have been read before it
        if self._floor is not None:
            self._check(sequence)
        self._seen[sequence] = None
        self._pushed[sequence] = None

    def _check(self, sequence: int) -> None:
        name, chat_id, history = self._device.name, self._chat_id, self._history
        if sequence in self._pushed and sequence > (self._floor or 0):  # below, it was sent before the chat was synced
            history.violate("once_on_the_wire", f"{name} was pushed {chat_id} #{sequence} again without having asked")
        slots = history.slots.get(chat_id, {})
        skipped = [
            below
            for below in range((self._floor or 0) + 1, sequence)
            if below not in self._seen and (below not in slots or isinstance(slots[below], Message))
        ]
        if skipped:
            history.violate(
                "connection_contiguity", f"{name} had synced {chat_id} and was pushed #{sequence} before {skipped}"
            )


def _described(frame: ServerFrame | UnknownType) -> str:
    match frame:
        case MessageFrame():
            return f"message {frame.chat_id} #{frame.sequence} after #{frame.prev_sequence}"
        case MessageAck():
            return f"ack {frame.chat_id} #{frame.sequence} {frame.client_message_id[:8]}"
        case MessageBatch():
            listed = ", ".join(f"#{item.sequence}" for item in frame.messages) or "nothing new"
            return f"batch {frame.chat_id} {listed}{', and more' if frame.has_more else ''}"
        case ErrorFrame():
            return f"error {frame.code}: {frame.message}"
        case ConnectionClosing():
            return f"closing: {frame.reason}"
        case _:
            return type(frame).__name__

"""Mutants of the gateway: cursors, buffers, acks and registrations."""

import math
from collections.abc import Sequence
from typing import Any

from seriatim.client.timeline import Timeline
from seriatim.connection.gateway import Gateway
from seriatim.connection.head_probe import HeadProbe
from seriatim.connection.new_chat_probe import NewChatProbe
from seriatim.connection.registrations import Registrations
from seriatim.connection.session.acks import Acks
from seriatim.connection.session.chat_cursor import ChatCursor, CursorPhase, HeldMessage
from seriatim.connection.session.chat_delivery import ChatDelivery
from seriatim.connection.session.outbound import OutboundBuffer, Pressure
from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError
from seriatim.durability.deadline import Deadline
from seriatim.durability.watermarks import Watermarks
from seriatim.engines.inprocess.directory import InProcessRegistry
from seriatim.ports.directory import Registration
from seriatim.protocol.frames import Ack
from seriatim.simulation.mutants.mutant import Patch, removes
from seriatim.simulation.tight_limits import buffer_limit


@removes("a push goes out only if the one before it did", hole="H2", profile="redis")
def naive_gateway() -> Sequence[Patch]:
    return [(ChatCursor, "follows_delivered", lambda self, prev_sequence: True)]


@removes("live messages wait until the sync is through", hole="H16", profile="network")
def live_overtakes_sync() -> Sequence[Patch]:
    def pushed(self: ChatCursor, sequence: int, prev_sequence: int | None, frame: bytes) -> None:
        self.delivered = sequence - 1
        self.phase = CursorPhase.LIVE
        self.held[sequence] = HeldMessage(self.delivered, frame)

    return [(ChatCursor, "pushed_while_syncing", pushed)]


@removes("a run of pushes passes an own message only if the one before it was delivered", hole="H18", profile="network")
def own_passes_holes() -> Sequence[Patch]:
    def skip_own(self: ChatCursor, sequence: int) -> None:
        while self.phase is CursorPhase.LIVE and self.held and (lowest := self.held.lowest()) < sequence:
            if self.held[lowest].frame is not None:
                break
            del self.held[lowest]
            self.delivered = max(self.delivered, lowest)

    return [(ChatCursor, "skip_own", skip_own)]


@removes("an own ack does not count as having received what lies below it", hole="H18", profile="network")
def own_ack_advances() -> Sequence[Patch]:
    def own(self: ChatCursor, sequence: int, prev_sequence: int | None) -> bool:
        self.delivered = max(self.delivered, sequence)
        self.highest = max(self.highest, sequence)
        return False

    def place_own(self: Timeline, message: Any) -> list[Any]:
        return self._extend([message], message.sequence) if message.sequence > self.cursor else []

    return [(ChatCursor, "own_stored", own), (Timeline, "place_own", place_own)]


@removes("what a connection was sent stays counted, whatever the store loses", hole="H5", profile="restore")
def cursor_goes_back() -> Sequence[Patch]:
    original = ChatCursor.sync_started

    def sync_started(self: ChatCursor, after: int) -> int:
        epoch = original(self, after)
        self._delivered_before_sync = 0
        return epoch

    return [(ChatCursor, "sync_started", sync_started)]


@removes("a user who is added to a chat again misses nothing on the same connection", hole="H11", profile="members")
def cursor_forgotten_on_removal() -> Sequence[Patch]:
    def membership_lost(self: ChatDelivery, cursor: ChatCursor) -> None:
        self.forget(cursor)

    return [(ChatDelivery, "_membership_lost", membership_lost)]


@removes("gateways probe for a lost last push", hole="H9", profile="redis")
def no_tail_probe() -> Sequence[Patch]:
    async def probe(self: HeadProbe) -> None:
        return

    return [(HeadProbe, "probe", probe)]


@removes("gateways query for chats that their users have joined", hole="H9", profile="redis")
def no_probe_for_new_chats() -> Sequence[Patch]:
    async def probe(self: NewChatProbe) -> None:
        return

    return [(NewChatProbe, "probe", probe)]


@removes("a watermark is bounded by what was sent and by what is stored", hole="H15")
def ack_unclamped() -> Sequence[Patch]:
    async def bound(self: Watermarks, chat_id: str, sequence: int, deadline: Deadline) -> int:
        return sequence

    identity = lambda self, sequence: sequence  # noqa: E731
    return [
        (ChatCursor, "clamp_to_known", identity),
        (ChatCursor, "clamp_to_delivered", identity),
        (Watermarks, "bound", bound),
    ]


@removes("an ack is repeated until it is stored, and the highest wins", hole="H15", profile="network")
def acks_dropped() -> Sequence[Patch]:
    """An ack that comes while another of its chat is on its way, or that fails, is gone."""

    async def store(self: Acks, ack: Ack) -> None:
        sequence = self._wanted[ack.chat_id]
        try:
            await self._context.durability.acknowledge(
                self._user_id, ack.chat_id, sequence=sequence, timeout_s=limits.PERSIST_DEADLINE_S
            )
        except SeriatimError:
            pass
        finally:
            if (cursor := self._delivery.cursor(ack.chat_id)) is not None:
                cursor.acked = max(cursor.acked, self._wanted[ack.chat_id])
            del self._wanted[ack.chat_id]
            self._responder.release()

    return [(Acks, "_store", store)]


@removes("a push without room is read back later", hole="H17", profile="slow")
def full_buffer_drops() -> Sequence[Patch]:
    original = OutboundBuffer.push

    def push(self: OutboundBuffer, frame: bytes, chat_id: str, floor: int) -> bool:
        original(self, frame, chat_id, floor)
        self.lagging = False
        return True

    def bounded(self: OutboundBuffer, frame: bytes, chat_id: str, floor: int) -> bool:
        return push(self, frame, chat_id, floor) if len(self.pushes) < buffer_limit() else True

    return [(OutboundBuffer, "push", bounded)]


@removes("a full buffer takes nothing more", hole="H17", profile="slow")
def unbounded_buffer() -> Sequence[Patch]:
    original = OutboundBuffer.push

    def push(self: OutboundBuffer, frame: bytes, chat_id: str, floor: int) -> bool:
        queued = original(self, frame, chat_id, floor)
        self.lagging = False
        return queued

    return [(OutboundBuffer, "push", push)]


@removes("a client that reads nothing is disconnected after the grace period", hole="H17", profile="slow")
def slow_never_closed() -> Sequence[Patch]:
    original = OutboundBuffer.assess

    def assess(self: OutboundBuffer, now: float) -> Pressure | None:
        pressure = original(self, now)
        self.close_at = None if self.close_at is None else math.inf
        return pressure

    return [(OutboundBuffer, "assess", assess)]


@removes("no client is disconnected as slow before the grace period is over", hole="H17", profile="slow")
def slow_closed_at_once() -> Sequence[Patch]:
    original = OutboundBuffer.assess

    def assess(self: OutboundBuffer, now: float) -> Pressure | None:
        pressure = original(self, now)
        if self.close_at is not None:
            self.close_at = now
        return pressure

    return [(OutboundBuffer, "assess", assess)]


@removes("every heartbeat registers the connection again", hole="H9", profile="redis")
def expire_only_heartbeat() -> Sequence[Patch]:
    original = Registrations.renew

    async def renew(self: Registrations) -> None:
        """EXPIRE does nothing for a key that is gone."""
        everything = self._registered
        users = list(dict.fromkeys(each.user_id for each in everything.values()))
        try:
            found = await self._directory.connections(users, timeout_s=1.0) if users else {}
        except Exception:
            return
        alive = [each.connection_id for registrations in found.values() for each in registrations]
        self._registered = {name: each for name, each in everything.items() if name in alive}
        try:
            await original(self)
        finally:
            self._registered = everything

    return [(Registrations, "renew", renew)]


@removes("a device has one connection: the newest", hole="H10", profile="network")
def never_evicts() -> Sequence[Patch]:
    async def evict(self: Gateway, registration: Registration) -> None:
        return

    return [(Gateway, "_evict", evict)]


@removes("a connection that ends is no longer registered", hole="H10", profile="network")
def never_unregisters() -> Sequence[Patch]:
    async def remove(self: Registrations, registration: Registration) -> None:
        self._registered.pop(registration.connection_id, None)

    return [(Registrations, "remove", remove)]


@removes("a renewal does not bring back a connection that was unregistered", hole="H10", profile="network")
def renewal_revives() -> Sequence[Patch]:
    original = InProcessRegistry.unregister

    def unregister(self: InProcessRegistry, registration: Registration, now_ms: int) -> None:
        original(self, registration, now_ms)
        self._ended.clear()

    return [(InProcessRegistry, "unregister", unregister)]

"""Mutants of the client session."""

from collections.abc import Sequence

from seriatim.client.actions import Action
from seriatim.client.session import ClientSession, SessionTimer
from seriatim.client.timeline import Timeline
from seriatim.domain.message import Message
from seriatim.protocol.frames import MessageAck
from seriatim.simulation.mutants.mutant import Patch, removes


@removes("a client lists its chats now and then: a membership may come without a push", hole="H9", profile="members")
def no_list_on_resync() -> Sequence[Patch]:
    original = ClientSession._timer_due

    def ring(self: ClientSession, alarm: SessionTimer, now: float) -> list[Action]:
        if alarm is not SessionTimer.RESYNC:
            return original(self, alarm, now)
        self._timers.set(SessionTimer.RESYNC, self._resync_at(now))
        self._catch_up.want_all()
        return []

    return [(ClientSession, "_timer_due", ring)]


@removes("an ack whose entry was given up is a message to be fetched", hole="H18", profile="regret")
def ack_without_entry_ignored() -> Sequence[Patch]:
    original = ClientSession._acknowledged

    def acknowledged(self: ClientSession, frame: MessageAck, now: float) -> list[Action]:
        known = self._outbox.find(frame.chat_id, frame.client_message_id.lower()) is not None
        return original(self, frame, now) if known else []

    return [(ClientSession, "_acknowledged", acknowledged)]


@removes("a device stores messages before its cursor moves over them", hole="H2", profile="crashes")
def cursor_before_messages() -> Sequence[Patch]:
    original = Timeline._extend

    def extend(self: Timeline, fresh: list[Message], end: int) -> list[Message]:
        self._store.advance_cursor(self.chat_id, end)
        return original(self, fresh, end)

    return [(Timeline, "_extend", extend)]

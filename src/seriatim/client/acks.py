"""The acks that a client owes the server: per chat after 10 messages, or 5 seconds after the first.

An ack is the chat's cursor and nothing else, so that it never covers a message this device does not hold.
"""

from seriatim.domain import limits
from seriatim.protocol.frames import Ack


class PendingAcks:
    """Lives longer than a connection: an ack sent shortly before it broke may be lost, and is owed again."""

    def __init__(self) -> None:
        self.due_at: float | None = None
        self._owed: dict[str, _OwedAck] = {}
        self._acked: dict[str, int] = {}
        self._sent_at: dict[str, float] = {}  # by chat, when its last ack was sent on this connection

    def stored(self, chat_id: str, cursor: int, messages: int, now: float) -> list[Ack]:
        """The chat is stored up to the cursor, which is so many messages more than before."""
        if cursor <= self._acked.get(chat_id, 0):
            return []
        owed = self._owed.setdefault(chat_id, _OwedAck())
        owed.cursor = cursor
        owed.messages += messages
        if owed.messages >= limits.CLIENT_ACK_EVERY_MESSAGES:
            return [self._ack(chat_id, now)]
        if self.due_at is None:
            self.due_at = now + limits.CLIENT_ACK_EVERY_S
        return []

    def timer(self, now: float) -> list[Ack]:
        if self.due_at is None or now < self.due_at:
            return []
        acks = [self._ack(chat_id, now) for chat_id in list(self._owed)[: limits.CLIENT_ACK_FRAMES_MAX]]
        self.due_at = now + limits.CLIENT_ACK_PAUSE_S if self._owed else None
        return acks

    def flush(self, now: float) -> list[Ack]:
        """Everything owed: the connection is about to end."""
        self.due_at = None
        return [self._ack(chat_id, now) for chat_id in list(self._owed)]

    def disconnected(self, now: float) -> None:
        """On the next connection an ack counts only after the chat's sync, which calls `stored` again."""
        self.due_at = None
        self._owed.clear()
        for chat_id, at in self._sent_at.items():
            if now - at < limits.CLIENT_ACK_UNCONFIRMED_S:
                del self._acked[chat_id]
        self._sent_at.clear()

    def refused(self, chat_id: str, cursor: int, now: float) -> None:
        """The server had no room for the ack: it is owed again."""
        self._acked.pop(chat_id, None)
        self._sent_at.pop(chat_id, None)
        self._owed.setdefault(chat_id, _OwedAck()).cursor = cursor
        if self.due_at is None:
            self.due_at = now + limits.CLIENT_ACK_EVERY_S

    def ack_again(self) -> None:
        """The next sync of each chat acks its cursor once more: an ack may have been refused, or lost by the server."""
        self._acked.clear()
        self._sent_at.clear()

    def _ack(self, chat_id: str, now: float) -> Ack:
        cursor = self._owed.pop(chat_id).cursor
        self._acked[chat_id] = cursor
        self._sent_at[chat_id] = now
        return Ack(chat_id=chat_id, last_acked_sequence=cursor)


class _OwedAck:
    def __init__(self) -> None:
        self.cursor = 0
        self.messages = 0

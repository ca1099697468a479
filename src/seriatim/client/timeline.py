"""One chat as a device knows it: the cursor is contiguous knowledge, every message at or below it is stored here.

The cursor moves over a message only with a proof that nothing lies between; it is what a later sync starts from.
"""

from collections.abc import Sequence

from seriatim.client.store import ClientStore, OutboxEntry
from seriatim.domain import limits
from seriatim.domain.message import TEXT, Message
from seriatim.protocol.frames import MessageAck, MessageItem


class Timeline:
    """Each method returns the messages the cursor moved over, in order: what the application is to be shown.

    An own message is different: its ack names its sequence but not the message before it, and the ack may overtake
    pushes. It is stored at once and waits above the cursor until the slot before it is known, or a page covers it.
    """

    def __init__(self, chat_id: str, store: ClientStore) -> None:
        self.chat_id = chat_id
        self.cursor = store.cursor(chat_id)
        self._own_above: dict[int, Message] = {}
        self._store = store

    @property
    def has_hole(self) -> bool:
        """An own message is stored above a hole."""
        return bool(self._own_above)

    def lacks(self, sequence: int) -> bool:
        """No message at this sequence is known, and it is above the cursor."""
        return sequence > self.cursor and sequence not in self._own_above

    def push(self, message: Message, prev_sequence: int | None, *, up_to_date: bool) -> list[Message] | None:
        """None: messages may be missing below this one; sync the chat.

        `up_to_date`: the chat is synced on this connection, no gap is open and no own message on its way, so that the
        server's promise of contiguous delivery replaces an unknown `prev_sequence`.
        """
        if message.sequence <= self.cursor:
            return []
        if not self._follows(message.sequence, prev_sequence, up_to_date):
            return None
        return self._extend([message], message.sequence)

    def place_own(self, message: Message) -> list[Message]:
        self._store.put_message(message)
        if message.sequence <= self.cursor:
            return []
        if message.sequence == self.cursor + 1:
            return self._extend([message], message.sequence)
        if len(self._own_above) < limits.HELD_MESSAGES_MAX:  # beyond, a page brings it: it is stored anyway
            self._own_above[message.sequence] = message
        return []

    def page(self, messages: Sequence[Message], end: int) -> list[Message]:
        """All messages of the slots from some point at or below the cursor up to `end`."""
        fresh = [message for message in messages if message.sequence > self.cursor]
        fresh.sort(key=lambda message: message.sequence)
        return self._extend(fresh, max([end, *[message.sequence for message in fresh[-1:]]]))

    def _follows(self, sequence: int, prev_sequence: int | None, up_to_date: bool) -> bool:
        if sequence == self.cursor + 1:
            return True
        return up_to_date if prev_sequence is None else prev_sequence <= self.cursor

    def _extend(self, fresh: list[Message], end: int) -> list[Message]:
        """Stores first and moves the cursor last: a crash in between only means that a sync repeats the rest."""
        for message in fresh:
            self._store.put_message(message)
        if self._own_above:
            fresh, end = self._merge_own(fresh, end)
        if end > self.cursor:
            self.cursor = end
            self._store.advance_cursor(self.chat_id, end)
        return fresh

    def _merge_own(self, fresh: list[Message], end: int) -> tuple[list[Message], int]:
        merged = {message.sequence: message for message in fresh}
        for sequence in sorted(self._own_above):
            if sequence > end + 1:
                break
            end = max(end, sequence)
            merged.setdefault(sequence, self._own_above.pop(sequence))
        return [merged[sequence] for sequence in sorted(merged)], end


def as_message(item: MessageItem) -> Message:
    """The message itself: `prev_sequence` belongs to one delivery of it, and may differ in the next."""
    return Message(
        message_id=item.message_id,
        chat_id=item.chat_id,
        sequence=item.sequence,
        sender_id=item.sender_id,
        client_message_id=item.client_message_id,
        content=item.content,
        content_type=item.content_type,
        created_at=item.created_at,
    )


def own_message(entry: OutboxEntry, ack: MessageAck, user_id: str) -> Message:
    """The connection that sent a message gets no echo: its text is in the outbox, its place in the ack."""
    return Message(
        message_id=ack.message_id,
        chat_id=entry.chat_id,
        sequence=ack.sequence,
        sender_id=user_id,
        client_message_id=entry.client_message_id,
        content=entry.content,
        content_type=TEXT,
        created_at=ack.created_at,
    )

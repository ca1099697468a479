"""What a device keeps on disk, so that a client that crashed starts again where it was.

Messages by sequence and a cursor per chat, and the outbox. The session is lost in a crash; this is not.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from seriatim.domain.message import Message


class OutboxEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A message on its way out. `failed_code`: the server refused it for good; it stays until the user decides."""

    chat_id: str
    client_message_id: str
    content: str
    created_at: float
    failed_code: str | None = None


class ClientStore(Protocol):
    """Every method returns once its change survives a crash of the client. One store serves one user on one device."""

    def chats(self) -> Sequence[str]:
        """Every chat with a cursor or a message, also those the user has left."""
        ...

    def cursor(self, chat_id: str) -> int:
        """The slot up to which every message of the chat is stored here; 0 for an unknown chat."""
        ...

    def advance_cursor(self, chat_id: str, sequence: int) -> None:
        """Never lowers the cursor."""
        ...

    def put_message(self, message: Message) -> None:
        """A slot is stored once: a message that is there already stays as it is."""
        ...

    def outbox(self) -> Sequence[OutboxEntry]:
        """Entries in the order they were added, failed ones included."""
        ...

    def outbox_add(self, entry: OutboxEntry) -> None:
        """Appends the entry. An entry with the same chat and id is replaced and moves to the end."""
        ...

    def outbox_remove(self, chat_id: str, client_message_id: str) -> None: ...

    def outbox_mark_failed(self, chat_id: str, client_message_id: str, code: str) -> None: ...


class MemoryClientStore:
    """Keeps everything in this process: for the simulator, for tests, and for clients that need no history."""

    def __init__(self) -> None:
        self._cursors: dict[str, int] = {}
        self._messages: dict[str, dict[int, Message]] = {}
        self._outbox: dict[tuple[str, str], OutboxEntry] = {}

    def chats(self) -> Sequence[str]:
        return list(dict.fromkeys([*self._cursors, *self._messages]))

    def messages(self, chat_id: str) -> list[Message]:
        """In order of sequence. Above the cursor there are only own messages whose place is known."""
        found = self._messages.get(chat_id, {})
        return [found[sequence] for sequence in sorted(found)]

    def cursor(self, chat_id: str) -> int:
        return self._cursors.get(chat_id, 0)

    def advance_cursor(self, chat_id: str, sequence: int) -> None:
        self._cursors[chat_id] = max(sequence, self.cursor(chat_id))

    def put_message(self, message: Message) -> None:
        self._messages.setdefault(message.chat_id, {}).setdefault(message.sequence, message)

    def outbox(self) -> Sequence[OutboxEntry]:
        return list(self._outbox.values())

    def outbox_add(self, entry: OutboxEntry) -> None:
        key = (entry.chat_id, entry.client_message_id)
        self._outbox.pop(key, None)
        self._outbox[key] = entry

    def outbox_remove(self, chat_id: str, client_message_id: str) -> None:
        self._outbox.pop((chat_id, client_message_id), None)

    def outbox_mark_failed(self, chat_id: str, client_message_id: str, code: str) -> None:
        key = (chat_id, client_message_id)
        self._outbox[key] = msgspec.structs.replace(self._outbox[key], failed_code=code)

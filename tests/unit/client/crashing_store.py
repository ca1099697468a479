"""A client's store on a device that loses power between any two writes."""

from seriatim.client.store import MemoryClientStore, OutboxEntry
from seriatim.domain.message import Message


class PowerLost(Exception):
    """The device went dark before a write."""


class StoppingStore(MemoryClientStore):
    """A disk whose device loses power before a write; `stops`: after how many writes, each counted from the last."""

    def __init__(self, stops: list[int]) -> None:
        super().__init__()
        self.writes = 0  # all that were made
        self._stops = list(stops)
        self._since = 0

    def advance_cursor(self, chat_id: str, sequence: int) -> None:
        self._write()
        super().advance_cursor(chat_id, sequence)

    def put_message(self, message: Message) -> None:
        self._write()
        super().put_message(message)

    def outbox_add(self, entry: OutboxEntry) -> None:
        self._write()
        super().outbox_add(entry)

    def outbox_remove(self, chat_id: str, client_message_id: str) -> None:
        self._write()
        super().outbox_remove(chat_id, client_message_id)

    def outbox_mark_failed(self, chat_id: str, client_message_id: str, code: str) -> None:
        self._write()
        super().outbox_mark_failed(chat_id, client_message_id, code)

    def _write(self) -> None:
        if self._stops and self._since == self._stops[0]:
            del self._stops[0]
            self._since = 0
            raise PowerLost
        self._since += 1
        self.writes += 1

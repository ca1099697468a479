"""Messages to send: stored before the first attempt, one unanswered send per chat, in order.

An entry leaves only when the server is known to hold it. Refused for good, or too old, it is parked for the user.
"""

from collections import OrderedDict

import msgspec

from seriatim.client.actions import Action, ConsentNeeded, Failed, Sent, Transmit
from seriatim.client.store import ClientStore, OutboxEntry
from seriatim.client.timers import TimerQueue, earliest
from seriatim.domain import limits
from seriatim.domain.backoff import RandomSource, client_backoff_s
from seriatim.domain.errors import InvalidMessage
from seriatim.domain.message import Draft, check_draft
from seriatim.protocol.frames import SendMessage

OUTBOX_FULL = "OUTBOX_FULL"


class Outbox:
    """Ids are lower case in here, as the server keys them. A chat sends only between `open` and `close`."""

    def __init__(self, store: ClientStore, chance: RandomSource) -> None:
        self._store = store
        self._chance = chance
        self._queues: dict[str, _ChatQueue] = {}  # one per chat with something to send
        self._parked: dict[tuple[str, str], OutboxEntry] = {}  # failed, or waiting for consent
        self._open: dict[str, None] = {}
        self._ready: dict[str, None] = {}  # chats that may send now, in turn: the chat that sent last comes last
        self._timers: TimerQueue[str] = TimerQueue()  # per chat: unanswered, or a pause after an error is over
        self._pacer = _SendPacer()
        self._size = 0
        for entry in store.outbox():
            self._index(entry)

    # --- the user -----------------------------------------------------------------------------------------------------

    def add(self, chat_id: str, client_message_id: str, content: str, now: float) -> list[Action]:
        """Raises what the server would refuse for good: a frame above its limit would even cost the connection."""
        check_draft(Draft(chat_id=chat_id, sender_id="", client_message_id=client_message_id, content=content))
        key = client_message_id.lower()
        known = self.find(chat_id, key)
        if known is not None:
            if known.content != content:
                raise InvalidMessage("this client_message_id belongs to another text", field="client_message_id")
            return []
        if self._size >= limits.CLIENT_OUTBOX_ENTRIES_MAX:
            return [Failed(chat_id=chat_id, client_message_id=key, code=OUTBOX_FULL)]
        self._append(OutboxEntry(chat_id=chat_id, client_message_id=key, content=content, created_at=now))
        return []

    def resend(self, chat_id: str, client_message_id: str, now: float) -> None:
        """The user wants a parked entry sent after all. It keeps its id, goes to the end and counts as new."""
        parked = self._parked.pop((chat_id, client_message_id.lower()), None)
        if parked is not None:
            self._size -= 1
            self._append(msgspec.structs.replace(parked, created_at=now, failed_code=None))

    def discard(self, chat_id: str, client_message_id: str) -> None:
        """The user gives up a parked entry."""
        key = (chat_id, client_message_id.lower())
        if self._parked.pop(key, None) is not None:
            self._size -= 1
            self._store.outbox_remove(*key)

    # --- the server ---------------------------------------------------------------------------------------------------

    def find(self, chat_id: str, client_message_id: str) -> OutboxEntry | None:
        queue = self._queues.get(chat_id)
        waiting = queue.entries.get(client_message_id) if queue is not None else None
        return waiting or self._parked.get((chat_id, client_message_id))

    def settle(self, chat_id: str, client_message_id: str, sequence: int) -> list[Action]:
        """The server holds the message: it sent an ack, or the message itself. A parked entry is settled as well."""
        entry = self.find(chat_id, client_message_id)
        if entry is None:
            return []
        self._store.outbox_remove(chat_id, client_message_id)
        self._remove(entry)
        return [Sent(chat_id=chat_id, client_message_id=client_message_id, sequence=sequence)]

    def refuse(self, chat_id: str, client_message_id: str, code: str) -> list[Action]:
        """No retry will help. The entry is parked for the user to decide, and the next one is sent."""
        queue = self._queues.get(chat_id)
        entry = queue.entries.get(client_message_id) if queue is not None else None
        if entry is None:
            return []
        self._store.outbox_mark_failed(chat_id, client_message_id, code)
        self._park(msgspec.structs.replace(entry, failed_code=code))
        return [Failed(chat_id=chat_id, client_message_id=client_message_id, code=code)]

    def postpone(self, chat_id: str, client_message_id: str, hint_s: float, now: float) -> None:
        """This attempt failed, a later one may succeed. The whole chat waits, so that its order stays."""
        queue = self._queues.get(chat_id)
        if queue is None or queue.in_flight != client_message_id:
            return
        queue.in_flight = None
        self._timers.set(chat_id, now + client_backoff_s(queue.failures, hint_s, self._chance))
        queue.failures += 1

    def chat_in_flight(self, client_message_id: str) -> str | None:
        """For an error that does not name its chat."""
        for chat_id, queue in self._queues.items():
            if queue.in_flight == client_message_id:
                return chat_id
        return None

    # --- when to send -------------------------------------------------------------------------------------------------

    def chats(self) -> list[str]:
        return list(self._queues)

    def has(self, chat_id: str) -> bool:
        """Something of this chat is in flight, or will be."""
        return chat_id in self._queues

    def open(self, chat_id: str) -> None:
        """The chat has caught up on this connection: its entries may be sent."""
        self._open[chat_id] = None
        self._wake(chat_id)

    def close(self) -> None:
        """The connection closes: nothing is in flight any more, everything will be sent again."""
        self._open.clear()
        self._ready.clear()
        self._timers.clear()
        self._pacer = _SendPacer()
        for queue in self._queues.values():
            queue.in_flight = None
            queue.failures = 0

    def pump(self, now: float) -> list[Action]:
        """Everything that may be sent now."""
        for chat_id in self._timers.due(now):
            self._queues[chat_id].in_flight = None
            self._wake(chat_id)
        actions: list[Action] = []
        while self._ready:
            chat_id = next(iter(self._ready))
            queue = self._queues[chat_id]
            entry = queue.first()
            if now - entry.created_at >= limits.CLIENT_RESEND_AGE_MAX_S:
                self._park(entry)
                actions.append(ConsentNeeded(chat_id=chat_id, client_message_id=entry.client_message_id))
                continue
            if not self._pacer.take(now):
                break
            del self._ready[chat_id]
            queue.in_flight = entry.client_message_id
            self._timers.set(chat_id, now + limits.CLIENT_SEND_UNANSWERED_S)
            actions.append(
                Transmit(
                    frame=SendMessage(client_message_id=entry.client_message_id, chat_id=chat_id, content=entry.content)
                )
            )
        return actions

    def next_timer(self) -> float | None:
        return earliest(self._timers.next(), self._pacer.free_at if self._ready else None)

    # --- entries ------------------------------------------------------------------------------------------------------

    def _append(self, entry: OutboxEntry) -> None:
        self._store.outbox_add(entry)
        self._index(entry)
        self._wake(entry.chat_id)

    def _index(self, entry: OutboxEntry) -> None:
        self._size += 1
        if entry.failed_code is not None:
            self._parked[entry.chat_id, entry.client_message_id] = entry
        else:
            self._queues.setdefault(entry.chat_id, _ChatQueue()).entries[entry.client_message_id] = entry

    def _park(self, entry: OutboxEntry) -> None:
        self._remove(entry)
        self._size += 1
        self._parked[entry.chat_id, entry.client_message_id] = entry

    def _remove(self, entry: OutboxEntry) -> None:
        chat_id, client_message_id = entry.chat_id, entry.client_message_id
        self._size -= 1
        queue = self._queues.get(chat_id)
        if queue is None or client_message_id not in queue.entries:
            del self._parked[chat_id, client_message_id]
            return
        was_first = queue.first().client_message_id == client_message_id
        del queue.entries[client_message_id]
        if not queue.entries:
            del self._queues[chat_id]
            self._ready.pop(chat_id, None)
            self._timers.cancel(chat_id)
        elif was_first:
            queue.in_flight = None
            queue.failures = 0
            self._timers.cancel(chat_id)
            self._wake(chat_id)

    def _wake(self, chat_id: str) -> None:
        if chat_id in self._open and chat_id in self._queues and chat_id not in self._timers:
            self._ready[chat_id] = None


class _ChatQueue:
    """One chat's entries, oldest first. The first is the one in flight, if any is."""

    def __init__(self) -> None:
        self.entries: OrderedDict[str, OutboxEntry] = OrderedDict()
        self.in_flight: str | None = None
        self.failures = 0

    def first(self) -> OutboxEntry:
        return next(iter(self.entries.values()))


class _SendPacer:
    """At most SEND_RATE_PER_S sends a second, after a small burst. `free_at`: when the next one may go."""

    def __init__(self) -> None:
        self._interval_s = 1 / limits.SEND_RATE_PER_S
        self._burst_s = (limits.CLIENT_SEND_BURST_MAX - 1) * self._interval_s
        self._due = float("-inf")  # when the last send would have left at an even pace, plus one interval
        self.free_at = float("-inf")

    def take(self, now: float) -> bool:
        if now < self.free_at:
            return False
        self._due = max(self._due, now) + self._interval_s
        self.free_at = self._due - self._burst_s
        return True

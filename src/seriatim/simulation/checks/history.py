"""What happened in a schedule, recorded where it happened, for the checks.

Nothing here influences the run. Invariants that concern one moment are checked at that moment.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from seriatim.domain.chat import Role
from seriatim.domain.errors import Conflict, OutcomeUnknown, RowUnreadable, SeriatimError, Throttled
from seriatim.domain.events import BadEvent, MessagePersisted, decode
from seriatim.domain.message import Draft, Message, Receipt, Slot
from seriatim.ports.durability import PrefixPage
from seriatim.ports.event_log import MESSAGES, Partition, Record
from seriatim.ports.push import MessageDelivery
from seriatim.simulation.loop import SimulatedLoop
from seriatim.simulation.results import Violation
from seriatim.simulation.stores.event_log import BrokerObserver
from seriatim.simulation.stores.tables import StoreObserver
from seriatim.simulation.trace import Trace

K = TypeVar("K")
V = TypeVar("V")


RECENTLY_S = 8.0  # how long before a write takes effect its conditions may have been read: late, or a frozen process
DEADLINE_SLACK_S = 0.3  # a late draft may cross the deadline on its way to the plane


class PageRead(msgspec.Struct, frozen=True):
    """A page that a reader was shown: these messages, and no others, between `after` and `through`."""

    at: float
    user_id: str
    chat_id: str
    after: int
    page: PrefixPage


class MessageShown(msgspec.Struct, frozen=True):
    """A message that reached a device of this user."""

    at: float
    user_id: str
    device: str
    chat_id: str
    sequence: int


class CursorAdvance(msgspec.Struct, frozen=True):
    """A device's durable cursor moved."""

    at: float
    device: str
    chat_id: str
    cursor: int


class WorldHistory(StoreObserver, BrokerObserver):
    """Watches the store, the event log, the answers and the devices of one world."""

    def __init__(self, loop: SimulatedLoop, trace: Trace) -> None:
        self._loop = loop
        self._trace = trace
        self.violations: list[Violation] = []
        self.slots: dict[str, dict[int, Slot]] = {}
        self.newest: dict[str, int] = {}  # newest message per chat
        self.allocated_at: dict[str, dict[int, float]] = {}
        self.published: dict[str, dict[int, str]] = {}  # first occurrence: sequence -> message_id
        self.highest_published: dict[str, int] = {}
        self.events_appended = 0
        self.receipts: dict[tuple[str, str, str], Receipt] = {}
        self.sends: dict[tuple[str, str], list[Draft]] = {}  # several senders may use one id, though they should not
        self.poison: dict[tuple[Partition, int], None] = {}
        self.acks = 0
        self.pages_read: list[PageRead] = []
        self.messages_shown: list[MessageShown] = []
        self.cursor_advances: list[CursorAdvance] = []
        self.watermarks: dict[tuple[str, str], int] = {}
        self.cursors: dict[tuple[str, str], int] = {}  # (user, chat) -> furthest device
        self.roles: dict[tuple[str, str], list[tuple[float, Role | None]]] = {}
        self.origins: dict[tuple[str, int], dict[str | None, None]] = {}  # connections named by a message's events
        self.handled: dict[Partition, int] = {}
        self.counters_lost: dict[str, None] = {}
        self.damaged: dict[str, None] = {}  # chats of which a row could not be read at some time
        self.lost: dict[str, dict[int, Message]] = {}  # by the store itself, after they had been acknowledged
        self.false_ackers: dict[str, None] = {}  # users whose devices ack what they were never sent

    def violate(self, invariant: str, explanation: str) -> None:
        self.violations.append(Violation(invariant=invariant, explanation=explanation, at=self._loop.time()))
        if self._trace.on:
            self._trace.note(self._loop.time(), "checker", f"VIOLATION {invariant}: {explanation}")

    # --- the store --------------------------------------------------------------------------------------------------

    def slot_filled(self, slot: Slot) -> None:
        chat = self.slots.setdefault(slot.chat_id, {})
        if slot.sequence in chat:
            self.violate(
                "slot_write_once",
                f"{slot.chat_id} #{slot.sequence} was {_short(chat[slot.sequence])}, then {_short(slot)}",
            )
        if isinstance(slot, Message) and slot.sequence in self.lost.get(slot.chat_id, {}):
            self.violate(
                "numbers_are_used_once",
                f"{slot.chat_id} #{slot.sequence} was seen as {_short(self.lost[slot.chat_id][slot.sequence])} and is "
                f"now {_short(slot)}",
            )
        if slot.sequence < 1:
            self.violate("no_zero_sequence", f"{slot.chat_id} #{slot.sequence}")
        chat[slot.sequence] = slot
        if isinstance(slot, Message):
            if self.role_now(slot.chat_id, slot.sender_id) is None:
                self.violate("sender_is_member", f"{slot.chat_id} #{slot.sequence}: {slot.sender_id} was gone by then")
            self.newest[slot.chat_id] = max(slot.sequence, self.newest.get(slot.chat_id, 0))
        if self._trace.on:
            self._trace.note(self._loop.time(), "store", f"{slot.chat_id} #{slot.sequence} = {_short(slot)}")

    def message_lost(self, message: Message) -> None:
        """The store lost it, and its key, with all that was promised about it; its number stays taken for ever."""
        chat_id, slots = message.chat_id, self.slots[message.chat_id]
        self.lost.setdefault(chat_id, {})[message.sequence] = message
        del slots[message.sequence]
        self.newest[chat_id] = max((at for at, slot in slots.items() if isinstance(slot, Message)), default=0)
        self.receipts.pop((chat_id, message.client_message_id, message.sender_id), None)

    def allocated(self, chat_id: str, first: int, last: int) -> None:
        times = self.allocated_at.setdefault(chat_id, {})
        for sequence in range(first, last + 1):
            if sequence in times and chat_id not in self.counters_lost:
                self.violate("add_operation_atomicity", f"{chat_id} #{sequence} was allocated twice")
            times[sequence] = self._loop.time()

    def watermark(self, user_id: str, chat_id: str, sequence: int) -> None:
        if sequence > max([self.newest.get(chat_id, 0), *self.lost.get(chat_id, ())]):
            self.violate(
                "watermark_bounded",
                f"{user_id} acked {chat_id} #{sequence}; the newest message is #{self.newest.get(chat_id, 0)}",
            )
        if sequence > self.cursors.get((user_id, chat_id), 0) and user_id not in self.false_ackers:
            self.violate(
                "watermark_bounded",
                f"{user_id}'s watermark in {chat_id} became {sequence}, but no device of theirs has stored more than "
                f"#{self.cursors.get((user_id, chat_id), 0)} without a gap",
            )
        if not self._was_recently_member(chat_id, user_id):
            self.violate("acks_by_members", f"{user_id} acked {chat_id} #{sequence} and is no member")
        if sequence < self.watermarks.get((user_id, chat_id), 0):
            self.violate("delivery_watermark_monotonic", f"{user_id} in {chat_id} fell to {sequence}")
        self.watermarks[user_id, chat_id] = sequence

    def membership_changed(self, chat_id: str, user_id: str, role: Role | None, version: int) -> None:
        self.roles.setdefault((chat_id, user_id), []).append((self._loop.time(), role))
        if self._trace.on:
            self._trace.note(self._loop.time(), "store", f"{chat_id} v{version}: {user_id} is {role or 'gone'}")

    def role_now(self, chat_id: str, user_id: str) -> Role | None:
        changes = self.roles.get((chat_id, user_id))
        return changes[-1][1] if changes else None

    def _was_recently_member(self, chat_id: str, user_id: str) -> bool:
        """Membership is read before the watermark is written, which may be late."""
        changes = self.roles.get((chat_id, user_id), [])
        removed_at = [at for at, role in changes if role is None]
        return self.role_now(chat_id, user_id) is not None or any(at >= self.now - RECENTLY_S for at in removed_at)

    def was_removed(self, chat_id: str, user_id: str, *, since: float = 0.0) -> bool:
        """The user was removed at some time from then on."""
        return any(role is None and at >= since for at, role in self.roles.get((chat_id, user_id), ()))

    @property
    def now(self) -> float:
        return self._loop.time()

    # --- the event log ----------------------------------------------------------------------------------------------

    def appended(self, record: Record) -> None:
        if record.partition.topic != MESSAGES or (record.partition, record.offset) in self.poison:
            return
        self.events_appended += 1
        try:
            event = decode(record.key, record.value)
        except BadEvent as error:
            self.violate("kafka_reflects_dynamodb", f"we appended something undecodable: {error}")
            return
        assert isinstance(event, MessagePersisted)
        message = event.message
        held = self.slots.get(message.chat_id, {}).get(message.sequence)
        if held != message and self.lost.get(message.chat_id, {}).get(message.sequence) != message:
            self.violate(
                "kafka_reflects_dynamodb",
                f"{message.chat_id} #{message.sequence} was published as {message.message_id}, the store holds "
                f"{_short(held) if held else 'nothing'}",
            )
        self.origins.setdefault((message.chat_id, message.sequence), {})[event.origin_connection_id] = None
        first = self.published.setdefault(message.chat_id, {})
        if message.sequence in first:
            if first[message.sequence] != message.message_id:
                self.violate("sequence_uniqueness", f"{message.chat_id} #{message.sequence} has two message ids")
            return
        highest = self.highest_published.get(message.chat_id, 0)
        if message.sequence < highest:
            self.violate(
                "first_occurrence_order", f"{message.chat_id} #{message.sequence} appeared first after #{highest}"
            )
        first[message.sequence] = message.message_id
        self.highest_published[message.chat_id] = max(highest, message.sequence)

    def push_addressed(self, delivery: MessageDelivery) -> None:
        """Fanout sends a message to connections. Its origin has an ack, unless an event does not name it."""
        message = delivery.message
        origins = list(self.origins.get((message.chat_id, message.sequence), ()))
        if len(origins) == 1 and origins[0] in delivery.connection_ids:
            self.violate("no_echo", f"{message.chat_id} #{message.sequence} goes back to {origins[0]}, which sent it")

    def committed(self, group: str, partition: Partition, next_offset: int) -> None:
        if next_offset - 1 > self.handled.get(partition, -1):
            self.violate(
                "commit_after_process",
                f"{partition.topic}/{partition.number}: {next_offset} committed, handled up to "
                f"{self.handled.get(partition, -1)}",
            )

    def handled_record(self, partition: Partition, offset: int) -> None:
        """Fanout dealt with this record. Handling is in order from a committed offset, so the highest one is enough."""
        if offset <= self.handled.get(partition, -1) + 1:
            self.handled[partition] = max(offset, self.handled.get(partition, -1))

    # --- sends and answers ------------------------------------------------------------------------------------------

    def send_submitted(self, draft: Draft) -> None:
        self.sends.setdefault((draft.chat_id, draft.client_message_id), []).append(draft)

    def send_overdue(self, draft: Draft) -> None:
        """The durability plane had time until now."""
        self.violate("answered_in_time", f"{draft.chat_id} {draft.client_message_id[:8]} has no answer yet")

    def send_answered(self, draft: Draft, outcome: Receipt | SeriatimError) -> None:
        """The durability plane answered. From a receipt on, nothing may undo it."""
        if self._trace.on:
            text = f"acks #{outcome.sequence}" if isinstance(outcome, Receipt) else f"refuses, {type(outcome).__name__}"
            self._trace.note(self._loop.time(), "durability", f"{text} {draft.chat_id} {draft.client_message_id[:8]}")
        if not isinstance(outcome, Receipt):
            self.refused(f"a send to {draft.chat_id}", outcome)
            if isinstance(outcome, RowUnreadable):
                self.refused_for_damage([draft.chat_id])
            return
        self.acks += 1
        where = f"{draft.chat_id} #{outcome.sequence} ({draft.client_message_id[:8]})"
        held = self.slots.get(draft.chat_id, {}).get(outcome.sequence)
        if held is None:  # stored, and taken away by the world before the answer left
            held = self.lost.get(draft.chat_id, {}).get(outcome.sequence)
        if not isinstance(held, Message) or held.message_id != outcome.message_id:
            self.violate("acked_is_stored", f"{where} was acked, the store holds {_short(held) if held else 'nothing'}")
        elif held.client_message_id != draft.client_message_id or held.sender_id != draft.sender_id:
            self.violate("effectively_once", f"{where} was acked with another sender's message")
        if outcome.sequence not in self.published.get(draft.chat_id, {}):
            self.violate("ack_implies_published", f"{where} was acked before it was published")
        first = self.receipts.setdefault((draft.chat_id, draft.client_message_id, draft.sender_id), outcome)
        if (first.sequence, first.message_id) != (outcome.sequence, outcome.message_id):
            self.violate("effectively_once", f"{where} was acked before as #{first.sequence}")

    def refused_for_damage(self, chat_ids: Sequence[str]) -> None:
        """A request for these chats failed since a row cannot be read: it must be a row of each of them."""
        if healthy := [each for each in chat_ids if each not in self.damaged]:
            self.violate(
                "damage_is_contained", f"{healthy} were refused, and only rows of {list(self.damaged)} cannot be read"
            )

    def page_read(self, user_id: str, chat_id: str, after: int, page: PrefixPage) -> None:
        self.pages_read.append(PageRead(self._loop.time(), user_id, chat_id, after, page))

    def refused(self, what: str, error: SeriatimError) -> None:
        """A read or a send failed. The simulated wire begins the text of an error with the store's operation."""
        if isinstance(error, Conflict | Throttled | OutcomeUnknown) and error.message.startswith("seal:"):
            self.violate("seal_refusal_contained", f"{what} was refused: {error.message}")

    # --- devices ----------------------------------------------------------------------------------------------------

    def message_shown(self, user_id: str, device: str, chat_id: str, sequence: int) -> None:
        self.messages_shown.append(MessageShown(self._loop.time(), user_id, device, chat_id, sequence))

    def cursor_advanced(self, user_id: str, device: str, chat_id: str, cursor: int) -> None:
        self.cursor_advances.append(CursorAdvance(self._loop.time(), device, chat_id, cursor))
        key = (user_id, chat_id)
        self.cursors[key] = max(cursor, self.cursors.get(key, 0))


def _short(slot: Slot) -> str:
    return f"{slot.message_id[-6:]} ({slot.content})" if isinstance(slot, Message) else "sealed"

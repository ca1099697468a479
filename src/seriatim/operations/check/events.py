"""The event log against the store: I6, I17, I34, I36, R21, D2 and D4.

Marks are written after events and events after rows, so they are read in this order: the event of a mark and the row of
an event must exist by then.
"""

from collections.abc import Callable

from seriatim.domain import limits
from seriatim.domain.dead_letter import dead_letter_key
from seriatim.domain.events import BadEvent, ChatCreated, MembershipChanged, MessagePersisted, decode
from seriatim.domain.message import Message
from seriatim.domain.sharding import partition as partition_of
from seriatim.domain.times import iso
from seriatim.operations.check.findings import Findings
from seriatim.ports.event_log import DEAD_LETTERS, MESSAGES, Record
from seriatim.ports.inspection import StoredRecords, StoredRows

INVARIANTS = ("I6", "I17", "I34", "I36", "R21", "D2", "D4")


class EventCheck:
    """Keeps two numbers per chat: up to where it is marked as published, and how far the log was read.

    Retention removes the oldest records of a partition, and a late duplicate may be what is left of a chat. So a
    message is missed in the log only if it is younger than the time since when its partition is complete.
    """

    def __init__(self, rows: StoredRows, records: StoredRecords, findings: Findings, now_ms: Callable[[], int]) -> None:
        self._rows = rows
        self._records = records
        self._findings = findings
        self._now_ms = now_ms
        self._marks: dict[str, int] = {}
        self._highest: dict[str, int] = {}
        self._complete_since: dict[int, str] = {}

    async def run(self) -> None:
        topics = await self._records.topics()
        if not topics:
            self._findings.skip("no event log was given", *INVARIANTS)
            return
        async for row in self._rows.counters():
            self._marks[row.chat_id] = row.counter.published_through
        for topic, partitions in topics.items():
            async for record in self._records.records(topic):
                self._findings.row()
                self._check_partition(record, partitions)
                if topic == MESSAGES:
                    self._note_start(record)
                if topic != DEAD_LETTERS:
                    await self._record(record)
        if MESSAGES in topics:
            for chat_id, mark in self._marks.items():
                await self._published(chat_id, mark, partition_of(chat_id, topics[MESSAGES]))

    def _check_partition(self, record: Record, partitions: int) -> None:
        key = dead_letter_key(record.key)
        if key is None:  # a dead letter may have none; any other record without one is reported as unreadable
            return
        self._findings.examined("I34")
        expected = partition_of(key, partitions)
        if record.partition.number != expected:
            self._findings.violated("I34", _place(record), f"the key {key} belongs to partition {expected}")

    def _note_start(self, record: Record) -> None:
        if record.partition.number not in self._complete_since:
            since = iso(record.timestamp_ms + 1000 * limits.CHECK_CLOCK_SKEW_S) if record.offset > 0 else ""
            self._complete_since[record.partition.number] = since

    async def _record(self, record: Record) -> None:
        self._findings.examined("I17")
        try:
            event = decode(record.key, record.value)
        except BadEvent as error:
            self._findings.violated("I17", _place(record), f"no event: {error.reason}")
            return
        match event:
            case MessagePersisted():
                await self._message(record, event)
            case MembershipChanged() | ChatCreated():
                self._findings.examined("R21")
                if await self._rows.chat(event.chat_id) is None:
                    self._findings.violated("R21", _place(record), f"it is about {event.chat_id}, which is not there")

    async def _message(self, record: Record, event: MessagePersisted) -> None:
        published = event.message
        place = f"{published.chat_id} #{published.sequence} at {_place(record)}"
        self._findings.examined("I6")
        stored = await self._rows.slot(published.chat_id, published.sequence)
        if not isinstance(stored, Message):
            self._findings.violated("I17", place, f"{published.message_id} was published, and is not stored")
        elif stored.message_id != published.message_id:
            self._findings.violated("I6", place, f"{published.message_id} was published; {stored.message_id} is stored")
        elif stored != published:
            differing = [name for name in stored.__struct_fields__ if getattr(stored, name) != getattr(published, name)]
            self._findings.violated("I17", place, f"stored and published differ in {', '.join(differing)}")
        await self._order(place, event, self._complete_since.get(record.partition.number, ""))

    async def _order(self, place: str, event: MessagePersisted, since: str) -> None:
        """A first occurrence follows that of the message right before it. Below the highest, all have occurred."""
        chat_id, sequence, previous = event.message.chat_id, event.message.sequence, event.prev_sequence
        highest = self._highest.get(chat_id, 0)
        self._findings.examined("I36")
        skipped = await self._message_between(chat_id, highest, sequence)
        if skipped is not None and skipped.created_at > since:
            self._findings.violated("I36", place, f"#{skipped.sequence} is stored and did not occur before it")
        self._highest[chat_id] = max(sequence, highest)
        if previous is None:
            return
        self._findings.examined("D4")
        passed = await self._message_between(chat_id, previous, sequence)
        if passed is not None or previous >= sequence:
            between = "that is not below it" if passed is None else f"between them is #{passed.sequence}"
            self._findings.violated("D4", place, f"it says that it follows #{previous}; {between}")

    async def _message_between(self, chat_id: str, low: int, high: int) -> Message | None:
        """Neighbours, as most are, cost no read."""
        if high <= low + 1:
            return None
        below = await self._rows.newest_message(chat_id, at_most=high - 1)
        return below if below is not None and below.sequence > low else None

    async def _published(self, chat_id: str, mark: int, partition: int) -> None:
        self._findings.examined("D2")
        highest = self._highest.get(chat_id, 0)
        newest = await self._message_between(chat_id, highest, mark + 1)
        # An empty partition may never have held anything: then only messages within its retention are expected.
        if newest is not None and newest.created_at > self._complete_since.get(partition, self._kept_since()):
            self._findings.violated(
                "D2",
                f"{chat_id} #{newest.sequence}",
                f"marked as published up to #{mark}, and the log has the chat up to #{highest}",
            )

    def _kept_since(self) -> str:
        return iso(max(0, self._now_ms() - 1000 * (limits.EVENT_RETENTION_S - limits.CHECK_CLOCK_SKEW_S)))


def _place(record: Record) -> str:
    return f"{record.partition.topic}/{record.partition.number}@{record.offset}"

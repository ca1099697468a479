"""The durability plane in a test: the real plane, memory engines, virtual time, and every fault at the test's command.

An async test that takes the fixture `harness` runs on it (`tests/support/virtual_time.py`). Whatever the test itself
asserts, the harness watches the promises that hold in every schedule, and fails the test when one is broken.
"""

import asyncio
from collections.abc import Sequence
from random import Random

import msgspec

from seriatim.domain import limits
from seriatim.domain.chat import Chat, ChatType, Membership, Role
from seriatim.domain.errors import SeriatimError
from seriatim.domain.events import MembershipChanged, MessagePersisted, decode
from seriatim.domain.message import Draft, Message, Receipt, Sealed, Slot, content_digest
from seriatim.domain.times import iso
from seriatim.durability.deadline import Deadline
from seriatim.durability.guards import StoreGuard
from seriatim.durability.ingest import Ingest
from seriatim.durability.publish import ChatPublisher
from seriatim.durability.slots import SlotWriter
from seriatim.durability.stable_prefix import PrefixReader
from seriatim.ports.event_log import MEMBERSHIPS, MESSAGES, Partition, Record
from seriatim.ports.message_log import ChatCounter, Key
from seriatim.simulation.loop import SimulatedLoop
from seriatim.simulation.process import EPOCH_MS, Process
from tests.support.memory_engines import MemoryEngines
from tests.support.recording_observers import DurabilityRecorder
from tests.support.scripted_wire import CallOutcome, ScriptedWire

CHAT = "chat_1"
ANN, BOB, CID = "user_ann", "user_bob", "user_cid"  # Ann owns the chat, Bob and Cid are members
EVE = "user_eve"  # an outsider


Outcome = Receipt | SeriatimError


class DurabilityHarness(MemoryEngines):
    """One world: a store, an event log, and the processes a test starts on them."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.violations = []
        self.store, self.broker = self.open_engines()
        self._filled: set[tuple[str, int]] = set()
        self._in_the_log: set[str] = set()
        self.add_chat(CHAT)

    async def open(self) -> None:
        """Runs in virtual time before the test. Here: nothing."""

    # --- what is there at the beginning ----------------------------------------------------------------------------

    def add_chat(self, chat_id: str, members: Sequence[str] = (ANN, BOB, CID)) -> None:
        began = iso(self.now_ms())
        self.store.chats[chat_id] = Chat(
            chat_id=chat_id,
            chat_type=ChatType.GROUP,
            name=chat_id,
            created_by=members[0],
            created_at=began,
            updated_at=began,
            member_count=len(members),
        )
        for user_id in members:
            role = Role.OWNER if user_id == members[0] else Role.MEMBER
            row = Membership(chat_id=chat_id, user_id=user_id, role=role, joined_at=began, added_by=members[0])
            self.store.put_member(row, 1)
        self.set_counter(chat_id, 0, published=0)

    def set_counter(self, chat_id: str, allocated: int, *, published: int) -> None:
        dirty_at_ms = self.now_ms() if allocated > published else None
        row = ChatCounter(
            allocated=allocated,
            published_through=published,
            published_message=self.last_message(chat_id, published),
            members_version=1,
            dirty_at_ms=dirty_at_ms,
        )
        self.store.put_counter(chat_id, row)
        self.store.index_dirty(chat_id)

    def given_messages(self, count: int, *, chat_id: str = CHAT, content: str = "") -> None:
        """Messages `1..count` of Ann, stored and marked as published long ago."""
        for sequence in range(1, count + 1):
            self.put_message(sequence, chat_id=chat_id, content=content or f"old {sequence}")
        self.set_counter(chat_id, count, published=count)

    def put_message(
        self, sequence: int, *, chat_id: str = CHAT, content: str = "text", age_s: float = 0.0, sender_id: str = ANN
    ) -> Message:
        """A row as another process would have written it, without its key."""
        message = Message(
            message_id=f"msg_old{sequence}",
            chat_id=chat_id,
            sequence=sequence,
            sender_id=sender_id,
            client_message_id=key_id(900_000 + sequence),
            content=content,
            content_type="text/plain",
            created_at=iso(self.now_ms() - int(age_s * 1000)),
        )
        self.store.fill(message)
        return message

    def put_tombstone(self, sequence: int, *, chat_id: str = CHAT, age_s: float = 0.0) -> None:
        created_at = iso(self.now_ms() - int(age_s * 1000))
        self.store.fill(Sealed(chat_id=chat_id, sequence=sequence, created_at=created_at))

    def put_key(self, draft: Draft, message: Message, *, expires_in_s: int = limits.KEY_LIFETIME_S) -> None:
        self.store.keys[draft.chat_id, draft.client_message_id] = Key(
            client_message_id=draft.client_message_id,
            message_id=message.message_id,
            sequence=message.sequence,
            sender_id=message.sender_id,
            content_sha256=content_digest(message.content),
            created_at=message.created_at,
            expires_at_s=self.now_ms() // 1000 + expires_in_s,
        )

    def remove(self, user_id: str, *, chat_id: str = CHAT) -> None:
        """As a removal elsewhere does it: the row and the version together."""
        row = self.counter(chat_id)
        raised = msgspec.structs.replace(row, members_version=row.members_version + 1)
        self.store.put_counter(chat_id, raised)
        self.store.drop_member(chat_id, user_id, raised.members_version)

    # --- processes -------------------------------------------------------------------------------------------------

    def node(self, name: str = "ingest-1", *, skew_s: float = 0.0, atomic_store: bool = False) -> "Node":
        """`atomic_store`: its store takes whole sends. Such a store belongs to one process."""
        return Node(self, name, skew_s, atomic_store or self.atomic_store)

    # --- what is there now -----------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return EPOCH_MS + int(self.loop.time() * 1000)

    def counter(self, chat_id: str = CHAT) -> ChatCounter:
        return self.store.counters[chat_id]

    def slots(self, chat_id: str = CHAT) -> dict[int, Slot]:
        everything = self.store.slots(chat_id)
        return {
            sequence: slot
            for sequence in range(1, everything.newest(messages_only=False) + 1)
            if (slot := everything.holder(sequence)) is not None
        }

    def messages(self, chat_id: str = CHAT) -> list[Message]:
        return [slot for slot in self.slots(chat_id).values() if isinstance(slot, Message)]

    def contents(self, chat_id: str = CHAT) -> list[str]:
        return [message.content for message in self.messages(chat_id)]

    def tombstones(self, chat_id: str = CHAT) -> list[int]:
        return [sequence for sequence, slot in self.slots(chat_id).items() if isinstance(slot, Sealed)]

    def last_message(self, chat_id: str, at_most: int) -> int:
        return self.store.slots(chat_id).newest(at_most=at_most, messages_only=True)

    def events(self, chat_id: str = CHAT) -> list[MessagePersisted]:
        """Everything in the log of messages, repetitions too, in its order."""
        decoded = [decode(record.key, record.value) for record in self.broker.records(MESSAGES)]
        return [event for event in decoded if isinstance(event, MessagePersisted) and event.message.chat_id == chat_id]

    def published(self, chat_id: str = CHAT) -> list[int]:
        return [event.message.sequence for event in self.events(chat_id)]

    def first_published(self, chat_id: str = CHAT) -> list[int]:
        return list(dict.fromkeys(self.published(chat_id)))

    def membership_events(self) -> list[MembershipChanged]:
        decoded = [decode(record.key, record.value) for record in self.broker.records(MEMBERSHIPS)]
        return [event for event in decoded if isinstance(event, MembershipChanged)]

    # --- promises that hold in every schedule ----------------------------------------------------------------------

    def slot_filled(self, slot: Slot) -> None:
        if (slot.chat_id, slot.sequence) in self._filled:
            self.violations.append(f"slot {slot.sequence} was written twice")
        self._filled.add((slot.chat_id, slot.sequence))

    def appended(self, record: Record) -> None:
        event = decode(record.key, record.value)
        if isinstance(event, MessagePersisted):
            self._in_the_log.add(event.message.message_id)

    def committed(self, group: str, partition: Partition, next_offset: int) -> None:
        """No consumer reads the log here."""

    def check_receipt(self, draft: Draft, receipt: Receipt) -> None:
        """At the moment of the answer: stored, as this sender's, and in the event log."""
        holder = self.store.slots(draft.chat_id).holder(receipt.sequence)
        if not isinstance(holder, Message) or holder.message_id != receipt.message_id:
            self.violations.append(f"acknowledged at {receipt.sequence}, but that slot holds {holder}")
        elif holder.sender_id != draft.sender_id:
            self.violations.append(f"acknowledged to {draft.sender_id} what {holder.sender_id} wrote")
        published_by_hand = receipt.message_id.startswith("msg_old")
        if not published_by_hand and not self.is_published(receipt.message_id):
            self.violations.append(f"{receipt.sequence} was acknowledged before it was published")

    def is_published(self, message_id: str) -> bool:
        return message_id in self._in_the_log

    def check(self) -> None:
        for chat_id in self.store.chats:
            self._check_log(chat_id)
        assert not self.violations, self.violations

    def _check_log(self, chat_id: str) -> None:
        first = self.first_published(chat_id)
        if first != sorted(first):
            self.violations.append(f"first occurrences in the log are out of order: {first}")
        slots = self.slots(chat_id)
        for event in self.events(chat_id):
            message = event.message
            if slots.get(message.sequence) != message:
                self.violations.append(f"the event of {message.sequence} differs from its row")
            before = self.last_message(chat_id, message.sequence - 1)
            if event.prev_sequence is not None and event.prev_sequence != before:
                self.violations.append(
                    f"the event of {message.sequence} names {event.prev_sequence} as the message before, not {before}"
                )


class Node:
    """One ingest process: its own clock, wires and fate."""

    def __init__(self, harness: DurabilityHarness, name: str, skew_s: float, atomic_store: bool) -> None:
        self.harness = harness
        self.name = name
        self.process = Process(harness.loop, name, random=Random(name), skew_s=skew_s)
        self.clock = self.process.clock
        self.wire = ScriptedWire()
        self.events_wire = ScriptedWire()
        self.log = harness.message_log(self.wire)
        self.catalog = harness.catalog(self.wire)
        self.events = harness.event_writer(self.events_wire, self.clock)
        self.recorded = DurabilityRecorder()
        self.ingest = Ingest(
            log=self.log,
            events=self.events,
            clock=self.clock,
            producer_id=name,
            atomic_store=harness.atomic_store_handle(self.wire, self.clock) if atomic_store else None,
            observe=self.recorded,
        )
        self.atomic_store = atomic_store

    def on_lookup(self, *outcomes: CallOutcome) -> None:
        """The outcome of the next reads that a draft depends on. An atomic commit has one outcome for all of them."""
        self.wire.on("transaction" if self.atomic_store else "lookup", *outcomes)

    def on_commit(self, *outcomes: CallOutcome) -> None:
        self.wire.on("transaction" if self.atomic_store else "persist", *outcomes)

    def on_publish(self, *outcomes: CallOutcome) -> None:
        if self.atomic_store:
            self.wire.on("transaction", *outcomes)
        else:
            self.events_wire.on("append", *outcomes)

    def submit(self, draft: Draft, *, within_s: float = limits.PERSIST_DEADLINE_S) -> asyncio.Future[Outcome]:
        """Submits, and watches that the answer comes once, in time, from outside, and tells the truth."""
        deadline = self.clock.monotonic() + within_s
        answered: asyncio.Future[Outcome] = self.harness.loop.create_future()
        returned = False

        def answer(outcome: Outcome) -> None:
            if answered.done():
                self.harness.violations.append("answered twice")
                return
            if not returned:
                self.harness.violations.append("answered from within submit")
            if self.clock.monotonic() > deadline + 0.001:
                self.harness.violations.append(f"answered {self.clock.monotonic() - deadline:.3f} s after the deadline")
            if isinstance(outcome, Receipt):
                self.harness.check_receipt(draft, outcome)
            answered.set_result(outcome)

        self.process.run(lambda: self.ingest.submit(draft, deadline=deadline, answer=answer))
        returned = True
        return answered

    async def send(self, draft: Draft, *, within_s: float = limits.PERSIST_DEADLINE_S) -> Outcome:
        return await self.submit(draft, within_s=within_s)

    async def stored(self, draft: Draft, *, within_s: float = limits.PERSIST_DEADLINE_S) -> Receipt:
        """Sends what has to succeed."""
        outcome = await self.send(draft, within_s=within_s)
        assert isinstance(outcome, Receipt), repr(outcome)
        return outcome

    async def failed(self, draft: Draft, *, within_s: float = limits.PERSIST_DEADLINE_S) -> SeriatimError:
        """Sends what must not succeed."""
        outcome = await self.send(draft, within_s=within_s)
        assert isinstance(outcome, SeriatimError), outcome
        return outcome

    async def read_all(self, user_id: str, *, after: int = 0, limit: int = 100, pages_max: int = 50) -> list[Message]:
        """Follows the chat to its end as a client does: the next page begins where the last one said it ended."""
        seen: list[Message] = []
        for _ in range(pages_max):
            page = await self.ingest.read(user_id, CHAT, after=after, limit=limit, timeout_s=5)
            seen.extend(page.messages)
            after = page.through
            if not page.has_more:
                return seen
        raise AssertionError(f"no end after {pages_max} pages: the reader is at {after}")

    def start_reconciler(self) -> asyncio.Task[None]:
        return self.process.spawn(self.ingest.run())

    def crash(self) -> None:
        self.process.crash()

    # --- its parts, for tests of one of them -----------------------------------------------------------------------

    def deadline(self, within_s: float = limits.PERSIST_DEADLINE_S) -> Deadline:
        return Deadline(self.clock, self.clock.monotonic() + within_s)

    def prefix(self) -> PrefixReader:
        return PrefixReader(self.log, self.clock, self.recorded)

    def publisher(self) -> ChatPublisher:
        return ChatPublisher(
            CHAT,
            log=self.log,
            prefix=self.prefix(),
            events=self.events,
            clock=self.clock,
            observe=self.recorded,
            producer_id=self.name,
        )

    def slot_writer(self, publisher: ChatPublisher) -> SlotWriter:
        return SlotWriter(
            CHAT,
            log=self.log,
            prefix=self.prefix(),
            publisher=publisher,
            guard=StoreGuard(None, self.clock),
            clock=self.clock,
            observe=self.recorded,
        )


def key_id(number: int) -> str:
    """The same number names the same client_message_id."""
    return f"00000000-0000-4000-8000-{number:012d}"


def draft(number: int, content: str = "", *, sender_id: str = ANN, chat_id: str = CHAT) -> Draft:
    return Draft(
        chat_id=chat_id, sender_id=sender_id, client_message_id=key_id(number), content=content or f"text {number}"
    )


def drafts(*numbers: int) -> list[tuple[Draft, str]]:
    """As a slot writer takes them: with the digest of their content."""
    return [(each, content_digest(each.content)) for each in map(draft, numbers)]

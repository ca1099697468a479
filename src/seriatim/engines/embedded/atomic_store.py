"""`AtomicStore` in the data folder: messages, keys, counters and events lie in one place, so a send is one write."""

from collections.abc import Callable, Sequence

from seriatim.domain import limits
from seriatim.domain.errors import InternalError, RowUnreadable, SeriatimError
from seriatim.domain.sharding import partition as partition_of
from seriatim.engines.embedded.event_log import Appended, EmbeddedEventLog
from seriatim.engines.embedded.message_log import put_counter_row
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.storage.rows import CounterRow, EventRow
from seriatim.engines.embedded.storage.snapshot import WriteTransaction
from seriatim.engines.shared import store_rules
from seriatim.ports.atomic_store import AtomicStore, AtomicTransaction
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import MESSAGES, Event, Partition
from seriatim.ports.message_log import ChatCounter, Entry, Key


class EmbeddedAtomicStore(AtomicStore):
    """Slots are not looked at one by one: nobody but this process writes, and nothing above a counter is ever filled.

    A folder that was tampered with may have a counter below its slots; so each chat is looked at once.
    """

    def __init__(self, folder: Folder, events: EmbeddedEventLog, clock: Clock) -> None:
        self._writer = folder.writer
        self._disk = folder.disk
        self._events = events
        self._clock = clock
        self._trusted: dict[str, None] = {}
        self._places: dict[str, Place] = {}
        folder.writer.mended.append(self._trusted.clear)

    def ask(
        self,
        take: Callable[[AtomicTransaction], None],
        answer: Callable[[SeriatimError | None], None],
        *,
        deadline: float,
    ) -> None:
        appended: dict[Partition, list[Appended]] = {}

        def decide(transaction: WriteTransaction) -> None:
            step = EmbeddedAtomicTransaction(
                transaction, self._events, self._clock.now_ms(), appended, self._place, self._trusts
            )
            take(step)
            step.finish()

        self._writer.enlist("send", decide, answer, deadline=deadline, applied=lambda: self._events.appended(appended))

    def _place(self, chat_id: str) -> "Place":
        place = self._places.get(chat_id)
        if place is None:
            if len(self._places) >= limits.STORE_CACHED_CHATS_MAX:
                del self._places[next(iter(self._places))]
            partition = Partition(MESSAGES, partition_of(chat_id, self._events.partition_count(MESSAGES)))
            place = self._places[chat_id] = Place(chat_id, partition)
        return place

    def _trusts(self, chat_id: str, row: CounterRow) -> bool:
        if chat_id not in self._trusted:
            prefix = rows.slots_prefix(chat_id)
            newest = next(self._disk.scan_down(rows.after(prefix), prefix), None)
            if newest is not None and rows.last_number(newest[0]) > row.counter.allocated:
                return False
            if len(self._trusted) >= limits.STORE_VERIFIED_CHATS_MAX:
                del self._trusted[next(iter(self._trusted))]
            self._trusted[chat_id] = None
        return True


class Place:
    """Where the rows of one chat lie, worked out once, and its counter as it was read or written last."""

    __slots__ = ("_counter", "_row", "chat_id", "counter_key", "key", "keys", "partition", "slots")

    def __init__(self, chat_id: str, partition: Partition) -> None:
        self.chat_id = chat_id
        self.partition = partition
        self.key = chat_id.encode()
        self.keys = rows.keys_prefix(chat_id)
        self.slots = rows.slots_prefix(chat_id)
        self.counter_key = rows.counter_key(chat_id)
        self._row: bytes | None = None
        self._counter: CounterRow | None = None

    def counter(self, transaction: WriteTransaction) -> CounterRow | None:
        """Read anew only if the row is another one: the very bytes that were written come back."""
        row = transaction.get(self.counter_key)
        if row is not self._row:
            self._counter = rows.COUNTER.found(row)
            self._row = row
        return self._counter

    def put_counter(self, transaction: WriteTransaction, before: CounterRow, counter: ChatCounter) -> None:
        after = CounterRow(
            counter=counter, recovered_at_ms=before.recovered_at_ms, recovered_from=before.recovered_from
        )
        put_counter_row(transaction, self.chat_id, before, after)
        self._row, self._counter = transaction.changes[self.counter_key], after


class EmbeddedAtomicTransaction(AtomicTransaction):
    """Over one `WriteTransaction`. What it appends is gathered, partition by partition, and written by `finish`."""

    def __init__(
        self,
        transaction: WriteTransaction,
        events: EmbeddedEventLog,
        now_ms: int,
        appended: dict[Partition, list[Appended]],
        place_of: Callable[[str], Place],
        trusts: Callable[[str, CounterRow], bool],
    ) -> None:
        self._view = transaction
        self._changes = transaction.changes
        self._events = events
        self._now_ms = now_ms
        self._appended = appended
        self._place_of = place_of
        self._trusts = trusts
        self._fresh: dict[Partition, list[Appended]] = {}
        self._places: dict[str, tuple[Place, list[Appended]]] = {}  # and the events of its partition
        self._counters: dict[str, CounterRow] = {}
        self._names: dict[tuple[str, str], bytes] = {}  # the rows of the keys that were expected
        self._known: dict[bytes, bytes | None] = {}  # as they were before this step

    def counter(self, chat_id: str) -> ChatCounter | None:
        place, _ = self._places.get(chat_id) or self._find(chat_id)
        row = place.counter(self._view)
        if row is None or not self._trusts(chat_id, row):
            return None
        self._counters[chat_id] = row
        return row.counter

    def expect(self, keys: Sequence[tuple[str, str]]) -> None:
        places, names = self._places, self._names
        for key in keys:
            chat_id, client_message_id = key
            place, _ = places.get(chat_id) or self._find(chat_id)
            names[key] = rows.idempotency_key(place.keys, client_message_id)
        asked = list(names.values())
        try:
            self._known = dict(zip(asked, self._view.get_all(asked), strict=True))
        except RowUnreadable:
            names.clear()  # one of them is damaged: each is read when it is asked for, and only that one fails

    def key(self, chat_id: str, client_message_id: str) -> Key | None:
        name = self._names.get((chat_id, client_message_id))
        if name is None:
            place, _ = self._places.get(chat_id) or self._find(chat_id)
            found = self._view.get(rows.idempotency_key(place.keys, client_message_id))
        else:
            found = self._changes.get(name) or self._known[name]  # no row is ever empty, and no key is taken back
        return None if found is None else rows.KEY.decode(found)

    def is_member(self, chat_id: str, user_id: str) -> bool:
        return self._view.get(rows.member_key(chat_id, user_id)) is not None

    def add(self, entry: Entry, event: Event) -> None:
        message = entry.message
        chat_id, client_message_id = message.chat_id, message.client_message_id
        place, fresh = self._places.get(chat_id) or self._find(chat_id)
        name = self._names.get((chat_id, client_message_id)) or rows.idempotency_key(place.keys, client_message_id)
        changes = self._changes
        changes[place.slots + message.sequence.to_bytes(8, "big")] = rows.encode_message(message)
        changes[name] = rows.KEY.encode(store_rules.key_of(entry))
        fresh.append((EventRow(place.key, event.value, event.headers, self._now_ms), event.decoded))

    def put_counter(self, chat_id: str, counter: ChatCounter) -> None:
        place, _ = self._places.get(chat_id) or self._find(chat_id)
        before = self._counters.pop(chat_id, None) or place.counter(self._view)
        if before is None:
            raise InternalError(f"{chat_id} has no counter")
        place.put_counter(self._view, before, counter)

    def finish(self) -> None:
        for partition, fresh in self._fresh.items():
            if fresh:
                self._events.put(self._view, partition, fresh)
                self._appended[partition] = fresh

    def _find(self, chat_id: str) -> tuple[Place, list[Appended]]:
        place = self._place_of(chat_id)
        found = self._places[chat_id] = (place, self._fresh.setdefault(place.partition, []))
        return found

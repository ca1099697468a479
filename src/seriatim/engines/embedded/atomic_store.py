"""`AtomicStore` in the data folder: messages, keys, counters and events lie in one place, so a send is one write."""

import asyncio
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

_OPERATION = "send"


class EmbeddedAtomicStore(AtomicStore):
    """Slots are not read one by one: only this process writes, and it fills no slot above a counter.

    In a folder that was tampered with a counter may be below its slots; so each chat is verified once.
    """

    def __init__(self, folder: Folder, events: EmbeddedEventLog, clock: Clock) -> None:
        self.writer = folder.writer
        self.events = events
        self._disk = folder.disk
        self._clock = clock
        self._verified: dict[str, None] = {}
        self._chats: dict[str, CachedChat] = {}
        folder.writer.mended.append(self._verified.clear)

    def when_ready(self, begin: Callable[[AtomicTransaction | SeriatimError], None], *, deadline: float) -> None:
        def begin_on(opened: WriteTransaction | SeriatimError) -> None:
            if isinstance(opened, SeriatimError):
                begin(opened)
            else:
                begin(EmbeddedAtomicTransaction(self, opened, self._clock.now_ms(), deadline))

        self.writer.when_ready(_OPERATION, begin_on, deadline=deadline)

    def chat(self, chat_id: str) -> "CachedChat":
        chat = self._chats.get(chat_id)
        if chat is None:
            if len(self._chats) >= limits.STORE_CACHED_CHATS_MAX:
                del self._chats[next(iter(self._chats))]
            partition = Partition(MESSAGES, partition_of(chat_id, self.events.partition_count(MESSAGES)))
            chat = self._chats[chat_id] = CachedChat(chat_id, partition)
        return chat

    def verified(self, chat_id: str, row: CounterRow) -> bool:
        """Whether no slot above the counter is filled."""
        if chat_id not in self._verified:
            prefix = rows.slots_prefix(chat_id)
            newest = next(self._disk.scan_down(rows.after(prefix), prefix), None)
            if newest is not None and rows.last_number(newest[0]) > row.counter.allocated:
                return False
            if len(self._verified) >= limits.STORE_VERIFIED_CHATS_MAX:
                del self._verified[next(iter(self._verified))]
            self._verified[chat_id] = None
        return True


class CachedChat:
    """The keys of one chat's rows, built once, and its counter as it was read or written last."""

    __slots__ = ("_counter", "_row", "chat_id", "counter_key", "event_key", "keys_prefix", "partition", "slots_prefix")

    def __init__(self, chat_id: str, partition: Partition) -> None:
        self.chat_id = chat_id
        self.partition = partition
        self.event_key = chat_id.encode()
        self.keys_prefix = rows.keys_prefix(chat_id)
        self.slots_prefix = rows.slots_prefix(chat_id)
        self.counter_key = rows.counter_key(chat_id)
        self._row: bytes | None = None
        self._counter: CounterRow | None = None

    def counter(self, transaction: WriteTransaction) -> CounterRow | None:
        """Decoded only if the row is another object: an unchanged row comes back as the same bytes object."""
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
    """Over one `WriteTransaction`. The events are collected by partition, and written by `commit`."""

    def __init__(self, store: EmbeddedAtomicStore, transaction: WriteTransaction, now_ms: int, deadline: float) -> None:
        self._store = store
        self._transaction = transaction
        self._changes = transaction.changes
        self._now_ms = now_ms
        self._deadline = deadline
        self._events: dict[Partition, list[Appended]] = {}
        self._chats: dict[str, tuple[CachedChat, list[Appended]]] = {}  # and the events of its partition
        self._counters: dict[str, CounterRow] = {}
        self._key_rows: dict[tuple[str, str], bytes] = {}  # the row keys of the idempotency keys that were expected
        self._fetched: dict[bytes, bytes | None] = {}  # those rows as they were before this transaction

    def counter(self, chat_id: str) -> ChatCounter | None:
        chat, _ = self._chats.get(chat_id) or self._chat(chat_id)
        row = chat.counter(self._transaction)
        if row is None or not self._store.verified(chat_id, row):
            return None
        self._counters[chat_id] = row
        return row.counter

    def expect(self, keys: Sequence[tuple[str, str]]) -> None:
        chats, key_rows = self._chats, self._key_rows
        for key in keys:
            chat_id, client_message_id = key
            chat, _ = chats.get(chat_id) or self._chat(chat_id)
            key_rows[key] = rows.idempotency_key(chat.keys_prefix, client_message_id)
        wanted = list(key_rows.values())
        try:
            self._fetched = dict(zip(wanted, self._transaction.get_all(wanted), strict=True))
        except RowUnreadable:
            key_rows.clear()  # one of them is damaged: each is read when it is asked for, and only that one fails

    def key(self, chat_id: str, client_message_id: str) -> Key | None:
        key_row = self._key_rows.get((chat_id, client_message_id))
        if key_row is None:
            chat, _ = self._chats.get(chat_id) or self._chat(chat_id)
            found = self._transaction.get(rows.idempotency_key(chat.keys_prefix, client_message_id))
        else:
            found = self._changes.get(key_row) or self._fetched[key_row]  # no row is empty, and no key is deleted
        return None if found is None else rows.KEY.decode(found)

    def is_member(self, chat_id: str, user_id: str) -> bool:
        return self._transaction.get(rows.member_key(chat_id, user_id)) is not None

    def add(self, entry: Entry, event: Event) -> None:
        message = entry.message
        chat_id, client_message_id = message.chat_id, message.client_message_id
        chat, events = self._chats.get(chat_id) or self._chat(chat_id)
        key_row = self._key_rows.get((chat_id, client_message_id)) or rows.idempotency_key(
            chat.keys_prefix, client_message_id
        )
        changes = self._changes
        changes[chat.slots_prefix + message.sequence.to_bytes(8, "big")] = rows.encode_message(message)
        changes[key_row] = rows.KEY.encode(store_rules.key_of(entry))
        events.append((EventRow(chat.event_key, event.value, event.headers, self._now_ms), event.decoded))

    def put_counter(self, chat_id: str, counter: ChatCounter) -> None:
        chat, _ = self._chats.get(chat_id) or self._chat(chat_id)
        before = self._counters.pop(chat_id, None) or chat.counter(self._transaction)
        if before is None:
            raise InternalError(f"{chat_id} has no counter")
        chat.put_counter(self._transaction, before, counter)

    def commit(self, done: Callable[[SeriatimError | None], None]) -> None:
        log, store = self._store.events, self._store
        appended = {partition: events for partition, events in self._events.items() if events}
        try:
            for partition, events in appended.items():
                log.put(self._transaction, partition, events)
        except SeriatimError as error:  # the end of a partition cannot be read
            asyncio.get_running_loop().call_soon(done, error)
            return
        store.writer.submit(
            _OPERATION, self._transaction, done, deadline=self._deadline, applied=lambda: log.appended(appended)
        )

    def _chat(self, chat_id: str) -> tuple[CachedChat, list[Appended]]:
        chat = self._store.chat(chat_id)
        found = self._chats[chat_id] = (chat, self._events.setdefault(chat.partition, []))
        return found

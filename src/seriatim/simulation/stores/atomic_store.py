"""`AtomicStore` in memory: a transaction is decided where the rows are and in one moment, or never.

Stricter than a folder: answers may overtake each other, and what was decided may be dropped, though no process died.
"""

import asyncio
import contextvars
from collections.abc import Callable, Sequence

from seriatim.domain.errors import InternalError, OutcomeUnknown, SeriatimError, ServiceUnavailable
from seriatim.domain.sharding import partition as partition_of
from seriatim.engines.inprocess.wire import Wire
from seriatim.engines.shared import store_rules
from seriatim.ports.atomic_store import AtomicStore, AtomicTransaction
from seriatim.ports.event_log import MESSAGES, Event, Partition
from seriatim.ports.message_log import ChatCounter, Entry, Key
from seriatim.simulation.stores.event_log import MemoryBroker
from seriatim.simulation.stores.tables import MemoryStore

Begin = Callable[[AtomicTransaction | SeriatimError], None]
Done = Callable[[SeriatimError | None], None]


class MemoryAtomicStore(AtomicStore):
    """One process's handle on a store and an event log that are one."""

    def __init__(self, store: MemoryStore, broker: MemoryBroker, wire: Wire, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._broker = broker
        self._wire = wire
        self._now_ms = now_ms
        self._closed = False
        self._under_way: dict[asyncio.Task[None], None] = {}

    def when_ready(self, begin: Begin, *, deadline: float) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(_Request(begin), deadline))
        self._under_way[task] = None
        task.add_done_callback(self._under_way.pop)

    async def close(self) -> None:
        """Earlier requests are answered; later ones are refused."""
        self._closed = True
        while self._under_way:
            await asyncio.wait(list(self._under_way))

    async def _carry(self, request: "_Request", deadline: float) -> None:
        error: SeriatimError | None = None
        changed: list[str] = []

        def finish() -> None:
            for chat_id in changed:
                self._store.index_dirty(chat_id)

        try:
            if self._closed:
                raise ServiceUnavailable("the store is closed")
            await self._wire.call(
                "transaction",
                lambda: changed.extend(self._apply(request)),
                timeout_s=deadline - asyncio.get_running_loop().time(),
                finish=finish,
            )
        except SeriatimError as refusal:
            error = refusal
        request.answer(error)

    def _apply(self, request: "_Request") -> Sequence[str]:
        """The chats whose counters it wrote. Its process decides, so it must still be there and waiting."""
        if request.answered or not self._wire.caller_alive():
            raise OutcomeUnknown("transaction: the process that asked for it is gone")
        request.transaction = transaction = MemoryAtomicTransaction(self._store)
        request.start(transaction)
        if transaction.done is None:
            return []
        if not self._wire.events_kept(1):
            raise OutcomeUnknown("transaction: decided, and not written")
        transaction.write(self._broker, self._now_ms())
        return list(transaction.counters)


class _Request:
    """Whatever `begin` starts belongs to the process that asked, wherever `begin` is called from."""

    __slots__ = ("_begin", "_context", "answered", "transaction")

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._context = contextvars.copy_context()
        self.transaction: MemoryAtomicTransaction | None = None
        self.answered = False

    def start(self, transaction: "MemoryAtomicTransaction") -> None:
        try:
            self._context.run(self._begin, transaction)
        except Exception as failure:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "transaction: begin failed", "exception": failure}
            )

    def answer(self, error: SeriatimError | None) -> None:
        self.answered = True
        if self.transaction is not None:
            if self.transaction.done is not None:
                self.transaction.done(error)
        elif error is not None:
            self._begin(error)


class MemoryAtomicTransaction(AtomicTransaction):
    """Collects the changes; `write` makes them all."""

    def __init__(self, store: MemoryStore) -> None:
        self.done: Done | None = None
        self.counters: dict[str, ChatCounter] = {}
        self._store = store
        self._entries: dict[tuple[str, int], Entry] = {}
        self._keys: dict[tuple[str, str], Key] = {}
        self._events: list[Event] = []

    def counter(self, chat_id: str) -> ChatCounter | None:
        row = self._store.counter(chat_id)
        if row is None or self._store.slots(chat_id).newest(messages_only=False) > row.allocated:
            return None
        return self.counters.get(chat_id, row)

    def expect(self, keys: Sequence[tuple[str, str]]) -> None:
        return

    def key(self, chat_id: str, client_message_id: str) -> Key | None:
        place = (chat_id, client_message_id)
        return self._keys.get(place) or self._store.key(*place)

    def is_member(self, chat_id: str, user_id: str) -> bool:
        return user_id in self._store.members(chat_id)

    def add(self, entry: Entry, event: Event) -> None:
        message = entry.message
        place = (message.chat_id, message.sequence)
        row = self._store.counters.get(message.chat_id)
        if row is None or message.sequence <= row.allocated or place in self._entries:
            raise InternalError(f"transaction: slot {message.sequence} of {message.chat_id} is not above its counter")
        if event.key != message.chat_id:
            raise InternalError(f"transaction: the event of {message.message_id} has another key than its chat")
        self._entries[place] = entry
        self._keys[message.chat_id, message.client_message_id] = store_rules.key_of(entry)
        self._events.append(event)

    def put_counter(self, chat_id: str, counter: ChatCounter) -> None:
        if chat_id not in self._store.counters:
            raise InternalError(f"transaction: {chat_id} has no counter")
        self.counters[chat_id] = counter

    def commit(self, done: Done) -> None:
        self.done = done

    def write(self, broker: MemoryBroker, now_ms: int) -> None:
        store = self._store
        for entry in self._entries.values():
            store.fill(entry.message)
        store.keys.update(self._keys)
        for event in self._events:
            partition = Partition(MESSAGES, partition_of(event.key, broker.partition_count(MESSAGES)))
            broker.append(partition, [(event.key.encode(), event.value, event.headers)], now_ms)
        for chat_id, counter in self.counters.items():
            before = store.counters[chat_id].allocated
            store.put_counter(chat_id, counter)
            if counter.allocated > before:
                store.observer.allocated(chat_id, before + 1, counter.allocated)

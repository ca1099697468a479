"""`AtomicStore` in memory: a step is decided where the rows are and in one moment, or never.

Stricter than a folder: answers may overtake each other, and what was decided may come to nothing, though nothing died.
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

Take = Callable[[AtomicTransaction], None]
Answer = Callable[[SeriatimError | None], None]


class MemoryAtomicStore(AtomicStore):
    """One process's handle on a store and an event log that are one."""

    def __init__(self, store: MemoryStore, broker: MemoryBroker, wire: Wire, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._broker = broker
        self._wire = wire
        self._now_ms = now_ms
        self._closed = False
        self._under_way: dict[asyncio.Task[None], None] = {}

    def ask(self, take: Take, answer: Answer, *, deadline: float) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(_Asked(take), answer, deadline))
        self._under_way[task] = None
        task.add_done_callback(self._under_way.pop)

    async def close(self) -> None:
        """What was asked for before is answered; what comes later is refused."""
        self._closed = True
        while self._under_way:
            await asyncio.wait(list(self._under_way))

    async def _carry(self, asked: "_Asked", answer: Answer, deadline: float) -> None:
        error: SeriatimError | None = None
        stood: list[str] = []

        def finish() -> None:
            for chat_id in stood:
                self._store.index_dirty(chat_id)

        try:
            if self._closed:
                raise ServiceUnavailable("the store is closed")
            await self._wire.call(
                "step",
                lambda: stood.extend(self._apply(asked)),
                timeout_s=deadline - asyncio.get_running_loop().time(),
                finish=finish,
            )
        except SeriatimError as refusal:
            error = refusal
        except Exception as failure:
            error = InternalError("step: something unexpected happened")
            error.__cause__ = failure
        asked.answered = True
        answer(error)

    def _apply(self, asked: "_Asked") -> Sequence[str]:
        """The chats whose counters it wrote. Its process decides, so it must still be there and waiting."""
        if asked.answered or not self._wire.listens():
            raise OutcomeUnknown("step: whoever asked is gone")
        step = MemoryAtomicTransaction(self._store)
        asked.context.run(asked.take, step)
        if not self._wire.cut(1):
            raise OutcomeUnknown("step: decided, and not written")
        step.write(self._broker, self._now_ms())
        return list(step.counters)


class _Asked:
    """What `take` starts belongs to who asked, wherever it is called from."""

    __slots__ = ("answered", "context", "take")

    def __init__(self, take: Take) -> None:
        self.take = take
        self.context = contextvars.copy_context()
        self.answered = False


class MemoryAtomicTransaction(AtomicTransaction):
    """Gathers what it is told; `write` does it all."""

    def __init__(self, store: MemoryStore) -> None:
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
            raise InternalError(f"step: slot {message.sequence} of {message.chat_id} is not above its counter")
        if event.key != message.chat_id:
            raise InternalError(f"step: the event of {message.message_id} has another key than its chat")
        self._entries[place] = entry
        self._keys[message.chat_id, message.client_message_id] = store_rules.key_of(entry)
        self._events.append(event)

    def put_counter(self, chat_id: str, counter: ChatCounter) -> None:
        if chat_id not in self._store.counters:
            raise InternalError(f"step: {chat_id} has no counter")
        self.counters[chat_id] = counter

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

"""`OneStep` in the data folder: messages, keys, counters and events lie in one place, so a send is one write."""

from collections.abc import Callable, Sequence

from seriatim.domain.errors import InternalError, SeriatimError
from seriatim.domain.limits import STORE_CHATS_TRUSTED_MAX
from seriatim.domain.partition import partition as partition_of
from seriatim.engines import store_rules
from seriatim.engines.embedded import rows
from seriatim.engines.embedded.event_log import EmbeddedEventLog
from seriatim.engines.embedded.folder import Folder
from seriatim.engines.embedded.message_log import counter, put_standing
from seriatim.engines.embedded.rows import CounterRow, EventRow
from seriatim.engines.embedded.view import View
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import MESSAGES, Event, Partition
from seriatim.ports.message_log import Entry, Key, Standing
from seriatim.ports.one_step import OneStep, Step


class EmbeddedOneStep(OneStep):
    """Slots are not looked at one by one: nobody but this process writes, and nothing above a counter is ever filled.

    A folder that was tampered with may have a counter below its slots; so each chat is looked at once.
    """

    def __init__(self, folder: Folder, events: EmbeddedEventLog, clock: Clock) -> None:
        self._writer = folder.writer
        self._disk = folder.disk
        self._events = events
        self._clock = clock
        self._trusted: dict[str, None] = {}
        folder.writer.mended.append(self._trusted.clear)

    def ask(
        self, take: Callable[[Step], None], answer: Callable[[SeriatimError | None], None], *, deadline: float
    ) -> None:
        appended: dict[Partition, list[EventRow]] = {}

        def decide(view: View) -> None:
            step = EmbeddedStep(view, self._events, self._clock.now_ms(), appended, self._trusts)
            take(step)
            step.finish()

        self._writer.enlist("send", decide, answer, deadline=deadline, applied=lambda: self._events.appended(appended))

    def _trusts(self, chat_id: str, counter: CounterRow) -> bool:
        if chat_id not in self._trusted:
            prefix = rows.slots_prefix(chat_id)
            newest = next(self._disk.scan_down(rows.after(prefix), prefix), None)
            if newest is not None and rows.last_number(newest[0]) > counter.standing.allocated:
                return False
            if len(self._trusted) >= STORE_CHATS_TRUSTED_MAX:
                del self._trusted[next(iter(self._trusted))]
            self._trusted[chat_id] = None
        return True


class EmbeddedStep(Step):
    """Over one `View`. What it appends is gathered, partition by partition, and written by `finish`."""

    def __init__(
        self,
        view: View,
        events: EmbeddedEventLog,
        now_ms: int,
        appended: dict[Partition, list[EventRow]],
        trusts: Callable[[str, CounterRow], bool],
    ) -> None:
        self._view = view
        self._events = events
        self._now_ms = now_ms
        self._appended = appended
        self._fresh: dict[Partition, list[EventRow]] = {}
        self._trusts = trusts
        self._known: dict[bytes, bytes | None] = {}
        self._places: dict[str, _Place] = {}

    def standing(self, chat_id: str) -> Standing | None:
        row = self._place(chat_id).counter = counter(self._view, chat_id)
        return row.standing if row is not None and self._trusts(chat_id, row) else None

    def expect(self, keys: Sequence[tuple[str, str]]) -> None:
        asked: list[bytes] = []
        for chat_id, client_message_id in keys:
            place = self._places.get(chat_id) or self._place(chat_id)
            place.names[client_message_id] = name = rows.idempotency_key(place.keys, client_message_id)
            asked.append(name)
        self._known = dict(zip(asked, self._view.get_all(asked), strict=True))

    def key(self, chat_id: str, client_message_id: str) -> Key | None:
        place = self._places.get(chat_id) or self._place(chat_id)
        name = place.names.get(client_message_id)
        if name is None:
            name = rows.idempotency_key(place.keys, client_message_id)
            found = self._view.get(name)
        else:
            found = self._view.changes.get(name) or self._known[name]  # no row is ever empty, and no key is taken back
        return None if found is None else rows.KEY.decode(found)

    def is_member(self, chat_id: str, user_id: str) -> bool:
        return self._view.get(rows.member_key(chat_id, user_id)) is not None

    def add(self, entry: Entry, event: Event) -> None:
        message, changes = entry.message, self._view.changes
        place = self._places.get(message.chat_id) or self._place(message.chat_id)
        name = place.names.get(message.client_message_id)
        if name is None:
            name = rows.idempotency_key(place.keys, message.client_message_id)
        changes[rows.slot_key(place.slots, message.sequence)] = rows.encode_message(message)
        changes[name] = rows.KEY.encode(store_rules.key_of(entry))
        place.events.append(EventRow(place.key, event.value, event.headers, self._now_ms))

    def stand(self, chat_id: str, standing: Standing) -> None:
        place = self._place(chat_id)
        row, place.counter = place.counter or counter(self._view, chat_id), None
        if row is None:
            raise InternalError(f"{chat_id} has no counter")
        put_standing(self._view, chat_id, row, standing)

    def finish(self) -> None:
        for partition, fresh in self._fresh.items():
            if fresh:
                self._events.put(self._view, partition, fresh)
                self._appended[partition] = fresh

    def _place(self, chat_id: str) -> "_Place":
        place = self._places.get(chat_id)
        if place is None:
            partition = Partition(MESSAGES, partition_of(chat_id, self._events.partition_count(MESSAGES)))
            place = self._places[chat_id] = _Place(chat_id, self._fresh.setdefault(partition, []))
        return place


class _Place:
    """Where the rows of one chat lie: worked out once for all its messages."""

    __slots__ = ("counter", "events", "key", "keys", "names", "slots")

    def __init__(self, chat_id: str, events: list[EventRow]) -> None:
        self.counter: CounterRow | None = None
        self.key = chat_id.encode()
        self.keys = rows.keys_prefix(chat_id)
        self.slots = rows.slots_prefix(chat_id)
        self.names: dict[str, bytes] = {}  # the rows of the keys that were expected
        self.events = events

"""Chats, counters, slots, keys and watermarks: I2, I4, I5, I9-I11, I13, I14, D1 and D3."""

from collections.abc import Callable

from seriatim.domain import limits
from seriatim.domain.message import Message, content_digest
from seriatim.domain.times import iso
from seriatim.operations.check.findings import Findings
from seriatim.ports.inspection import Counter, Filled, StoredKey, StoredRows, StoredWatermark


class ChatCheck:
    def __init__(self, store: StoredRows, findings: Findings, now_ms: Callable[[], int]) -> None:
        self._rows = store
        self._findings = findings
        self._now_ms = now_ms

    async def run(self) -> None:
        async for watermark in self._rows.watermarks():
            self._findings.row()
            await self._watermark(watermark)
        async for key in self._rows.keys():
            self._findings.row()
            await self._key(key)
        async for counter in self._rows.counters():
            self._findings.row()
            await self._counter(counter)
        async for chat_id in self._rows.chats_with_slots():
            await self._check_slots_have_counter(chat_id)
        async for chat in self._rows.chats():
            self._findings.row()
            await self._check_chat_has_counter(chat.chat_id)

    async def _watermark(self, row: StoredWatermark) -> None:
        self._findings.examined("I4")
        # A tombstone counts: after the repair of a counter, numbers that were acknowledged and lost are sealed.
        newest = await self._rows.newest_slot(row.chat_id)
        if row.watermark.sequence > newest:
            self._findings.violated(
                "I4", f"{row.chat_id} {row.user_id}", f"the watermark is {row.watermark.sequence}, the end #{newest}"
            )

    async def _key(self, row: StoredKey) -> None:
        self._findings.examined("I11")
        key = row.key
        message = await self._rows.slot(row.chat_id, key.sequence)
        if not isinstance(message, Message):
            wrong = "there is no message"
        elif key.client_message_id != row.client_message_id or message.client_message_id != row.client_message_id:
            wrong = "there is one of another client_message_id"
        elif message.message_id != key.message_id:
            wrong = f"there is {message.message_id}"
        elif message.sender_id != key.sender_id:
            wrong = f"it is of {message.sender_id}, not of {key.sender_id}"
        elif content_digest(message.content) != key.content_sha256:
            wrong = "it has another content"
        else:
            return
        place = f"{row.chat_id} #{key.sequence}"
        self._findings.violated("I11", f"{place} {row.client_message_id}", f"the key says {key.message_id}; {wrong}")

    async def _counter(self, row: Counter) -> None:
        """The mark was read with the counter, so it is older than the slots; the counter is read again after them."""
        chat_id, mark = row.chat_id, row.counter.published_through
        scan = _SlotScan(self._rows, self._findings, chat_id, mark, self._keys_expected_since())
        async for filled in self._rows.slots(chat_id):
            self._findings.row()
            await scan.slot(filled)
        scan.end()
        if await self._rows.chat(chat_id) is None:
            self._findings.violated("I5", chat_id, "there is a counter, and no chat")
        now = await self._rows.counter(chat_id)
        if now is None:
            self._findings.violated("I5", chat_id, "the counter is gone")
            return
        self._findings.examined("I9", "I10", "D1", "D3")
        if scan.newest > now.allocated:
            self._findings.violated("I9", chat_id, f"slot #{scan.newest} is filled, and the counter is {now.allocated}")
        if scan.messages > now.allocated:
            self._findings.violated(
                "I10", chat_id, f"there are {scan.messages} messages, and the counter is {now.allocated}"
            )
        if now.published_through > now.allocated:
            self._findings.violated(
                "D1", chat_id, f"published up to #{now.published_through}, and the counter is {now.allocated}"
            )
        if now.published_through < now.allocated:
            await self._findings.confirm("D3", chat_id, lambda: self._unmarked(chat_id))

    async def _unmarked(self, chat_id: str) -> str | None:
        """The counter is read before and after the index: what changed in between is under way, and not forgotten."""
        counter = await self._rows.counter(chat_id)
        if counter is None or counter.published_through >= counter.allocated:
            return None
        since = counter.dirty_at_ms
        if since is not None and await self._rows.is_listed_dirty(chat_id, dirty_at_ms=since):
            return None
        if await self._rows.counter(chat_id) != counter:
            return None
        return f"published up to #{counter.published_through} of {counter.allocated}, and nothing says so"

    def _keys_expected_since(self) -> str:
        return iso(max(0, self._now_ms() - 1000 * (limits.KEY_LIFETIME_S - limits.CHECK_CLOCK_SKEW_S)))

    async def _check_slots_have_counter(self, chat_id: str) -> None:
        """Slots are filled after their counter was raised."""
        if await self._rows.counter(chat_id) is None:
            self._findings.violated("I5", chat_id, "there are messages, and no counter")

    async def _check_chat_has_counter(self, chat_id: str) -> None:
        self._findings.examined("I5")
        if await self._rows.counter(chat_id) is None:
            self._findings.violated("I5", chat_id, "there is no counter")


class _SlotScan:
    """Through the slots of one chat, from the first to the last."""

    def __init__(self, store: StoredRows, findings: Findings, chat_id: str, mark: int, keyed_since: str) -> None:
        self.newest = 0
        self.messages = 0
        self._rows = store
        self._findings = findings
        self._chat_id = chat_id
        self._mark = mark
        self._keys_expected_since = keyed_since
        self._next = 1

    async def slot(self, filled: Filled) -> None:
        self._findings.examined("I13", "I14")
        sequence, slot = filled.sequence, filled.slot
        if sequence < 1 or (slot.chat_id, slot.sequence) != (self._chat_id, sequence):
            self._findings.violated(
                "I13", f"{self._chat_id} #{sequence}", f"it says that it is {slot.chat_id} #{slot.sequence}"
            )
        self._report_hole_before(sequence)
        self._next = max(self._next, sequence + 1)
        self.newest = max(self.newest, sequence)
        if isinstance(slot, Message):
            self.messages += 1
            if slot.created_at > self._keys_expected_since:
                await self._check_key(slot, sequence)

    def end(self) -> None:
        self._report_hole_before(self._mark + 1)

    def _report_hole_before(self, sequence: int) -> None:
        last = min(sequence - 1, self._mark)
        if self._next <= last:
            self._findings.violated(
                "I14",
                f"{self._chat_id} #{self._next}",
                f"nothing is stored from #{self._next} to #{last}, and all up to #{self._mark} is marked as published",
            )

    async def _check_key(self, message: Message, sequence: int) -> None:
        """Of two messages with one id the key can name only one: this finds the other, without remembering ids."""
        self._findings.examined("I2")
        place, id = f"{self._chat_id} #{sequence}", message.client_message_id
        key = await self._rows.key(self._chat_id, id)
        if key is None:
            self._findings.violated("I2", place, f"the key {id} is gone before its time: a retry is stored again")
        elif (key.message_id, key.sequence) != (message.message_id, sequence):
            self._findings.violated("I2", place, f"the key {id} names #{key.sequence}, a message of the same id")

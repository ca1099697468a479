"""`MessageLog` and `CounterRepair` in the data folder: the conditions of W1-W4, W20 and W21.

Each write is one function over a `WriteTransaction`: reads, judgement and changes without an await, so it is atomic.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from seriatim.domain import limits
from seriatim.domain.chat import Role
from seriatim.domain.errors import CounterMissing, RowUnreadable
from seriatim.domain.message import Sealed, Slot
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.storage.rows import CounterRow, WatermarkRow
from seriatim.engines.embedded.storage.snapshot import ReadSnapshot, WriteTransaction
from seriatim.engines.shared import store_rules as rules
from seriatim.ports.message_log import (
    Allocation,
    Cancelled,
    ChatCounter,
    CounterRepair,
    DeliveryState,
    DirtyChat,
    Entry,
    KeyTaken,
    Lookup,
    MessageLog,
    PublishedAhead,
    SenderGone,
    SlotPage,
    SlotTaken,
    Watermark,
)

Cause = KeyTaken | SlotTaken | SenderGone


class EmbeddedDeliveryState(DeliveryState):
    """The REST edge's handle: it has nothing to write with."""

    def __init__(self, folder: Folder) -> None:
        self._writer = folder.writer

    async def newest_message(self, chat_id: str, *, at_most: int, timeout_s: float) -> int:
        return await self._writer.read(
            "newest_message",
            lambda snapshot: _newest(snapshot, chat_id, at_most, messages_only=True),
            timeout_s=timeout_s,
        )

    async def watermarks(
        self, pairs: Sequence[tuple[str, str]], *, timeout_s: float
    ) -> Mapping[tuple[str, str], Watermark]:
        rules.check_batch(len(pairs))
        rules.check_distinct("pairs of a batch", pairs)

        def read(snapshot: ReadSnapshot) -> Mapping[tuple[str, str], Watermark]:
            found = {pair: rows.WATERMARK.found(snapshot.get(rows.watermark_key(*pair))) for pair in pairs}
            return {pair: Watermark(row.sequence, row.updated_at_ms) for pair, row in found.items() if row is not None}

        return await self._writer.read("watermarks", read, timeout_s=timeout_s)


class EmbeddedMessageLog(EmbeddedDeliveryState, MessageLog, CounterRepair):
    """A handle on the messages of a folder. `token` is not kept: a repeated commit is known by what it wrote."""

    @property
    def transaction_items_max(self) -> int:
        return limits.STORE_ITEMS_MAX

    # --- a send -------------------------------------------------------------------------------------------------------

    async def lookup(
        self, chat_id: str, client_message_ids: Sequence[str], user_ids: Sequence[str], *, timeout_s: float
    ) -> Lookup:
        rules.check_batch(len(client_message_ids) + len(user_ids) + 1, most=limits.STORE_ITEMS_MAX)
        rules.check_distinct("keys of a lookup", client_message_ids)
        rules.check_distinct("users of a lookup", user_ids)

        def read(snapshot: ReadSnapshot) -> Lookup:
            asked = [*rows.idempotency_keys(chat_id, client_message_ids), *rows.member_keys(chat_id, user_ids)]
            counted, *found = snapshot.get_all([rows.counter_key(chat_id), *asked])
            keys, members = found[: len(client_message_ids)], found[len(client_message_ids) :]
            return Lookup(
                keys={
                    name: rows.KEY.decode(row)
                    for name, row in zip(client_message_ids, keys, strict=True)
                    if row is not None
                },
                roles={
                    user_id: rows.MEMBERSHIP.decode(row).role
                    for user_id, row in zip(user_ids, members, strict=True)
                    if row is not None
                },
                counter=None if counted is None else rows.COUNTER.decode(counted).counter,
            )

        return await self._writer.read("lookup", read, timeout_s=timeout_s)

    async def allocate(
        self,
        chat_id: str,
        count: int,
        *,
        published_through: int,
        published_message: int | None,
        now_ms: int,
        timeout_s: float,
    ) -> Allocation | PublishedAhead:
        rules.check_allocation(count)

        def decide(transaction: WriteTransaction) -> Allocation | PublishedAhead:
            row = counter_row(transaction, chat_id)
            if row is None:
                raise CounterMissing(chat_id)
            before = row.counter
            if before.published_through > published_through:
                return PublishedAhead(
                    published_through=before.published_through, published_message=before.published_message
                )
            after = rules.allocated(
                before, count, published_through=published_through, published_message=published_message, now_ms=now_ms
            )
            put_counter(transaction, chat_id, row, after)
            return Allocation(first=before.allocated + 1, last=after.allocated, members_version=before.members_version)

        return await self._writer.commit_early("allocate", decide, timeout_s=timeout_s)

    async def persist(
        self,
        chat_id: str,
        entries: Sequence[Entry],
        senders: Sequence[str],
        *,
        token: str,
        now_s: int,
        timeout_s: float,
    ) -> Cancelled | None:
        rules.check_commit(chat_id, entries, senders, token, items_max=limits.STORE_ITEMS_MAX)

        def decide(transaction: WriteTransaction) -> Cancelled | None:
            slots_prefix = rows.slots_prefix(chat_id)
            keys = rows.idempotency_keys(chat_id, [each.message.client_message_id for each in entries])
            slots = [rows.slot_key(slots_prefix, each.message.sequence) for each in entries]
            causes = _causes(transaction, keys, slots, now_s)
            members = transaction.get_all(rows.member_keys(chat_id, senders))
            causes.extend(SenderGone(each) for each, row in zip(senders, members, strict=True) if row is None)
            if causes:
                return None if _is_repeat(transaction, keys, slots, entries) else Cancelled(tuple(causes))
            for key, slot, entry in zip(keys, slots, entries, strict=True):
                transaction.put(key, rows.KEY.encode(rules.key_of(entry)))
                transaction.put(slot, rows.encode_slot(entry.message))
            return None

        return await self._writer.commit_early("persist", decide, timeout_s=timeout_s)

    async def seal(self, chat_id: str, sequence: int, *, created_at: str, timeout_s: float) -> Slot:
        rules.check_slot(sequence)

        def decide(transaction: WriteTransaction) -> Slot:
            key = rows.slot_key(rows.slots_prefix(chat_id), sequence)
            holder = transaction.get(key)
            if holder is not None:
                return rows.decode_slot(holder)
            tombstone = Sealed(chat_id=chat_id, sequence=sequence, created_at=created_at)
            transaction.put(key, rows.encode_slot(tombstone))
            return tombstone

        return await self._writer.commit("seal", decide, timeout_s=timeout_s)

    # --- reads --------------------------------------------------------------------------------------------------------

    async def read(self, chat_id: str, *, after: int, limit: int, timeout_s: float) -> SlotPage:
        rules.check_page(limit)
        prefix = rows.slots_prefix(chat_id)
        start, end = rows.slot_key(prefix, after + 1), rows.after(prefix)
        return await self._writer.read(
            "read", lambda snapshot: _page(snapshot.scan(start, end), limit), timeout_s=timeout_s
        )

    async def read_back(self, chat_id: str, *, before: int, limit: int, timeout_s: float) -> SlotPage:
        rules.check_page(limit)
        prefix = rows.slots_prefix(chat_id)
        start = rows.slot_key(prefix, before - 1)
        return await self._writer.read(
            "read_back", lambda snapshot: _page(snapshot.scan_down(start, prefix), limit), timeout_s=timeout_s
        )

    async def counters(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, ChatCounter]:
        rules.check_batch(len(chat_ids))
        rules.check_distinct("chats of a batch", chat_ids)

        def read(snapshot: ReadSnapshot) -> Mapping[str, ChatCounter]:
            found = {each: _counter(snapshot, each) for each in chat_ids}
            return {chat_id: counter for chat_id, counter in found.items() if counter is not None}

        return await self._writer.read("counters", read, timeout_s=timeout_s)

    async def dirty(self, *, before_ms: int, limit: int, timeout_s: float) -> Sequence[DirtyChat]:
        def read(snapshot: ReadSnapshot) -> Sequence[DirtyChat]:
            found: list[DirtyChat] = []
            unreadable: list[DirtyChat] = []
            for key, _ in snapshot.scan(rows.dirty_key(0, ""), rows.dirty_key(before_ms, "")):
                if len(found) >= limit:
                    break
                dirty_at_ms, chat_id = rows.split_dirty_key(key)
                try:
                    row = _counter(snapshot, chat_id)
                except RowUnreadable:
                    unreadable.append(DirtyChat(chat_id, dirty_at_ms))
                    continue
                # A counter that was lost leaves its index row behind; it must not crowd out the others.
                if row is not None and row.dirty_at_ms == dirty_at_ms:
                    found.append(DirtyChat(chat_id, dirty_at_ms))
            return [*found, *unreadable][:limit]

        return await self._writer.read("dirty", read, timeout_s=timeout_s)

    async def role(self, chat_id: str, user_id: str, *, timeout_s: float) -> Role | None:
        return await self._writer.read("role", lambda snapshot: _role(snapshot, chat_id, user_id), timeout_s=timeout_s)

    async def watermark(self, user_id: str, chat_id: str, *, timeout_s: float) -> int:
        def read(snapshot: ReadSnapshot) -> int:
            row = rows.WATERMARK.found(snapshot.get(rows.watermark_key(user_id, chat_id)))
            return row.sequence if row else 0

        return await self._writer.read("watermark", read, timeout_s=timeout_s)

    async def newest_slot(self, chat_id: str, *, timeout_s: float) -> int:
        return await self._writer.read(
            "newest_slot", lambda snapshot: _newest(snapshot, chat_id, None, messages_only=False), timeout_s=timeout_s
        )

    async def highest_watermark(self, chat_id: str, *, timeout_s: float) -> int:
        """Rows lie by user, so all are passed, some at a time: other requests must go on meanwhile."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        table = rows.TABLES["delivery_state"]
        start, highest = table, 0

        def some(snapshot: ReadSnapshot) -> tuple[bytes | None, int]:
            most = 0
            for passed, (key, value) in enumerate(snapshot.scan(start, rows.after(table))):
                if passed == limits.SWEEP_ROWS_MAX:
                    return key, most
                if rows.texts(key)[1] == chat_id:
                    most = max(most, rows.WATERMARK.decode(value).sequence)
            return None, most

        following: bytes | None = start
        while following is not None:
            start = following
            room = deadline - asyncio.get_running_loop().time()
            following, most = await self._writer.read("highest_watermark", some, timeout_s=room)
            highest = max(highest, most)
        return highest

    # --- marks --------------------------------------------------------------------------------------------------------

    async def flush(
        self, chat_id: str, *, published_through: int, published_message: int | None, timeout_s: float
    ) -> bool:
        def decide(transaction: WriteTransaction) -> bool:
            row = counter_row(transaction, chat_id)
            clean = rules.flushed(
                row.counter if row else None, published_through=published_through, published_message=published_message
            )
            if row is None or clean is None:
                return False
            put_counter(transaction, chat_id, row, clean)
            return True

        return await self._writer.commit("flush", decide, timeout_s=timeout_s)

    async def acknowledge(self, user_id: str, chat_id: str, *, sequence: int, now_ms: int, timeout_s: float) -> bool:
        def decide(transaction: WriteTransaction) -> bool:
            key = rows.watermark_key(user_id, chat_id)
            row = rows.WATERMARK.found(transaction.get(key))
            if sequence <= (row.sequence if row else 0):
                return False
            transaction.put(key, rows.WATERMARK.encode(WatermarkRow(sequence, now_ms)))
            return True

        return await self._writer.commit("acknowledge", decide, timeout_s=timeout_s)

    async def recover_counter(
        self,
        chat_id: str,
        *,
        allocated: int,
        published_through: int,
        published_message: int | None,
        members_version: int,
        now_ms: int,
        timeout_s: float,
    ) -> bool:
        def decide(transaction: WriteTransaction) -> bool:
            if counter_row(transaction, chat_id) is not None:
                return False
            counter = rules.recovered(
                allocated=allocated,
                published_through=published_through,
                published_message=published_message,
                members_version=members_version,
                now_ms=now_ms,
            )
            audited = CounterRow(counter=counter, recovered_at_ms=now_ms, recovered_from=allocated)
            put_counter_row(transaction, chat_id, None, audited)
            return True

        return await self._writer.commit("recover_counter", decide, timeout_s=timeout_s)

    async def raise_counter(self, chat_id: str, *, allocated: int, now_ms: int, timeout_s: float) -> bool:
        def decide(transaction: WriteTransaction) -> bool:
            row = counter_row(transaction, chat_id)
            if row is None or row.counter.allocated >= allocated:
                return False
            put_counter(transaction, chat_id, row, rules.grown(row.counter, allocated, now_ms))
            return True

        return await self._writer.commit("raise_counter", decide, timeout_s=timeout_s)


def counter_row(transaction: WriteTransaction, chat_id: str) -> CounterRow | None:
    return rows.COUNTER.found(transaction.get(rows.counter_key(chat_id)))


def put_counter(transaction: WriteTransaction, chat_id: str, row: CounterRow, counter: ChatCounter) -> None:
    put_counter_row(transaction, chat_id, row, msgspec.structs.replace(row, counter=counter))


def put_counter_row(transaction: WriteTransaction, chat_id: str, before: CounterRow | None, row: CounterRow) -> None:
    """The dirty index changes with the row, so it never lags."""
    was = before.counter.dirty_at_ms if before else None
    since = row.counter.dirty_at_ms
    if was is not None and was != since:
        transaction.delete(rows.dirty_key(was, chat_id))
    if since is not None and was != since:
        transaction.put(rows.dirty_key(since, chat_id), b"")
    transaction.put(rows.counter_key(chat_id), rows.COUNTER.encode(row))


def _causes(transaction: WriteTransaction, keys: Sequence[bytes], slots: Sequence[bytes], now_s: int) -> list[Cause]:
    """Every key and slot that is taken, by the index of its entry."""
    causes: list[Cause] = []
    for index, (key, holder) in enumerate(zip(transaction.get_all(keys), transaction.get_all(slots), strict=True)):
        if key is not None:
            taken = rows.KEY.decode(key)
            if taken.expires_at_s > now_s:
                causes.append(KeyTaken(index, taken))
        if holder is not None:
            causes.append(SlotTaken(index, rows.decode_slot(holder)))
    return causes


def _is_repeat(
    transaction: WriteTransaction, keys: Sequence[bytes], slots: Sequence[bytes], entries: Sequence[Entry]
) -> bool:
    """A message id is never given twice: whose every row is there already was committed by this very request."""
    return all(
        transaction.get(slot) == rows.encode_slot(entry.message)
        and transaction.get(key) == rows.KEY.encode(rules.key_of(entry))
        for key, slot, entry in zip(keys, slots, entries, strict=True)
    )


def _page(found: Iterator[tuple[bytes, bytes]], limit: int) -> SlotPage:
    """A page ends at the limit without reading beyond, or when it grows heavy: `more` then says so."""
    slots: list[Slot] = []
    weight = 0
    for _, value in found:
        slots.append(rows.decode_slot(value))
        weight += len(value)
        if len(slots) == limit or weight >= limits.READ_BYTES_MAX:
            return SlotPage(tuple(slots), more=True)
    return SlotPage(tuple(slots), more=False)


def _counter(snapshot: ReadSnapshot, chat_id: str) -> ChatCounter | None:
    row = rows.COUNTER.found(snapshot.get(rows.counter_key(chat_id)))
    return row.counter if row else None


def _role(snapshot: ReadSnapshot, chat_id: str, user_id: str) -> Role | None:
    row = rows.MEMBERSHIP.found(snapshot.get(rows.member_key(chat_id, user_id)))
    return row.role if row else None


def _newest(snapshot: ReadSnapshot, chat_id: str, at_most: int | None, *, messages_only: bool) -> int:
    prefix = rows.slots_prefix(chat_id)
    start = rows.after(prefix) if at_most is None else rows.slot_key(prefix, at_most)
    for key, value in snapshot.scan_down(start, prefix):
        if not messages_only or rows.is_message(value):
            return rows.last_number(key)
    return 0

"""`MessageLog` and `CounterRepair` on DynamoDB: the conditions of W1-W4, W20 and W21.

A send makes three calls: one batch read, one update of the counter, one transaction. Nothing is repeated here: the
pipeline decides what may be.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain

from seriatim.concurrency.bounded_gather import bounded_gather
from seriatim.domain import limits
from seriatim.domain.chat import Role
from seriatim.domain.errors import CounterMissing
from seriatim.domain.message import Sealed, Slot
from seriatim.domain.times import iso
from seriatim.engines.dynamodb.delivery_state import DynamoDeliveryState
from seriatim.engines.dynamodb.rows import messages as rows
from seriatim.engines.dynamodb.rows.attributes import S, n, number_or_null
from seriatim.engines.dynamodb.rows.chats import MEMBERSHIP, member_key, members_query
from seriatim.engines.dynamodb.store import COUNTERS, DELIVERY, DIRTY_CHATS, KEYS, MEMBERSHIPS, MESSAGES, DynamoStore
from seriatim.engines.dynamodb.transport.client import Request
from seriatim.engines.dynamodb.transport.errors import CancellationReason, ConditionFailed, TransactionCancelled
from seriatim.engines.shared import store_rules as rules
from seriatim.ports.message_log import (
    Allocation,
    Cancelled,
    ChatCounter,
    CounterRepair,
    DirtyChat,
    Entry,
    KeyTaken,
    Lookup,
    MessageLog,
    PublishedAhead,
    SenderGone,
    SlotPage,
    SlotTaken,
)

Cause = KeyTaken | SlotTaken | SenderGone

# Other owners' marks are never lowered; the second form keeps the time since when something waits (decision 0013).
_ALL_IS_OUT = "sequence_counter <= :through AND published_through <= :through"
_SOMETHING_WAITS = "attribute_exists(sequence_counter) AND published_through <= :through"
_ALLOCATE = (
    "SET published_through = :through, published_message = :message, updated_at = :now, dirty_bucket = :bucket, "
    "dirty_at = {since} ADD sequence_counter :count"
)
_ALLOCATE_CLEAN = _ALLOCATE.format(since=":now")
_ALLOCATE_DIRTY = _ALLOCATE.format(since="if_not_exists(dirty_at, :now)")
_KEY_IS_FREE = "attribute_not_exists(client_message_id) OR #ttl <= :now"
_SLOT_IS_FREE = "attribute_not_exists(chat_id)"


class DynamoMessageLog(DynamoDeliveryState, MessageLog, CounterRepair):
    """A handle on the messages of a deployment."""

    _store: DynamoStore

    def __init__(self, store: DynamoStore) -> None:
        super().__init__(store)

    @property
    def transaction_items_max(self) -> int:
        return limits.TRANSACTION_ITEMS_MAX

    async def lookup(
        self, chat_id: str, client_message_ids: Sequence[str], user_ids: Sequence[str], *, timeout_s: float
    ) -> Lookup:
        rules.check_distinct("keys of a lookup", client_message_ids)
        rules.check_distinct("users of a lookup", user_ids)
        chat = S(chat_id)
        found = await self._store.get_all(
            {
                KEYS: [{"chat_id": chat, "client_message_id": S(each)} for each in client_message_ids],
                MEMBERSHIPS: [{"chat_id": chat, "user_id": S(each)} for each in user_ids],
                COUNTERS: [{"chat_id": chat}],
            },
            until=self._store.until(timeout_s),
        )
        keys = {key.client_message_id: key for key in map(rows.key_of_item, found[KEYS])}
        members = {row.user_id.S: Role(row.role.S) for row in map(MEMBERSHIP.decode, found[MEMBERSHIPS])}
        counter = found[COUNTERS]
        return Lookup(
            keys={each: keys[each] for each in client_message_ids if each in keys},
            roles={each: members[each] for each in user_ids if each in members},
            counter=rows.counter_of(rows.COUNTER.decode(counter[0])) if counter else None,
        )

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
        until = self._store.until(timeout_s)
        values = {
            ":count": n(count),
            ":through": n(published_through),
            ":message": number_or_null(published_message),
            ":now": S(iso(now_ms)),
            ":bucket": rows.dirty_bucket(chat_id),
        }
        try:
            grown = await self._raise_counter(chat_id, _ALLOCATE_CLEAN, _ALL_IS_OUT, values, until)
        except ConditionFailed as failed:
            ahead = _published_ahead(chat_id, failed, published_through)
            if ahead is not None:
                return ahead
            try:
                grown = await self._raise_counter(chat_id, _ALLOCATE_DIRTY, _SOMETHING_WAITS, values, until)
            except ConditionFailed as again:
                ahead = _published_ahead(chat_id, again, published_through)
                if ahead is None:
                    raise rows.malformed_row("an allocation was refused for no reason") from again
                return ahead
        last = int(grown.sequence_counter.N)
        return Allocation(first=last - count + 1, last=last, members_version=int(grown.members_version.N))

    async def _raise_counter(
        self, chat_id: str, update: str, condition: str, values: Mapping[str, object], until: float
    ) -> rows.CounterItem:
        request = self._store.write_request(
            COUNTERS, {"Key": {"chat_id": S(chat_id)}, "UpdateExpression": update}, condition, values
        )
        return await self._store.update_returning(request, rows.COUNTER, until=until)

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
        rules.check_commit(chat_id, entries, senders, token, items_max=limits.TRANSACTION_ITEMS_MAX)
        until = self._store.until(timeout_s)
        now = {":now": n(now_s)}
        writes: list[Request] = []
        for entry in entries:
            key, slot = rows.key_item(entry), rows.message_item(entry.message)
            writes.append({"Put": self._store.write_request(KEYS, {"Item": key}, _KEY_IS_FREE, now, {"#ttl": "ttl"})})
            writes.append({"Put": self._store.write_request(MESSAGES, {"Item": slot}, _SLOT_IS_FREE)})
        writes += [self._is_member(chat_id, each) for each in senders]
        try:
            await self._store.transact(writes, token=token, until=until)
        except TransactionCancelled as cancelled:
            return Cancelled(tuple(_causes(cancelled.reasons, len(entries), senders)))
        return None

    def _is_member(self, chat_id: str, user_id: str) -> Request:
        key = {"Key": member_key(chat_id, user_id)}
        return {"ConditionCheck": self._store.write_request(MEMBERSHIPS, key, "attribute_exists(user_id)")}

    async def seal(self, chat_id: str, sequence: int, *, created_at: str, timeout_s: float) -> Slot:
        rules.check_slot(sequence)
        tombstone = Sealed(chat_id=chat_id, sequence=sequence, created_at=created_at)
        request = self._store.write_request(MESSAGES, {"Item": rows.sealed_item(tombstone)}, _SLOT_IS_FREE)
        try:
            await self._store.put(request, until=self._store.until(timeout_s))
        except ConditionFailed as failed:
            if not failed.item:
                raise rows.malformed_row("a slot is taken by nothing") from failed
            return rows.slot_of(rows.SLOT.decode(failed.item))
        return tombstone

    async def read(self, chat_id: str, *, after: int, limit: int, timeout_s: float) -> SlotPage:
        return await self._read(chat_id, "#seq > :edge", after, limit, timeout_s, ascending=True)

    async def read_back(self, chat_id: str, *, before: int, limit: int, timeout_s: float) -> SlotPage:
        return await self._read(chat_id, "#seq < :edge", before, limit, timeout_s, ascending=False)

    async def _read(
        self, chat_id: str, beyond: str, edge: int, limit: int, timeout_s: float, *, ascending: bool
    ) -> SlotPage:
        """A page ends at the limit, or earlier at 1 MB: DynamoDB then returns the key at which the next page begins."""
        rules.check_page(limit)
        query = rows.slots_query(chat_id, beyond, edge, limit, ascending=ascending)
        page = await self._store.page(MESSAGES, query, until=self._store.until(timeout_s))
        slots = tuple(rows.slot_of(rows.SLOT.decode(item)) for item in page.items)
        return SlotPage(slots, more=page.more)

    async def counters(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, ChatCounter]:
        rules.check_distinct("chats of a batch", chat_ids)
        keys = {COUNTERS: [{"chat_id": S(each)} for each in chat_ids]}
        found = await self._store.get_all(keys, until=self._store.until(timeout_s))
        items = map(rows.COUNTER.decode, found[COUNTERS])
        return {item.chat_id.S: rows.counter_of(item) for item in items}

    async def flush(
        self, chat_id: str, *, published_through: int, published_message: int | None, timeout_s: float
    ) -> bool:
        return await self._change_counter(
            chat_id,
            "SET published_through = :through, published_message = :message REMOVE dirty_at, dirty_bucket",
            "sequence_counter = :through AND published_through <= :through",
            {":through": n(published_through), ":message": number_or_null(published_message)},
            timeout_s,
        )

    async def dirty(self, *, before_ms: int, limit: int, timeout_s: float) -> Sequence[DirtyChat]:
        """Each part of the index is asked for its oldest, a few parts at a time."""
        until = self._store.until(timeout_s)

        async def oldest(bucket: int) -> Sequence[DirtyChat]:
            query = {
                "IndexName": DIRTY_CHATS,
                "KeyConditionExpression": "dirty_bucket = :bucket AND dirty_at < :before",
                "ExpressionAttributeValues": {":bucket": n(bucket), ":before": S(iso(before_ms))},
                "Limit": limit,
            }
            page = await self._store.page(COUNTERS, query, until=until)
            items = map(rows.DIRTY.decode, page.items)
            # A time that cannot be read is taken for the latest: this chat comes after those that can be settled.
            return [DirtyChat(item.chat_id.S, rows.dirty_since(item, before_ms)) for item in items]

        parts = await bounded_gather(oldest, range(limits.DIRTY_BUCKETS), at_once=limits.DIRTY_QUERIES_MAX)
        return sorted(chain.from_iterable(parts), key=lambda chat: (chat.dirty_at_ms, chat.chat_id))[:limit]

    async def role(self, chat_id: str, user_id: str, *, timeout_s: float) -> Role | None:
        until = self._store.until(timeout_s)
        found = await self._store.get(MEMBERSHIPS, member_key(chat_id, user_id), MEMBERSHIP, until=until)
        return None if found is None else Role(found.role.S)

    async def acknowledge(self, user_id: str, chat_id: str, *, sequence: int, now_ms: int, timeout_s: float) -> bool:
        until = self._store.until(timeout_s)
        if sequence < 1:
            return False  # no watermark is below 0
        request = self._store.write_request(
            DELIVERY,
            {
                "Key": rows.watermark_key(user_id, chat_id),
                "UpdateExpression": "SET last_acked_sequence = :sequence, updated_at = :now",
            },
            "attribute_not_exists(last_acked_sequence) OR last_acked_sequence < :sequence",
            {":sequence": n(sequence), ":now": S(iso(now_ms))},
        )
        try:
            await self._store.update(request, until=until)
        except ConditionFailed:
            return False
        return True

    async def watermark(self, user_id: str, chat_id: str, *, timeout_s: float) -> int:
        until = self._store.until(timeout_s)
        found = await self._store.get(DELIVERY, rows.watermark_key(user_id, chat_id), rows.WATERMARK, until=until)
        return 0 if found is None else rows.watermark_of(found).sequence

    # --- repair ---

    async def newest_slot(self, chat_id: str, *, timeout_s: float) -> int:
        query = rows.slots_query(chat_id, "#seq > :edge", 0, 1, ascending=False)
        page = await self._store.page(MESSAGES, query, until=self._store.until(timeout_s))
        return rows.slot_of(rows.SLOT.decode(page.items[0])).sequence if page.items else 0

    async def highest_watermark(self, chat_id: str, *, timeout_s: float) -> int:
        """The table is keyed by user, so all of it is scanned: too rare to be worth the writes of an index."""
        until = self._store.until(timeout_s)
        scan = {
            "FilterExpression": "chat_id = :chat",
            "ExpressionAttributeValues": {":chat": S(chat_id)},
            "ConsistentRead": True,
        }
        highest, more = 0, True
        while more:
            page = await self._store.retry_refused(
                partial(self._store.scan, DELIVERY, dict(scan), until=until), until=until
            )
            found = [rows.watermark_of(rows.WATERMARK.decode(item)).sequence for item in page.items]
            highest, more = max([highest, *found]), page.more
            scan["ExclusiveStartKey"] = page.next_key
        return highest

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
        counter = rules.recovered(
            allocated=allocated,
            published_through=published_through,
            published_message=published_message,
            members_version=members_version,
            now_ms=now_ms,
        )
        until = self._store.until(timeout_s)
        # Without a counter no membership changes, so these are the members of the version that begins now.
        members = await self._store.pages(MEMBERSHIPS, members_query(chat_id), MEMBERSHIP, until=until)
        item = rows.counter_item(chat_id, counter, [each.user_id.S for each in members], now_ms, recovered=True)
        request = self._store.write_request(COUNTERS, {"Item": item}, "attribute_not_exists(chat_id)")
        try:
            await self._store.put(request, until=until)
        except ConditionFailed:
            return False
        return True

    async def raise_counter(self, chat_id: str, *, allocated: int, now_ms: int, timeout_s: float) -> bool:
        return await self._change_counter(
            chat_id,
            "SET sequence_counter = :allocated, updated_at = :now, dirty_bucket = :bucket, "
            "dirty_at = if_not_exists(dirty_at, :now)",
            "sequence_counter < :allocated",
            {":allocated": n(allocated), ":now": S(iso(now_ms)), ":bucket": rows.dirty_bucket(chat_id)},
            timeout_s,
        )

    async def _change_counter(
        self, chat_id: str, update: str, condition: str, values: Mapping[str, object], timeout_s: float
    ) -> bool:
        what = {"Key": {"chat_id": S(chat_id)}, "UpdateExpression": update}
        request = self._store.write_request(COUNTERS, what, condition, values)
        try:
            await self._store.update(request, until=self._store.until(timeout_s))
        except ConditionFailed:
            return False
        return True


def _published_ahead(chat_id: str, failed: ConditionFailed, published_through: int) -> PublishedAhead | None:
    """Why an allocation was refused: no counter, another owner ahead, or None: something is unpublished."""
    item = rows.COUNTER.found(failed.item)
    if item is None:
        raise CounterMissing(chat_id)
    counter = rows.counter_of(item)
    if counter.published_through <= published_through:
        return None
    return PublishedAhead(published_through=counter.published_through, published_message=counter.published_message)


def _causes(reasons: Sequence[CancellationReason], entries: int, senders: Sequence[str]) -> list[Cause]:
    """By index: a key and a slot for each entry, in turn, then a membership for each sender."""
    causes: list[Cause] = []
    for index, reason in enumerate(reasons):
        if not reason.failed:
            continue
        if index >= 2 * entries:
            causes.append(SenderGone(senders[index - 2 * entries]))
        elif not reason.item:
            raise rows.malformed_row("a condition failed without the row that made it fail")
        elif index % 2 == 0:
            causes.append(KeyTaken(index // 2, rows.key_of_item(reason.item)))
        else:
            causes.append(SlotTaken(index // 2, rows.slot_of(rows.SLOT.decode(reason.item))))
    return causes

"""Rows of `messages`, `idempotency_keys`, `chat_counters` and `delivery_state` (docs/spec/data.md#tables)."""

import hashlib
from collections.abc import Iterable

import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import UNREADABLE, InternalError, RowUnreadable
from seriatim.domain.message import Message, Sealed, Slot
from seriatim.domain.sharding import bucket
from seriatim.domain.times import iso, milliseconds
from seriatim.engines.dynamodb.rows.attributes import N, NumberOrNull, RowDecoder, S, n, number_or_null
from seriatim.engines.shared.store_rules import key_of
from seriatim.ports.message_log import ChatCounter, Entry, Key, Watermark

MESSAGE, SEALED = "message", "sealed"


class SlotItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    chat_id: S
    sequence: N
    kind: S
    created_at: S
    message_id: S | None = None
    sender_id: S | None = None
    client_message_id: S | None = None
    content: S | None = None
    content_type: S | None = None


def message_item(message: Message) -> SlotItem:
    return SlotItem(
        chat_id=S(message.chat_id),
        sequence=n(message.sequence),
        kind=S(MESSAGE),
        created_at=S(message.created_at),
        message_id=S(message.message_id),
        sender_id=S(message.sender_id),
        client_message_id=S(message.client_message_id),
        content=S(message.content),
        content_type=S(message.content_type),
    )


def sealed_item(sealed: Sealed) -> SlotItem:
    return SlotItem(
        chat_id=S(sealed.chat_id), sequence=n(sealed.sequence), kind=S(SEALED), created_at=S(sealed.created_at)
    )


def slot_of(item: SlotItem) -> Slot:
    if item.kind.S == SEALED:
        return Sealed(chat_id=item.chat_id.S, sequence=int(item.sequence.N), created_at=item.created_at.S)
    return Message(
        message_id=_text(item.message_id),
        chat_id=item.chat_id.S,
        sequence=int(item.sequence.N),
        sender_id=_text(item.sender_id),
        client_message_id=_text(item.client_message_id),
        content=_text(item.content),
        content_type=_text(item.content_type),
        created_at=item.created_at.S,
    )


def slots_query(chat_id: str, beyond: str, edge: int, limit: int, *, ascending: bool) -> dict[str, object]:
    """Slots on one side of an edge, as of now. `sequence` is a reserved word."""
    return {
        "KeyConditionExpression": f"chat_id = :chat AND {beyond}",
        "ExpressionAttributeNames": {"#seq": "sequence"},
        "ExpressionAttributeValues": {":chat": S(chat_id), ":edge": n(edge)},
        "ConsistentRead": True,
        "ScanIndexForward": ascending,
        "Limit": limit,
    }


def malformed_row(what: str) -> InternalError:
    return InternalError(f"the store's answer is not what it should be: {what}")


def _text(attribute: S | None) -> str:
    if attribute is None:
        raise malformed_row("a message lacks an attribute")
    return attribute.S


class KeyItem(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: S
    client_message_id: S
    message_id: S
    sequence: N
    sender_id: S
    content_sha256: S
    created_at: S
    ttl: N


def key_item(entry: Entry) -> KeyItem:
    key = key_of(entry)
    return KeyItem(
        chat_id=S(entry.message.chat_id),
        client_message_id=S(key.client_message_id),
        message_id=S(key.message_id),
        sequence=n(key.sequence),
        sender_id=S(key.sender_id),
        content_sha256=S(key.content_sha256),
        created_at=S(key.created_at),
        ttl=n(key.expires_at_s),
    )


def key_of_item(raw: msgspec.Raw) -> Key:
    return key_from(KEY.decode(raw))


def key_from(item: KeyItem) -> Key:
    return Key(
        client_message_id=item.client_message_id.S,
        message_id=item.message_id.S,
        sequence=int(item.sequence.N),
        sender_id=item.sender_id.S,
        content_sha256=item.content_sha256.S,
        created_at=item.created_at.S,
        expires_at_s=int(item.ttl.N),
    )


class CounterItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`members_sum` is the checksum of the members of `members_version`: it shows whether a list is complete."""

    chat_id: S
    sequence_counter: N
    published_through: N
    published_message: NumberOrNull
    members_version: N
    members_sum: N | None = None
    updated_at: S | None = None
    created_at: S | None = None
    dirty_at: S | None = None
    dirty_bucket: N | None = None
    recovered_at: S | None = None
    recovered_from_sequence: N | None = None


def counter_item(
    chat_id: str, counter: ChatCounter, user_ids: Iterable[str], now_ms: int, *, recovered: bool = False
) -> CounterItem:
    dirty = counter.dirty_at_ms
    return CounterItem(
        chat_id=S(chat_id),
        sequence_counter=n(counter.allocated),
        published_through=n(counter.published_through),
        published_message=number_or_null(counter.published_message),
        members_version=n(counter.members_version),
        members_sum=n(members_sum(user_ids)),
        created_at=S(iso(now_ms)),
        updated_at=S(iso(now_ms)),
        dirty_at=None if dirty is None else S(iso(dirty)),
        dirty_bucket=None if dirty is None else dirty_bucket(chat_id),
        recovered_at=S(iso(now_ms)) if recovered else None,
        recovered_from_sequence=n(counter.allocated) if recovered else None,
    )


def counter_of(item: CounterItem) -> ChatCounter:
    try:
        return ChatCounter(
            allocated=int(item.sequence_counter.N),
            published_through=int(item.published_through.N),
            published_message=None if item.published_message.N is None else int(item.published_message.N),
            members_version=int(item.members_version.N),
            dirty_at_ms=None if item.dirty_at is None else milliseconds(item.dirty_at.S),
        )
    except ValueError as error:
        raise RowUnreadable(
            UNREADABLE, log_reason=f"the counter row of {item.chat_id.S} is not what this release writes"
        ) from error


def members_sum(user_ids: Iterable[str]) -> int:
    """Equal for equal sets of users; for different sets with a probability of 1 in 10^14."""
    return sum(int.from_bytes(hashlib.sha256(each.encode()).digest()[:6], "big") for each in user_ids)


def dirty_bucket(chat_id: str) -> N:
    return n(bucket(chat_id) % limits.DIRTY_BUCKETS)


class DirtyItem(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: S
    dirty_at: S


def dirty_since(item: DirtyItem, otherwise_ms: int) -> int:
    try:
        return milliseconds(item.dirty_at.S)
    except ValueError:
        return otherwise_ms


class WatermarkItem(msgspec.Struct, frozen=True, kw_only=True):
    user_id: S
    chat_id: S
    last_acked_sequence: N
    updated_at: S


def watermark_key(user_id: str, chat_id: str) -> dict[str, S]:
    return {"user_id": S(user_id), "chat_id": S(chat_id)}


def watermark_of(item: WatermarkItem) -> Watermark:
    return Watermark(int(item.last_acked_sequence.N), milliseconds(item.updated_at.S))


SLOT = RowDecoder(SlotItem)
KEY = RowDecoder(KeyItem)
COUNTER = RowDecoder(CounterItem)
DIRTY = RowDecoder(DirtyItem)
WATERMARK = RowDecoder(WatermarkItem)

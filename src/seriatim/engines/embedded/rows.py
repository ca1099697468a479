"""How rows lie in the folder: one ordered key space, a letter per table, numbers big-endian so that they sort.

Format 1. A row, once written by a release, is read for ever: fields are added with a default, never renamed.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from seriatim.domain.chat import Chat, Membership
from seriatim.domain.errors import InternalError
from seriatim.domain.message import Message, Sealed, Slot
from seriatim.ports.event_log import Headers, Partition
from seriatim.ports.message_log import Key, Standing

T = TypeVar("T")

# Names are those of spec/data.md where the table is there, too.
TABLES: Mapping[str, bytes] = {
    "chats": b"C",
    "chat_memberships": b"M",
    "user_chats_index": b"U",
    "direct_chat_index": b"P",
    "chat_counters": b"N",
    "dirty_index": b"D",
    "messages": b"S",
    "idempotency_keys": b"K",
    "delivery_state": b"W",
    "topics": b"T",
    "events": b"E",
    "event_ends": b"O",
    "group_offsets": b"G",
}


class CounterRow(msgspec.Struct, frozen=True, kw_only=True):
    """The counter and, after a repair, since when and from where it counts."""

    standing: Standing
    recovered_at_ms: int | None = None
    recovered_from: int | None = None


class WatermarkRow(msgspec.Struct, frozen=True, array_like=True):
    sequence: int
    updated_at_ms: int


class EventRow(msgspec.Struct, frozen=True, array_like=True):
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class Codec(Generic[T]):
    """One kind of value."""

    def __init__(self, kind: type[T]) -> None:
        self._decoder = msgspec.msgpack.Decoder(kind)

    def encode(self, row: T) -> bytes:
        return _ENCODER.encode(row)

    def decode(self, value: bytes | memoryview) -> T:
        try:
            return self._decoder.decode(value)
        except msgspec.MsgspecError as error:
            # Checksums below us are right, so these bytes are what some release wrote.
            raise InternalError(f"a row of the data folder is not what this release writes: {error}") from error

    def found(self, value: bytes | None) -> T | None:
        return None if value is None else self.decode(value)


_ENCODER = msgspec.msgpack.Encoder()

CHAT = Codec(Chat)
MEMBERSHIP = Codec(Membership)
COUNTER = Codec(CounterRow)
KEY = Codec(Key)
WATERMARK = Codec(WatermarkRow)
EVENT = Codec(EventRow)
NUMBER = Codec(int)
TEXT = Codec(str)

_MESSAGE = Codec(Message)
_SEALED = Codec(Sealed)
_MESSAGE_TAG, _SEALED_TAG = b"m", b"s"


def encode_slot(slot: Slot) -> bytes:
    if isinstance(slot, Message):
        return _MESSAGE_TAG + _MESSAGE.encode(slot)
    return _SEALED_TAG + _SEALED.encode(slot)


def decode_slot(value: bytes) -> Slot:
    body = memoryview(value)[1:]
    return _MESSAGE.decode(body) if is_message(value) else _SEALED.decode(body)


def is_message(value: bytes) -> bool:
    return value.startswith(_MESSAGE_TAG)


# --- keys -------------------------------------------------------------------------------------------------------------


def chat_key(chat_id: str) -> bytes:
    return b"C" + _text(chat_id)


def member_key(chat_id: str, user_id: str) -> bytes:
    return b"M" + _text(chat_id) + _text(user_id)


def members_prefix(chat_id: str) -> bytes:
    return b"M" + _text(chat_id)


def user_chat_key(user_id: str, chat_id: str) -> bytes:
    return b"U" + _text(user_id) + _text(chat_id)


def user_chats_prefix(user_id: str) -> bytes:
    return b"U" + _text(user_id)


def pair_row_key(pair: str) -> bytes:
    return b"P" + _text(pair)


def counter_key(chat_id: str) -> bytes:
    return b"N" + _text(chat_id)


def dirty_key(dirty_at_ms: int, chat_id: str) -> bytes:
    return b"D" + _number(dirty_at_ms) + _text(chat_id)


def split_dirty_key(key: bytes) -> tuple[int, str]:
    return int.from_bytes(key[1:9], "big"), key[11:].decode()


def slots_prefix(chat_id: str) -> bytes:
    return b"S" + _text(chat_id)


def slot_key(prefix: bytes, sequence: int) -> bytes:
    """`prefix` is that of the chat, likewise."""
    return prefix + _number(sequence)


def keys_prefix(chat_id: str) -> bytes:
    return b"K" + _text(chat_id)


def idempotency_key(prefix: bytes, client_message_id: str) -> bytes:
    """`prefix` is that of the chat: a transaction has many keys of one chat."""
    return prefix + _text(client_message_id)


def watermark_key(user_id: str, chat_id: str) -> bytes:
    return b"W" + _text(user_id) + _text(chat_id)


def topic_key(topic: str) -> bytes:
    return b"T" + _text(topic)


def event_key(partition: Partition, offset: int) -> bytes:
    return b"E" + _partition(partition) + _number(offset)


def events_prefix(partition: Partition) -> bytes:
    return b"E" + _partition(partition)


def end_key(partition: Partition) -> bytes:
    return b"O" + _partition(partition)


def offset_key(group: str, partition: Partition) -> bytes:
    return b"G" + _text(group) + _partition(partition)


def offsets_prefix(group: str) -> bytes:
    return b"G" + _text(group)


def last_number(key: bytes) -> int:
    """The sequence of a slot, the offset of an event."""
    return int.from_bytes(key[-8:], "big")


def last_text(key: bytes, prefix: bytes) -> str:
    """What follows a prefix: the user of a membership, the chat of a user."""
    return key[len(prefix) + 2 :].decode()


def after(prefix: bytes) -> bytes:
    """The first key beyond all that begin with `prefix`."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1])


_NUMBER_MAX = 2**64 - 1


def _text(text: str) -> bytes:
    """Its length goes before it, so that no text can run into what follows."""
    raw = text.encode()
    return len(raw).to_bytes(2, "big") + raw


def _number(number: int) -> bytes:
    """Asked for beyond what a row can hold, the nearest that it can is meant."""
    return min(max(number, 0), _NUMBER_MAX).to_bytes(8, "big")


def _partition(partition: Partition) -> bytes:
    return _text(partition.topic) + partition.number.to_bytes(4, "big")

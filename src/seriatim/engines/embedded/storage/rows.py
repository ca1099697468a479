"""How rows lie in the folder: one ordered key space, a letter per table, numbers big-endian so that they sort.

Format 1. A row, once written by a release, is read for ever: fields are added with a default, never renamed.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

import msgspec

from seriatim.domain import limits
from seriatim.domain.account import Code, Session, User
from seriatim.domain.chat import Chat, Membership
from seriatim.domain.errors import UNREADABLE, RowUnreadable
from seriatim.domain.message import Message, Sealed, Slot
from seriatim.engines.shared.request_key_rules import RequestRow
from seriatim.ports.event_log import Headers, Partition
from seriatim.ports.message_log import ChatCounter, Key

T = TypeVar("T")

# Names are those of docs/spec/data.md where the table is there, too.
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
    "users": b"A",
    "phones": b"F",  # DynamoDB keeps these sentinels among the users
    "otp_requests": b"Q",
    "sessions": b"L",
    "user_sessions_index": b"I",
    "api_idempotency": b"R",
    "sweep_time": b"B",
}


class CounterRow(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename={"counter": "standing"}):
    """The counter and, after a repair, since when and from where it counts. The folder calls it `standing`."""

    counter: ChatCounter
    recovered_at_ms: int | None = None
    recovered_from: int | None = None


class WatermarkRow(msgspec.Struct, frozen=True, array_like=True):
    sequence: int
    updated_at_ms: int


class EventRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class Codec(Generic[T]):
    """One kind of value."""

    def __init__(self, kind: type[T]) -> None:
        self.encode: Callable[[T], bytes] = msgspec.msgpack.Encoder().encode
        self._decoder = msgspec.msgpack.Decoder(kind)

    def decode(self, value: bytes | memoryview) -> T:
        try:
            return self._decoder.decode(value)
        except msgspec.MsgspecError as error:
            # Checksums below us are right, so these bytes are what some release wrote.
            raise RowUnreadable(
                UNREADABLE, log_reason=f"a row of the data folder is not what this release writes: {error}"
            ) from error

    def found(self, value: bytes | None) -> T | None:
        return None if value is None else self.decode(value)


CHAT = Codec(Chat)
MEMBERSHIP = Codec(Membership)
COUNTER = Codec(CounterRow)
KEY = Codec(Key)
WATERMARK = Codec(WatermarkRow)
EVENT = Codec(EventRow)
USER = Codec(User)
CODE = Codec(Code)
SESSION = Codec(Session)
REQUEST = Codec(RequestRow)
NUMBER = Codec(int)
TEXT = Codec(str)

_MESSAGE = Codec(Message)
_SEALED = Codec(Sealed)
_MESSAGE_TAG, _SEALED_TAG = b"m", b"s"


def encode_slot(slot: Slot) -> bytes:
    return encode_message(slot) if isinstance(slot, Message) else _SEALED_TAG + _SEALED.encode(slot)


def encode_message(message: Message) -> bytes:
    return _MESSAGE_TAG + _MESSAGE.encode(message)


def decode_slot(value: bytes) -> Slot:
    body = memoryview(value)[1:]
    return _MESSAGE.decode(body) if is_message(value) else _SEALED.decode(body)


def is_message(value: bytes) -> bool:
    return value.startswith(_MESSAGE_TAG)


# --- keys -------------------------------------------------------------------------------------------------------------


def chat_key(chat_id: str) -> bytes:
    return b"C" + _id(chat_id)


@lru_cache(maxsize=limits.ROW_IDS_MAX)
def member_key(chat_id: str, user_id: str) -> bytes:
    """The same bytes again and again: their hash is known, and every send asks."""
    return b"M" + _id(chat_id) + _id(user_id)


def member_keys(chat_id: str, user_ids: Sequence[str]) -> list[bytes]:
    prefix = members_prefix(chat_id)
    return [prefix + _id(each) for each in user_ids]


def members_prefix(chat_id: str) -> bytes:
    return b"M" + _id(chat_id)


def user_chat_key(user_id: str, chat_id: str) -> bytes:
    return b"U" + _id(user_id) + _id(chat_id)


def user_chats_prefix(user_id: str) -> bytes:
    return b"U" + _id(user_id)


def pair_row_key(pair: str) -> bytes:
    return b"P" + _text(pair)


def counter_key(chat_id: str) -> bytes:
    return b"N" + _id(chat_id)


def dirty_key(dirty_at_ms: int, chat_id: str) -> bytes:
    return b"D" + _number(dirty_at_ms) + _id(chat_id)


def split_dirty_key(key: bytes) -> tuple[int, str]:
    return int.from_bytes(key[1:9], "big"), key[11:].decode()


def slots_prefix(chat_id: str) -> bytes:
    return b"S" + _id(chat_id)


def slot_key(prefix: bytes, sequence: int) -> bytes:
    """`prefix` is that of the chat, likewise."""
    return prefix + sequence.to_bytes(8, "big") if 0 <= sequence <= NUMBER_MAX else prefix + _number(sequence)


def keys_prefix(chat_id: str) -> bytes:
    return b"K" + _id(chat_id)


def idempotency_key(prefix: bytes, client_message_id: str) -> bytes:
    """`prefix` is that of the chat: a transaction has many keys of one chat."""
    return prefix + _text(client_message_id)


def idempotency_keys(chat_id: str, client_message_ids: Sequence[str]) -> list[bytes]:
    prefix = keys_prefix(chat_id)
    return [prefix + _text(each) for each in client_message_ids]


def watermark_key(user_id: str, chat_id: str) -> bytes:
    return b"W" + _id(user_id) + _id(chat_id)


def topic_key(topic: str) -> bytes:
    return b"T" + _text(topic)


def event_key(partition: Partition, offset: int) -> bytes:
    return b"E" + _partition(partition) + _number(offset)


def event_keys(partition: Partition, first: int, count: int) -> list[bytes]:
    prefix = events_prefix(partition)
    return [prefix + offset.to_bytes(8, "big") for offset in range(first, first + count)]


def events_prefix(partition: Partition) -> bytes:
    return b"E" + _partition(partition)


def end_key(partition: Partition) -> bytes:
    return b"O" + _partition(partition)


def offset_key(group: str, partition: Partition) -> bytes:
    return b"G" + _text(group) + _partition(partition)


def offsets_prefix(group: str) -> bytes:
    return b"G" + _text(group)


def user_key(user_id: str) -> bytes:
    return b"A" + _id(user_id)


def phone_key(phone_hash: str) -> bytes:
    return b"F" + _text(phone_hash)


def code_key(phone_hash: str) -> bytes:
    return b"Q" + _text(phone_hash)


def session_key(session_id: str) -> bytes:
    return b"L" + _text(session_id)


def user_session_key(user_id: str, session_id: str) -> bytes:
    return b"I" + _id(user_id) + _text(session_id)


def user_sessions_prefix(user_id: str) -> bytes:
    return b"I" + _id(user_id)


def request_key(scope: str, key: str) -> bytes:
    return b"R" + _text(scope) + _text(key)


SWEEP_TIME = b"B"  # the only row of its table: up to which time the sweep believes the wall clock, in milliseconds


def last_number(key: bytes) -> int:
    """The sequence of a slot, the offset of an event."""
    return int.from_bytes(key[-8:], "big")


def last_text(key: bytes, prefix: bytes) -> str:
    """What follows a prefix: the user of a membership, the chat of a user."""
    return key[len(prefix) + 2 :].decode()


def first_text(key: bytes) -> str:
    """The chat of a slot, the topic of an event: what follows the letter of the table."""
    return key[3 : 3 + int.from_bytes(key[1:3], "big")].decode()


def texts(key: bytes) -> list[str]:
    """All texts of a key that consists of nothing else."""
    found, position = list[str](), 1
    while position < len(key):
        end = position + 2 + int.from_bytes(key[position : position + 2], "big")
        found.append(key[position + 2 : end].decode())
        position = end
    return found


def after(prefix: bytes) -> bytes:
    """The first key beyond all that begin with `prefix`."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1])


NUMBER_MAX = 2**64 - 1
_LENGTHS = [length.to_bytes(2, "big") for length in range(256)]


def _text(text: str) -> bytes:
    """Its length goes before it, so that no text can run into what follows."""
    raw = text.encode()
    return _LENGTHS[len(raw)] + raw if len(raw) < 256 else len(raw).to_bytes(2, "big") + raw


@lru_cache(maxsize=limits.ROW_IDS_MAX)
def _id(text: str) -> bytes:
    """As `_text`, for what is asked for again and again."""
    return _text(text)


def _number(number: int) -> bytes:
    """Asked for beyond what a row can hold, the nearest that it can is meant."""
    if 0 <= number <= NUMBER_MAX:
        return number.to_bytes(8, "big")
    return (0 if number < 0 else NUMBER_MAX).to_bytes(8, "big")


def _partition(partition: Partition) -> bytes:
    return _id(partition.topic) + partition.number.to_bytes(4, "big")

"""The rows of a data folder as an operator sees them: never a secret, contents and phone numbers only on demand."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import msgspec

from seriatim.domain.sharding import partition as partition_of
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.disk import ReadableDisk
from seriatim.engines.embedded.storage.rows import Codec
from seriatim.ports.event_log import DEAD_LETTERS, Partition

Shown = dict[str, object]
T = TypeVar("T")

_HASH_CHARS_SHOWN = 8  # enough to distinguish two, too few to find out what was hashed


class Reveal(msgspec.Struct, frozen=True):
    """`phone` returns what is shown of a phone number. Hashes of phones are never shown whole."""

    content: bool
    phone: Callable[[str], str]


class WrongTable(Exception):
    """The options do not fit the table."""


def browse(
    disk: ReadableDisk, table: str, *, chat_id: str | None, after: int | None, reveal: Reveal
) -> Iterator[Shown]:
    """The rows of a table of `rows.TABLES`, in its order: of one chat, and above a sequence or an offset, if asked."""
    if after is not None and table not in ("messages", "events"):
        raise WrongTable(f"--after is a sequence of messages or an offset of events; {table} have neither")
    if after is not None and chat_id is None:
        raise WrongTable("--after needs --chat: sequences count within a chat, offsets within a partition")
    if chat_id is not None and table not in _OF_A_CHAT:
        raise WrongTable(f"{table} belong to no chat; tables that do: {', '.join(_OF_A_CHAT)}")
    for start, end in _ranges(disk, table, chat_id, after):
        for key, value in disk.scan(start, end):
            shown = _TABLES[table](key, value, reveal)
            if chat_id is None or shown.get("chat_id", shown.get("key")) == chat_id:
                yield shown


_OF_A_CHAT = (
    "chats",
    "chat_memberships",
    "user_chats_index",
    "direct_chat_index",
    "chat_counters",
    "dirty_index",
    "messages",
    "idempotency_keys",
    "delivery_state",
    "events",
)


def _ranges(disk: ReadableDisk, table: str, chat_id: str | None, after: int | None) -> Iterator[tuple[bytes, bytes]]:
    """Where the rows of a chat are adjacent only these are read; elsewhere all are read, and the others left out."""
    if chat_id is None:
        prefix = rows.TABLES[table]
        yield prefix, rows.after(prefix)
    elif table == "messages":
        prefix = rows.slots_prefix(chat_id)
        yield rows.slot_key(prefix, 0 if after is None else after + 1), rows.after(prefix)
    elif table == "events":
        for key, value in list(disk.scan(*_whole("topics"))):
            topic, count = rows.first_text(key), rows.NUMBER.decode(value)
            partition = Partition(topic, partition_of(chat_id, count))
            first = rows.event_key(partition, 0 if after is None else after + 1)
            yield first, rows.after(rows.events_prefix(partition))
    elif table in ("chats", "chat_memberships", "chat_counters", "idempotency_keys"):
        # Each of these keys begins with the chat.
        prefix = rows.TABLES[table] + rows.chat_key(chat_id)[1:]
        yield prefix, rows.after(prefix)
    else:
        yield _whole(table)


def _whole(table: str) -> tuple[bytes, bytes]:
    prefix = rows.TABLES[table]
    return prefix, rows.after(prefix)


def _fields(codec: Codec[T]) -> Callable[[bytes, bytes, Reveal], Shown]:
    """A row without secrets, whose value has all that its key has."""

    def show(key: bytes, value: bytes, reveal: Reveal) -> Shown:
        return _builtins(codec.decode(value))

    return show


def _texts(*names: str) -> Callable[[bytes, bytes, Reveal], Shown]:
    """An index row: only its key has fields."""

    def show(key: bytes, value: bytes, reveal: Reveal) -> Shown:
        return dict(zip(names, rows.texts(key), strict=True))

    return show


def _pair(key: bytes, value: bytes, reveal: Reveal) -> Shown:
    return {"pair_key": rows.first_text(key), "chat_id": rows.TEXT.decode(value)}


def _counter(key: bytes, value: bytes, reveal: Reveal) -> Shown:
    row = _builtins(rows.COUNTER.decode(value))
    counter = row.pop("standing")
    assert isinstance(counter, dict)
    return {"chat_id": rows.first_text(key), **counter, **row}


def _dirty(key: bytes, value: bytes, reveal: Reveal) -> Shown:
    dirty_at_ms, chat_id = rows.split_dirty_key(key)
    return {"chat_id": chat_id, "dirty_at_ms": dirty_at_ms}


def _message(key: bytes, value: bytes, reveal: Reveal) -> Shown:
    row = _builtins(rows.decode_slot(value))
    _hide_content(row, reveal)
    return {"kind": "message" if rows.is_message(value) else "sealed", **row}


def _key(key: bytes, value: bytes, reveal: Reveal) -> Shown:
    row = _builtins(rows.KEY.decode(value))
    if not reveal.content:
        del row["content_sha256"]
    return {"chat_id": rows.first_text(key), **row}


def _watermark(key: bytes, value: bytes, reveal: Reveal) -> Shown:
    user_id, chat_id = rows.texts(key)
    row = rows.WATERMARK.decode(value)
    return {"user_id": user_id, "chat_id": chat_id, "sequence": row.sequence, "updated_at_ms": row.updated_at_ms}


def _topic(key: bytes, value: bytes, reveal: Reveal) -> Shown:
    return {"topic": rows.first_text(key), "partitions": rows.NUMBER.decode(value)}


def _event(key: bytes, value: bytes, reveal: Reveal) -> Shown:
    row = rows.EVENT.decode(value)
    topic, number, offset = rows.first_text(key), int.from_bytes(key[-12:-8], "big"), rows.last_number(key)
    return {
        "topic": topic,
        "partition": number,
        "offset": offset,
        "timestamp_ms": row.timestamp_ms,
        "key": None if row.key is None else row.key.decode(errors="replace"),
        "headers": {name: text.decode(errors="replace") for name, text in row.headers},
        "value": _event_value(topic, row.value, reveal),
    }


def _event_value(topic: str, value: bytes | None, reveal: Reveal) -> object:
    try:
        body = msgspec.json.decode(value or b"", type=dict[str, object])
    except msgspec.DecodeError:
        # It is no JSON, so it may be a content.
        return value.decode(errors="replace") if reveal.content and value else f"({len(value or b'')} bytes)"
    inner = body.get("original_record" if topic == DEAD_LETTERS else "payload")
    if isinstance(inner, dict):
        _hide_content(inner, reveal)
        if topic == DEAD_LETTERS and isinstance(inner.get("value"), str) and not reveal.content:
            inner["value"] = f"({len(str(inner['value'])) * 3 // 4} bytes)"
    return body


def _end(key: bytes, value: bytes, reveal: Reveal) -> Shown:
    number = int.from_bytes(key[-4:], "big")
    return {"topic": rows.first_text(key), "partition": number, "end": rows.NUMBER.decode(value)}


def _offset(key: bytes, value: bytes, reveal: Reveal) -> Shown:
    group, topic = rows.texts(key[:-4])
    number = int.from_bytes(key[-4:], "big")
    return {"group": group, "topic": topic, "partition": number, "next_offset": rows.NUMBER.decode(value)}


def _user(key: bytes, value: bytes, reveal: Reveal) -> Shown:
    row = rows.USER.decode(value)
    return _builtins(row) | {"phone_number": reveal.phone(row.phone_number)}


def _phone(key: bytes, value: bytes, reveal: Reveal) -> Shown:
    return {"phone_hash": _hash(rows.first_text(key)), "user_id": rows.TEXT.decode(value)}


def _code(key: bytes, value: bytes, reveal: Reveal) -> Shown:
    row = _builtins(rows.CODE.decode(value))
    del row["mac"], row["sealed"]
    return row | {"phone_hash": _hash(str(row["phone_hash"]))}


def _session(key: bytes, value: bytes, reveal: Reveal) -> Shown:
    row = _builtins(rows.SESSION.decode(value))
    del row["refresh_digest"], row["previous_digest"]
    return row


def _request(key: bytes, value: bytes, reveal: Reveal) -> Shown:
    scope, name = rows.texts(key)
    row = _builtins(rows.REQUEST.decode(value))
    del row["body_hash"]
    return {"scope": scope, "idem_key": name, **row}


_TABLES: Mapping[str, Callable[[bytes, bytes, Reveal], Shown]] = {
    "chats": _fields(rows.CHAT),
    "chat_memberships": _fields(rows.MEMBERSHIP),
    "user_chats_index": _texts("user_id", "chat_id"),
    "direct_chat_index": _pair,
    "chat_counters": _counter,
    "dirty_index": _dirty,
    "messages": _message,
    "idempotency_keys": _key,
    "delivery_state": _watermark,
    "topics": _topic,
    "events": _event,
    "event_ends": _end,
    "group_offsets": _offset,
    "users": _user,
    "phones": _phone,
    "otp_requests": _code,
    "sessions": _session,
    "user_sessions_index": _texts("user_id", "session_id"),
    "api_idempotency": _request,
    "sweep_time": lambda key, value, reveal: {"believed_ms": rows.NUMBER.decode(value)},
}


def _builtins(row: object) -> Shown:
    fields = msgspec.to_builtins(row)
    assert isinstance(fields, dict)
    return fields


def _hide_content(row: Shown, reveal: Reveal) -> None:
    content = row.get("content")
    if isinstance(content, str) and not reveal.content:
        row["content"] = f"({len(content.encode())} bytes)"


def _hash(text: str) -> str:
    return f"{text[:_HASH_CHARS_SHOWN]}…"

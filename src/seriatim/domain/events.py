"""Events: what happened, as one JSON object each (docs/spec/data.md#envelope-and-events), and how they are read back.

Readers are tolerant: unknown fields are ignored, missing optional ones have a default, any version is read as 1.
"""

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta

from seriatim.domain import ids, limits
from seriatim.domain.chat import Chat, ChatType, Role
from seriatim.domain.errors import Refused
from seriatim.domain.message import Message

EVENT_VERSION = 1


class ChangeType(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    ROLE_CHANGED = "role_changed"


class Envelope(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What all events have. An `event_version` other than `EVENT_VERSION` is counted, and read as version 1."""

    event_id: str
    event_version: int
    event_time: str
    partition_key: str
    producer_id: str
    trace_id: str


class MessagePersisted(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """`prev_sequence`: the message before it, 0 for none, None when unknown. `members_version`: as it was allocated."""

    envelope: Envelope
    message: Message
    prev_sequence: int | None
    members_version: int | None
    origin_connection_id: str | None


class MembershipChanged(msgspec.Struct, frozen=True, kw_only=True):
    envelope: Envelope
    chat_id: str
    user_id: str
    change_type: ChangeType
    role: Role
    changed_by: str
    changed_at: str
    member_count_after: int | None


class ChatCreated(msgspec.Struct, frozen=True, kw_only=True):
    envelope: Envelope
    chat_id: str
    chat_type: ChatType
    name: str | None
    created_by: str
    initial_members: tuple[str, ...]
    created_at: str
    status: str
    member_count: int | None


Event = MessagePersisted | MembershipChanged | ChatCreated


class BadEvent(Refused):
    """This record can never be handled, however often it is tried."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# --- writing -------------------------------------------------------------------------------------------------------


def message_persisted(
    message: Message,
    *,
    prev_sequence: int | None,
    members_version: int | None,
    origin_connection_id: str | None,
    producer_id: str,
    trace_id: str,
    event_time: str,
) -> MessagePersisted:
    """The id follows from the message's, so that every repeated publication has the same id."""
    return MessagePersisted(
        envelope=Envelope(
            event_id=ids.event_id(message.message_id),
            event_version=EVENT_VERSION,
            event_time=event_time,
            partition_key=message.chat_id,
            producer_id=producer_id,
            trace_id=trace_id,
        ),
        message=message,
        prev_sequence=prev_sequence,
        members_version=members_version,
        origin_connection_id=origin_connection_id,
    )


def encode_message(event: MessagePersisted) -> bytes:
    """What `decode` reads as the same event again."""
    envelope, message = event.envelope, event.message
    return _encode(
        _MessagePersistedRecord(
            event_id=envelope.event_id,
            event_version=envelope.event_version,
            event_time=envelope.event_time,
            partition_key=envelope.partition_key,
            producer_id=envelope.producer_id,
            trace_id=envelope.trace_id,
            payload=_MessagePayload(
                message_id=message.message_id,
                chat_id=message.chat_id,
                sequence=message.sequence,
                sender_id=message.sender_id,
                content=message.content,
                content_type=message.content_type,
                created_at=message.created_at,
                client_message_id=message.client_message_id,
                origin_connection_id=event.origin_connection_id,
                prev_sequence=event.prev_sequence,
                members_version=event.members_version,
            ),
        )
    )


def membership_changed(
    *,
    event_id: str,
    chat_id: str,
    user_id: str,
    change_type: ChangeType,
    role: Role,
    changed_by: str,
    changed_at: str,
    member_count_after: int | None,
    producer_id: str,
    trace_id: str,
    event_time: str,
) -> bytes:
    """`role` is the one after the change, or the last one of a removed member, who is `changed_by` if they left."""
    return _encode(
        _MembershipChangedRecord(
            event_id=event_id,
            event_version=EVENT_VERSION,
            event_time=event_time,
            partition_key=chat_id,
            producer_id=producer_id,
            trace_id=trace_id,
            payload=_MembershipPayload(
                chat_id=chat_id,
                user_id=user_id,
                change_type=change_type,
                role=role,
                changed_by=changed_by,
                changed_at=changed_at,
                member_count_after=member_count_after,
            ),
        )
    )


def chat_created(
    chat: Chat,
    *,
    event_id: str,
    initial_members: Sequence[str],
    producer_id: str,
    trace_id: str,
    event_time: str,
) -> bytes:
    return _encode(
        _ChatCreatedRecord(
            event_id=event_id,
            event_version=EVENT_VERSION,
            event_time=event_time,
            partition_key=chat.chat_id,
            producer_id=producer_id,
            trace_id=trace_id,
            payload=_ChatPayload(
                chat_id=chat.chat_id,
                chat_type=chat.chat_type,
                name=chat.name,
                created_by=chat.created_by,
                initial_members=tuple(initial_members),
                created_at=chat.created_at,
                member_count=chat.member_count,
            ),
        )
    )


@lru_cache(maxsize=64)  # nearly all are those of a message without a trace
def headers(event: type[Event], trace_id: str, *, republished: bool = False) -> tuple[tuple[str, bytes], ...]:
    """Record headers: what tools want to know without reading the value."""
    known = (("event_type", event.__name__.encode()), ("trace_id", trace_id.encode()))
    return (*known, ("x-republish", b"1")) if republished else known


# --- reading -------------------------------------------------------------------------------------------------------


def decode(key: bytes | None, value: bytes | None) -> Event:
    """Raises `BadEvent`, and nothing else, for what is no event, or is stored under another chat's key."""
    if key is None or value is None:
        raise BadEvent(f"the record has no {'key' if key is None else 'value'}")
    try:
        record = _decode(value)
        # Not the other way round: a text from JSON need not be encodable.
        key_text = key.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadEvent(str(error)) from error
    if not key_text == record.partition_key == record.payload.chat_id:
        raise BadEvent("record key, partition_key and payload.chat_id differ")
    return _event(record)


# --- as they are in the log. A field with a default is an optional one -----------------------------------------------

_Sequence = Annotated[int, Meta(ge=1, le=limits.SEQUENCE_MAX)]
_Count = Annotated[int, Meta(ge=0, le=limits.SEQUENCE_MAX)]


class _MessagePayload(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    message_id: str
    chat_id: str
    sequence: _Sequence
    sender_id: str
    content: str
    content_type: str
    created_at: str
    client_message_id: str = ""
    origin_connection_id: str | None = None
    prev_sequence: _Count | None = None
    members_version: _Count | None = None


class _MembershipPayload(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: str
    user_id: str
    change_type: ChangeType
    role: Role
    changed_by: str
    changed_at: str | None = None  # required by docs/spec/data.md, but ADR-003 lacks it
    member_count_after: _Count | None = None


class _ChatPayload(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: str
    chat_type: ChatType
    name: str | None
    created_by: str
    initial_members: tuple[str, ...]
    created_at: str | None = None  # required by docs/spec/data.md, but ADR-003 lacks it
    status: str = "active"
    member_count: _Count | None = None


class _Record(msgspec.Struct, frozen=True, gc=False, kw_only=True, tag_field="event_type"):
    event_id: str
    event_version: Annotated[int, Meta(ge=1)]
    event_time: str
    partition_key: str
    producer_id: str
    trace_id: str


class _MessagePersistedRecord(_Record, frozen=True, kw_only=True, tag="MessagePersisted"):
    payload: _MessagePayload


class _MembershipChangedRecord(_Record, frozen=True, kw_only=True, tag="MembershipChanged"):
    payload: _MembershipPayload


class _ChatCreatedRecord(_Record, frozen=True, kw_only=True, tag="ChatCreated"):
    payload: _ChatPayload


_AnyRecord = _MessagePersistedRecord | _MembershipChangedRecord | _ChatCreatedRecord

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_AnyRecord).decode


def _event(record: _AnyRecord) -> Event:
    envelope = Envelope(
        event_id=record.event_id,
        event_version=record.event_version,
        event_time=record.event_time,
        partition_key=record.partition_key,
        producer_id=record.producer_id,
        trace_id=record.trace_id,
    )
    match record.payload:
        case _MessagePayload() as payload:
            return MessagePersisted(
                envelope=envelope,
                message=Message(
                    message_id=payload.message_id,
                    chat_id=payload.chat_id,
                    sequence=payload.sequence,
                    sender_id=payload.sender_id,
                    client_message_id=payload.client_message_id,
                    content=payload.content,
                    content_type=payload.content_type,
                    created_at=payload.created_at,
                ),
                prev_sequence=payload.prev_sequence,
                members_version=payload.members_version,
                origin_connection_id=payload.origin_connection_id,
            )
        case _MembershipPayload() as payload:
            return MembershipChanged(
                envelope=envelope,
                chat_id=payload.chat_id,
                user_id=payload.user_id,
                change_type=payload.change_type,
                role=payload.role,
                changed_by=payload.changed_by,
                changed_at=record.event_time if payload.changed_at is None else payload.changed_at,
                member_count_after=payload.member_count_after,
            )
        case _ChatPayload() as payload:
            return ChatCreated(
                envelope=envelope,
                chat_id=payload.chat_id,
                chat_type=payload.chat_type,
                name=payload.name,
                created_by=payload.created_by,
                initial_members=payload.initial_members,
                created_at=record.event_time if payload.created_at is None else payload.created_at,
                status=payload.status,
                member_count=payload.member_count,
            )

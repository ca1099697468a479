"""The frames of the wire (docs/spec/websocket.md#frames): one flat JSON object each, named by `type`.

A field that is UNSET is absent on the wire. Field order is the order on the wire.
"""

from enum import StrEnum

import msgspec
from msgspec import UNSET, UnsetType

from seriatim.domain import limits
from seriatim.domain.message import TEXT, Message

Maybe = str | UnsetType

# --- client to server -------------------------------------------------------------------------------------------------


class SendMessage(msgspec.Struct, frozen=True, gc=False, kw_only=True, tag_field="type", tag="send_message"):
    client_message_id: str
    chat_id: str
    content: str
    content_type: str = TEXT
    request_id: Maybe = UNSET


class Ack(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ack"):
    """Cumulative: everything up to here was stored by the client."""

    chat_id: str
    last_acked_sequence: int
    request_id: Maybe = UNSET


class SyncRequest(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="sync_request"):
    chat_id: str
    last_acked_sequence: int
    limit: int = limits.SYNC_SLOTS_DEFAULT
    request_id: Maybe = UNSET


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="heartbeat"):
    request_id: Maybe = UNSET


ClientFrame = SendMessage | Ack | SyncRequest | Heartbeat

# --- server to client -------------------------------------------------------------------------------------------------


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    max_content_bytes: int = limits.CONTENT_BYTES_MAX
    send_rate_per_second: int = int(limits.SEND_RATE_PER_S)
    send_burst: int = limits.SEND_BURST_MAX
    sync_limit_max: int = limits.SYNC_SLOTS_MAX


class ConnectionEstablished(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="connection_established"):
    connection_id: str
    user_id: str
    device_id: str
    server_time: str
    heartbeat_interval_ms: int = int(limits.PING_INTERVAL_S * 1000)
    protocol_version: int = 1
    gateway_id: str
    limits: Limits = Limits()


class MessageItem(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A message inside a batch. `prev_sequence`: the message before it in the chat, null when unknown."""

    message_id: str
    chat_id: str
    sequence: int
    sender_id: str
    client_message_id: str
    content: str
    content_type: str
    created_at: str
    prev_sequence: int | None


class MessageFrame(MessageItem, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """A message pushed as it happens."""


class MessageAck(msgspec.Struct, frozen=True, gc=False, kw_only=True, tag_field="type", tag="message_ack"):
    """The message is stored and published; says nothing about recipients."""

    client_message_id: str
    chat_id: str
    message_id: str
    sequence: int
    created_at: str
    deduplicated: bool
    content_differs: bool | UnsetType = UNSET
    request_id: Maybe = UNSET


class MessageBatch(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message_batch"):
    chat_id: str
    messages: tuple[MessageItem, ...]
    has_more: bool
    next_sequence: int | None
    request_id: Maybe = UNSET


class HeartbeatAck(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="heartbeat_ack"):
    server_time: str
    request_id: Maybe = UNSET


class ErrorFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="error"):
    code: str
    message: str
    retryable: bool
    request_id: Maybe = UNSET
    client_message_id: Maybe = UNSET
    chat_id: Maybe = UNSET
    retry_after_seconds: float | UnsetType = UNSET
    grace_period: float | UnsetType = UNSET
    details: dict[str, object] | UnsetType = UNSET


class CloseReason(StrEnum):
    """Why the server closes; each knows its close code and whether the client may come back."""

    SERVER_SHUTDOWN = "server_shutdown"
    MAX_CONNECTION_AGE = "max_connection_age"
    IDLE_TIMEOUT = "idle_timeout"
    UPSTREAM_FAILURE = "upstream_failure"
    LOAD_SHEDDING = "load_shedding"
    SLOW_CONSUMER = "slow_consumer"
    RATE_LIMITED = "rate_limited"
    TOKEN_EXPIRED = "token_expired"
    PROTOCOL_ERROR = "protocol_error"
    DUPLICATE_CONNECTION = "duplicate_connection"
    SESSION_REVOKED = "session_revoked"

    @property
    def code(self) -> int:
        return _CLOSE_CODES.get(self, 1008)

    @property
    def reconnect_allowed(self) -> bool:
        return self not in (CloseReason.DUPLICATE_CONNECTION, CloseReason.SESSION_REVOKED)


_CLOSE_CODES = {
    CloseReason.SERVER_SHUTDOWN: 1001,
    CloseReason.MAX_CONNECTION_AGE: 1001,
    CloseReason.IDLE_TIMEOUT: 1001,
    CloseReason.UPSTREAM_FAILURE: 1011,
    CloseReason.LOAD_SHEDDING: 1013,
}


class ConnectionClosing(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="connection_closing"):
    reason: str
    reconnect_allowed: bool
    message: Maybe = UNSET
    reconnect_delay_ms: int | UnsetType = UNSET
    sync_from_sequence: dict[str, int] | UnsetType = UNSET


ServerFrame = (
    ConnectionEstablished | MessageFrame | MessageAck | MessageBatch | HeartbeatAck | ErrorFrame | ConnectionClosing
)


def message_item(message: Message, prev_sequence: int | None) -> MessageItem:
    return MessageItem(
        message_id=message.message_id,
        chat_id=message.chat_id,
        sequence=message.sequence,
        sender_id=message.sender_id,
        client_message_id=message.client_message_id,
        content=message.content,
        content_type=message.content_type,
        created_at=message.created_at,
        prev_sequence=prev_sequence,
    )


def message_frame(message: Message, prev_sequence: int | None) -> MessageFrame:
    return MessageFrame(
        message_id=message.message_id,
        chat_id=message.chat_id,
        sequence=message.sequence,
        sender_id=message.sender_id,
        client_message_id=message.client_message_id,
        content=message.content,
        content_type=message.content_type,
        created_at=message.created_at,
        prev_sequence=prev_sequence,
    )

"""The AsyncAPI document of the WebSocket, generated from the frame types.

The sender, the answer and an example of each frame are in the two tables below.
"""

from collections.abc import Mapping
from typing import get_args

import msgspec

from seriatim.domain import limits
from seriatim.protocol.frames import (
    Ack,
    ClientFrame,
    CloseReason,
    ConnectionClosing,
    ConnectionEstablished,
    ErrorFrame,
    Heartbeat,
    HeartbeatAck,
    MessageAck,
    MessageBatch,
    MessageFrame,
    SendMessage,
    ServerFrame,
    SyncRequest,
)

Json = dict[str, object]


def document(version: str) -> Json:
    """AsyncAPI 3.0. `version` is that of the software; the protocol's own is in the channel's address."""
    types = frame_types()
    _, schemas = msgspec.json.schema_components(
        types.values(), schema_hook=_anything, ref_template="#/components/schemas/{name}"
    )
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Seriatim: the socket", "version": version, "description": _ABOUT},
        "defaultContentType": "application/json",
        "channels": {
            "socket": {
                "address": "/v1/ws",
                "description": _CONNECTING,
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in types},
                "bindings": {"ws": {"method": "GET", "bindingVersion": "0.1.0"}},
            }
        },
        "operations": {
            **{_operation(name): _sent_by_client(name) for name in _names(ClientFrame)},
            "server_sends": {
                "action": "send",
                "channel": {"$ref": "#/channels/socket"},
                "summary": "What a client receives, asked or unasked",
                "messages": [{"$ref": f"#/channels/socket/messages/{name}"} for name in _names(ServerFrame)],
            },
        },
        "components": {
            "messages": {name: _message(name, kind) for name, kind in types.items()},
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": "JWT",
                    "description": "The access token of the REST sign-in",
                }
            },
        },
        "x-error-codes": dict(ERROR_CODES),
        "x-close-reasons": {
            reason.value: {"code": reason.code, "reconnect_allowed": reason.reconnect_allowed} for reason in CloseReason
        },
    }


def frame_types() -> Mapping[str, type[msgspec.Struct]]:
    """Every frame by its name on the wire."""
    return {_name(kind): kind for kind in (*get_args(ClientFrame), *get_args(ServerFrame))}


ERROR_CODES: Mapping[str, str] = {
    "INVALID_MESSAGE": "the frame cannot be read, or a field is wrong; mend it. Ten in a minute close the connection",
    "MESSAGE_TOO_LARGE": f"content has more than {limits.CONTENT_BYTES_MAX} bytes; shorten it",
    "INVALID_CONTENT_TYPE": "only text/plain is accepted",
    "NOT_A_MEMBER": "you are not a member of this chat, or there is no such chat",
    "FORBIDDEN": "reserved; a client that may connect may send every frame",
    "NOT_FOUND": "reserved; never sent for chats",
    "UNAUTHORIZED": "the token turned out invalid; sign in again. Closes the connection",
    "RATE_LIMITED": "too many sends; wait `retry_after_seconds`, then send again with the same id",
    "SERVER_BUSY": "too many requests at once; wait `retry_after_seconds`, then ask again",
    "SERVICE_UNAVAILABLE": "something below failed; retry with the same id: the message may be stored already",
    "INTERNAL_ERROR": "a fault of the server; retry slowly",
    "SLOW_CONSUMER": "a warning: read faster, or be disconnected when `grace_period` seconds are over",
}

_ABOUT = (
    "One JSON object per text frame, UTF-8, all fields at the top level, named by `type`. Receivers ignore fields and "
    "types that they do not know. Order messages by `sequence`, never by arrival; sequences may have gaps. Any client "
    "frame may carry a `request_id`, which every answer to it repeats."
)
_CONNECTING = (
    "Connect with `Authorization: Bearer <token>`; browsers, which cannot set headers, offer the subprotocols "
    "`messaging.v1` and `bearer.<token>`. The device id (a UUIDv4 that the client keeps for ever) comes from the "
    "header `X-Device-ID`, the query `device_id`, or the token. `/ws` is the newest version. The server speaks first: "
    "`connection_established`."
)
_CHAT, _CMID = "chat_01J9ZK3V7E8Q2W5R6T4Y1B0NMX", "550e8400-e29b-41d4-a716-446655440000"
_MESSAGE = {
    "message_id": "msg_01J9ZK5C4D8XQ0PJ3R2S7T6VBA",
    "chat_id": _CHAT,
    "sequence": 47,
    "sender_id": "user_01J9ZK2A6B7C8D9E0F1G2H3J4K",
    "client_message_id": _CMID,
    "content": "Hi",
    "content_type": "text/plain",
    "created_at": "2026-01-30T14:30:00.000Z",
    "prev_sequence": 45,
}

# What it is for, and an example.
_FRAMES: Mapping[type[msgspec.Struct], tuple[str, Json]] = {
    SendMessage: (
        "Send a message. The same client_message_id on every retry: it is stored once, however often it is sent",
        {"client_message_id": _CMID, "chat_id": _CHAT, "content": "Hi"},
    ),
    Ack: (
        "Everything up to here is stored on this device. No answer unless it is refused",
        {"chat_id": _CHAT, "last_acked_sequence": 47},
    ),
    SyncRequest: (
        "Ask for what lies above the device's own cursor; 0 asks for everything",
        {"request_id": "r-9", "chat_id": _CHAT, "last_acked_sequence": 42, "limit": 100},
    ),
    Heartbeat: ("Optional: measures the round trip and the clocks", {"request_id": "h-1"}),
    ConnectionEstablished: (
        "The first frame. From here on nothing is missed",
        {
            "connection_id": "conn_01J9ZK4B5C6D7E8F9G0H1J2K3M",
            "user_id": "user_01J9ZK2A6B7C8D9E0F1G2H3J4K",
            "device_id": "0b0e8400-e29b-41d4-a716-446655440000",
            "server_time": "2026-01-30T14:30:00.000Z",
            "gateway_id": "gw_01J9ZK1Z2Y3X4W5V6T7S8R9Q0P",
        },
    ),
    MessageFrame: ("A message of one of your chats, pushed as it happens", _MESSAGE),
    MessageAck: (
        "Your message is stored and published; nothing can undo it. Says nothing about recipients",
        {
            "client_message_id": _CMID,
            "chat_id": _CHAT,
            "message_id": _MESSAGE["message_id"],
            "sequence": 47,
            "created_at": "2026-01-30T14:30:00.000Z",
            "deduplicated": False,
        },
    ),
    MessageBatch: (
        "The answer to sync_request. With `has_more`, ask again from `next_sequence` - 1",
        {"request_id": "r-9", "chat_id": _CHAT, "messages": [_MESSAGE], "has_more": False, "next_sequence": None},
    ),
    HeartbeatAck: ("The answer to heartbeat", {"request_id": "h-1", "server_time": "2026-01-30T14:30:00.005Z"}),
    ErrorFrame: (
        "A request was refused or failed, or a warning. It names the request as far as that could be read",
        {
            "code": "RATE_LIMITED",
            "message": "Too many messages",
            "retryable": True,
            "retry_after_seconds": 1,
            "client_message_id": _CMID,
            "chat_id": _CHAT,
        },
    ),
    ConnectionClosing: (
        "The last frame: why, and whether to come back",
        {
            "reason": "slow_consumer",
            "reconnect_allowed": True,
            "reconnect_delay_ms": 1000,
            "sync_from_sequence": {_CHAT: 46},
        },
    ),
}
_ANSWERS: Mapping[type[msgspec.Struct], type[msgspec.Struct]] = {
    SendMessage: MessageAck,
    SyncRequest: MessageBatch,
    Heartbeat: HeartbeatAck,
}


def _message(name: str, kind: type[msgspec.Struct]) -> Json:
    summary, example = _FRAMES[kind]
    return {
        "name": name,
        "summary": summary,
        "payload": {"$ref": f"#/components/schemas/{kind.__name__}"},
        "examples": [{"name": name, "payload": {"type": name, **example}}],
    }


def _operation(name: str) -> str:
    return f"client_sends_{name}"


def _sent_by_client(name: str) -> Json:
    kind = frame_types()[name]
    answers: list[type[msgspec.Struct]] = [_ANSWERS[kind], ErrorFrame] if kind in _ANSWERS else [ErrorFrame]
    return {
        "action": "receive",
        "channel": {"$ref": "#/channels/socket"},
        "summary": _FRAMES[kind][0],
        "messages": [{"$ref": f"#/channels/socket/messages/{name}"}],
        "reply": {
            "channel": {"$ref": "#/channels/socket"},
            "messages": [{"$ref": f"#/channels/socket/messages/{_name(each)}"} for each in answers],
        },
        "security": [{"$ref": "#/components/securitySchemes/bearer"}],
    }


def _anything(kind: type) -> Json:
    """The details of an error are whatever helps with that error."""
    assert kind is object, f"{kind} needs a schema of its own"
    return {"description": "whatever helps with this error"}


def _names(union: object) -> list[str]:
    return [_name(kind) for kind in get_args(union)]


def _name(kind: type[msgspec.Struct]) -> str:
    tag = kind.__struct_config__.tag
    assert isinstance(tag, str), f"{kind.__name__} has no name on the wire"
    return tag

"""A push envelope as it travels on a gateway's channel: one JSON object (docs/spec/websocket.md#routing-a-message).

Read with tolerance, because two releases of Seriatim may share a Redis: unknown fields are ignored.
"""

import msgspec

from seriatim.domain.message import TEXT, Message
from seriatim.ports.push import CloseOrder, MessageDelivery, PushEnvelope


class MalformedEnvelope(Exception):
    """Not an envelope, or one of a release that this one cannot read."""


def encode_envelope(envelope: PushEnvelope) -> bytes:
    if isinstance(envelope, CloseOrder):
        return _ENCODER.encode(_Close(connection_id=envelope.connection_id, reason=envelope.reason))
    message = envelope.message
    travelling = _Message(
        message_id=message.message_id,
        chat_id=message.chat_id,
        sequence=message.sequence,
        sender_id=message.sender_id,
        client_message_id=message.client_message_id,
        content=message.content,
        content_type=message.content_type,
        created_at=message.created_at,
        prev_sequence=envelope.prev_sequence,
    )
    return _ENCODER.encode(_Deliver(connection_ids=envelope.connection_ids, message=travelling))


def decode_envelope(data: bytes) -> PushEnvelope:
    """Raises MalformedEnvelope."""
    try:
        envelope = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedEnvelope from error
    if isinstance(envelope, _Close):
        return CloseOrder(connection_id=envelope.connection_id, reason=envelope.reason)
    # The records name one connection per envelope; Seriatim names all of the gateway's.
    single = envelope.connection_id
    connection_ids = envelope.connection_ids if single is None else (single, *envelope.connection_ids)
    if not connection_ids:
        raise MalformedEnvelope
    message = envelope.message
    return MessageDelivery(
        connection_ids=connection_ids,
        message=Message(
            message_id=message.message_id,
            chat_id=message.chat_id,
            sequence=message.sequence,
            sender_id=message.sender_id,
            client_message_id=message.client_message_id,
            content=message.content,
            content_type=message.content_type,
            created_at=message.created_at,
        ),
        prev_sequence=message.prev_sequence,
    )


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    """As the client gets it. The records lack `prev_sequence` and `content_type`."""

    type: str = "message"
    message_id: str
    chat_id: str
    sequence: int
    sender_id: str
    client_message_id: str
    content: str
    content_type: str = TEXT
    created_at: str
    prev_sequence: int | None = None


class _Deliver(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="deliver", omit_defaults=True):
    connection_ids: tuple[str, ...] = ()
    connection_id: str | None = None
    message: _Message


class _Close(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="close"):
    connection_id: str
    reason: str


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Deliver | _Close)

"""The message with its key, its event and its receipt: built here, for both ways to commit a send."""

import msgspec

from seriatim.domain import limits
from seriatim.domain.events import MessagePersisted, encode_message, headers, message_persisted
from seriatim.domain.message import Draft, Message, Receipt
from seriatim.ports.event_log import Event
from seriatim.ports.message_log import Entry, Key


def new_entry(
    draft: Draft, digest: str, message_id: str, sequence: int, created_at: str, key_expires_at_s: int
) -> Entry:
    """The message that a draft becomes at its slot, with what its idempotency key must say."""
    message = Message(
        message_id=message_id,
        chat_id=draft.chat_id,
        sequence=sequence,
        sender_id=draft.sender_id,
        client_message_id=draft.client_message_id,
        content=draft.content,
        content_type=draft.content_type,
        created_at=created_at,
    )
    return Entry(message=message, content_sha256=digest, expires_at_s=key_expires_at_s)


def key_expires_at_s(created_ms: int) -> int:
    """Of the key of a message created then. Rounded up: a key is judged by whole seconds, and lives no shorter."""
    return -(-created_ms // 1000) + limits.KEY_LIFETIME_S


def new_event(
    message: Message,
    prev_sequence: int | None,
    members_version: int,
    origin_connection_id: str,
    producer_id: str,
    trace_id: str,
    event_time: str,
) -> Event:
    """The event that publishes a message: encoded for the log, and decoded for readers in this process.

    Called by position: on the send path arguments by keyword cost more.
    """
    decoded = message_persisted(
        message,
        prev_sequence=prev_sequence,
        members_version=members_version,
        origin_connection_id=origin_connection_id,
        producer_id=producer_id,
        trace_id=trace_id,
        event_time=event_time,
    )
    return Event(
        key=message.chat_id,
        value=encode_message(decoded),
        headers=headers(MessagePersisted, trace_id),
        decoded=decoded,
    )


def republished(event: Event, trace_id: str) -> Event:
    """The same event, of a message that was read back from the store."""
    return msgspec.structs.replace(event, headers=headers(MessagePersisted, trace_id, republished=True))


def new_receipt(message: Message, prev_sequence: int | None = None) -> Receipt:
    """Of a message that this send stored."""
    return Receipt(
        message_id=message.message_id,
        sequence=message.sequence,
        created_at=message.created_at,
        prev_sequence=prev_sequence,
    )


def duplicate_receipt(key: Key, digest: str) -> Receipt:
    """Of a message that an earlier send with the same key stored. `digest`: of the content that this send carries."""
    return Receipt(
        message_id=key.message_id,
        sequence=key.sequence,
        created_at=key.created_at,
        deduplicated=True,
        content_differs=key.content_sha256 != digest,
    )


def with_predecessor(receipt: Receipt, prev_sequence: int | None) -> Receipt:
    """The same receipt, once the publisher knows which message comes before it."""
    return Receipt(
        message_id=receipt.message_id,
        sequence=receipt.sequence,
        created_at=receipt.created_at,
        deduplicated=receipt.deduplicated,
        content_differs=receipt.content_differs,
        prev_sequence=prev_sequence,
    )

"""What a dead letter holds and where it goes (docs/spec/data.md#dead-letters), whichever engine writes it.

The record is wrapped byte for byte, because what could not be handled may be neither JSON nor text.
"""

from base64 import b64encode
from hashlib import sha256

import msgspec
from msgspec import UNSET, UnsetType

from seriatim.domain import limits
from seriatim.domain.sharding import partition
from seriatim.domain.times import iso


class DeadLetterMetadata(msgspec.Struct, frozen=True, kw_only=True):
    original_topic: str
    original_partition: int
    original_offset: int
    original_timestamp: str
    consumer_group: str
    consumer_id: str
    failure_reason: str
    failure_timestamp: str
    processing_attempts: int


class OriginalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record itself. `key` is null when it was null or no text; then `key_base64` holds its bytes, if any.

    A value too large to wrap is cut; its digest is that of the whole value, so that the source can be recognised.
    """

    key: str | None
    value: str | None
    headers: tuple[tuple[str, str], ...]
    key_base64: str | UnsetType = UNSET
    value_sha256: str | UnsetType = UNSET
    value_truncated: bool | UnsetType = UNSET


class DeadLetterBody(msgspec.Struct, frozen=True, kw_only=True):
    dlq_metadata: DeadLetterMetadata
    original_record: OriginalRecord


def dead_letter_value(
    *,
    topic: str,
    source_partition: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes], ...],
    reason: str,
    attempts: int,
    consumer_group: str,
    consumer_id: str,
    failed_at_ms: int,
) -> bytes:
    """As JSON. Whatever the record holds, this succeeds: a dead letter that cannot be written stalls its partition."""
    metadata = DeadLetterMetadata(
        original_topic=topic,
        original_partition=source_partition,
        original_offset=offset,
        original_timestamp=iso(timestamp_ms),
        consumer_group=consumer_group,
        consumer_id=consumer_id,
        failure_reason=_encodable(reason)[: limits.DEAD_LETTER_REASON_CHARS_MAX],
        failure_timestamp=iso(failed_at_ms),
        processing_attempts=attempts,
    )
    return msgspec.json.encode(DeadLetterBody(dlq_metadata=metadata, original_record=_original(key, value, headers)))


def dead_letter_key(key: bytes | None) -> str | None:
    """The dead letter's own key: the record's, if it is text."""
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


def dead_letter_partition(key: bytes | None, source_partition: int, count: int) -> int:
    """Dead letters of one chat stay together; without a usable key, those of one source partition do."""
    text = dead_letter_key(key)
    return source_partition % count if text is None else partition(text, count)


def _original(key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes], ...]) -> OriginalRecord:
    text = dead_letter_key(key)
    too_large = value is not None and len(value) > limits.DEAD_LETTER_VALUE_BYTES_MAX
    return OriginalRecord(
        key=text,
        value=None if value is None else _base64(value[: limits.DEAD_LETTER_VALUE_BYTES_MAX]),
        headers=tuple([(_encodable(name), _base64(content)) for name, content in headers]),
        key_base64=_base64(key) if key is not None and text is None else UNSET,
        value_sha256=sha256(value).hexdigest() if value is not None and too_large else UNSET,
        value_truncated=True if too_large else UNSET,
    )


def _base64(content: bytes) -> str:
    return b64encode(content).decode("ascii")


def _encodable(text: str) -> str:
    """An exception's text may quote a lone surrogate, which JSON cannot carry."""
    return text.encode("utf-8", "replace").decode()

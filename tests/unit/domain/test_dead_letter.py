"""A dead letter tells a person everything about the record it holds, and can always be written.

What it holds: docs/spec/data.md#dead-letters.
"""

import json
from base64 import b64decode
from hashlib import sha256
from typing import Any

import pytest

from seriatim.domain import limits
from seriatim.domain.dead_letter import dead_letter_key, dead_letter_partition, dead_letter_value


def dead_letter(
    *,
    key: bytes | None = b"chat_abc123",
    value: bytes | None = b"{}",
    headers: tuple[tuple[str, bytes], ...] = (),
    reason: str = "BadEvent: no JSON",
) -> dict[str, Any]:
    text = dead_letter_value(
        topic="messages.persisted",
        source_partition=31,
        offset=12847,
        timestamp_ms=1_769_783_400_000,
        key=key,
        value=value,
        headers=headers,
        reason=reason,
        attempts=3,
        consumer_group="fanout-workers",
        consumer_id="fanout-1",
        failed_at_ms=1_769_783_401_234,
    )
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_dead_letter_says_where_the_record_was_and_why_it_failed() -> None:
    assert dead_letter()["dlq_metadata"] == {
        "original_topic": "messages.persisted",
        "original_partition": 31,
        "original_offset": 12847,
        "original_timestamp": "2026-01-30T14:30:00.000Z",
        "consumer_group": "fanout-workers",
        "consumer_id": "fanout-1",
        "failure_reason": "BadEvent: no JSON",
        "failure_timestamp": "2026-01-30T14:30:01.234Z",
        "processing_attempts": 3,
    }


def test_the_record_is_kept_byte_for_byte() -> None:
    record = dead_letter(value=b"\x00\xff", headers=(("trace_id", b"\x01"), ("trace_id", b"")))["original_record"]
    assert record == {"key": "chat_abc123", "value": "AP8=", "headers": [["trace_id", "AQ=="], ["trace_id", ""]]}


def test_a_record_without_key_and_value_has_null_for_both() -> None:
    assert dead_letter(key=None, value=None)["original_record"] == {"key": None, "value": None, "headers": []}


def test_a_key_that_is_no_text_is_kept_as_base64() -> None:
    record = dead_letter(key=b"\xff\xfe")["original_record"]
    assert (record["key"], b64decode(record["key_base64"])) == (None, b"\xff\xfe")


def test_a_value_that_just_fits_is_not_cut() -> None:
    record = dead_letter(value=b"x" * limits.DEAD_LETTER_VALUE_BYTES_MAX)["original_record"]
    assert len(b64decode(record["value"])) == limits.DEAD_LETTER_VALUE_BYTES_MAX
    assert "value_truncated" not in record
    assert "value_sha256" not in record


def test_a_value_too_large_is_cut_and_carries_the_digest_of_the_whole() -> None:
    whole = b"x" * limits.DEAD_LETTER_VALUE_BYTES_MAX + b"tail"
    record = dead_letter(value=whole)["original_record"]
    assert b64decode(record["value"]) == whole[: limits.DEAD_LETTER_VALUE_BYTES_MAX]
    assert record["value_truncated"] is True
    assert record["value_sha256"] == sha256(whole).hexdigest()


def test_a_reason_that_json_cannot_carry_or_that_has_no_end_still_makes_a_dead_letter() -> None:
    assert dead_letter(reason="ValueError: \ud800")["dlq_metadata"]["failure_reason"] == "ValueError: ?"
    assert (
        len(dead_letter(reason="x" * 100_000)["dlq_metadata"]["failure_reason"]) == limits.DEAD_LETTER_REASON_CHARS_MAX
    )


@pytest.mark.parametrize(
    ("key", "own_key", "partition"),
    [(b"chat_abc123", "chat_abc123", 6), ("chat_测试".encode(), "chat_测试", 7), (None, None, 3), (b"\xff", None, 3)],
)
def test_a_dead_letter_goes_by_its_key_or_else_by_its_source_partition(
    key: bytes | None, own_key: str | None, partition: int
) -> None:
    assert dead_letter_key(key) == own_key
    assert dead_letter_partition(key, 11, 8) == partition

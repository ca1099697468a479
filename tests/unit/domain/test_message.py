"""What may become a message."""

import hashlib

import msgspec
import pytest

from seriatim.domain.errors import InvalidContentType, InvalidMessage, MessageTooLarge, Refused
from seriatim.domain.message import Draft, Message, Receipt, Sealed, check_draft, content_digest

DRAFT = Draft(
    chat_id="chat_1",
    sender_id="user_1",
    client_message_id="550e8400-e29b-41d4-a716-446655440000",
    content="hello",
)


def test_a_plain_draft_passes() -> None:
    check_draft(DRAFT)


@pytest.mark.parametrize("content", ["x", "x" * 4096, "é" * 2048, "🎉" * 1024, " ", "\x00"])
def test_content_of_1_to_4096_bytes_passes_whatever_it_says(content: str) -> None:
    check_draft(msgspec.structs.replace(DRAFT, content=content))


@pytest.mark.parametrize("content", ["x" * 4097, "é" * 2048 + "x", "🎉" * 1025])
def test_size_is_counted_in_bytes_and_the_limit_is_named(content: str) -> None:
    with pytest.raises(MessageTooLarge) as caught:
        check_draft(msgspec.structs.replace(DRAFT, content=content))
    assert caught.value.details == {"max_bytes": 4096}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("chat_id", ""),
        ("chat_id", "chat/1"),
        ("chat_id", "x" * 65),
        ("client_message_id", ""),
        ("client_message_id", "550e8400-e29b-11d4-a716-446655440000"),
        ("content", ""),
        ("content", "half a pair: \ud83c"),
    ],
)
def test_a_malformed_field_is_refused_by_name(field: str, value: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        check_draft(msgspec.structs.replace(DRAFT, **{field: value}))
    assert caught.value.details["field"] == field


@pytest.mark.parametrize("content_type", ["text/html", "", "TEXT/PLAIN", "text/plain; charset=utf-8"])
def test_only_plain_text_is_accepted(content_type: str) -> None:
    with pytest.raises(InvalidContentType):
        check_draft(msgspec.structs.replace(DRAFT, content_type=content_type))


def test_a_refused_draft_is_never_worth_a_retry() -> None:
    with pytest.raises(Refused) as caught:
        check_draft(msgspec.structs.replace(DRAFT, content=""))
    assert not caught.value.retryable
    assert not caught.value.trips_breaker


def test_the_digest_tells_a_faithful_retry_from_a_changed_one() -> None:
    assert content_digest("hello") == hashlib.sha256(b"hello").hexdigest()
    assert content_digest("hello") != content_digest("hello ")


def test_only_a_message_has_a_sequence_and_it_must_have_one() -> None:
    assert "sequence" not in Draft.__struct_fields__
    assert all("sequence" in kind.__struct_fields__ for kind in (Message, Sealed, Receipt))
    fields = dict.fromkeys(Message.__struct_fields__, "x")
    del fields["sequence"]
    with pytest.raises(TypeError):
        Message(**fields)  # type: ignore[arg-type]


def test_what_was_decided_about_a_message_cannot_be_changed() -> None:
    for frozen in (DRAFT, Sealed(chat_id="c", sequence=1, created_at="t")):
        with pytest.raises(AttributeError):
            frozen.chat_id = "other"  # type: ignore[misc]

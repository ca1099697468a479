"""A message on its way: a `Draft` has no sequence, a `Message` always has one, a `Receipt` is proof of both promises.

A slot is one (chat, sequence) position. It is filled once, by a message or by a tombstone, which is never shown.
"""

import hashlib

import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import InvalidContentType, InvalidMessage, MessageTooLarge
from seriatim.domain.ids import match_id, match_uuid4

TEXT = "text/plain"


class Draft(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a sender asks for. `client_message_id` is lower case and stays the same on every retry."""

    chat_id: str
    sender_id: str
    client_message_id: str
    content: str
    content_type: str = TEXT
    origin_connection_id: str | None = None
    trace_id: str = ""


class Message(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is stored, published and delivered; equal wherever it is seen."""

    message_id: str
    chat_id: str
    sequence: int
    sender_id: str
    client_message_id: str
    content: str
    content_type: str
    created_at: str


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """A tombstone: this slot was allocated, stayed empty, and now never holds a message."""

    chat_id: str
    sequence: int
    created_at: str


Slot = Message | Sealed


class Receipt(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The message is stored and published. `prev_sequence` is the message before it, None when unknown."""

    message_id: str
    sequence: int
    created_at: str
    deduplicated: bool = False
    content_differs: bool = False
    prev_sequence: int | None = None


def check_draft(draft: Draft) -> None:
    """Raises what is wrong with the draft; a draft that passes may touch the counter."""
    if match_id(draft.chat_id) is None:
        raise InvalidMessage("chat_id must be 1-64 characters of A-Z a-z 0-9 _ -", field="chat_id")
    if match_uuid4(draft.client_message_id) is None:
        raise InvalidMessage("client_message_id must be a UUIDv4", field="client_message_id")
    check_content(draft.content, draft.content_type)


def check_content(content: str, content_type: str) -> None:
    """The part of `check_draft` that concerns the text; shape, then size, then type."""
    try:
        size = len(content) if content.isascii() else len(content.encode())
    except UnicodeEncodeError:
        raise InvalidMessage("content holds a lone surrogate; send valid Unicode", field="content") from None
    if size == 0:
        raise InvalidMessage("content is empty", field="content")
    if size > limits.CONTENT_BYTES_MAX:
        raise MessageTooLarge(f"content has {size} bytes; at most {limits.CONTENT_BYTES_MAX} are accepted")
    if content_type != TEXT:
        raise InvalidContentType(f"only {TEXT} is accepted")


def content_digest(content: str) -> str:
    """Distinguishes an exact retry from one with another text, without storing the text twice."""
    return hashlib.sha256(content.encode()).hexdigest()

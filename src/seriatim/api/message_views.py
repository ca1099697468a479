"""A message as REST shows it: what the socket shows, and the sender's name. Long answers are cut."""

from collections.abc import Iterable, Sequence

import msgspec

from seriatim.api.core.fields import Time
from seriatim.api.display_names import DisplayNames
from seriatim.domain import limits
from seriatim.domain.message import Message


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    user_id: str
    display_name: str | None


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    message_id: str
    chat_id: str
    sequence: int
    sender_id: str
    sender: Sender
    client_message_id: str
    content: str
    content_type: str
    created_at: Time


async def message_views(messages: Sequence[Message], names: DisplayNames) -> list[MessageView]:
    of = await names.of(message.sender_id for message in messages)
    return [_view(message, of[message.sender_id]) for message in messages]


def within_size_limit(views: Iterable[MessageView]) -> list[MessageView]:
    """As many from the beginning as one answer may hold; at least one does, because a message is bounded."""
    kept: list[MessageView] = []
    room = limits.ANSWER_BYTES_MAX - limits.ANSWER_ENVELOPE_BYTES
    for view in views:
        room -= len(msgspec.json.encode(view)) + 1
        if room < 0:
            break
        kept.append(view)
    return kept


def _view(message: Message, display_name: str | None) -> MessageView:
    return MessageView(
        message_id=message.message_id,
        chat_id=message.chat_id,
        sequence=message.sequence,
        sender_id=message.sender_id,
        sender=Sender(user_id=message.sender_id, display_name=display_name),
        client_message_id=message.client_message_id,
        content=message.content,
        content_type=message.content_type,
        created_at=message.created_at,
    )

"""Text to frames and back: unknown types and fields are ignored, known ones are checked strictly.

A client frame is checked in the order parse, shape, size, content type. An error echoes the ids that could be read.
"""

import json
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from seriatim.domain import limits
from seriatim.domain.errors import InvalidMessage, Refused, SeriatimError
from seriatim.domain.ids import is_id, is_uuid4, match_id, match_uuid4
from seriatim.domain.message import TEXT, Message, check_content
from seriatim.protocol.frames import (
    Ack,
    ClientFrame,
    ErrorFrame,
    Heartbeat,
    Maybe,
    MessageBatch,
    MessageItem,
    SendMessage,
    ServerFrame,
    SyncRequest,
    message_item,
)

Fields = Mapping[str, object]


class UnknownType(msgspec.Struct, frozen=True):
    """A frame of an unknown type: counted, never answered."""

    type: str


class Echo(msgspec.Struct, frozen=True, kw_only=True):
    """The ids by which a client matches an answer to its frame."""

    request_id: Maybe = UNSET
    client_message_id: Maybe = UNSET
    chat_id: Maybe = UNSET


class BadFrame(Exception):
    """The frame is refused: the error to answer with, and the ids that could be read."""

    def __init__(self, error: Refused, echo: Echo) -> None:
        super().__init__(error.message)
        self.error = error
        self.echo = echo


# --- client frames ----------------------------------------------------------------------------------------------------


def decode_client_frame(text: str | bytes) -> ClientFrame | UnknownType:
    """Raises `BadFrame` and nothing else. `client_message_id` stays as it was sent: it is echoed that way."""
    try:
        fields = _parse(text)
    except Refused as error:
        raise BadFrame(error, _salvage(text)) from None
    try:
        return _frame(fields)
    except Refused as error:
        raise BadFrame(error, echo_of(fields)) from None


def decode_valid_send(text: str | bytes) -> SendMessage | None:
    """The fast path for nearly every frame, equal to `decode_client_frame`: one pass, without a dict.

    None: not a send, or not valid. `decode_client_frame` says which.
    """
    if len(text) > limits.FRAME_BYTES_MAX:
        return None
    try:
        send = _sends.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    content, request_id = send.content, send.request_id
    if (
        not 0 < (len(content) if content.isascii() else len(content.encode())) <= limits.CONTENT_BYTES_MAX
        or send.content_type != TEXT
        or match_uuid4(send.client_message_id) is None
        or match_id(send.chat_id) is None
        or (request_id is not UNSET and not _is_short(request_id))
        or send.payload is not UNSET
    ):
        return None
    return send


class _SendWithPayload(SendMessage, frozen=True, kw_only=True, tag_field="type", tag="send_message"):
    payload: object = UNSET  # the envelope of older clients, see `_flat`


_sends = msgspec.json.Decoder(_SendWithPayload)


def echo_of(fields: Fields) -> Echo:
    """The ids in these fields; a malformed one is left out."""
    return Echo(
        request_id=_short(fields, "request_id"),
        client_message_id=_short(fields, "client_message_id"),
        chat_id=_short(fields, "chat_id"),
    )


_objects = msgspec.json.Decoder(dict[str, object])


def _parse(text: str | bytes) -> dict[str, object]:
    if len(text) > limits.FRAME_BYTES_MAX:
        raise InvalidMessage(f"a frame has at most {limits.FRAME_BYTES_MAX} bytes", reason="frame_too_large")
    try:
        fields = _objects.decode(text)
    except msgspec.ValidationError:
        raise InvalidMessage("a frame is one JSON object", reason="not_an_object") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise InvalidMessage("the frame is not valid JSON in UTF-8", reason="not_json") from None
    return _flat(fields)


def _flat(fields: dict[str, object]) -> dict[str, object]:
    """Merges the `payload` of older clients into the frame. Fields at the top level win."""
    payload = fields.get("payload")
    return {**payload, **fields} if isinstance(payload, dict) else fields


def _salvage(text: str | bytes) -> Echo:
    """msgspec refuses lone surrogates, which browsers do send; without an echo their outbox would retry for ever."""
    try:
        fields = json.loads(text) if len(text) <= limits.FRAME_BYTES_MAX else None
    except (ValueError, RecursionError):
        return Echo()
    return echo_of(_flat(fields)) if isinstance(fields, dict) else Echo()


def _frame(fields: Fields) -> ClientFrame | UnknownType:
    kind = fields.get("type")
    if not isinstance(kind, str):
        raise InvalidMessage("a frame needs a type", field="type")
    match kind:
        case "send_message":
            return _send_message(fields)
        case "ack":
            return Ack(
                chat_id=_chat_id(fields),
                last_acked_sequence=_integer(fields, "last_acked_sequence", least=1),
                request_id=_short(fields, "request_id"),
            )
        case "sync_request":
            return SyncRequest(
                chat_id=_chat_id(fields),
                last_acked_sequence=_integer(fields, "last_acked_sequence", least=0),
                limit=min(_integer(fields, "limit", least=1, default=limits.SYNC_SLOTS_DEFAULT), limits.SYNC_SLOTS_MAX),
                request_id=_short(fields, "request_id"),
            )
        case "heartbeat":
            return Heartbeat(request_id=_short(fields, "request_id"))
        case _:
            return UnknownType(kind[: limits.ID_CHARS_MAX])


def _send_message(fields: Fields) -> SendMessage:
    client_message_id, chat_id = fields.get("client_message_id"), _chat_id(fields)
    content, content_type = fields.get("content"), fields.get("content_type")
    if not isinstance(client_message_id, str) or not is_uuid4(client_message_id):
        raise InvalidMessage("client_message_id must be a UUIDv4", field="client_message_id")
    if not isinstance(content, str):
        raise InvalidMessage("content must be a string", field="content")
    if content_type is None:
        content_type = TEXT
    elif not isinstance(content_type, str):
        raise InvalidMessage("content_type must be a string", field="content_type")
    check_content(content, content_type)
    return SendMessage(
        client_message_id=client_message_id,
        chat_id=chat_id,
        content=content,
        content_type=content_type,
        request_id=_short(fields, "request_id"),
    )


def _chat_id(fields: Fields) -> str:
    chat_id = fields.get("chat_id")
    if not isinstance(chat_id, str) or not is_id(chat_id):
        raise InvalidMessage("chat_id must be 1-64 characters of A-Z a-z 0-9 _ -", field="chat_id")
    return chat_id


def _integer(fields: Fields, name: str, *, least: int, default: int | None = None) -> int:
    value = fields.get(name)
    if value is None and default is not None:
        return default
    # `type is` and not isinstance: true is an int to Python, not to JSON.
    if type(value) is not int or not least <= value <= limits.SEQUENCE_MAX:
        raise InvalidMessage(f"{name} must be an integer from {least} to 2^53-1", field=name)
    return value


def _short(fields: Fields, name: str) -> Maybe:
    value = fields.get(name)
    return value if isinstance(value, str) and _is_short(value) else UNSET


def _is_short(text: str) -> bool:
    return 1 <= len(text) <= limits.ID_CHARS_MAX and _is_unicode(text)


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


# --- server frames ----------------------------------------------------------------------------------------------------

_encoder = msgspec.json.Encoder()
_server_frames: msgspec.json.Decoder[ServerFrame] = msgspec.json.Decoder(ServerFrame)


class _TypeField(msgspec.Struct, frozen=True):
    type: str


_tags = msgspec.json.Decoder(_TypeField)
_SERVER_TYPES = tuple(
    str(each.__struct_config__.tag)
    for each in ServerFrame.__args__  # one entry per class of the union
)


encode: Callable[[ServerFrame | ClientFrame], bytes] = _encoder.encode


def decode_server_frame(text: str | bytes) -> ServerFrame | UnknownType:
    """For clients. Unknown fields are ignored; a known type that does not fit raises `BadFrame`."""
    try:
        return _server_frames.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        tag = _tags.decode(text).type
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadFrame(InvalidMessage("not a frame", reason="not_json"), Echo()) from None
    if tag in _SERVER_TYPES:
        raise BadFrame(InvalidMessage(f"a {tag} frame that does not fit its type", reason="shape"), Echo())
    return UnknownType(tag[: limits.ID_CHARS_MAX])


_NOTHING = Echo()


def error_frame(error: SeriatimError, echo: Echo = _NOTHING, *, grace_period: float | UnsetType = UNSET) -> ErrorFrame:
    return ErrorFrame(
        code=error.code,
        message=error.message,
        retryable=error.retryable,
        request_id=echo.request_id,
        client_message_id=echo.client_message_id,
        chat_id=echo.chat_id,
        retry_after_seconds=UNSET if error.retry_after_seconds is None else error.retry_after_seconds,
        grace_period=grace_period,
        details=error.details or UNSET,
    )


class EncodedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A message_batch ready to leave. `through`: the last slot it covers, after the cut."""

    frame: MessageBatch
    encoded: bytes
    through: int


def encode_batch(
    chat_id: str, messages: Sequence[Message], *, through: int, has_more: bool, request_id: Maybe = UNSET
) -> EncodedBatch:
    """A page of the stable prefix as one frame of at most BATCH_BYTES_MAX; what is cut off counts as more."""
    whole = _batch(chat_id, _items(messages), through, has_more, request_id)
    if len(whole.encoded) <= limits.BATCH_BYTES_MAX:
        return whole
    room = limits.BATCH_BYTES_MAX - len(_batch(chat_id, (), limits.SEQUENCE_MAX, True, request_id).encoded)
    kept = 0
    for item in whole.frame.messages:
        room -= len(_encoder.encode(item)) + 1  # and its comma
        if room < 0:
            break
        kept += 1
    items = whole.frame.messages[:kept]
    return _batch(chat_id, items, items[-1].sequence, True, request_id)


def _items(messages: Sequence[Message]) -> tuple[MessageItem, ...]:
    before: list[int | None] = [None, *(message.sequence for message in messages[:-1])]
    return tuple(message_item(message, prev) for message, prev in zip(messages, before, strict=False))


def _batch(
    chat_id: str, items: tuple[MessageItem, ...], through: int, has_more: bool, request_id: Maybe
) -> EncodedBatch:
    frame = MessageBatch(
        chat_id=chat_id,
        messages=items,
        has_more=has_more,
        next_sequence=through + 1 if has_more else None,
        request_id=request_id,
    )
    return EncodedBatch(frame=frame, encoded=encode(frame), through=through)

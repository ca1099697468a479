"""What travels between a gateway and an ingest process: its shapes, its names, and how it becomes bytes.

MessagePack with field names: a release that adds a field with a default can talk to the one before it. Names on the
wire, such as `Talk` and `trouble`, are fixed.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from seriatim.domain import errors
from seriatim.domain.errors import InternalError, SeriatimError
from seriatim.domain.message import Draft, Receipt

T = TypeVar("T")

SERVICE = "seriatim.Durability"
TOKEN = "seriatim-token"  # metadata of every call

DRAFT_STREAM = "Talk"
READ, READ_BACK, ACKNOWLEDGE, HEADS, JOINED = "Read", "ReadBack", "Acknowledge", "Heads", "Joined"
SESSION = "Session"

NOTHING = msgspec.Raw(b"\xc0")


def path(method: str) -> str:
    return f"/{SERVICE}/{method}"


# --- the stream: drafts one way, outcomes the other -------------------------------------------------------------------


class NumberedDraft(msgspec.Struct, frozen=True, omit_defaults=True):
    """`left_s` instead of a deadline: two processes share no clock."""

    number: int
    left_s: float
    draft: Draft


class DraftBatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """Drafts in their order, and when they were written, by the gateway's clock. Without any it is a ping."""

    sent_at_s: float
    sends: tuple[msgspec.Raw, ...] = ()


class WireError(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error of `domain.errors`. `kind` is the name of its class."""

    kind: str
    message: str
    retry_after_seconds: float | None = None
    details: Mapping[str, object] = {}


class SendOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """A receipt or an error, for the draft of this number."""

    number: int
    receipt: Receipt | None = None
    error: WireError | None = msgspec.field(default=None, name="trouble")


class ServerBatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """From an ingest process; the first one is the greeting. `leaving`: send the next drafts elsewhere."""

    outcomes: tuple[SendOutcome, ...] = ()
    leaving: bool = False


# --- calls: one request, one result -----------------------------------------------------------------------------------


class ReadCall(msgspec.Struct, frozen=True):
    user_id: str
    chat_id: str
    after: int
    limit: int


class ReadBackCall(msgspec.Struct, frozen=True):
    user_id: str
    chat_id: str
    before: int
    after: int
    limit: int


class AcknowledgeCall(msgspec.Struct, frozen=True):
    user_id: str
    chat_id: str
    sequence: int


class HeadsCall(msgspec.Struct, frozen=True):
    chat_ids: tuple[str, ...]


class JoinedCall(msgspec.Struct, frozen=True):
    since: Mapping[str, str]


class SessionCall(msgspec.Struct, frozen=True):
    session_id: str


class CallResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value, or the error instead of it."""

    value: msgspec.Raw = NOTHING
    error: WireError | None = msgspec.field(default=None, name="trouble")


# --- bytes ------------------------------------------------------------------------------------------------------------


class MalformedBytes(Exception):
    """These bytes were not written by a release that this one can talk to."""


_encoder = msgspec.msgpack.Encoder()


def encode(what: object) -> bytes:
    return _encoder.encode(what)


def decode(decoder: "msgspec.msgpack.Decoder[T]", data: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise MalformedBytes(
            "the other process sends what this release cannot read; run the same release on both"
        ) from error


# --- errors -----------------------------------------------------------------------------------------------------------


def to_wire_error(error: SeriatimError) -> WireError:
    """Named by the nearest class that the other side can build."""
    kind = next(each.__name__ for each in type(error).__mro__ if each.__name__ in _KINDS)
    return WireError(kind, error.message, error.retry_after_seconds, error.details)


def from_wire_error(given: WireError) -> SeriatimError:
    kind = _KINDS.get(given.kind, InternalError)
    # Past the constructors, which differ: the details are already what they make of their arguments.
    error = kind.__new__(kind, given.message)
    SeriatimError.__init__(error, given.message, retry_after_seconds=given.retry_after_seconds, details=given.details)
    return error


_KINDS: Mapping[str, type[SeriatimError]] = {
    name: kind
    for name, kind in vars(errors).items()
    # A missing counter names its chat to counter repair; other callers only learn that the chat is halted.
    if isinstance(kind, type) and issubclass(kind, SeriatimError) and kind is not errors.CounterMissing
}

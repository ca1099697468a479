"""What travels between a gateway and an ingest process: its shapes, its names, and how it becomes bytes.

MessagePack with names of fields: a release that adds a field with a default can talk to the one before it.
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

TALK = "Talk"
READ, READ_BACK, ACKNOWLEDGE, HEADS, JOINED = "Read", "ReadBack", "Acknowledge", "Heads", "Joined"
SESSION = "Session"


NOTHING = msgspec.Raw(b"\xc0")


def path(method: str) -> str:
    return f"/{SERVICE}/{method}"


# --- the stream: drafts one way, outcomes the other -------------------------------------------------------------------


class Send(msgspec.Struct, frozen=True, omit_defaults=True):
    """`left_s` instead of a deadline: two processes share no clock."""

    number: int
    left_s: float
    draft: Draft


class Batch(msgspec.Struct, frozen=True, omit_defaults=True):
    """Drafts in their order, and when they were written, by the gateway's clock. Without any it only says: alive."""

    sent_at_s: float
    sends: tuple[msgspec.Raw, ...] = ()


class Trouble(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as `domain.errors` has it. `kind` is the name of its class."""

    kind: str
    message: str
    retry_after_seconds: float | None = None
    details: Mapping[str, object] = {}


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """A receipt or a trouble, for the send of this number."""

    number: int
    receipt: Receipt | None = None
    trouble: Trouble | None = None


class Words(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an ingest process says: the first words greet. `leaving`: send the next drafts elsewhere."""

    outcomes: tuple[Outcome, ...] = ()
    leaving: bool = False


# --- calls: one question, one answer ----------------------------------------------------------------------------------


class Read(msgspec.Struct, frozen=True):
    user_id: str
    chat_id: str
    after: int
    limit: int


class ReadBack(msgspec.Struct, frozen=True):
    user_id: str
    chat_id: str
    before: int
    after: int
    limit: int


class Acknowledge(msgspec.Struct, frozen=True):
    user_id: str
    chat_id: str
    sequence: int


class Heads(msgspec.Struct, frozen=True):
    chat_ids: tuple[str, ...]


class Joined(msgspec.Struct, frozen=True):
    since: Mapping[str, str]


class Session(msgspec.Struct, frozen=True):
    session_id: str


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value, or the trouble instead of it."""

    value: msgspec.Raw = NOTHING
    trouble: Trouble | None = None


# --- bytes ------------------------------------------------------------------------------------------------------------


class Malformed(Exception):
    """These bytes were not written by a release that we can talk to."""


_encoder = msgspec.msgpack.Encoder()


def encode(what: object) -> bytes:
    return _encoder.encode(what)


def decode(decoder: "msgspec.msgpack.Decoder[T]", data: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise Malformed("the other process speaks another language; run the same release on both") from error


# --- errors -----------------------------------------------------------------------------------------------------------


def trouble_of(error: SeriatimError) -> Trouble:
    """By the nearest class that the other side can build."""
    kind = next(each.__name__ for each in type(error).__mro__ if each.__name__ in _KINDS)
    return Trouble(kind, error.message, error.retry_after_seconds, error.details)


def error_of(trouble: Trouble) -> SeriatimError:
    kind = _KINDS.get(trouble.kind, InternalError)
    # Past the constructors, which differ: the details are already what they make of their arguments.
    error = kind.__new__(kind, trouble.message)
    SeriatimError.__init__(
        error, trouble.message, retry_after_seconds=trouble.retry_after_seconds, details=trouble.details
    )
    return error


_KINDS: Mapping[str, type[SeriatimError]] = {
    name: kind
    for name, kind in vars(errors).items()
    # A missing counter names its chat to those who repair it; the others are only told that the chat is halted.
    if isinstance(kind, type) and issubclass(kind, SeriatimError) and kind is not errors.CounterMissing
}

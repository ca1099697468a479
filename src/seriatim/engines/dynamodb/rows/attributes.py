"""Attributes of rows in DynamoDB's JSON, and the decoder of a kind of row.

An attribute, once written by a release, is read for ever: attributes are added with a default, never renamed. Times
are texts (`domain/times`), which sort; only what the store itself expires by is a number of seconds.
"""

from typing import Generic, TypeVar

import msgspec

from seriatim.domain.errors import UNREADABLE, RowUnreadable

T = TypeVar("T")

NOTHING = msgspec.Raw(b"")  # no row, where an answer may have one


class S(msgspec.Struct, frozen=True):
    """A text."""

    S: str


class N(msgspec.Struct, frozen=True):
    """A number, which DynamoDB's JSON writes as a text."""

    N: str


class B(msgspec.Struct, frozen=True):
    B: bytes


class Bool(msgspec.Struct, frozen=True):
    BOOL: bool


class TextOrNull(msgspec.Struct, frozen=True, omit_defaults=True):
    S: str | None = None
    NULL: bool = False


class NumberOrNull(msgspec.Struct, frozen=True, omit_defaults=True):
    N: str | None = None
    NULL: bool = False


def n(number: int) -> N:
    return N(str(number))


def text_or_null(text: str | None) -> TextOrNull:
    return TextOrNull(NULL=True) if text is None else TextOrNull(S=text)


def number_or_null(number: int | None) -> NumberOrNull:
    return NumberOrNull(NULL=True) if number is None else NumberOrNull(N=str(number))


TRUE = Bool(True)


class RowDecoder(Generic[T]):
    """Decodes one kind of row."""

    def __init__(self, kind: type[T]) -> None:
        self._decoder = msgspec.json.Decoder(kind)

    def decode(self, item: msgspec.Raw) -> T:
        try:
            return self._decoder.decode(item)
        except msgspec.MsgspecError as error:
            raise RowUnreadable(
                UNREADABLE, log_reason=f"a row of the store is not what this release writes: {error}"
            ) from error

    def found(self, item: msgspec.Raw) -> T | None:
        return self.decode(item) if item else None

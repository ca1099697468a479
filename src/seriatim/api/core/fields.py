"""Kinds of fields that several requests share. Their limits and descriptions go into the OpenAPI document."""

from typing import Annotated

from msgspec import Meta

from seriatim.domain import limits

UserId = Annotated[str, Meta(min_length=1, max_length=limits.ID_CHARS_MAX, pattern="^[A-Za-z0-9_-]+$")]

PageLimit = Annotated[int, Meta(ge=1, le=limits.PAGE_ITEMS_MAX, description="How many items at most.")]

# Without a limit here: a cursor that is too long is a bad cursor like any other.
PageCursor = Annotated[
    str, Meta(description="Goes on where another page ended. Opaque, and of use only at the same endpoint.")
]

MessageSequence = Annotated[int, Meta(ge=1, le=limits.SEQUENCE_MAX)]

SequenceBound = Annotated[int, Meta(ge=0, le=limits.SEQUENCE_MAX)]

Time = Annotated[str, Meta(description="UTC, ISO 8601, three decimals.", examples=["2026-01-30T14:30:00.000Z"])]

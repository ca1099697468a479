"""Kinds of fields that several requests share. Their limits and descriptions go into the OpenAPI document."""

from typing import Annotated

from msgspec import Meta

from seriatim.domain import limits
from seriatim.domain.account import is_phone_number
from seriatim.domain.errors import ValidationFailed

UserId = Annotated[str, Meta(min_length=1, max_length=limits.ID_CHARS_MAX, pattern="^[A-Za-z0-9_-]+$")]

PageLimit = Annotated[int, Meta(ge=1, le=limits.PAGE_ITEMS_MAX, description="How many items at most.")]

# Without a limit here: a cursor that is too long is a bad cursor like any other.
PageCursor = Annotated[
    str, Meta(description="Goes on where another page ended. Opaque, and of use only at the same endpoint.")
]

MessageSequence = Annotated[int, Meta(ge=1, le=limits.SEQUENCE_MAX)]

SequenceBound = Annotated[int, Meta(ge=0, le=limits.SEQUENCE_MAX)]

Time = Annotated[str, Meta(description="UTC, ISO 8601, three decimals.", examples=["2026-01-30T14:30:00.000Z"])]

PhoneNumber = Annotated[
    str, Meta(pattern=r"^\+[1-9][0-9]{6,14}$", description="E.164, with country.", examples=["+4915112345678"])
]


def check_phone(phone_number: str) -> str:
    if not is_phone_number(phone_number):  # a pattern lets a final line break pass
        raise ValidationFailed(
            "phone_number must be E.164, such as +4915112345678", field="phone_number", field_code="INVALID_FORMAT"
        )
    return phone_number

"""Identifiers: those the server creates (prefix + ULID) and those it accepts (opaque, 1-64 safe characters).

A ULID is 48 bits of milliseconds and 80 random bits in Crockford's base 32, so ids sort by creation.
"""

import re
from collections.abc import Callable, Iterator

from seriatim.domain import limits

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_BASE_32 = str.maketrans(_CROCKFORD, "0123456789ABCDEFGHIJKLMNOPQRSTUV")  # Python's digits
_ULID = re.compile(rf"[0-7][{_CROCKFORD}]{{25}}")
_PAIRS = [high + low for high in _CROCKFORD for low in _CROCKFORD]  # two at a time: every message needs an id
_SHIFTS = range(120, -1, -10)
_ID = re.compile(rf"[A-Za-z0-9_-]{{1,{limits.ID_CHARS_MAX}}}")
_UUID4 = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}")

RandomBits = Callable[[int], int]  # so many random bits: `Clock.random_bits`

MESSAGE, CHAT, USER, CONNECTION, EVENT, SESSION = "msg_", "chat_", "user_", "conn_", "evt_", "sess_"


def new_ulid(ms: int, random_bits: RandomBits) -> str:
    return ulid(ms, random_bits(80))


def ulid(ms: int, random_bits: int) -> str:
    """26 characters from a time and 80 random bits."""
    value = ((ms & (1 << 48) - 1) << 80) | (random_bits & (1 << 80) - 1)
    return "".join([_PAIRS[value >> shift & 1023] for shift in _SHIFTS])


def new_ulids(ms: int, random_bits: RandomBits) -> Iterator[str]:
    """A million ULIDs of one moment, ascending: they share the first random bits, and count in the last 20."""
    stem = new_ulid(ms, random_bits)[:22]
    return (stem + high + low for high in _PAIRS for low in _PAIRS)


def ulid_ms(text: str) -> int | None:
    """The time in a ULID, None for any other text. The inverse of `ulid`, as far as time goes."""
    return int(text[:10].translate(_BASE_32), 32) if _ULID.fullmatch(text) else None


# For texts that are known to be texts, on the way of a message: not None is yes.
match_id, match_uuid4 = _ID.fullmatch, _UUID4.fullmatch


def is_id(text: object) -> bool:
    """An id as the server accepts it. The ULID shape is never required: other systems' ids are valid."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def new_uuid4(random_bits: RandomBits) -> str:
    return uuid4(random_bits(128))


def uuid4(random_bits: int) -> str:
    """A random UUID, version 4, variant 1, from 128 random bits."""
    bits = random_bits & ~(0xF << 76) & ~(0x3 << 62) | (0x4 << 76) | (0x2 << 62)
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_uuid4(text: object) -> bool:
    return isinstance(text, str) and _UUID4.fullmatch(text) is not None


def event_id(message_id: str) -> str:
    """An event's id derives from its message's, so that a republished event is recognised as the same one."""
    return EVENT + message_id.removeprefix(MESSAGE)

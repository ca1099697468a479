"""People and how they sign in: what a phone number and a name may be, users, sessions and one-time codes.

Times are milliseconds where rules compute with them; times for display are text.
"""

import hashlib
import re

import msgspec

from seriatim.domain import limits

_PHONE = re.compile(r"\+[1-9][0-9]{6,14}")
_CODE = re.compile(rf"[0-9]{{{limits.CODE_DIGITS}}}")


class User(msgspec.Struct, frozen=True, kw_only=True):
    user_id: str
    phone_number: str
    display_name: str | None
    created_at: str
    updated_at: str


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One device, signed in until `expires_at_ms` at the latest. Of its refresh tokens only digests are kept.

    `previous_digest` is the token before the current one: a client that presents it is a thief, or the victim of one.
    """

    session_id: str
    user_id: str
    device_id: str
    refresh_digest: str
    created_at_ms: int
    expires_at_ms: int
    last_active_at_ms: int
    previous_digest: str | None = None
    rotated_at_ms: int | None = None
    generation: int = 1


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What a code became when it was used: the answer to a repeated request that lost its first answer."""

    session_id: str
    device_id: str
    is_new_user: bool


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """A one-time code that was sent to a phone. The code itself is not in here, except sealed under a service key."""

    phone_hash: str
    mac: str
    sealed: bytes | None
    created_at_ms: int
    expires_at_ms: int
    attempts: int = 0
    spent: Spent | None = None


def phone_hash(phone_number: str) -> str:
    return hashlib.sha256(phone_number.encode()).hexdigest()


def is_phone_number(text: str) -> bool:
    """E.164: a plus sign, then 7 to 15 digits that begin with a country."""
    return _PHONE.fullmatch(text) is not None


def is_code(text: str) -> bool:
    return _CODE.fullmatch(text) is not None


def is_display_name(text: str) -> bool:
    return 1 <= len(text) <= limits.DISPLAY_NAME_CHARS_MAX and is_clean(text)


def is_clean(text: str) -> bool:
    """No edge whitespace, no control characters, nothing that is not Unicode text."""
    return text == text.strip() and not any(_is_control(each) for each in text)


def _is_control(character: str) -> bool:
    code = ord(character)
    return code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000

"""Page cursors: opaque, versioned, and valid only for the caller and the endpoint they were made for.

What a cursor remembers can be read by its owner but not changed: the tag covers it, the endpoint and the scope.
"""

import base64
import hmac
import re
from typing import Generic, TypeVar

import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import BadRequest
from seriatim.ports.secrets import Secrets

S = TypeVar("S", bound=msgspec.Struct)

VERSION = 1


class CursorCodec:
    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    def encode(self, endpoint: str, scope: str, state: msgspec.Struct) -> str:
        """`scope` names what the page belongs to, such as a user and a chat."""
        payload = msgspec.json.encode(_CursorPayload(v=VERSION, at=state))
        return f"{_text(payload)}.{_text(self._tag(endpoint, scope, payload))}"

    def decode(self, text: str, endpoint: str, scope: str, kind: type[S]) -> S:
        """The `state` that `encode` was given. Raises `BadRequest` for one of another endpoint, scope or server."""
        if len(text) > limits.CURSOR_CHARS_MAX or (match := _SHAPE.fullmatch(text)) is None:
            raise _invalid()
        payload, tag = _bytes(match[1]), _bytes(match[2])
        if not hmac.compare_digest(tag, self._tag(endpoint, scope, payload)):
            raise _invalid()
        try:
            envelope = msgspec.json.decode(payload, type=_CursorPayload[kind])  # type: ignore[valid-type]
        except msgspec.DecodeError:
            raise _invalid() from None
        if envelope.v != VERSION:
            raise _invalid()
        return envelope.at

    def _tag(self, endpoint: str, scope: str, payload: bytes) -> bytes:
        return self._secrets.cursor_tag(msgspec.json.encode((endpoint, scope)) + payload)


class _CursorPayload(msgspec.Struct, Generic[S], frozen=True):
    v: int
    at: S


_SHAPE = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    """The inverse of `_text`, and of nothing else: base 64 can say the same in several ways."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise _invalid() from None
    if _text(raw) != text:
        raise _invalid()
    return raw


def _invalid() -> BadRequest:
    return BadRequest("this cursor is not valid here; begin again without one")

"""Parses and checks a WebSocket handshake (docs/spec/websocket.md#connecting). Pure."""

import base64
import binascii
import hashlib
import re
from urllib.parse import parse_qs

import msgspec

from seriatim.connection.listener.request import Headers, Request
from seriatim.domain.errors import Details, RateLimited, SeriatimError, Unauthorized
from seriatim.domain.ids import is_uuid4
from seriatim.domain.tokens import Claims

SUPPORTED_VERSIONS = (1,)
SUBPROTOCOL = "messaging.v1"

_BEARER = "bearer."
_PATH = re.compile(r"/(?:v([0-9]{1,9})/)?ws")
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3
_QUERY_FIELDS_MAX = 32


class HandshakeRefused(Exception):
    """The handshake is answered with this status and error."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        details: Details | None = None,
        retry_after_s: int | None = None,
        headers: Headers = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.details = dict(details or {})
        self.retry_after_s = retry_after_s
        self.headers = headers


class Handshake(msgspec.Struct, frozen=True, kw_only=True):
    """What a well-formed handshake asks for, and the headers of the 101 that would accept it."""

    token: str
    device_id: str | None
    response_headers: Headers

    def __repr__(self) -> str:
        return "<Handshake>"  # it has a token


def is_websocket_path(path: str) -> bool:
    """Whatever the method and version: a wrong one is answered with the reason."""
    return _PATH.fullmatch(path) is not None


def parse_handshake(request: Request) -> Handshake:
    """Raises `HandshakeRefused` unless it is a handshake of a supported version that has a token."""
    _check_version(request.path)
    _check_upgrade(request)
    query = _query(request)
    subprotocols = request.tokens(b"sec-websocket-protocol")
    response_headers = [(b"sec-websocket-accept", _accept(_key(request)))]
    if SUBPROTOCOL in subprotocols:
        response_headers.append((b"sec-websocket-protocol", SUBPROTOCOL.encode()))
    return Handshake(
        token=_token(request, subprotocols, query),
        device_id=_device(request, query),
        response_headers=tuple(response_headers),
    )


def check_device(device_id: str | None, claims: Claims) -> str:
    """The device id of this connection. If the token names one as well, both must be equal."""
    claimed = None if claims.device_id is None else claims.device_id.lower()
    named = claimed if device_id is None else device_id.lower()
    if named is None or not is_uuid4(named):
        raise HandshakeRefused(400, "invalid_request", "send a UUIDv4 as X-Device-ID", details={"field": "device_id"})
    if claimed is not None and named != claimed:
        raise HandshakeRefused(
            401,
            "invalid_token",
            "this token was issued to another device; sign in on this one",
            details={"reason": "device_mismatch"},
        )
    return named


def check_origin(request: Request, origins: tuple[str, ...] | None) -> None:
    """Tokens, not cookies, prove who connects, so any page may connect unless the operator has set a list."""
    if origins is None:
        return
    for origin in request.values(b"origin"):
        if origin.lower() not in origins:
            raise HandshakeRefused(403, "forbidden", "pages of this origin may not connect here")


def refusal_of(error: SeriatimError) -> HandshakeRefused:
    """The response_headers to a handshake for an error of a port."""
    wait = None if error.retry_after_seconds is None else max(1, round(error.retry_after_seconds))
    if isinstance(error, Unauthorized):
        revoked = error.details.get("reason") == "token_revoked"
        return HandshakeRefused(
            401, "token_revoked" if revoked else "invalid_token", error.message, details=error.details
        )
    if isinstance(error, RateLimited):
        return HandshakeRefused(429, "rate_limited", error.message, details=error.details, retry_after_s=wait or 1)
    return HandshakeRefused(503, "service_unavailable", error.message, details=error.details, retry_after_s=wait or 1)


# --- the parts of a handshake -----------------------------------------------------------------------------------------


def _check_version(path: str) -> None:
    match = _PATH.fullmatch(path)
    version = None if match is None else match.group(1)
    if version is not None and version not in map(str, SUPPORTED_VERSIONS):
        raise HandshakeRefused(
            400,
            "unsupported_version",
            "this server does not speak that version of the protocol",
            details={"supported_versions": list(SUPPORTED_VERSIONS)},
        )


def _check_upgrade(request: Request) -> None:
    if request.method != "GET" or request.http_version != "1.1" or request.has_body:
        raise _malformed("a WebSocket handshake is a GET over HTTP/1.1 without a body")
    if not request.upgrade or "websocket" not in [each.lower() for each in request.tokens(b"upgrade")]:
        raise _malformed(
            "this is a WebSocket endpoint; ask for an upgrade", status=426, headers=((b"upgrade", b"websocket"),)
        )
    if request.value(b"sec-websocket-version") != "13":
        raise _malformed("Sec-WebSocket-Version must be 13", status=426, headers=((b"sec-websocket-version", b"13"),))


def _query(request: Request) -> dict[str, list[str]]:
    try:
        return parse_qs(request.query.decode("latin-1"), max_num_fields=_QUERY_FIELDS_MAX)
    except ValueError:
        raise _malformed("too many query parameters") from None


def _key(request: Request) -> bytes:
    key = (request.value(b"sec-websocket-key") or "").encode("latin-1")
    try:
        if len(binascii.a2b_base64(key, strict_mode=True)) == 16:
            return key
    except binascii.Error:
        pass
    raise _malformed("Sec-WebSocket-Key must be 16 bytes in base64")


def _accept(key: bytes) -> bytes:
    return base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())


def _token(request: Request, subprotocols: list[str], query: dict[str, list[str]]) -> str:
    """From the first of the three places that has one, valid or not."""
    if request.values(b"authorization"):
        scheme, _, token = (request.value(b"authorization") or "").partition(" ")
        token = token.strip() if scheme.lower() == "bearer" else ""
    else:
        offered = [each[len(_BEARER) :] for each in subprotocols if each.startswith(_BEARER)]
        token = (offered or query.get("token") or [""])[0]
    if not token:
        raise HandshakeRefused(
            401,
            "invalid_token",
            "send an access token in the Authorization header",
            details={"reason": "token_missing"},
        )
    return token


def _device(request: Request, query: dict[str, list[str]]) -> str | None:
    return next(iter(request.values(b"x-device-id") or query.get("device_id", [])), None)


def _malformed(message: str, *, status: int = 400, headers: Headers = ()) -> HandshakeRefused:
    return HandshakeRefused(status, "invalid_request", message, headers=headers)

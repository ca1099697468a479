"""HTTP responses as bytes: the head, and the two shapes of error body, of REST and of the handshake."""

from collections.abc import Iterable, Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

import msgspec

from seriatim.connection.listener.request import Headers, Request
from seriatim.domain.ids import is_uuid4, new_uuid4
from seriatim.ports.clock import Clock

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
JSON = (b"content-type", b"application/json; charset=utf-8")
CLOSE = (b"connection", b"close")


def head(status: int, headers: Headers, *, now_ms: int) -> bytes:
    """Raises `ValueError` for a header that would break out of its line."""
    lines = [_status_line(status), _date_line(now_ms // 1000)]
    lines += [b"%b: %b\r\n" % header for header in headers]
    lines.append(b"\r\n")
    encoded = b"".join(lines)
    if encoded.count(b"\n") != len(lines) or encoded.count(b"\r") != len(lines):
        raise ValueError("a header of this response contains a line break")
    return encoded


def rest_error(
    status: int, code: str, message: str, *, clock: Clock, request: Request | None = None, keep_alive: bool = False
) -> bytes:
    """A response of the listener itself, in the shape of all REST errors (docs/spec/rest.md#error-body)."""
    request_id = _request_id(request, clock)
    body = msgspec.json.encode({"error": {"code": code, "message": message, "request_id": request_id}})
    headers = [(b"x-request-id", request_id.encode())]
    head_only = request is not None and request.method == "HEAD"
    return _response(status, headers, body, clock=clock, keep_alive=keep_alive, head_only=head_only)


def handshake_error(
    status: int,
    code: str,
    message: str,
    *,
    clock: Clock,
    details: Mapping[str, object],
    retry_after_s: int | None,
    headers: Headers = (),
) -> bytes:
    """A refused upgrade (docs/spec/websocket.md#handshake). The wait is in the header, the body and the details."""
    body: dict[str, object] = {"error": code, "message": message, "details": dict(details)}
    all_headers = list(headers)
    if retry_after_s is not None:
        body["retry_after_seconds"] = retry_after_s
        body["details"] = {**details, "retry_after_seconds": retry_after_s}
        all_headers.append((b"retry-after", b"%d" % retry_after_s))
    return _response(status, all_headers, msgspec.json.encode(body), clock=clock, keep_alive=False)


def switching(headers: Headers) -> bytes:
    """101: from here on the socket speaks WebSocket."""
    lines = [b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"]
    lines += [b"%b: %b\r\n" % header for header in headers]
    return b"".join([*lines, b"\r\n"])


def _response(
    status: int,
    headers: Iterable[tuple[bytes, bytes]],
    body: bytes,
    *,
    clock: Clock,
    keep_alive: bool,
    head_only: bool = False,
) -> bytes:
    lines = [JSON, (b"content-length", b"%d" % len(body)), *headers]
    if not keep_alive:
        lines.append(CLOSE)
    start = head(status, lines, now_ms=clock.now_ms())
    return start if head_only else start + body


def _request_id(request: Request | None, clock: Clock) -> str:
    """The caller's own if it is a UUIDv4, else a fresh one."""
    given = None if request is None else request.value(b"x-request-id")
    if given is not None and is_uuid4(given):
        return given
    return new_uuid4(clock.random_bits)


@lru_cache(maxsize=128)
def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


@lru_cache(maxsize=2)  # this second and the one before
def _date_line(seconds: int) -> bytes:
    return f"date: {formatdate(seconds, usegmt=True)}\r\n".encode()

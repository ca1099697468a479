"""A tiny ASGI application for health checks, metrics and the operator: a table of paths, one function each."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import BadRequest, MethodNotAllowed, NotFound, PayloadTooLarge, SeriatimError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
JSON = "application/json; charset=utf-8"


class PlainResponse(msgspec.Struct, frozen=True):
    body: bytes
    status: int = 200
    media_type: str = JSON


Handler = Callable[[bytes], Awaitable[PlainResponse]]


class PlainApp:
    """`routes` maps `(method, path)` to a function from the request's body to a reply. HEAD is answered like GET.

    `keep_alive`: False for strangers, whose requests are not counted: an idle connection is not theirs to keep.
    """

    def __init__(self, routes: Mapping[tuple[str, str], Handler], *, keep_alive: bool = True) -> None:
        self._routes = routes
        self._keep_alive = keep_alive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            handler = self._handler(scope["method"], scope["path"])
            reply = await handler(await _body(receive))
        except SeriatimError as error:
            reply = _refusal(error)
        headers = [(b"content-type", reply.media_type.encode()), (b"content-length", str(len(reply.body)).encode())]
        if not self._keep_alive:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        body = b"" if scope["method"] == "HEAD" else reply.body
        await send({"type": "http.response.body", "body": body})

    def _handler(self, method: str, path: str) -> Handler:
        handler = self._routes.get(("GET" if method == "HEAD" else method, path))
        if handler is not None:
            return handler
        if any(path == known for _, known in self._routes):
            raise MethodNotAllowed(f"{method} is not for {path}")
        raise NotFound(f"there is no such path here; there are {', '.join(path for _, path in self._routes)}")


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        event = await receive()
        if event["type"] != "http.request":
            raise BadRequest("the connection ended before the request")
        body += event.get("body", b"")
        if len(body) > limits.BODY_BYTES_MAX:
            raise PayloadTooLarge(f"a body has at most {limits.BODY_BYTES_MAX} bytes")
        if not event.get("more_body", False):
            return bytes(body)


def _refusal(error: SeriatimError) -> PlainResponse:
    body = {"error": {"code": error.code, "message": error.message, "details": error.details}}
    return PlainResponse(msgspec.json.encode(body), error.http_status)

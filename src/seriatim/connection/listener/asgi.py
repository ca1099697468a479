"""One HTTP request and its response: the scope and body for the ASGI application, and its response as bytes."""

import asyncio
from collections.abc import Iterable
from typing import Any, Protocol

from seriatim.connection.listener import response
from seriatim.connection.listener.request import Request
from seriatim.connection.listener.state import Event, ListenerState, Scope
from seriatim.domain import limits


class RequestTransport(Protocol):
    """The HTTP connection, as its current request sees it."""

    def write(self, data: bytes) -> None: ...

    async def drained(self) -> None:
        """Returns when the write buffer has room, or the peer has disconnected."""
        ...

    def set_deadline(self, awaited: str, seconds: float) -> None:
        """The peer must complete `awaited` within so many seconds."""
        ...

    def clear_deadline(self) -> None: ...

    def update_reading(self) -> None:
        """Pauses or resumes reading: `wants_body` may have changed."""
        ...

    def request_done(self, request: object, *, keep_alive: bool) -> None: ...

    def abort(self) -> None: ...


class AsgiRequest:
    """A `QueuedRequest`. The head of the response leaves together with the first part of its body."""

    def __init__(self, request: Request, transport: RequestTransport, listener: ListenerState) -> None:
        self.body_complete = False
        self.response_started = False
        self._request = request
        self._transport = transport
        self._listener = listener
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._body_delivered = False  # the application has received all of it
        self._body_due: float | None = None  # by the time of the loop, once the application reads
        self._disconnected = False
        self._peer_half_closed = False
        self._changed = asyncio.Event()
        self._status: int | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._unsent_bytes: int | None = None  # of the announced Content-Length; None: no length was announced
        self._chunked = False
        self._response_complete = False
        self._keep_alive = request.keep_alive
        self._started_at = listener.clock.monotonic()

    # --- the HTTP connection calls ------------------------------------------------------------------------------------

    def start(self) -> None:
        self._listener.tasks.start(self._run())

    def feed_body(self, data: bytes) -> None:
        self._chunks.append(data)
        self._buffered += len(data)
        self._changed.set()

    def end_body(self) -> None:
        self.body_complete = True
        self._changed.set()

    def disconnected(self) -> None:
        self._disconnected = True
        self._changed.set()

    def peer_half_closed(self) -> None:
        """The application still answers. If it waits for a disconnect, it receives one: the peer may have left."""
        self._peer_half_closed = True
        self._changed.set()

    @property
    def wants_body(self) -> bool:
        return self._buffered < limits.BODY_BUFFER_BYTES_MAX

    # --- the application ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._listener.app(self._scope(), self._receive, self._send)
            if not self._response_complete and not self._disconnected:
                raise RuntimeError("the application ended without a complete response")
        except Exception as failure:
            self._listener.observe.http_failed(failure)
        finally:
            self._finish()

    def _finish(self) -> None:
        """Also when cancelled: the HTTP connection must not wait for this request."""
        if not self._response_complete and not self._disconnected:
            if self.response_started:
                self._transport.abort()  # the peer must not take half a response for a complete one
            else:
                self._respond_with_failure()
        if self._status is not None and not self._disconnected:
            seconds = self._listener.clock.monotonic() - self._started_at
            self._listener.observe.http_finished(self._request.method, self._status, seconds)
        self._transport.request_done(self, keep_alive=self._keep_alive)

    def _respond_with_failure(self) -> None:
        self._status = 500
        self._keep_alive = self._can_keep_alive()
        message = "something went wrong on our side; it was written down"
        self._transport.write(
            response.rest_error(
                500,
                "INTERNAL_ERROR",
                message,
                clock=self._listener.clock,
                request=self._request,
                keep_alive=self._keep_alive,
            )
        )

    def _scope(self) -> Scope:
        request = self._request
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": request.http_version,
            "method": request.method,
            "scheme": request.scheme,
            "path": request.path,
            "raw_path": request.raw_path,
            "root_path": "",
            "query_string": request.query,
            "headers": list(request.headers),
            "client": request.client,
            "server": request.server,
            "extensions": {},
        }

    # --- the body of the request --------------------------------------------------------------------------------------

    async def _receive(self) -> Event:
        self._send_continue()
        while not (self._at_end or self._chunks or (self.body_complete and not self._body_delivered)):
            self._changed.clear()
            if not self.body_complete:
                self._transport.set_deadline("body", min(limits.HTTP_STALL_S, self._body_seconds_left()))
            await self._changed.wait()
        if self._at_end:
            return {"type": "http.disconnect"}
        self._transport.clear_deadline()
        body, self._chunks, self._buffered = b"".join(self._chunks), [], 0
        self._body_delivered = self.body_complete
        if not self.body_complete:
            self._transport.update_reading()
        return {"type": "http.request", "body": body, "more_body": not self.body_complete}

    def _body_seconds_left(self) -> float:
        """For all of the body, from the moment the application began to read it. A body of unknown size may be large,
        and none has more time than the largest that REST takes.
        """
        now = asyncio.get_running_loop().time()
        if self._body_due is None:
            size = _length(self._request.headers)
            size = limits.BODY_BYTES_MAX if size is None else min(size, limits.BODY_BYTES_MAX)
            self._body_due = now + limits.BODY_S + size / limits.BODY_BYTES_PER_S
        return self._body_due - now

    @property
    def _at_end(self) -> bool:
        return self._disconnected or self._response_complete or (self._peer_half_closed and self._body_delivered)

    def _send_continue(self) -> None:
        """100 Continue, if the client waits for it: only now that the application wants to read the body."""
        waits = self._request.http_version == "1.1" and (self._request.value(b"expect") or "").lower() == "100-continue"
        if waits and not (self.body_complete or self._chunks or self.response_started or self._disconnected):
            self._transport.write(response.CONTINUE)

    # --- the response -------------------------------------------------------------------------------------------------

    async def _send(self, event: Event) -> None:
        if self._disconnected:
            return
        match event["type"]:
            case "http.response.start" if self._status is None:
                self._status = event["status"]
                self._headers = [(bytes(name).lower(), bytes(value)) for name, value in event.get("headers", ())]
            case "http.response.body" if self._status is not None and not self._response_complete:
                self._send_body(event.get("body", b""), more=event.get("more_body", False))
                await self._transport.drained()
            case kind:
                raise RuntimeError(f"the application may not send {kind} now")

    def _send_body(self, body: bytes, *, more: bool) -> None:
        parts: list[bytes] = [] if self.response_started else [self._head(body, more=more)]
        if self._bodyless:
            pass
        elif self._chunked:
            if body:
                parts.append(b"%x\r\n%b\r\n" % (len(body), body))
            if not more:
                parts.append(b"0\r\n\r\n")
        else:
            self._check_length(len(body), more=more)
            parts.append(body)
        self.response_started = True
        if data := b"".join(parts):
            self._transport.write(data)
        if not more:
            self._response_complete = True
            self._changed.set()  # ends a `_receive` that waits for a disconnect

    def _head(self, body: bytes, *, more: bool) -> bytes:
        assert self._status is not None
        length = _length(self._headers)
        headers = [each for each in self._headers if each[0] not in (b"transfer-encoding", b"connection")]
        asked_to_close = any(name == b"connection" and b"close" in value.lower() for name, value in self._headers)
        self._keep_alive = self._can_keep_alive() and not asked_to_close
        if length is not None:
            self._unsent_bytes = length
        elif self._bodyless and (more or not body):
            pass  # nothing follows; the length of the response to a GET is not known
        elif not more:
            headers.append((b"content-length", b"%d" % len(body)))
        elif self._request.http_version == "1.1":
            self._chunked = True
            headers.append((b"transfer-encoding", b"chunked"))
        else:
            self._keep_alive = False  # the end of the connection ends the body
        if not self._keep_alive:
            headers.append(response.CLOSE)
        elif self._request.http_version == "1.0":
            headers.append((b"connection", b"keep-alive"))
        return response.head(self._status, headers, now_ms=self._listener.clock.now_ms())

    def _can_keep_alive(self) -> bool:
        """Only if all of the request's body has arrived: what follows would be read as the next request."""
        return self._request.keep_alive and self.body_complete and self._listener.keeps_alive

    @property
    def _bodyless(self) -> bool:
        return self._request.method == "HEAD" or self._status in (204, 304)

    def _check_length(self, size: int, *, more: bool) -> None:
        if self._unsent_bytes is None:
            return
        self._unsent_bytes -= size
        if self._unsent_bytes < 0 or (self._unsent_bytes and not more):
            raise RuntimeError("the application sent more or less than the Content-Length it announced")


def _length(headers: Iterable[tuple[bytes, Any]]) -> int | None:
    return next((int(value) for name, value in headers if name == b"content-length"), None)

"""One HTTP request and its answer: what the ASGI application is given, and how what it sends becomes bytes."""

import asyncio
from collections.abc import Iterable
from typing import Any, Protocol

from seriatim.connection.listener import response
from seriatim.connection.listener.request import Request
from seriatim.connection.listener.state import Event, ListenerState, Scope
from seriatim.domain import limits


class RequestTransport(Protocol):
    """The socket, as the request whose turn it is sees it."""

    def write(self, data: bytes) -> None: ...

    async def drained(self) -> None:
        """Returns when the peer has read enough, or is gone."""
        ...

    def expect(self, what: str, seconds: float) -> None:
        """The peer must do this within so many seconds."""
        ...

    def expect_nothing(self) -> None: ...

    def read_on(self) -> None:
        """There is room for more of the body."""
        ...

    def turn_over(self, turn: object, *, keep_alive: bool) -> None: ...

    def cut(self) -> None: ...


class AsgiRequest:
    """A turn on the line. The answer's head leaves together with the first piece of its body."""

    def __init__(self, request: Request, line: RequestTransport, door: ListenerState) -> None:
        self.whole = False  # the request's body has arrived to its end
        self.answered = False  # some of the answer has left
        self._request = request
        self._line = line
        self._door = door
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._handed_over = False  # the application has had all of the body
        self._gone = False
        self._hushed = False
        self._happened = asyncio.Event()
        self._status: int | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._left: int | None = None  # bytes of the body that the answer still owes; None: chunked, or to the end
        self._chunked = False
        self._complete = False
        self._keep_alive = request.keep_alive
        self._began_at = door.clock.monotonic()

    # --- the line reports ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._door.tasks.start(self._run())

    def feed(self, data: bytes) -> None:
        self._chunks.append(data)
        self._buffered += len(data)
        self._happened.set()

    def complete(self) -> None:
        self.whole = True
        self._happened.set()

    def gone(self) -> None:
        """Nobody will read the answer; the application is told and may stop."""
        self._gone = True
        self._happened.set()

    def hushed(self) -> None:
        """The peer sends no more. It may wait for the answer, or be gone: who only wants to know that is told so."""
        self._hushed = True
        self._happened.set()

    @property
    def hungry(self) -> bool:
        return self._buffered < limits.BODY_BUFFER_BYTES_MAX

    # --- the application ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._door.app(self._scope(), self._receive, self._send)
            if not self._complete and not self._gone:
                raise RuntimeError("the application ended without a complete answer")
        except Exception as failure:
            self._door.observe.http_failed(failure)
        finally:
            self._finish()

    def _finish(self) -> None:
        """Also when cancelled: the line must not wait for us."""
        if not self._complete and not self._gone:
            if self.answered:
                self._line.cut()  # the peer must not take half an answer for a whole one
            else:
                self._answer_failure()
        if self._status is not None and not self._gone:
            seconds = self._door.clock.monotonic() - self._began_at
            self._door.observe.http_finished(self._request.method, self._status, seconds)
        self._line.turn_over(self, keep_alive=self._keep_alive)

    def _answer_failure(self) -> None:
        self._status = 500
        self._keep_alive = self._may_stay()
        message = "something went wrong on our side; it was written down"
        self._line.write(
            response.rest_error(
                500,
                "INTERNAL_ERROR",
                message,
                clock=self._door.clock,
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

    # --- the request's body -------------------------------------------------------------------------------------------

    async def _receive(self) -> Event:
        self._invite()
        while not (self._over or self._chunks or (self.whole and not self._handed_over)):
            self._happened.clear()
            if not self.whole:
                self._line.expect("body", limits.HTTP_STALL_S)
            await self._happened.wait()
        if self._over:
            return {"type": "http.disconnect"}
        self._line.expect_nothing()
        body, self._chunks, self._buffered = b"".join(self._chunks), [], 0
        self._handed_over = self.whole
        if not self.whole:
            self._line.read_on()
        return {"type": "http.request", "body": body, "more_body": not self.whole}

    @property
    def _over(self) -> bool:
        return self._gone or self._complete or (self._hushed and self._handed_over)

    def _invite(self) -> None:
        """A client may wait for a word before it sends a body; it gets one only if somebody wants to read it."""
        waits = self._request.http_version == "1.1" and (self._request.value(b"expect") or "").lower() == "100-continue"
        if waits and not (self.whole or self._chunks or self.answered or self._gone):
            self._line.write(response.CONTINUE)

    # --- the answer ---------------------------------------------------------------------------------------------------

    async def _send(self, event: Event) -> None:
        if self._gone:
            return
        match event["type"]:
            case "http.response.start" if self._status is None:
                self._status = event["status"]
                self._headers = [(bytes(name).lower(), bytes(value)) for name, value in event.get("headers", ())]
            case "http.response.body" if self._status is not None and not self._complete:
                self._body(event.get("body", b""), more=event.get("more_body", False))
                await self._line.drained()
            case kind:
                raise RuntimeError(f"an application may not send {kind} now")

    def _body(self, body: bytes, *, more: bool) -> None:
        parts: list[bytes] = [] if self.answered else [self._head(body, more=more)]
        if self._bodyless:
            pass
        elif self._chunked:
            if body:
                parts.append(b"%x\r\n%b\r\n" % (len(body), body))
            if not more:
                parts.append(b"0\r\n\r\n")
        else:
            self._count(len(body), more=more)
            parts.append(body)
        self.answered = True
        if data := b"".join(parts):
            self._line.write(data)
        if not more:
            self._complete = True
            self._happened.set()  # whoever waits to hear of a disconnect is done

    def _head(self, body: bytes, *, more: bool) -> bytes:
        assert self._status is not None
        length = _length(self._headers)
        headers = [each for each in self._headers if each[0] not in (b"transfer-encoding", b"connection")]
        asked_to_close = any(name == b"connection" and b"close" in value.lower() for name, value in self._headers)
        self._keep_alive = self._may_stay() and not asked_to_close
        if length is not None:
            self._left = length
        elif self._bodyless and (more or not body):
            pass  # nothing follows, and what would have followed a GET is not known
        elif not more:
            headers.append((b"content-length", b"%d" % len(body)))
        elif self._request.http_version == "1.1":
            self._chunked = True
            headers.append((b"transfer-encoding", b"chunked"))
        else:
            self._keep_alive = False  # the end of the connection is the end of the answer
        if not self._keep_alive:
            headers.append(response.CLOSE)
        elif self._request.http_version == "1.0":
            headers.append((b"connection", b"keep-alive"))
        return response.head(self._status, headers, now_ms=self._door.clock.now_ms())

    def _may_stay(self) -> bool:
        """The next request can be told from this one's body only if all of that has arrived."""
        return self._request.keep_alive and self.whole and not self._door.leaving

    @property
    def _bodyless(self) -> bool:
        return self._request.method == "HEAD" or self._status in (204, 304)

    def _count(self, size: int, *, more: bool) -> None:
        if self._left is None:
            return
        self._left -= size
        if self._left < 0 or (self._left and not more):
            raise RuntimeError("the application sent more or less than the Content-Length it announced")


def _length(headers: Iterable[tuple[bytes, Any]]) -> int | None:
    return next((int(value) for name, value in headers if name == b"content-length"), None)

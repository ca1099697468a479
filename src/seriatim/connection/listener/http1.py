"""One HTTP/1.1 connection: one request after another, until it closes or becomes a WebSocket.

Pipelined requests wait in a queue; while one waits, the socket is not read. One timer serves all deadlines.
"""

import asyncio
from collections import deque
from typing import Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from seriatim.connection.listener import response
from seriatim.connection.listener.asgi import AsgiRequest
from seriatim.connection.listener.handshake import is_websocket_path
from seriatim.connection.listener.request import Request, address_of, split_target
from seriatim.connection.listener.state import ListenerState
from seriatim.connection.listener.upgrade import UpgradeRequest
from seriatim.connection.listener.ws_socket import WebSocket
from seriatim.connection.task_group import report
from seriatim.domain import limits


class QueuedRequest(Protocol):
    """One request. `body_complete`: all of its body has arrived. `response_started`: some of the response has left."""

    body_complete: bool
    response_started: bool

    @property
    def wants_body(self) -> bool:
        """More of the body may be read."""
        ...

    def start(self) -> None:
        """The requests before it are answered: answer this one."""
        ...

    def feed_body(self, data: bytes) -> None: ...

    def end_body(self) -> None: ...

    def disconnected(self) -> None:
        """The response can reach the peer no more, or was replaced by a refusal."""
        ...

    def peer_half_closed(self) -> None:
        """The peer sends no more bytes, and may still read."""
        ...


class HttpConnection(asyncio.Protocol):
    """The transport's protocol until `switch_protocol`. `_parser` is None once bytes are read as HTTP no more."""

    def __init__(self, listener: ListenerState) -> None:
        self._listener = listener
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._current: QueuedRequest | None = None
        self._waiting: deque[QueuedRequest] = deque()
        self._incoming: QueuedRequest | None = None  # the request whose body the parser reads
        self._after_upgrade = b""
        self._served = False
        self._peer_eof = False
        self._closing = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._head_open = False
        self._heads_begun = 0  # by the bytes read last
        self._head_bytes = self._head_raw_bytes = 0
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._awaited = ""
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    # --- the transport calls ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # other loops' transports are no subclasses
        self._transport.set_write_buffer_limits(high=limits.FLUSH_BYTES_MAX)
        self._scheme = "http" if transport.get_extra_info("sslcontext") is None else "https"
        self._client = address_of(transport.get_extra_info("peername"))
        self._server = address_of(transport.get_extra_info("sockname"))
        self._listener.add(self)
        self._listener.http_connections += 1
        self.set_deadline("head", limits.HANDSHAKE_S)
        if self._listener.http_connections > limits.HTTP_CONNECTIONS_MAX or self._listener.closing:
            self._refuse(503, "SERVICE_UNAVAILABLE", "too many connections; try again later")

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            if isinstance(self._current, UpgradeRequest):
                self._after_upgrade += data  # at most one read: a handshake pauses reading
            return
        idle = not self._head_open and self._incoming is None
        if self._head_open:
            self._head_raw_bytes += len(data)
        self._heads_begun = 0
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._parser = None
            self._after_upgrade = data[upgrade.args[0] :]
        except HttpParserError as error:
            if error.__context__ is not None:
                report(error.__context__)  # not the peer's fault: a bug in one of the callbacks below
            self._refuse(400, "BAD_REQUEST", "this is not HTTP/1.1")
        if idle and self._head_open and self._heads_begun == 1:
            self._head_raw_bytes = len(data)  # all of it: the parser reports a header only when it is complete
        if self._head_open and max(self._head_bytes, self._head_raw_bytes) > limits.HEAD_BYTES_MAX:
            self._refuse_head()
        self._start_next()

    def eof_received(self) -> bool:
        """True: keep the transport open, since the peer has half-closed and waits for a response."""
        self._peer_eof = True
        current = self._current
        if current is None or self._incoming is not None or isinstance(current, UpgradeRequest) or self._closing:
            return False
        current.peer_half_closed()
        return self._transport.can_write_eof()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._detach()
        for request in (self._current, self._incoming):
            if request is not None:
                request.disconnected()
        self._current = self._incoming = None
        self._waiting.clear()

    def _detach(self) -> None:
        self._parser = None  # parser and protocol refer to each other; this frees both
        self._closing = True
        self._deadline = None
        if self._timer is not None:
            self._timer.cancel()
        self._writable.set()
        self._listener.http_connections -= 1
        self._listener.remove(self)

    # --- the parser calls ---------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._head_open = True
        self._heads_begun += 1
        self._head_bytes = self._head_raw_bytes = 0
        self._target, self._headers = b"", []

    def on_url(self, target: bytes) -> None:
        self._target += target
        self._head_bytes += len(target)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_open:  # otherwise it is a trailer, which is ignored
            self._head_bytes += len(name) + len(value) + 4
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._head_open = False
        self._incoming = self._new_request()
        self._waiting.append(self._incoming)

    def on_body(self, data: bytes) -> None:
        if self._incoming is not None:
            self._incoming.feed_body(data)

    def on_message_complete(self) -> None:
        if self._incoming is not None:
            self._incoming.end_body()
            self._incoming = None

    def _new_request(self) -> QueuedRequest:
        if self._head_bytes > limits.HEAD_BYTES_MAX:
            return _RefusedRequest(self, 431, *_HEAD_TOO_LARGE)
        target = split_target(self._target)
        hosts = sum(name == b"host" for name, _ in self._headers)
        assert self._parser is not None
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1"):
            return _RefusedRequest(self, 400, "BAD_REQUEST", "this is not HTTP/1.1")
        if target is None or hosts > 1 or (hosts == 0 and version == "1.1"):
            return _RefusedRequest(self, 400, "BAD_REQUEST", "a request names a path and exactly one host")
        upgrade = self._parser.should_upgrade()
        request = Request(
            method=self._parser.get_method().decode(),
            raw_path=target[0],
            path=target[1],
            query=target[2],
            headers=tuple(self._headers),
            http_version=version,
            keep_alive=self._parser.should_keep_alive() and not upgrade,  # after an upgrade the parser reads no more
            upgrade=upgrade,
            has_body=any(name in _BODY_HEADERS and value != b"0" for name, value in self._headers),
            scheme=self._scheme,
            client=self._client,
            server=self._server,
        )
        if self._listener.websocket is not None and is_websocket_path(request.path):
            return UpgradeRequest(request, self, self._listener, self._listener.websocket)
        return AsgiRequest(request, self, self._listener)

    # --- the queue of requests ----------------------------------------------------------------------------------------

    def _start_next(self) -> None:
        if self._current is None and self._waiting and not self._closing:
            self._served = True
            self.clear_deadline()
            self._current = self._waiting.popleft()
            self._current.start()
        elif self._current is None and not self._closing:
            self._set_request_deadline()
        self.update_reading()

    def _set_request_deadline(self) -> None:
        if self._head_open:
            if self._awaited != "head" or self._deadline is None:
                self.set_deadline("head", limits.HANDSHAKE_S)
        elif self._served:
            self.set_deadline("request", limits.KEEP_ALIVE_S)

    def request_done(self, request: object, *, keep_alive: bool) -> None:
        if request is not self._current:
            return
        self._current = None
        if keep_alive and not self._listener.closing and (self._waiting or not self._peer_eof):
            self._start_next()
        else:
            self._half_close()

    def update_reading(self) -> None:
        """Reads only while a request can take what would come. A closing connection reads on, and discards."""
        request = self._incoming or self._current
        takes_more = request is None or request.body_complete or request.wants_body
        wanted = self._closing or (not self._waiting and takes_more)
        if isinstance(self._current, UpgradeRequest) and not self._closing:
            wanted = False
        if wanted and not self._transport.is_reading():
            self._transport.resume_reading()
        elif not wanted and self._transport.is_reading():
            self._transport.pause_reading()

    def _refuse_head(self) -> None:
        self._refuse(431, *_HEAD_TOO_LARGE)

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Later bytes cannot be parsed. The refusal is queued behind the requests that came before."""
        self._parser, self._head_open = None, False
        broken, self._incoming = self._incoming, None
        if broken is not None and broken is self._current:
            broken.disconnected()
            self._current = None
            if broken.response_started:
                self.abort()
                return
        elif broken is not None:
            self._waiting.pop()
        self._waiting.append(_RefusedRequest(self, status, code, message))
        self._start_next()

    def refused(self, request: "_RefusedRequest", status: int, code: str, message: str) -> None:
        self._listener.observe.http_refused(status)
        self.write(response.rest_error(status, code, message, clock=self._listener.clock))
        self.request_done(request, keep_alive=False)

    # --- the current request calls ------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not self._closing:
            self._transport.write(data)

    async def drained(self) -> None:
        if not self._writable.is_set():
            self.set_deadline("answer", limits.HTTP_STALL_S)
            await self._writable.wait()
            self.clear_deadline()

    def make_websocket(self) -> WebSocket:
        return WebSocket(self._transport, self._listener, full=not self._writable.is_set())

    def switch_protocol(self, socket: WebSocket) -> bytes:
        self._detach()
        self._current = None
        self._transport.set_protocol(socket)
        self._transport.resume_reading()
        return self._after_upgrade

    # --- deadlines ----------------------------------------------------------------------------------------------------

    def set_deadline(self, awaited: str, seconds: float) -> None:
        if self._closing and awaited != "close":
            return
        loop = asyncio.get_running_loop()
        self._awaited, self._deadline = awaited, loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= self._deadline:
                return  # it fires early enough, and is set again then
            self._timer.cancel()
        self._timer = loop.call_at(self._deadline, self._deadline_passed)

    def clear_deadline(self) -> None:
        if not self._closing:
            self._deadline = None

    def _deadline_passed(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        if self._deadline is None:
            return
        if loop.time() < self._deadline:
            self._timer = loop.call_at(self._deadline, self._deadline_passed)
            return
        self._deadline = None
        if self._awaited == "request":  # an idle connection: no fault to report
            self._half_close()
            return
        self._listener.observe.timed_out(self._awaited)
        if self._awaited in ("head", "body"):
            self._refuse(408, "REQUEST_TIMEOUT", "the request took too long to arrive")
        else:
            self.abort()

    # --- the end ------------------------------------------------------------------------------------------------------

    def _half_close(self) -> None:
        """Half-closes, and discards what still arrives: closing with unread bytes would reset the connection."""
        if self._closing:
            return
        self._closing, self._parser = True, None
        if self._peer_eof or not self._transport.can_write_eof():
            self._transport.close()
        else:
            self._transport.write_eof()
        self.set_deadline("close", limits.CLOSE_WAIT_S)
        self.update_reading()

    def close_gracefully(self) -> None:
        """A request in progress is answered first, with `connection: close`."""
        if self._current is None:
            self._half_close()

    def abort(self) -> None:
        self._transport.abort()


class _RefusedRequest:
    """A `QueuedRequest` that is refused without the application, and is the last one."""

    body_complete = True
    wants_body = False

    def __init__(self, transport: HttpConnection, status: int, code: str, message: str) -> None:
        self.response_started = False
        self._transport = transport
        self._answer = (status, code, message)

    def start(self) -> None:
        self.response_started = True
        self._transport.refused(self, *self._answer)

    def feed_body(self, data: bytes) -> None: ...

    def end_body(self) -> None: ...

    def disconnected(self) -> None: ...

    def peer_half_closed(self) -> None: ...


_HEAD_TOO_LARGE = ("HEADERS_TOO_LARGE", "the head of this request is too large; send less")
_BODY_HEADERS = (b"content-length", b"transfer-encoding")

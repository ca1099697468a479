"""One HTTP/1.1 connection: one request after another, until it closes or becomes a WebSocket.

Pipelined requests wait in a bounded queue; while one waits, the socket is not read. One timer serves all deadlines.
"""

import asyncio
from collections import deque
from contextlib import suppress
from typing import cast

from seriatim.connection.listener import response
from seriatim.connection.listener.asgi import AsgiRequest
from seriatim.connection.listener.handshake import is_websocket_path
from seriatim.connection.listener.places import Place
from seriatim.connection.listener.queued_request import QueuedRequest, RefusedRequest
from seriatim.connection.listener.request import Request, address_of
from seriatim.connection.listener.request_parser import RequestParser, RequestRefused
from seriatim.connection.listener.state import ListenerState
from seriatim.connection.listener.upgrade import UpgradeRequest
from seriatim.connection.listener.ws_socket import WebSocket
from seriatim.domain import limits


class HttpConnection(asyncio.Protocol):
    """The transport's protocol until `switch_protocol`. `_parser` is None once bytes are read as HTTP no more.

    `place`: the one that its socket took; None: it takes one when it is connected.
    """

    def __init__(self, listener: ListenerState, place: Place | None = None) -> None:
        self._listener = listener
        self._place = place
        self._parser: RequestParser | None = None
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
        self._awaited = ""
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    # --- the transport calls ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # other loops' transports are no subclasses
        self._transport.set_write_buffer_limits(high=limits.FLUSH_BYTES_MAX)
        self._listener.add(self)
        self._place = self._place or self._listener.places.take(None)
        self._parser = RequestParser(
            self,
            scheme="http" if transport.get_extra_info("sslcontext") is None else "https",
            client=address_of(transport.get_extra_info("peername")),
            server=address_of(transport.get_extra_info("sockname")),
        )
        self.set_deadline("head", limits.HANDSHAKE_S)
        if self._place is None or self._place.refused or self._listener.closing:
            self._refuse(503, "SERVICE_UNAVAILABLE", "too many connections; try again later")

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            if isinstance(self._current, UpgradeRequest):
                self._after_upgrade += data  # at most one read: a handshake pauses reading
            return
        self._parse(data)
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
        self._stop_parsing()
        self._closing = True
        self._deadline = None
        if self._timer is not None:
            self._timer.cancel()
        self._writable.set()
        self._listener.places.remove_idle(self)
        if self._place is not None:
            self._place.release()
        self._listener.remove(self)

    # --- the parser ---------------------------------------------------------------------------------------------------

    def _parse(self, data: bytes) -> None:
        """With no data: goes on where the parser stopped because too many requests waited."""
        parser = self._parser
        assert parser is not None
        try:
            if data:
                parser.feed(data)
            else:
                parser.resume()
        except RequestRefused as refused:
            self._refuse(*refused.answer)
        if parser.upgraded is not None:
            self._parser, self._after_upgrade = None, parser.upgraded

    def _stop_parsing(self) -> None:
        if self._parser is not None:
            self._parser.close()
            self._parser = None

    @property
    def takes_requests(self) -> bool:
        return len(self._waiting) < limits.REQUESTS_WAITING_MAX

    def head_received(self, request: Request) -> None:
        if self._listener.websocket is not None and is_websocket_path(request.path):
            self._enqueue(UpgradeRequest(request, self, self._listener, self._listener.websocket))
        else:
            self._enqueue(AsgiRequest(request, self, self._listener))

    def head_refused(self, refused: RequestRefused) -> None:
        self._enqueue(RefusedRequest(self, refused.answer))

    def _enqueue(self, request: QueuedRequest) -> None:
        self._incoming = request
        self._waiting.append(request)

    def body_received(self, data: bytes) -> None:
        if self._incoming is not None:
            self._incoming.feed_body(data)

    def request_complete(self) -> None:
        if self._incoming is not None:
            self._incoming.end_body()
            self._incoming = None

    # --- the queue of requests ----------------------------------------------------------------------------------------

    def _start_next(self) -> None:
        if self._current is None and self._waiting and not self._closing:
            self._served = True
            self.clear_deadline()
            self._listener.places.remove_idle(self)
            self._current = self._waiting.popleft()
            self._current.start()
            if self._parser is not None and self._parser.pending:
                self._parse(b"")
        elif self._current is None and not self._closing:
            self._set_request_deadline()
        self.update_reading()

    def _set_request_deadline(self) -> None:
        """A deadline that runs already is kept: more bytes of the same head, or empty lines, earn no more time."""
        awaited = "head" if self._parser is not None and self._parser.head_open else "request"
        if (self._awaited == awaited and self._deadline is not None) or (awaited == "request" and not self._served):
            return
        if awaited == "head":
            self._listener.places.remove_idle(self)
            self.set_deadline("head", limits.HANDSHAKE_S)
        else:
            self._listener.places.add_idle(self)
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
        pending = self._parser is not None and self._parser.pending
        wanted = self._closing or (not self._waiting and not pending and takes_more)
        if isinstance(self._current, UpgradeRequest) and not self._closing:
            wanted = False
        if wanted and not self._transport.is_reading():
            self._transport.resume_reading()
        elif not wanted and self._transport.is_reading():
            self._transport.pause_reading()

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Later bytes cannot be parsed. The refusal is queued behind the requests that came before."""
        self._stop_parsing()
        broken, self._incoming = self._incoming, None
        if broken is not None and broken is self._current:
            broken.disconnected()
            self._current = None
            if broken.response_started:
                self.abort()
                return
        elif broken is not None:
            self._waiting.pop()
        self._waiting.append(RefusedRequest(self, (status, code, message)))
        self._start_next()

    def refused(self, request: object, status: int, code: str, message: str) -> None:
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
        self._closing = True
        self._stop_parsing()
        self._listener.places.remove_idle(self)
        if self._peer_eof or not self._transport.can_write_eof():
            self._transport.close()
        else:
            with suppress(OSError):  # asyncio's loop: the peer has reset the connection, which is about to be reported
                self._transport.write_eof()
        self.set_deadline("close", limits.CLOSE_WAIT_S)
        self.update_reading()

    def close_gracefully(self) -> None:
        """A request in progress is answered first, with `connection: close`."""
        if self._current is None:
            self._half_close()

    def evict(self) -> None:
        """At once, unless the peer has not read its last response: then it has CLOSE_WAIT_S to do so."""
        if self._transport.get_write_buffer_size():
            self._half_close()
        else:
            self.abort()

    def abort(self) -> None:
        self._transport.abort()

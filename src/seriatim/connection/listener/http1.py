"""One socket as it begins: HTTP/1.1, one request after another, until it ends or becomes a WebSocket.

Requests that were sent ahead wait their turn; while any waits, the socket is not read. One timer serves all waiting.
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
    """A request on the line. `whole`: its body has arrived. `answered`: some of the answer has left."""

    whole: bool
    answered: bool

    @property
    def hungry(self) -> bool:
        """More of the body may be read."""
        ...

    def begin(self) -> None:
        """It is the first of the line."""
        ...

    def feed(self, data: bytes) -> None: ...

    def complete(self) -> None: ...

    def gone(self) -> None:
        """The peer is, or hears no more of us about this."""
        ...

    def hushed(self) -> None:
        """The peer has sent its last byte."""
        ...


class HttpConnection(asyncio.Protocol):
    """The transport's protocol until `switch`. `_parser` is None when nothing is read any more as HTTP."""

    def __init__(self, door: ListenerState) -> None:
        self._door = door
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._current: QueuedRequest | None = None
        self._waiting: deque[QueuedRequest] = deque()
        self._incoming: QueuedRequest | None = None  # whose body the parser is in
        self._early = b""
        self._served = False
        self._peer_done = False
        self._parting = False
        self._room = asyncio.Event()
        self._room.set()
        self._head_open = False
        self._heads_begun = 0  # by what was read last
        self._head_bytes = self._head_raw_bytes = 0
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expected = ""
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    # --- the transport reports ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # other loops' transports are no subclasses
        self._transport.set_write_buffer_limits(high=limits.FLUSH_BYTES_MAX)
        self._scheme = "http" if transport.get_extra_info("sslcontext") is None else "https"
        self._client = address_of(transport.get_extra_info("peername"))
        self._server = address_of(transport.get_extra_info("sockname"))
        self._door.enter(self)
        self._door.http_connections += 1
        self.expect("head", limits.HANDSHAKE_S)
        if self._door.http_connections > limits.HTTP_CONNECTIONS_MAX or self._door.closing:
            self._refuse(503, "SERVICE_UNAVAILABLE", "too many connections; try again later")

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            if isinstance(self._current, UpgradeRequest):
                self._early += data  # one read at most: a handshake pauses reading
            return
        idle = not self._head_open and self._incoming is None
        if self._head_open:
            self._head_raw_bytes += len(data)
        self._heads_begun = 0
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._parser = None
            self._early = data[upgrade.args[0] :]
        except HttpParserError as error:
            if error.__context__ is not None:
                report(error.__context__)  # not the peer's fault: one of the callbacks below met a bug of ours
            self._refuse(400, "BAD_REQUEST", "this is not HTTP/1.1")
        if idle and self._head_open and self._heads_begun == 1:
            self._head_raw_bytes = len(data)  # all of it: the parser tells of a header only when it is complete
        if self._head_open and max(self._head_bytes, self._head_raw_bytes) > limits.HEAD_BYTES_MAX:
            self._refuse_head()
        self._advance()

    def eof_received(self) -> bool:
        """True: the peer only has no more to say, and still waits for an answer."""
        self._peer_done = True
        current = self._current
        if current is None or self._incoming is not None or isinstance(current, UpgradeRequest) or self._parting:
            return False
        current.hushed()
        return self._transport.can_write_eof()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        for turn in (self._current, self._incoming):
            if turn is not None:
                turn.gone()
        self._current = self._incoming = None
        self._waiting.clear()

    def _leave(self) -> None:
        self._parser = None  # parser and protocol hold each other; this lets both go
        self._parting = True
        self._deadline = None
        if self._timer is not None:
            self._timer.cancel()
        self._room.set()
        self._door.http_connections -= 1
        self._door.leave(self)

    # --- the parser reports -------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._head_open = True
        self._heads_begun += 1
        self._head_bytes = self._head_raw_bytes = 0
        self._target, self._headers = b"", []

    def on_url(self, target: bytes) -> None:
        self._target += target
        self._head_bytes += len(target)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_open:  # else it is a trailer, and nobody reads those
            self._head_bytes += len(name) + len(value) + 4
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._head_open = False
        self._incoming = self._turn()
        self._waiting.append(self._incoming)

    def on_body(self, data: bytes) -> None:
        if self._incoming is not None:
            self._incoming.feed(data)

    def on_message_complete(self) -> None:
        if self._incoming is not None:
            self._incoming.complete()
            self._incoming = None

    def _turn(self) -> QueuedRequest:
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
            keep_alive=self._parser.should_keep_alive() and not upgrade,  # after an upgrade the parser is spent
            upgrade=upgrade,
            has_body=any(name in _BODY_HEADERS and value != b"0" for name, value in self._headers),
            scheme=self._scheme,
            client=self._client,
            server=self._server,
        )
        if self._door.sockets and is_websocket_path(request.path):
            return UpgradeRequest(request, self, self._door)
        return AsgiRequest(request, self, self._door)

    # --- whose turn it is ---------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        if self._current is None and self._waiting and not self._parting:
            self._served = True
            self.expect_nothing()
            self._current = self._waiting.popleft()
            self._current.begin()
        elif self._current is None and not self._parting:
            self._await_request()
        self.read_on()

    def _await_request(self) -> None:
        if self._head_open:
            if self._expected != "head" or self._deadline is None:
                self.expect("head", limits.HANDSHAKE_S)
        elif self._served:
            self.expect("request", limits.KEEP_ALIVE_S)

    def turn_over(self, turn: object, *, keep_alive: bool) -> None:
        if turn is not self._current:
            return
        self._current = None
        if keep_alive and not self._door.closing and (self._waiting or not self._peer_done):
            self._advance()
        else:
            self._part()

    def read_on(self) -> None:
        """Reads exactly while somebody has a use for what would come; who parts reads on, to throw it away."""
        turn = self._incoming or self._current
        wanted = self._parting or (not self._waiting and (turn is None or turn.whole or turn.hungry))
        if isinstance(self._current, UpgradeRequest) and not self._parting:
            wanted = False
        if wanted and not self._transport.is_reading():
            self._transport.resume_reading()
        elif not wanted and self._transport.is_reading():
            self._transport.pause_reading()

    def _refuse_head(self) -> None:
        self._refuse(431, *_HEAD_TOO_LARGE)

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Nothing that comes from now on can be understood. The refusal waits its turn behind what was asked before."""
        self._parser, self._head_open = None, False
        broken, self._incoming = self._incoming, None
        if broken is not None and broken is self._current:
            broken.gone()
            self._current = None
            if broken.answered:
                self.cut()
                return
        elif broken is not None:
            self._waiting.pop()
        self._waiting.append(_RefusedRequest(self, status, code, message))
        self._advance()

    def refused(self, turn: "_RefusedRequest", status: int, code: str, message: str) -> None:
        self._door.observe.http_refused(status)
        self.write(response.rest_error(status, code, message, clock=self._door.clock))
        self.turn_over(turn, keep_alive=False)

    # --- for the turn that it is --------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not self._parting:
            self._transport.write(data)

    async def drained(self) -> None:
        if not self._room.is_set():
            self.expect("answer", limits.HTTP_STALL_S)
            await self._room.wait()
            self.expect_nothing()

    def socket(self) -> WebSocket:
        return WebSocket(self._transport, self._door, full=not self._room.is_set())

    def switch(self, socket: WebSocket) -> bytes:
        self._leave()
        self._current = None
        self._transport.set_protocol(socket)
        self._transport.resume_reading()
        return self._early

    # --- waiting ------------------------------------------------------------------------------------------------------

    def expect(self, what: str, seconds: float) -> None:
        if self._parting and what != "close":
            return
        loop = asyncio.get_running_loop()
        self._expected, self._deadline = what, loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= self._deadline:
                return  # it fires early enough, and looks again
            self._timer.cancel()
        self._timer = loop.call_at(self._deadline, self._time_is_up)

    def expect_nothing(self) -> None:
        if not self._parting:
            self._deadline = None

    def _time_is_up(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        if self._deadline is None:
            return
        if loop.time() < self._deadline:
            self._timer = loop.call_at(self._deadline, self._time_is_up)
            return
        self._deadline = None
        if self._expected == "request":  # it was idle, which is no fault of its
            self._part()
            return
        self._door.observe.timed_out(self._expected)
        if self._expected in ("head", "body"):
            self._refuse(408, "REQUEST_TIMEOUT", "the request took too long to arrive")
        else:
            self.cut()

    # --- the end ------------------------------------------------------------------------------------------------------

    def _part(self) -> None:
        """Says that no more comes, and reads what still does, for otherwise the kernel would take the answer back."""
        if self._parting:
            return
        self._parting, self._parser = True, None
        if self._peer_done or not self._transport.can_write_eof():
            self._transport.close()
        else:
            self._transport.write_eof()
        self.expect("close", limits.CLOSE_WAIT_S)
        self.read_on()

    def shut(self) -> None:
        """A request in flight is answered first; its answer says that it was the last."""
        if self._current is None:
            self._part()

    def cut(self) -> None:
        self._transport.abort()


class _RefusedRequest:
    """A turn that is answered without anybody being asked, and is the last."""

    whole = True
    hungry = False

    def __init__(self, line: HttpConnection, status: int, code: str, message: str) -> None:
        self.answered = False
        self._line = line
        self._answer = (status, code, message)

    def begin(self) -> None:
        self.answered = True
        self._line.refused(self, *self._answer)

    def feed(self, data: bytes) -> None: ...

    def complete(self) -> None: ...

    def gone(self) -> None: ...

    def hushed(self) -> None: ...


_HEAD_TOO_LARGE = ("HEADERS_TOO_LARGE", "the head of this request is too large; send less")
_BODY_HEADERS = (b"content-length", b"transfer-encoding")

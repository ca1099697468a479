"""Connections to one HTTP/1.1 server: a bounded pool, one request at a time on each, and no request ever repeated.

A request that fails after its first byte was sent may have been carried out. So every failure here is
`OutcomeUnknown`, and its connection is closed; only a request that found no room to wait raises `Throttled`.
"""

import asyncio
import ssl
from collections import deque
from typing import cast

import httptools
import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown, Throttled


class HttpResponse(msgspec.Struct, frozen=True):
    status: int
    body: bytes


class ConnectionPool:
    """Opens connections when they are needed. `tls` is None for a plain connection, as to a local engine."""

    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        *,
        connections_max: int = limits.DYNAMODB_CONNECTIONS_MAX,
    ) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._connections_max = connections_max
        self._opening = 0
        self._idle: list[PooledConnection] = []  # the one used last is used first
        self._all: dict[PooledConnection, None] = {}
        self._waiting: deque[asyncio.Future[PooledConnection | None]] = deque()
        self._closed = False
        self._all_closed: asyncio.Future[None] | None = None

    async def exchange(self, request: bytes, *, until: float) -> HttpResponse:
        """Sends a whole request and returns the response, by `until` on the loop's clock."""
        loop = asyncio.get_running_loop()
        if loop.time() >= until:
            raise OutcomeUnknown("no time was left to ask the store; retry")
        connection = self._pop_idle(loop.time()) or await self._acquire(until)
        answer = connection.send(request)
        timer = loop.call_at(until, connection.fail, "the store did not answer in time; retry")
        try:
            return await answer
        finally:
            timer.cancel()
            self._release(connection)

    async def close(self) -> None:
        """Requests that still wait for a response raise `OutcomeUnknown`."""
        self._closed = True
        while self._waiting:
            self._wake(None)
        if self._all:
            self._all_closed = asyncio.get_running_loop().create_future()
            for connection in list(self._all):
                connection.fail("the connection to the store was closed; retry")
            await self._all_closed

    def _pop_idle(self, now: float) -> "PooledConnection | None":
        """A connection that was idle for long is about to be closed by the other side: it is not used any more."""
        while self._idle:
            connection = self._idle.pop()
            if connection.alive and now - connection.idle_since < limits.DYNAMODB_IDLE_S:
                return connection
            connection.fail("idle")
        return None

    async def _acquire(self, until: float) -> "PooledConnection":
        while not self._closed:
            if self._opening + len(self._all) < self._connections_max:
                return await self._connect(until)
            if len(self._waiting) >= limits.DYNAMODB_WAITING_MAX:
                raise Throttled("too many requests wait for the store; retry after a pause")
            handed = await self._queue(until)
            if handed is not None:
                return handed
        raise OutcomeUnknown("the connection to the store was closed; retry")

    async def _connect(self, until: float) -> "PooledConnection":
        self._opening += 1
        try:
            async with asyncio.timeout_at(until):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: PooledConnection(self), self._host, self._port, ssl=self._tls
                )
                return connection
        except (OSError, TimeoutError) as error:
            raise OutcomeUnknown(
                "the store cannot be reached; retry",
                log_reason=f"the store cannot be reached at {self._host}:{self._port}: {error!r}",
            ) from error
        finally:
            self._opening -= 1
            if self._opening + len(self._all) < self._connections_max:
                self._wake(None)

    async def _queue(self, until: float) -> "PooledConnection | None":
        """A connection that was released, or None when there is room for another one."""
        waiter: asyncio.Future[PooledConnection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout_at(until):
                return await waiter
        except BaseException as error:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif waiter.done() and not waiter.cancelled():
                self._reuse(waiter.result())
            if isinstance(error, TimeoutError):
                raise OutcomeUnknown("no connection to the store became free in time; retry") from None
            raise

    def _release(self, connection: "PooledConnection") -> None:
        if connection.busy:  # its caller was cancelled: a response that still comes must not answer the next request
            connection.fail("the caller was cancelled")
        elif connection.alive:
            connection.idle_since = asyncio.get_running_loop().time()
            self._reuse(connection)

    def _reuse(self, connection: "PooledConnection | None") -> None:
        if not self._wake(connection) and connection is not None:
            if self._closed:
                connection.fail("closed")
            else:
                self._idle.append(connection)

    def _wake(self, connection: "PooledConnection | None") -> bool:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False

    # --- called by connections ---

    def opened(self, connection: "PooledConnection") -> None:
        self._all[connection] = None
        if self._closed:
            connection.fail("the connection to the store was closed; retry")

    def closed(self, connection: "PooledConnection") -> None:
        del self._all[connection]
        if connection in self._idle:
            self._idle.remove(connection)
        self._wake(None)
        if self._all_closed is not None and not self._all and not self._all_closed.done():
            self._all_closed.set_result(None)


class PooledConnection(asyncio.Protocol):
    """One socket. After any failure it is closed and never used again."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.idle_since = 0.0
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._answer: asyncio.Future[HttpResponse] | None = None

    @property
    def alive(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def busy(self) -> bool:
        return self._answer is not None

    def send(self, request: bytes) -> asyncio.Future[HttpResponse]:
        answer: asyncio.Future[HttpResponse] = asyncio.get_running_loop().create_future()
        if self._transport is None or self._transport.is_closing():
            answer.set_exception(OutcomeUnknown("the connection to the store was lost; retry"))
            return answer
        self._answer = answer
        self._transport.write(request)
        return answer

    def fail(self, reason: str) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._settle(OutcomeUnknown(reason))

    def _settle(self, outcome: HttpResponse | OutcomeUnknown) -> None:
        answer, self._answer = self._answer, None
        if answer is None or answer.done():
            return
        if isinstance(outcome, HttpResponse):
            answer.set_result(outcome)
        else:
            answer.set_exception(outcome)

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # other loops' transports are no subclasses
        self._pool.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.fail("the store sent a response without a request")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.fail("the store's answer was not HTTP; retry")

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle(OutcomeUnknown("the connection to the store was lost; retry"))
        self._pool.closed(self)

    # --- called by the parser ---

    def on_message_begin(self) -> None:
        if self._answer is None:  # behind a response, in the same bytes: the rest of it would answer the next request
            self.fail("the store sent a response without a request")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)
        self._body_bytes += len(body)
        if self._body_bytes > limits.DYNAMODB_ANSWER_BYTES_MAX:
            self.fail("the store's answer was longer than any it should give")

    def on_message_complete(self) -> None:
        answer = HttpResponse(self._parser.get_status_code(), b"".join(self._body))
        self._body.clear()
        self._body_bytes = 0
        if not self._parser.should_keep_alive() and self._transport is not None:
            self._transport.close()
        self._settle(answer)

"""Connections to one HTTP/1.1 server: a bounded pool, one request at a time on each, and no request ever repeated.

A request that fails after its first byte left may have been carried out. So whatever goes wrong here is
`OutcomeUnknown`, and its connection is closed; only who never got a connection is told that nothing was applied.
"""

import asyncio
import ssl
from collections import deque
from typing import cast

import httptools
import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown, Throttled


class Answer(msgspec.Struct, frozen=True):
    status: int
    body: bytes


class Pool:
    """Opens connections when they are needed. `tls` is None for a plain connection, as to a local engine."""

    def __init__(
        self, host: str, port: int, tls: ssl.SSLContext | None, *, most: int = limits.DYNAMODB_CONNECTIONS_MAX
    ) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._most = most
        self._opening = 0
        self._idle: list[Connection] = []  # the one used last is used first
        self._all: dict[Connection, None] = {}
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        self._closed = False
        self._emptied: asyncio.Future[None] | None = None

    async def exchange(self, request: bytes, *, until: float) -> Answer:
        """Sends a whole request and returns its answer, by `until` on the loop's clock."""
        loop = asyncio.get_running_loop()
        if loop.time() >= until:
            raise OutcomeUnknown("no time was left to ask the store; retry")
        connection = self._usable(loop.time()) or await self._wait_for_one(until)
        answer = connection.send(request)
        timer = loop.call_at(until, connection.fail, "the store did not answer in time; retry")
        try:
            return await answer
        finally:
            timer.cancel()
            self._release(connection)

    async def close(self) -> None:
        """Whoever still waits for an answer gets `OutcomeUnknown`."""
        self._closed = True
        while self._waiting:
            self._wake(None)
        if self._all:
            self._emptied = asyncio.get_running_loop().create_future()
            for connection in list(self._all):
                connection.fail("the connection to the store was closed; retry")
            await self._emptied

    def _usable(self, now: float) -> "Connection | None":
        """A connection that was idle for long is about to be closed by the other side: it is not used any more."""
        while self._idle:
            connection = self._idle.pop()
            if connection.alive and now - connection.idle_since < limits.DYNAMODB_IDLE_S:
                return connection
            connection.fail("idle")
        return None

    async def _wait_for_one(self, until: float) -> "Connection":
        while not self._closed:
            if self._opening + len(self._all) < self._most:
                return await self._connect(until)
            if len(self._waiting) >= limits.DYNAMODB_WAITING_MAX:
                raise Throttled("too many requests wait for the store; retry after a pause")
            handed = await self._queue(until)
            if handed is not None:
                return handed
        raise OutcomeUnknown("the connection to the store was closed; retry")

    async def _connect(self, until: float) -> "Connection":
        self._opening += 1
        try:
            async with asyncio.timeout_at(until):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self), self._host, self._port, ssl=self._tls
                )
                return connection
        except (OSError, TimeoutError) as error:
            raise OutcomeUnknown("the store cannot be reached; retry") from error
        finally:
            self._opening -= 1
            if self._opening + len(self._all) < self._most:
                self._wake(None)

    async def _queue(self, until: float) -> "Connection | None":
        """A connection that somebody released, or None when there is room for another one."""
        turn: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout_at(until):
                return await turn
        except BaseException as error:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif turn.done() and not turn.cancelled():
                self._hand_on(turn.result())
            if isinstance(error, TimeoutError):
                raise OutcomeUnknown("no connection to the store became free in time; retry") from None
            raise

    def _release(self, connection: "Connection") -> None:
        if connection.busy:  # its caller gave up: the answer, if it comes, is for nobody
            connection.fail("nobody waits any more")
        elif connection.alive:
            connection.idle_since = asyncio.get_running_loop().time()
            self._hand_on(connection)

    def _hand_on(self, connection: "Connection | None") -> None:
        if not self._wake(connection) and connection is not None:
            if self._closed:
                connection.fail("closed")
            else:
                self._idle.append(connection)

    def _wake(self, connection: "Connection | None") -> bool:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return True
        return False

    # --- what connections tell ---

    def joined(self, connection: "Connection") -> None:
        self._all[connection] = None
        if self._closed:
            connection.fail("the connection to the store was closed; retry")

    def left(self, connection: "Connection") -> None:
        del self._all[connection]
        if connection in self._idle:
            self._idle.remove(connection)
        self._wake(None)
        if self._emptied is not None and not self._all and not self._emptied.done():
            self._emptied.set_result(None)


class Connection(asyncio.Protocol):
    """One socket. After any failure it is closed and never used again."""

    def __init__(self, pool: Pool) -> None:
        self.idle_since = 0.0
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._answer: asyncio.Future[Answer] | None = None

    @property
    def alive(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def busy(self) -> bool:
        return self._answer is not None

    def send(self, request: bytes) -> asyncio.Future[Answer]:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
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

    def _settle(self, outcome: Answer | OutcomeUnknown) -> None:
        answer, self._answer = self._answer, None
        if answer is None or answer.done():
            return
        if isinstance(outcome, Answer):
            answer.set_result(outcome)
        else:
            answer.set_exception(outcome)

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # other loops' transports are no subclasses
        self._pool.joined(self)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.fail("the store spoke without being asked")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.fail("the store's answer was not HTTP; retry")

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle(OutcomeUnknown("the connection to the store was lost; retry"))
        self._pool.left(self)

    # --- the parser's calls ---

    def on_message_begin(self) -> None:
        if self._answer is None:  # behind an answer, in the same bytes: the rest of it would answer the next request
            self.fail("the store spoke without being asked")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)
        self._body_bytes += len(body)
        if self._body_bytes > limits.DYNAMODB_ANSWER_BYTES_MAX:
            self.fail("the store's answer was longer than any it should give")

    def on_message_complete(self) -> None:
        answer = Answer(self._parser.get_status_code(), b"".join(self._body))
        self._body.clear()
        self._body_bytes = 0
        if not self._parser.should_keep_alive() and self._transport is not None:
            self._transport.close()
        self._settle(answer)

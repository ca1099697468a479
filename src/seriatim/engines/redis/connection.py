"""One connection to a Redis server: commands go out, replies come back in order. Nothing is ever sent twice.

What is called in one turn of the event loop leaves in one write. After `listen` the connection is a subscription.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

import hiredis

from seriatim.domain import limits

Argument = str | bytes | int
Command = tuple[Argument, ...]
Reply = bytes | int | None | hiredis.ReplyError | list["Reply"]


class RedisTrouble(Exception):
    """What went wrong between us and the server, for the log. It names no key, no content and no password."""


class Unreachable(RedisTrouble):
    """Nothing was sent."""


class NoAnswer(RedisTrouble):
    """It was sent, and what became of it is unknown."""


class RefusedByServer(RedisTrouble):
    """The server said no, with this code word."""

    def __init__(self, code: str) -> None:
        super().__init__(f"Redis answered {code}")
        self.code = code


class Demoted(RedisTrouble):
    """It answered as a replica: another server is the primary, and what this one knows may be old."""


class Unsupported(RedisTrouble):
    """A server of a kind that Seriatim cannot use. Waiting changes nothing."""


class Link(asyncio.Protocol):
    """`lost` is called once, when the connection has ended, whoever ended it."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._lost = lost
        self._reader = hiredis.Reader()
        self._exchanges: deque[_Exchange] = deque()
        self._waiting_commands = 0
        self._unsent: list[bytes] = []
        self._hear: Callable[[Reply], None] | None = None
        self._heard_at = self._loop.time()
        self.is_open = False
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.server_id = ""  # of this very process of the server; another one after a restart or a failover

    async def call(self, commands: Sequence[Command], *, timeout_s: float) -> list[Reply]:
        """The replies to all of them, errors included. A caller that gives up does not disturb the others."""
        if timeout_s <= 0:
            raise NoAnswer("there was no time left to ask Redis")
        if not self.is_open:
            raise Unreachable("the connection to Redis is closed")
        if (
            self._waiting_commands + len(commands) > limits.REDIS_WAITING_COMMANDS_MAX
            or self._transport.get_write_buffer_size() > limits.REDIS_UNSENT_BYTES_MAX
        ):
            raise Unreachable("too much waits for Redis already")
        exchange = _Exchange(len(commands), self._loop)
        self._exchanges.append(exchange)
        self._waiting_commands += len(commands)
        for command in commands:
            self.send(command)
        try:
            async with asyncio.timeout(timeout_s):
                return await exchange.done
        except TimeoutError:
            self._doubt()
            raise NoAnswer(f"Redis did not answer within {timeout_s:.2f} s") from None

    def listen(self, hear: Callable[[Reply], None]) -> None:
        """From now on whatever arrives goes to `hear`, and nobody may `call` any more."""
        self._hear = hear

    def send(self, command: Command) -> None:
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(hiredis.pack_command(command))  # type: ignore[arg-type]

    def silent_s(self) -> float:
        return self._loop.time() - self._heard_at

    def abort(self) -> None:
        """Ends it at once. Whoever waits for an answer is told that none will come."""
        if self.is_open:
            self.is_open = False
            self._transport.abort()

    async def close(self) -> None:
        self.abort()
        await asyncio.wait([self.closed])

    # --- what the event loop tells ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # which uvloop's are, in all but name
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        self._reader.feed(data)
        try:
            while self.is_open and (reply := self._reader.gets()) is not False:
                self._take(reply)
        except hiredis.ProtocolError:
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        while self._exchanges:
            self._exchanges.popleft().fail(NoAnswer("the connection to Redis broke"))
        self.closed.set_result(None)
        self._lost()

    def _take(self, reply: Reply) -> None:
        if self._hear is not None:
            self._hear(reply)
        elif self._exchanges:
            self._waiting_commands -= 1
            if self._exchanges[0].is_complete_with(reply):
                self._exchanges.popleft()
        else:
            self.abort()  # an answer that nobody asked for: from here on nothing could be told apart

    def _flush(self) -> None:
        if self.is_open:
            self._transport.write(b"".join(self._unsent))
        self._unsent.clear()

    def _doubt(self) -> None:
        """Somebody waited in vain. Was that one slow answer, or is there nobody at the other end?"""
        if self._exchanges:
            since = max(self._heard_at, self._exchanges[0].began)
            if self._loop.time() - since >= limits.REDIS_SILENCE_S:
                self.abort()


class _Exchange:
    """So many commands, and the replies to them so far. It keeps its place in the line when its caller has gone."""

    __slots__ = ("_count", "_replies", "began", "done")

    def __init__(self, count: int, loop: asyncio.AbstractEventLoop) -> None:
        self.began = loop.time()
        self.done: asyncio.Future[list[Reply]] = loop.create_future()
        self._count = count
        self._replies: list[Reply] = []

    def is_complete_with(self, reply: Reply) -> bool:
        self._replies.append(reply)
        if len(self._replies) < self._count:
            return False
        if not self.done.done():
            self.done.set_result(self._replies)
        return True

    def fail(self, trouble: NoAnswer) -> None:
        if not self.done.done():
            self.done.set_exception(trouble)

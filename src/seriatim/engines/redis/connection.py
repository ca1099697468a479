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


class RedisError(Exception):
    """What failed, for the log. The text names no key, no content and no password."""


class Unreachable(RedisError):
    """Nothing was sent."""


class NoAnswer(RedisError):
    """It was sent, and whether it was applied is unknown."""


class RefusedByServer(RedisError):
    """The server answered with an error; `code` is its first word."""

    def __init__(self, code: str) -> None:
        super().__init__(f"Redis answered {code}")
        self.code = code


class Demoted(RedisError):
    """It answered as a replica: another server is the primary, and the data of this one may be old."""


class Unsupported(RedisError):
    """A server of a kind that Seriatim cannot use. A retry does not help."""


class RedisConnection(asyncio.Protocol):
    """`on_lost` is called once, when the connection has ended, on either side."""

    def __init__(self, on_lost: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._reader = hiredis.Reader()
        self._pending: deque[_PendingCall] = deque()
        self._waiting_commands = 0
        self._unsent: list[bytes] = []
        self._on_reply: Callable[[Reply], None] | None = None
        self._last_data_at = self._loop.time()
        self.is_open = False
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.server_id = ""  # of the server process; another one after a restart or a failover

    async def call(self, commands: Sequence[Command], *, timeout_s: float) -> list[Reply]:
        """The replies to all of them, errors included. A call that times out does not disturb the others."""
        if timeout_s <= 0:
            raise NoAnswer("there was no time left to call Redis")
        if not self.is_open:
            raise Unreachable("the connection to Redis is closed")
        if (
            self._waiting_commands + len(commands) > limits.REDIS_WAITING_COMMANDS_MAX
            or self._transport.get_write_buffer_size() > limits.REDIS_UNSENT_BYTES_MAX
        ):
            raise Unreachable("too many commands wait for Redis already")
        call = _PendingCall(len(commands), self._loop)
        self._pending.append(call)
        self._waiting_commands += len(commands)
        for command in commands:
            self.send(command)
        try:
            async with asyncio.timeout(timeout_s):
                return await call.done
        except TimeoutError:
            self._abort_if_silent()
            raise NoAnswer(f"Redis did not answer within {timeout_s:.2f} s") from None

    def listen(self, on_reply: Callable[[Reply], None]) -> None:
        """From now on every reply goes to `on_reply`, and `call` may not be used any more."""
        self._on_reply = on_reply

    def send(self, command: Command) -> None:
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(hiredis.pack_command(command))  # type: ignore[arg-type]

    def silent_s(self) -> float:
        return self._loop.time() - self._last_data_at

    def abort(self) -> None:
        """Ends it at once. Calls without an answer raise `NoAnswer`."""
        if self.is_open:
            self.is_open = False
            self._transport.abort()

    async def close(self) -> None:
        self.abort()
        await asyncio.wait([self.closed])

    # --- callbacks of the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        self._last_data_at = self._loop.time()
        self._reader.feed(data)
        try:
            while self.is_open and (reply := self._reader.gets()) is not False:
                self._handle_reply(reply)
        except hiredis.ProtocolError:
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        while self._pending:
            self._pending.popleft().fail(NoAnswer("the connection to Redis broke"))
        self.closed.set_result(None)
        self._on_lost()

    def _handle_reply(self, reply: Reply) -> None:
        if self._on_reply is not None:
            self._on_reply(reply)
        elif self._pending:
            self._waiting_commands -= 1
            if self._pending[0].add_reply(reply):
                self._pending.popleft()
        else:
            self.abort()  # a reply without a command: later replies could not be matched any more

    def _flush(self) -> None:
        if self.is_open:
            self._transport.write(b"".join(self._unsent))
        self._unsent.clear()

    def _abort_if_silent(self) -> None:
        """After a timeout: a server that sent nothing at all for `REDIS_SILENCE_S` is taken for dead."""
        if self._pending:
            since = max(self._last_data_at, self._pending[0].started_at)
            if self._loop.time() - since >= limits.REDIS_SILENCE_S:
                self.abort()


class _PendingCall:
    """A number of commands and the replies so far. It keeps its place in the queue when its caller gives up."""

    __slots__ = ("_count", "_replies", "done", "started_at")

    def __init__(self, count: int, loop: asyncio.AbstractEventLoop) -> None:
        self.started_at = loop.time()
        self.done: asyncio.Future[list[Reply]] = loop.create_future()
        self._count = count
        self._replies: list[Reply] = []

    def add_reply(self, reply: Reply) -> bool:
        self._replies.append(reply)
        if len(self._replies) < self._count:
            return False
        if not self.done.done():
            self.done.set_result(self._replies)
        return True

    def fail(self, error: NoAnswer) -> None:
        if not self.done.done():
            self.done.set_exception(error)

"""A process's client of Redis: pipelines over one connection, opened on demand and again after a loss.

Only this module turns a `RedisError` into an error of the domain. No command is ever repeated.
"""

import asyncio
import re
from collections.abc import Sequence

import hiredis
import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown, ServiceUnavailable
from seriatim.engines.redis.connection import (
    Command,
    Demoted,
    NoAnswer,
    RedisConnection,
    RedisError,
    RefusedByServer,
    Reply,
    Unreachable,
)
from seriatim.engines.redis.dial import RedisDialer

_UNREACHABLE = "the routing store is unreachable; try again soon"
_UNKNOWN = "the routing store did not answer in time; try again"
_WRONG_SERVER = ("LOADING", "MASTERDOWN", "READONLY")
"""Errors of a server that is not, or not yet, the primary. The next call dials again."""
_READINESS_KEY, _READINESS_KEPT_S = "readiness", 60
_POLICY = re.compile(rb"^maxmemory_policy:(\S+)", re.MULTILINE)


class ServerReplies(msgspec.Struct, frozen=True):
    """`server_id` names the server process that answered: it changes with a restart and with a failover."""

    replies: list[Reply]
    server_id: str


class RedisClient:
    """For any number of callers. Their commands share the connection; each call has its own timeout."""

    def __init__(self, dialer: RedisDialer) -> None:
        self._dialer = dialer
        self._connection: RedisConnection | None = None
        self._dialling: asyncio.Task[RedisConnection] | None = None
        self._last_error: RedisError = Unreachable("not dialled yet")
        self._next_dial_at = 0.0
        self._check_role_at = 0.0
        self._is_closed = False
        self.failed_calls = 0  # for metrics

    async def call(self, commands: Sequence[Command], *, timeout_s: float) -> list[Reply]:
        """The replies, if none of them is an error. Raises ServiceUnavailable, OutcomeUnknown when time is up."""
        return (await self.call_server(commands, timeout_s=timeout_s)).replies

    async def call_server(self, commands: Sequence[Command], *, timeout_s: float) -> ServerReplies:
        """As `call`, with the id of the server that answered."""
        if not commands:
            return ServerReplies([], "")
        if timeout_s <= 0:
            raise OutcomeUnknown(_UNKNOWN)
        deadline = RedisDeadline(timeout_s)
        try:
            connection = await self._open_connection(deadline)
            if asyncio.get_running_loop().time() >= self._check_role_at:
                replies = await self._call_checking_role(connection, commands, deadline)
            else:
                replies = await connection.call(commands, timeout_s=deadline.left_s())
            _check(replies, connection)
            return ServerReplies(replies, connection.server_id)
        except NoAnswer as error:
            self.failed_calls += 1
            raise OutcomeUnknown(_UNKNOWN, log_reason=f"Redis did not answer in time: {error}") from error
        except RedisError as error:
            self.failed_calls += 1
            raise ServiceUnavailable(_UNREACHABLE, log_reason=f"Redis failed: {error}") from error

    @property
    def is_connected(self) -> bool:
        """For readiness and metrics. False until the first call."""
        return self._connection is not None and self._connection.is_open

    async def ping(self, *, timeout_s: float) -> None:
        """For readiness: returns if Redis answers. It also opens the first connection before a request needs it."""
        await self.call([("PING",)], timeout_s=timeout_s)

    async def write(self, *, timeout_s: float) -> None:
        """For readiness: returns if Redis accepts a write. A full Redis still answers a ping."""
        await self.call([("SET", _READINESS_KEY, "1", "EX", _READINESS_KEPT_S)], timeout_s=timeout_s)

    async def eviction_policy(self, *, timeout_s: float) -> str | None:
        """What Redis does when its memory is full. None if this user may not read it."""
        try:
            [info] = await self.call([("INFO", "memory")], timeout_s=timeout_s)
        except ServiceUnavailable:
            return None
        found = _POLICY.search(info) if isinstance(info, bytes) else None
        return None if found is None else found[1].decode()

    async def close(self) -> None:
        self._is_closed = True
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait([self._dialling])
        if self._connection is not None:
            await self._connection.close()

    async def _call_checking_role(
        self, connection: RedisConnection, commands: Sequence[Command], deadline: "RedisDeadline"
    ) -> list[Reply]:
        """A demoted server still answers reads and takes pushes: only its role shows it. Its replies are dropped."""
        self._schedule_role_check()
        *replies, role = await connection.call([*commands, ("ROLE",)], timeout_s=deadline.left_s())
        match role:
            case [b"slave", *_]:
                connection.abort()
                raise Demoted("Redis has become a replica, and writes must reach the primary")
        return replies

    def _schedule_role_check(self) -> None:
        self._check_role_at = asyncio.get_running_loop().time() + limits.REDIS_ROLE_S

    async def _open_connection(self, deadline: "RedisDeadline") -> RedisConnection:
        if self._connection is not None and self._connection.is_open:
            return self._connection
        if self._is_closed:
            raise Unreachable("this client is closed")
        if self._dialling is None:
            if asyncio.get_running_loop().time() < self._next_dial_at:
                raise self._last_error
            self._dialling = asyncio.create_task(self._dialer.dial(lambda: None))
            self._dialling.add_done_callback(self._dial_ended)
        dialling = self._dialling
        await asyncio.wait([dialling], timeout=deadline.left_s())
        if not dialling.done() or dialling.cancelled():
            raise NoAnswer("Redis did not take a connection in time")
        return dialling.result()

    def _dial_ended(self, dialling: asyncio.Task[RedisConnection]) -> None:
        """Runs even if every caller that waited was cancelled."""
        self._dialling = None
        if dialling.cancelled():
            return
        error = dialling.exception()
        if error is None:
            self._connection = dialling.result()
            self._schedule_role_check()
        elif isinstance(error, RedisError):
            self._last_error = error
            self._next_dial_at = asyncio.get_running_loop().time() + limits.REDIS_REDIAL_S


class RedisDeadline:
    """One timeout for several calls."""

    def __init__(self, timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time() + timeout_s

    def left_s(self) -> float:
        return self._at - self._loop.time()


def _check(replies: list[Reply], connection: RedisConnection) -> None:
    for reply in replies:
        if isinstance(reply, hiredis.ReplyError):
            code = str(reply).partition(" ")[0]  # the rest may quote what was sent
            if code in _WRONG_SERVER:
                connection.abort()
            raise RefusedByServer(code)

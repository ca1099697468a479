"""What a process says to Redis: pipelines over one connection, made when it is needed and again after a loss.

Here, and only here, trouble with Redis becomes an error of the domain. No command is ever repeated.
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
    Link,
    NoAnswer,
    RedisTrouble,
    RefusedByServer,
    Reply,
    Unreachable,
)
from seriatim.engines.redis.dial import Dialer

_AWAY = "the routing store is away; try again soon"
_UNKNOWN = "the routing store did not answer in time; try again"
_WRONG_SERVER = ("LOADING", "MASTERDOWN", "READONLY")
"""Answers of a server that is not, or not yet, the one to talk to. The next call looks for it anew."""
_READINESS_KEY, _READINESS_KEPT_S = "readiness", 60
_POLICY = re.compile(rb"^maxmemory_policy:(\S+)", re.MULTILINE)


class Answer(msgspec.Struct, frozen=True):
    """`server_id` names the very process that answered: it changes with a restart and with a failover."""

    replies: list[Reply]
    server_id: str


class RedisClient:
    """For any number of callers. Their commands share the connection, and never a fate: each waits for its own time."""

    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self._link: Link | None = None
        self._dialing: asyncio.Task[Link] | None = None
        self._trouble: RedisTrouble = Unreachable("nobody dialled yet")
        self._next_dial_at = 0.0
        self._ask_role_at = 0.0
        self._is_closed = False
        self.failed_calls = 0  # for metrics

    async def call(self, commands: Sequence[Command], *, timeout_s: float) -> list[Reply]:
        """The replies, if none of them is an error. Raises ServiceUnavailable, OutcomeUnknown when time is up."""
        return (await self.ask(commands, timeout_s=timeout_s)).replies

    async def ask(self, commands: Sequence[Command], *, timeout_s: float) -> Answer:
        """As `call`, and says who answered."""
        if not commands:
            return Answer([], "")
        if timeout_s <= 0:
            raise OutcomeUnknown(_UNKNOWN)
        deadline = Deadline(timeout_s)
        try:
            link = await self._connected(deadline)
            if asyncio.get_running_loop().time() >= self._ask_role_at:
                replies = await self._with_role(link, commands, deadline)
            else:
                replies = await link.call(commands, timeout_s=deadline.left_s())
            _check(replies, link)
            return Answer(replies, link.server_id)
        except NoAnswer as trouble:
            self.failed_calls += 1
            raise OutcomeUnknown(_UNKNOWN) from trouble
        except RedisTrouble as trouble:
            self.failed_calls += 1
            raise ServiceUnavailable(_AWAY) from trouble

    @property
    def is_connected(self) -> bool:
        """For readiness and metrics. A client that nobody used yet is not."""
        return self._link is not None and self._link.is_open

    async def ping(self, *, timeout_s: float) -> None:
        """For readiness: returns if Redis does. It also makes the first connection before anybody waits for it."""
        await self.call([("PING",)], timeout_s=timeout_s)

    async def write(self, *, timeout_s: float) -> None:
        """For readiness: returns if Redis takes a write. One that is full still answers a ping."""
        await self.call([("SET", _READINESS_KEY, "1", "EX", _READINESS_KEPT_S)], timeout_s=timeout_s)

    async def eviction_policy(self, *, timeout_s: float) -> str | None:
        """What Redis does when its memory is full. None if it does not tell us."""
        try:
            [info] = await self.call([("INFO", "memory")], timeout_s=timeout_s)
        except ServiceUnavailable:
            return None
        found = _POLICY.search(info) if isinstance(info, bytes) else None
        return None if found is None else found[1].decode()

    async def close(self) -> None:
        self._is_closed = True
        if self._dialing is not None:
            self._dialing.cancel()
            await asyncio.wait([self._dialing])
        if self._link is not None:
            await self._link.close()

    async def _with_role(self, link: Link, commands: Sequence[Command], deadline: "Deadline") -> list[Reply]:
        """A demoted server still answers reads and takes pushes: only its role tells. Its answers count for nothing."""
        self._ask_role_soon()
        *replies, role = await link.call([*commands, ("ROLE",)], timeout_s=deadline.left_s())
        match role:
            case [b"slave", *_]:
                link.abort()
                raise Demoted("Redis has become a replica, and what we write must reach the primary")
        return replies

    def _ask_role_soon(self) -> None:
        self._ask_role_at = asyncio.get_running_loop().time() + limits.REDIS_ROLE_S

    async def _connected(self, deadline: "Deadline") -> Link:
        if self._link is not None and self._link.is_open:
            return self._link
        if self._is_closed:
            raise Unreachable("this client is closed")
        if self._dialing is None:
            if asyncio.get_running_loop().time() < self._next_dial_at:
                raise self._trouble
            self._dialing = asyncio.create_task(self._dialer.dial(lambda: None))
            self._dialing.add_done_callback(self._dialled)
        dialing = self._dialing
        await asyncio.wait([dialing], timeout=deadline.left_s())
        if not dialing.done() or dialing.cancelled():
            raise NoAnswer("Redis did not take a connection in time")
        return dialing.result()

    def _dialled(self, dialing: asyncio.Task[Link]) -> None:
        """Runs even if everybody who waited has gone."""
        self._dialing = None
        if dialing.cancelled():
            return
        trouble = dialing.exception()
        if trouble is None:
            self._link = dialing.result()
            self._ask_role_soon()
        elif isinstance(trouble, RedisTrouble):
            self._trouble = trouble
            self._next_dial_at = asyncio.get_running_loop().time() + limits.REDIS_REDIAL_S


class Deadline:
    """One patience for several calls."""

    def __init__(self, timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time() + timeout_s

    def left_s(self) -> float:
        return self._at - self._loop.time()


def _check(replies: list[Reply], link: Link) -> None:
    for reply in replies:
        if isinstance(reply, hiredis.ReplyError):
            code = str(reply).partition(" ")[0]  # the rest may quote what was sent
            if code in _WRONG_SERVER:
                link.abort()
            raise RefusedByServer(code)

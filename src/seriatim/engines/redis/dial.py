"""From an address to an authenticated connection: to the server itself, or to the primary that the sentinels name."""

import asyncio
import re
from collections.abc import Callable

import hiredis

from seriatim.domain import limits
from seriatim.engines.redis.address import RedisAddress, RedisLogin
from seriatim.engines.redis.connection import (
    Command,
    NoAnswer,
    RedisConnection,
    RedisError,
    RefusedByServer,
    Reply,
    Unreachable,
    Unsupported,
)

_CLUSTER = re.compile(rb"^redis_mode:cluster", re.MULTILINE)
_RUN_ID = re.compile(rb"^run_id:(\w+)", re.MULTILINE)


class RedisDialer:
    """Raises ValueError for certificates that cannot be used, so that a process does not start with them."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._tls = address.tls_context()
        self.made = self.failed = 0  # connections, for metrics

    async def dial(self, on_lost: Callable[[], None]) -> RedisConnection:
        """Ready for commands within `REDIS_DIAL_S`. `on_lost` is called when the connection ends. Raises RedisError."""
        self.failed += 1  # until it is made
        try:
            async with asyncio.timeout(limits.REDIS_DIAL_S):
                service = self._address.service
                connection = await (
                    self._signed_in(*self._address.hosts[0], on_lost)
                    if service is None
                    else self._primary(service, on_lost)
                )
        except TimeoutError:
            raise Unreachable(f"Redis did not take a connection within {limits.REDIS_DIAL_S:.0f} s") from None
        self.failed -= 1
        self.made += 1
        return connection

    async def _primary(self, service: str, on_lost: Callable[[], None]) -> RedisConnection:
        """The primary that the first sentinel names that knows one. A sentinel may be down, or behind a failover."""
        last_error: RedisError = Unreachable("no sentinel was asked")
        for host, port in self._address.hosts:
            try:
                async with asyncio.timeout(limits.REDIS_SENTINEL_S):
                    where = await self._where(host, port, service)
                return await self._signed_in(*where, on_lost)
            except TimeoutError:
                last_error = Unreachable(f"the sentinel at {host}:{port} did not answer")
            except RedisError as error:
                last_error = error
        raise last_error

    async def _where(self, host: str, port: int, service: str) -> tuple[str, int]:
        connection = await self._open(host, port, lambda: None)
        try:
            question: Command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
            replies = await connection.call(
                [*_sign_in(self._address.sentinel_login), question], timeout_s=limits.REDIS_DIAL_S
            )
        finally:
            await connection.close()
        _check(replies)
        match replies[-1]:
            case [bytes(name), bytes(number)]:
                return name.decode(), int(number)
        raise Unreachable(f"the sentinel at {host}:{port} knows no service {service!r}")

    async def _signed_in(self, host: str, port: int, on_lost: Callable[[], None]) -> RedisConnection:
        address = self._address
        connection = await self._open(host, port, on_lost)
        try:
            sign_in = [*_sign_in(address.login), *([("SELECT", address.database)] if address.database else [])]
            asked: list[Command] = [*sign_in, ("CLIENT", "SETNAME", "seriatim"), ("ROLE",), ("INFO", "server")]
            replies = await connection.call(asked, timeout_s=limits.REDIS_DIAL_S)
            _check(replies[: len(sign_in)])
            _, role, info = replies[len(sign_in) :]  # a user may lack the right to these: they are optional
            match role:
                case [b"slave", *_]:
                    raise Unreachable(f"{host}:{port} is a replica, and writes must reach the primary")
                case [b"sentinel", *_]:
                    raise Unreachable(f"{host}:{port} is a sentinel; name it in a URL that begins redis+sentinel://")
            if isinstance(info, bytes) and _CLUSTER.search(info):
                raise Unsupported(
                    f"Redis at {host}:{port} is a node of a cluster, which Seriatim does not support. Name one with "
                    "`cluster-enabled no` in the setting `directory`, alone or behind sentinels"
                )
            if isinstance(info, bytes) and (found := _RUN_ID.search(info)) is not None:
                connection.server_id = found[1].decode()
            return connection
        except NoAnswer as error:
            await connection.close()
            raise Unreachable(f"Redis at {host}:{port} took the connection and did not answer") from error
        except BaseException:
            connection.abort()
            raise

    async def _open(self, host: str, port: int, on_lost: Callable[[], None]) -> RedisConnection:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(lambda: RedisConnection(on_lost), host, port, ssl=self._tls)
        except OSError as error:  # TLS errors are among them
            raise Unreachable(f"Redis at {host}:{port} cannot be reached: {type(error).__name__}") from error
        return connection


def _sign_in(login: RedisLogin) -> list[Command]:
    if login.password is None:
        return []
    return [("AUTH", login.username, login.password) if login.username is not None else ("AUTH", login.password)]


def _check(replies: list[Reply]) -> None:
    for reply in replies:
        if isinstance(reply, hiredis.ReplyError):
            raise RefusedByServer(str(reply).partition(" ")[0])

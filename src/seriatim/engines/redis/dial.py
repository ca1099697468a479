"""From an address to a connection that is signed in: at the server itself, or at whoever the sentinels call primary."""

import asyncio
import re
from collections.abc import Callable

import hiredis

from seriatim.domain import limits
from seriatim.engines.redis.address import Address, Login
from seriatim.engines.redis.connection import (
    Command,
    Link,
    NoAnswer,
    RedisTrouble,
    RefusedByServer,
    Reply,
    Unreachable,
    Unsupported,
)

_CLUSTER = re.compile(rb"^redis_mode:cluster", re.MULTILINE)
_RUN_ID = re.compile(rb"^run_id:(\w+)", re.MULTILINE)


class Dialer:
    """Raises ValueError for certificates that cannot be used, so that a process does not start with them."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._tls = address.tls_context()
        self.made = self.failed = 0  # connections, for metrics

    async def dial(self, lost: Callable[[], None]) -> Link:
        """Ready for commands within `REDIS_DIAL_S`. `lost` is called when the connection ends. Raises RedisTrouble."""
        self.failed += 1  # until it is made
        try:
            async with asyncio.timeout(limits.REDIS_DIAL_S):
                service = self._address.service
                link = await (
                    self._signed_in(*self._address.hosts[0], lost) if service is None else self._primary(service, lost)
                )
        except TimeoutError:
            raise Unreachable(f"Redis did not take a connection within {limits.REDIS_DIAL_S:.0f} s") from None
        self.failed -= 1
        self.made += 1
        return link

    async def _primary(self, service: str, lost: Callable[[], None]) -> Link:
        """What the first sentinel says that leads to a primary. A sentinel may be gone, or not know of a failover."""
        trouble: RedisTrouble = Unreachable("no sentinel was asked")
        for host, port in self._address.hosts:
            try:
                async with asyncio.timeout(limits.REDIS_SENTINEL_S):
                    where = await self._where(host, port, service)
                return await self._signed_in(*where, lost)
            except TimeoutError:
                trouble = Unreachable(f"the sentinel at {host}:{port} did not answer")
            except RedisTrouble as error:
                trouble = error
        raise trouble

    async def _where(self, host: str, port: int, service: str) -> tuple[str, int]:
        link = await self._open(host, port, lambda: None)
        try:
            question: Command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
            replies = await link.call(
                [*_sign_in(self._address.sentinel_login), question], timeout_s=limits.REDIS_DIAL_S
            )
        finally:
            await link.close()
        _check(replies)
        match replies[-1]:
            case [bytes(name), bytes(number)]:
                return name.decode(), int(number)
        raise Unreachable(f"the sentinel at {host}:{port} knows no service {service!r}")

    async def _signed_in(self, host: str, port: int, lost: Callable[[], None]) -> Link:
        address = self._address
        link = await self._open(host, port, lost)
        try:
            sign_in = [*_sign_in(address.login), *([("SELECT", address.database)] if address.database else [])]
            asked: list[Command] = [*sign_in, ("CLIENT", "SETNAME", "seriatim"), ("ROLE",), ("INFO", "server")]
            replies = await link.call(asked, timeout_s=limits.REDIS_DIAL_S)
            _check(replies[: len(sign_in)])
            _, role, info = replies[len(sign_in) :]  # a server may forbid these to us: then we do without
            match role:
                case [b"slave", *_]:
                    raise Unreachable(f"{host}:{port} is a replica, and what we write must reach the primary")
                case [b"sentinel", *_]:
                    raise Unreachable(f"{host}:{port} is a sentinel; name it in a URL that begins redis+sentinel://")
            if isinstance(info, bytes) and _CLUSTER.search(info):
                raise Unsupported(
                    f"Redis at {host}:{port} is a node of a cluster, which Seriatim does not support. Name one with "
                    "`cluster-enabled no` in the setting `directory`, alone or behind sentinels"
                )
            if isinstance(info, bytes) and (found := _RUN_ID.search(info)) is not None:
                link.server_id = found[1].decode()
            return link
        except NoAnswer as trouble:
            await link.close()
            raise Unreachable(f"Redis at {host}:{port} took the connection and did not answer") from trouble
        except BaseException:
            link.abort()
            raise

    async def _open(self, host: str, port: int, lost: Callable[[], None]) -> Link:
        loop = asyncio.get_running_loop()
        try:
            _, link = await loop.create_connection(lambda: Link(lost), host, port, ssl=self._tls)
        except OSError as error:  # TLS troubles are among them
            raise Unreachable(f"Redis at {host}:{port} cannot be reached: {type(error).__name__}") from error
        return link


def _sign_in(login: Login) -> list[Command]:
    if login.password is None:
        return []
    return [("AUTH", login.username, login.password) if login.username is not None else ("AUTH", login.password)]


def _check(replies: list[Reply]) -> None:
    for reply in replies:
        if isinstance(reply, hiredis.ReplyError):
            raise RefusedByServer(str(reply).partition(" ")[0])

"""One assembled server and its life: started from the inside out, drained from the outside in.

Nothing limps: a part that ends by itself ends the server.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from seriatim.api.codes import Codes
from seriatim.connection.front import Front
from seriatim.connection.gateway import Gateway
from seriatim.domain.limits import STOP_S
from seriatim.durability.ingest import Ingest
from seriatim.engines.embedded.folder import Folder
from seriatim.fanout.service import FanoutService
from seriatim.runtime.logs import log_event, log_failure
from seriatim.runtime.operator import SOCKET, Operator, bind_socket
from seriatim.runtime.settings import Address, Settings
from seriatim.runtime.sweeping import Sweeping

_log = logging.getLogger("seriatim")


class CannotStart(Exception):
    """Why the server does not start, and what to do about it."""


class PartDied(Exception):
    """A part that should run for ever has ended."""


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    public: Address
    internal: Address | None


class Server:
    """`start`, then `wait`; at the end `drain` if there is time, and `close` in any case."""

    def __init__(
        self,
        *,
        settings: Settings,
        folder: Folder,
        keys_created: Sequence[Path],
        gateway: Gateway,
        ingest: Ingest,
        fanout: FanoutService,
        sweeping: Sweeping,
        operator: Operator,
        front: Front,
        internal_front: Front,
        operator_front: Front,
        codes: Codes,
    ) -> None:
        self.settings = settings
        self.keys_created = keys_created
        self.operator = operator
        self._folder = folder
        self._gateway = gateway
        self._ingest = ingest
        self._fanout = fanout
        self._sweeping = sweeping
        self._front = front
        self._internal_front = internal_front
        self._operator_front = operator_front
        self._codes = codes
        self._operator_listener: asyncio.AbstractServer | None = None
        self._parts: dict[asyncio.Task[None], str] = {}
        self._started = False

    async def start(self) -> Listening:
        """Returns once clients are answered. The public port opens last: who reaches it finds everything running."""
        settings = self.settings
        tls = _tls(settings)
        self._started = True
        await self._gateway.start()
        self._run("durability", self._ingest.run())
        self._run("fanout", self._fanout.run())
        self._run("sweeping", self._sweeping.run())
        await self._open_operator_socket()
        address = settings.internal_address
        internal = None if address is None else await _listen(self._internal_front, address, "internal", None)
        public = await _listen(self._front, Address(settings.host, settings.port), "port", tls)
        return Listening(public=public, internal=internal)

    async def wait(self, stop: asyncio.Event) -> None:
        """Until told to stop. Raises `PartDied` when a part has ended by itself."""
        told = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait((told, *self._parts), return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
        for task, name in self._parts.items():
            if task in done:
                failure = None if task.cancelled() else task.exception()
                raise PartDied(f"{name} has ended by itself") from failure

    async def drain(self) -> None:
        """Readiness fails at once, clients are told and answered, HTTP requests finish, what was admitted is stored."""
        await self._gateway.drain()
        await self._front.close()
        await self._ingest.drain()
        await self._fanout.stop()

    async def close(self) -> None:
        """Ends whatever still runs. What was acknowledged is safe before this is called, and without it."""
        if self._started:
            await self._stop_parts()
        for task in self._parts:
            task.cancel()
        for task in self._parts:
            await asyncio.wait((task,))
            if not task.cancelled():
                task.exception()  # reported by `wait`, or overtaken by it
        await self._folder.close()

    # --- helpers, in call order --------------------------------------------------------------------------------------

    def _run(self, name: str, work: Coroutine[object, object, None]) -> None:
        self._parts[asyncio.create_task(work, name=name)] = name

    async def _open_operator_socket(self) -> None:
        """A convenience: without it the server is as good, and `seriatim user` waits until it has stopped."""
        loop = asyncio.get_running_loop()
        try:
            bound = bind_socket(self._folder.path)
        except OSError as error:
            path = str(self._folder.path / SOCKET)
            log_event(_log, logging.WARNING, "operator_socket_unavailable", path=path, error=str(error))
            return
        self._operator_listener = await loop.create_unix_server(self._operator_front.protocol_factory, sock=bound)

    async def _stop_parts(self) -> None:
        try:
            async with asyncio.timeout(STOP_S):
                steps = (self._close_listeners, self._codes.close, self._gateway.stop)
                await _all(*steps, self._ingest.drain, self._fanout.stop)
        except TimeoutError:
            log_event(_log, logging.ERROR, "stopping_took_too_long", seconds=STOP_S)

    async def _close_listeners(self) -> None:
        await self._front.close()
        await self._internal_front.close()
        if self._operator_listener is not None:
            self._operator_listener.close()
            with suppress(OSError):
                (self._folder.path / SOCKET).unlink(missing_ok=True)
        await self._operator_front.close()


async def _listen(front: Front, address: Address, setting: str, tls: ssl.SSLContext | None) -> Address:
    try:
        host, port, *_ = (await front.serve(address.host, address.port, ssl=tls))[0]
    except OSError as error:
        raise CannotStart(
            f"cannot listen on {address}: {error.strerror or error}. If another server has it, stop that one, or "
            f"choose another with --{setting}"
        ) from error
    return Address(host, port)


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if not settings.tls_cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise CannotStart(
            f"tls_cert {settings.tls_cert} and tls_key {settings.tls_key} do not work: {error}"
        ) from error
    return context


async def _all(*steps: Callable[[], Awaitable[None]]) -> None:
    """Each step is taken, even if one before it met a bug."""
    for step in steps:
        try:
            await step()
        except Exception as error:
            log_failure(_log, "stopping_failed", error, step=getattr(step, "__qualname__", ""))

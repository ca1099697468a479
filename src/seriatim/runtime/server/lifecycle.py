"""One assembled process and its life: started from the inside out, drained from the outside in.

Nothing limps: a part that ends by itself ends the process.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from seriatim.connection.gateway import Gateway
from seriatim.connection.listener.server import Listener
from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError, ServiceUnavailable
from seriatim.durability.ingest import Ingest
from seriatim.fanout.consumer import FanoutConsumer
from seriatim.runtime.config.settings import HostPort, Settings
from seriatim.runtime.server.health import ProcessHealth
from seriatim.runtime.telemetry.logs import log_event, log_failure
from seriatim.runtime.tools.operator import SOCKET, Operator, bind_socket
from seriatim.runtime.wiring.engine_set import EngineSet, IngestListener
from seriatim.services.otp import OtpService

_log = logging.getLogger("seriatim")


class StartupError(Exception):
    """Why the server does not start, and what to do about it."""


class TaskDied(Exception):
    """A part that should run for ever has ended."""


class ListenAddresses(msgspec.Struct, frozen=True, kw_only=True):
    """None: this process does not listen there."""

    public: HostPort | None
    internal: HostPort | None
    rpc: HostPort | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Roles:
    """The parts of this process; None for those that run elsewhere."""

    gateway: Gateway | None = None
    ingest: Ingest | None = None
    listener: IngestListener | None = None
    fanout: FanoutConsumer | None = None
    operator: Operator | None = None
    otp: OtpService | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Listeners:
    """Where HTTP is spoken. `local` is the operator's socket in the data folder."""

    internal: Listener
    public: Listener | None = None
    local: Listener | None = None


class ServerProcess:
    """`start`, then `wait`; at the end `drain` if there is time, and `close` in any case."""

    def __init__(
        self,
        *,
        settings: Settings,
        engines: EngineSet,
        roles: Roles,
        listeners: Listeners,
        health: ProcessHealth,
        keys_created: Sequence[Path],
    ) -> None:
        self.settings = settings
        self.engines = engines
        self.roles = roles
        self.keys_created = keys_created
        self._listeners = listeners
        self._health = health
        self._local_listener: asyncio.AbstractServer | None = None
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._started = False

    def trace_messages(self, wanted: bool) -> None:
        """Whether each message's way is logged, at debug level."""
        self._health.trace_messages(wanted)

    async def start(self) -> ListenAddresses:
        """Returns once clients are answered. The public port opens last: who reaches it finds everything running."""
        settings, roles = self.settings, self.roles
        tls = _tls(settings)
        await _retry_until_available(self.engines.check_reachable)
        self._started = True
        for name, run in self.engines.tasks:
            self._run(name, run())
        if roles.gateway is not None:
            await _retry_until_available(roles.gateway.start)
        rpc = await self._start_ingest()
        if roles.fanout is not None:
            self._run("fanout", roles.fanout.run())
        if self._health.stalls is not None:
            self._run("stalls", self._health.stalls.run())
        await self._open_operator_socket()
        place = settings.internal_address
        internal = None if place is None else await _listen(self._listeners.internal, place, "internal", None)
        public = None
        if self._listeners.public is not None:
            public = await _listen(self._listeners.public, HostPort(settings.host, settings.port), "port", tls)
        self._run("readiness", self._health.watch())
        return ListenAddresses(public=public, internal=internal, rpc=rpc)

    async def wait(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. Raises `TaskDied` when a task has ended by itself."""
        stopping = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait((stopping, *self._tasks), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        for task, name in self._tasks.items():
            if task in done:
                failure = None if task.cancelled() else task.exception()
                raise TaskDied(f"{name} has ended by itself") from failure

    async def drain(self) -> None:
        """Readiness fails at once; clients are answered and asked to reconnect; HTTP requests finish; what was
        admitted is stored.
        """
        self._health.draining = True
        roles, listeners = self.roles, self._listeners
        for listener in (listeners.internal, listeners.local, listeners.public):
            if listener is not None:
                await listener.drain()  # the public one drains the gateway
        if listeners.public is not None:
            await listeners.public.close()
        if roles.listener is not None:
            await roles.listener.leave()
        if roles.ingest is not None:
            await roles.ingest.drain()
        if roles.fanout is not None:
            await roles.fanout.stop()

    async def close(self) -> None:
        """Ends whatever still runs. What was acknowledged is safe before this is called, and without it."""
        if self._started:
            await self._stop_roles()
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            await asyncio.wait((task,))
            if not task.cancelled():
                task.exception()  # reported by `wait`, or overtaken by it
        await self.engines.close()

    # --- helpers, in call order --------------------------------------------------------------------------------------

    def _run(self, name: str, work: Coroutine[object, object, None]) -> None:
        self._tasks[asyncio.create_task(work, name=name)] = name

    async def _start_ingest(self) -> HostPort | None:
        if self.roles.ingest is None:
            return None
        self._run("ingest", self.roles.ingest.run())
        place, listener = self.settings.rpc_address, self.roles.listener
        if listener is None or place is None:
            return None
        try:
            return HostPort(place.host, await listener.start(place.host, place.port))
        except OSError as error:
            raise StartupError(_listen_error(place, error, "rpc")) from error

    async def _open_operator_socket(self) -> None:
        """A convenience: without it the server is as good, and `seriatim user` waits until it has stopped."""
        if self._listeners.local is None:
            return
        loop = asyncio.get_running_loop()
        folder = self.settings.data_folder
        try:
            bound = bind_socket(folder)
        except OSError as error:
            path = str(folder / SOCKET)
            log_event(_log, logging.WARNING, "operator_socket_unavailable", path=path, error=str(error))
            return
        self._local_listener = await loop.create_unix_server(self._listeners.local.protocol_factory, sock=bound)

    async def _stop_roles(self) -> None:
        roles = self.roles
        steps: list[Callable[[], Awaitable[None]]] = [self._close_listeners]
        if roles.otp is not None:
            steps.append(roles.otp.close)
        if roles.gateway is not None:
            steps.append(roles.gateway.stop)
        if roles.listener is not None:
            steps.append(roles.listener.stop)
        if roles.ingest is not None:
            steps.append(roles.ingest.drain)
        if roles.fanout is not None:
            steps.append(roles.fanout.stop)
        try:
            async with asyncio.timeout(limits.STOP_S):
                await _run_all(steps)
        except TimeoutError:
            log_event(_log, logging.ERROR, "stopping_took_too_long", seconds=limits.STOP_S)

    async def _close_listeners(self) -> None:
        if self._listeners.public is not None:
            await self._listeners.public.close()
        await self._listeners.internal.close()
        if self._listeners.local is None:
            return
        if self._local_listener is not None:
            self._local_listener.close()
            with suppress(OSError):
                (self.settings.data_folder / SOCKET).unlink(missing_ok=True)
        await self._listeners.local.close()


async def _retry_until_available(attempt: Callable[[], Awaitable[None]]) -> None:
    """Retries while an engine is away: it may have been started together with this process. Other errors end it."""
    loop = asyncio.get_running_loop()
    until = loop.time() + limits.START_TIMEOUT_S
    while True:
        try:
            return await attempt()
        except ServiceUnavailable as error:
            if loop.time() > until:
                raise StartupError(
                    f"an engine is still away after {limits.START_TIMEOUT_S:.0f} s: {error.log_reason}"
                ) from error
            log_event(_log, logging.WARNING, "waiting_for_engines", error=error.log_reason)
        except SeriatimError as error:
            raise StartupError(error.log_reason) from error
        await asyncio.sleep(limits.START_RETRY_S)


async def _listen(listener: Listener, address: HostPort, setting: str, tls: ssl.SSLContext | None) -> HostPort:
    try:
        host, port, *_ = (await listener.serve(address.host, address.port, ssl=tls))[0]
    except OSError as error:
        raise StartupError(_listen_error(address, error, setting)) from error
    return HostPort(host, port)


def _listen_error(address: HostPort, error: OSError, setting: str) -> str:
    return (
        f"cannot listen on {address}: {error.strerror or error}. If another server has it, stop that one, or "
        f"choose another with --{setting}"
    )


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if not settings.tls_cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise StartupError(
            f"tls_cert {settings.tls_cert} and tls_key {settings.tls_key} do not work: {error}"
        ) from error
    return context


async def _run_all(steps: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Each step is taken, even if one before it met a bug."""
    for step in steps:
        try:
            await step()
        except Exception as error:
            log_failure(_log, "stopping_failed", error, step=getattr(step, "__qualname__", ""))

"""The server as a process of its own: event loop, signals, exit code, and the lines printed at the start."""

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable

import uvloop

from seriatim.domain import limits
from seriatim.runtime.config.roles import ALL_ROLES
from seriatim.runtime.config.settings import HostPort, Settings
from seriatim.runtime.config.sources import format_value
from seriatim.runtime.server.lifecycle import ListenAddresses, ServerProcess, TaskDied
from seriatim.runtime.server.reload import ReadSettings, SettingsReload
from seriatim.runtime.telemetry.logs import is_pretty, log_event, log_failure, set_level, set_up
from seriatim.runtime.wiring.assemble import assemble

_log = logging.getLogger("seriatim")
FINE, DIED, KILLED = 0, 1, 130  # exit codes


def run(settings: Settings, reread: ReadSettings) -> int:
    """Serves until SIGTERM or SIGINT and returns an exit code. Raises what an operator can mend: see `assemble`.

    `reread` reads the settings again, from where they came: at SIGHUP.
    """
    set_up(form=settings.log_format, level=settings.log_level, instance=instance_name(settings))
    logging.captureWarnings(True)
    os.umask(0o077)  # what people write to each other is not for other users of this machine
    _allow_many_sockets()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, reread))


def instance_name(settings: Settings) -> str:
    return settings.instance or socket.gethostname()


async def _serve(settings: Settings, reread: ReadSettings) -> int:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_unexpected)
    stop = _stop_signal(loop)
    loop.add_signal_handler(signal.SIGHUP, lambda: log_event(_log, logging.INFO, "sighup_ignored", note="starting"))
    server = await assemble(settings, instance=instance_name(settings), print_line=_print_line)
    server.trace_messages(settings.log_level == "debug")
    loop.add_signal_handler(signal.SIGHUP, _reload(server, reread).reload)
    try:
        listening = await server.start()
        _collect_garbage_less()
        _announce(server, listening)
        try:
            await server.wait(stop)
        except TaskDied as death:
            log_event(_log, logging.CRITICAL, "task_died", note=f"{death}; this process ends, start it again")
            log_failure(_log, "task_failure", death.__cause__ or death)
            return DIED
        log_event(_log, logging.INFO, "draining", note="a second signal ends at once")
        try:
            await server.drain()
        except Exception as error:
            log_failure(_log, "drain_failed", error)
            return DIED
    finally:
        await server.close()
    log_event(_log, logging.INFO, "stopped")
    return FINE


def _reload(server: ServerProcess, reread: ReadSettings) -> SettingsReload:
    def log_level(found: Settings) -> None:
        set_level(found.log_level)
        server.trace_messages(found.log_level == "debug")

    return SettingsReload(server.settings, reread, {"log_level": log_level})


def _allow_many_sockets() -> None:
    """Every connection is an open file, and the usual limit of 1024 is meant for other programs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.CONNECTIONS_PER_GATEWAY_MAX + FILES_BESIDE_SOCKETS
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _collect_garbage_less() -> None:
    """What was made at the start lives as long as we do, and messages leave no cycles behind: looking for garbage after
    every 700 objects, as Python does by itself, took a tenth of the time of a busy server.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, 20, 20)


OBJECTS_BETWEEN_COLLECTIONS = 50_000  # those that were made and not freed: some megabytes
FILES_BESIDE_SOCKETS = 10_000  # of the store, and connections that only ask REST


def _stop_signal(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    """Set by the first signal. The second one ends the process at once: nothing acknowledged is lost."""
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            log_event(_log, logging.WARNING, "ended_at_once")
            os._exit(KILLED)
        stop.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, on_signal)
    return stop


def _unexpected(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """A bug in one connection or callback. Its words may quote what people wrote: only its place is logged."""
    failure = context.get("exception")
    if isinstance(failure, BaseException):
        log_failure(_log, "unexpected_failure", failure)
    else:
        log_event(_log, logging.ERROR, "unexpected_failure", note=str(context.get("message"))[:200])


# --- first words ------------------------------------------------------------------------------------------------------


def _print_line(line: str) -> None:
    """For the console, not for the log: the one-time codes of a developer's server."""
    print(line, flush=True)


def _announce(server: ServerProcess, listening: ListenAddresses) -> None:
    settings = server.settings
    scheme = "https" if settings.tls_cert else "http"
    public, internal, rpc = listening.public, listening.internal, listening.rpc
    log_event(
        _log,
        logging.INFO,
        "listening",
        roles=list(settings.here),
        url=f"{scheme}://{_reachable(public)}" if public else None,
        internal_url=f"http://{_reachable(internal)}" if internal else None,
        host=public.host if public else None,
        port=public.port if public else None,
        internal_port=internal.port if internal else None,
        rpc_port=rpc.port if rpc else None,
        reach=_reach(settings) if public else None,
        env=settings.env,
        data=None if settings.is_distributed else str(settings.data_folder.absolute()),
        keys_created=[str(path) for path in server.keys_created],
        pid=os.getpid(),
    )
    if settings.env == "test":
        note = "env is test: every one-time code is 000000 and rate limits are off; never open it to the public"
        log_event(_log, logging.WARNING, "test_environment", note=note)
    if public is not None and settings.here == ALL_ROLES and is_pretty(settings.log_format, sys.stderr):
        _banner(server, public, listening, print)


def _reachable(address: HostPort) -> HostPort:
    """A client cannot connect to the address that means all addresses."""
    return HostPort("localhost", address.port) if address.host in ("0.0.0.0", "::") else address


def _reach(settings: Settings) -> str:
    if settings.host in ("127.0.0.1", "localhost", "::1"):
        return "only this machine; --host 0.0.0.0 listens on all addresses"
    return "other machines too"


def _where(settings: Settings) -> str:
    return format_value(settings.store) if settings.is_distributed else str(settings.data_folder.absolute())


_CODES = {"dev": "the code is printed here", "test": "the code is always 000000", "prod": "the code is sent"}


def _banner(server: ServerProcess, address: HostPort, listening: ListenAddresses, show: Callable[[str], None]) -> None:
    settings = server.settings
    secure = "s" if settings.tls_cert else ""
    public = _reachable(address)
    internal = f"http://{_reachable(listening.internal)}/metrics" if listening.internal else "off"
    created = f"   (made now: {', '.join(path.name for path in server.keys_created)})" if server.keys_created else ""
    show(
        f"""
  Seriatim is ready.

    REST        http{secure}://{public}/api/v1/
    Try it      http{secure}://{public}/docs
    WebSocket   ws{secure}://{public}/v1/ws
    Metrics     {internal}
    Data        {_where(settings)}
    Keys        {settings.keys_folder.absolute()}{created}
    Env         {settings.env}
    Reach       {_reach(settings)}

  Next: sign in ({_CODES[settings.env]})
    curl -s http{secure}://{public}/api/v1/auth/request-otp -H 'Content-Type: application/json' \\
      -d '{{"phone_number": "+4915112345678"}}'
  Or make a user with a token:
    seriatim user add --data {settings.data} --phone +4915112345678 --name Ada --token
"""
    )

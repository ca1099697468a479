"""All roles as processes of one machine, for trying out and for tests: started in order, and again when they die.

In production this is the work of an orchestrator. A member's address stays the same when it is started again.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from seriatim.domain import limits
from seriatim.runtime.config.roles import ProcessRole
from seriatim.runtime.config.settings import ENGINE_USERS, Settings
from seriatim.runtime.config.sources import PREFIX
from seriatim.runtime.server.lifecycle import StartupError

START_S = 60.0  # for one process: the engines' own patience, and the imports of a busy machine
POLL_S = 0.05  # between two reads of a log, until the process listens
RESTART_S = 0.5  # before a process that died is started again
END_S = limits.DRAIN_S + limits.STOP_S + 5.0  # for one process to drain; then it is killed


class ClusterMember(msgspec.Struct, kw_only=True):
    """One process. Ports are 0 until it listens, and where it has none."""

    name: str
    role: ProcessRole
    port: int = 0
    internal_port: int = 0
    rpc_port: int = 0
    pid: int = 0
    log: str = ""
    starts: int = 0


class ClusterSizes(msgspec.Struct, frozen=True, kw_only=True):
    gateways: int = 2
    ingests: int = 2
    fanouts: int = 2
    apis: int = 1


class LocalCluster:
    """REST listens on the port of `settings` and those after it, the gateways ten above; with port 0 on any."""

    def __init__(self, settings: Settings, folder: Path, sizes: ClusterSizes, report: Callable[[str], None]) -> None:
        self._settings = settings
        self._folder = folder
        self._report = report
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

        self._ingests = _members(ProcessRole.INGEST, sizes.ingests)
        self._fanouts = _members(ProcessRole.FANOUT, sizes.fanouts)
        self._apis = _members(ProcessRole.API, sizes.apis, settings.port)
        self._gateways = _members(ProcessRole.GATEWAY, sizes.gateways, settings.port and settings.port + 10)

    @property
    def members(self) -> Sequence[ClusterMember]:
        return [*self._ingests, *self._fanouts, *self._apis, *self._gateways]

    async def start(self) -> None:
        """Returns once all are there: ingest first, whose addresses the others need, gateways last. Raises
        `StartupError`."""
        for together in ([*self._ingests, *self._fanouts], self._apis, self._gateways):
            await asyncio.gather(*(self._first_start(member) for member in together))

    async def run(self) -> None:
        """Until cancelled. A process that dies is started again."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    async def stop(self) -> None:
        """From the outside in, each politely."""
        self._stopping = True
        for together in (self._gateways, self._apis, self._fanouts, self._ingests):
            for member in together:
                _signal(member, signal.SIGTERM)
            await asyncio.gather(*(self._wait_until_ended(member) for member in together))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- helpers, in call order ---------------------------------------------------------------------------------------

    async def _first_start(self, member: ClusterMember) -> None:
        member.log = _empty_log(self._folder / f"{member.name}.log")
        process = await self._spawn(member)
        self._tasks.append(asyncio.create_task(self._supervise(member, process)))
        line = await self._wait_until_listening(member, process)
        member.port, member.internal_port = line.port or 0, line.internal_port or 0
        member.rpc_port = line.rpc_port or 0

    async def _supervise(self, member: ClusterMember, process: asyncio.subprocess.Process) -> None:
        while True:
            code = await process.wait()
            member.pid = 0
            if self._stopping or not member.internal_port:  # or it never began, and `start` says so
                return
            self._report(f"{member.name} ended with {code}; it is started again")
            await asyncio.sleep(RESTART_S)
            process = await self._spawn(member)

    async def _spawn(self, member: ClusterMember) -> asyncio.subprocess.Process:
        log = os.open(member.log, os.O_WRONLY | os.O_APPEND)
        try:
            process = await asyncio.create_subprocess_exec(
                *(
                    *_killed_with_parent(),
                    sys.executable,
                    "-m",
                    "seriatim.cli.main",
                    member.role,
                    *self._arguments(member),
                ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(member.role),
                start_new_session=True,  # Ctrl-C is for us: a second signal would cut their drain short
            )
        finally:
            os.close(log)
        member.pid = process.pid
        member.starts += 1
        return process

    def _arguments(self, member: ClusterMember) -> Sequence[str]:
        arguments = ["--instance", member.name, "--internal", f"127.0.0.1:{member.internal_port}"]
        if member.role is ProcessRole.INGEST:
            arguments += ("--rpc", f"127.0.0.1:{member.rpc_port}")
        if member.role in (ProcessRole.GATEWAY, ProcessRole.API):
            ingests = ",".join(f"127.0.0.1:{each.rpc_port}" for each in self._ingests)
            arguments += ("--port", str(member.port), "--keys", str(self._folder / "keys"), "--ingest", ingests)
        return arguments

    def _environment(self, role: ProcessRole) -> dict[str, str]:
        """Only the settings of the role: a gateway does not learn where the store is."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        given = {"log_format": "json", **{name: getattr(self._settings, name) for name in ("env", "log_level")}}
        given |= {name: getattr(self._settings, name) for name, users in ENGINE_USERS.items() if role in users}
        return {**inherited, **{PREFIX + name.upper(): value for name, value in given.items()}}

    async def _wait_until_listening(self, member: ClusterMember, process: asyncio.subprocess.Process) -> "_Listening":
        until = asyncio.get_running_loop().time() + START_S
        while asyncio.get_running_loop().time() < until:
            text = _log_text(member)
            for line in text.splitlines():
                if b'"listening"' in line:
                    return msgspec.json.decode(line, type=_Listening)
            if process.returncode is not None:
                text_end = text.decode(errors="replace").strip()[-2000:]
                raise StartupError(f"{member.name} did not start, and ended with {process.returncode}: {text_end}")
            await asyncio.sleep(POLL_S)
        raise StartupError(f"{member.name} does not listen after {START_S:.0f} s; see {member.log}")

    async def _wait_until_ended(self, member: ClusterMember) -> None:
        try:
            async with asyncio.timeout(END_S):
                while member.pid:  # noqa: ASYNC110 - `_supervise` clears it
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            self._report(f"{member.name} does not end; it is killed")
            _signal(member, signal.SIGKILL)


def _members(role: ProcessRole, count: int, first_port: int = 0) -> list[ClusterMember]:
    return [
        ClusterMember(name=f"{role}-{number + 1}", role=role, port=first_port and first_port + number)
        for number in range(count)
    ]


def _empty_log(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return str(path)


def _log_text(member: ClusterMember) -> bytes:
    return Path(member.log).read_bytes()


class _Listening(msgspec.Struct, frozen=True):
    port: int | None
    internal_port: int | None
    rpc_port: int | None


def _signal(member: ClusterMember, which: signal.Signals) -> None:
    if member.pid:
        try:
            os.kill(member.pid, which)
        except ProcessLookupError:
            member.pid = 0


def _killed_with_parent() -> Sequence[str]:
    """The processes are killed with this one, so that none is left behind. Where the tool is missing, they stay.

    A program, and not a function that runs between fork and exec: threads of this process make that unsafe.
    """
    return ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()

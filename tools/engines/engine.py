"""One engine as a child process: started until it answers, stopped, killed, paused, started again on its data.

Every call blocks; from a coroutine use `asyncio.to_thread(engine.start)`. Any thread may call.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Self

from tools.engines.errors import EngineFailed, missing
from tools.engines.ports import is_taken, listens, spare_port

START_S_MAX = 60.0
"""Engines answer within four seconds; a machine that is busy with all the tests of the world may need far more."""
STOP_S_MAX = 20.0
POLL_S = 0.03
PORT_TRIES_MAX = 5
PORT_TAKEN = "Address already in use"
LOG_LINES_MAX = 30

# The kernel kills a child when the *thread* that started it ends. This one lasts as long as the process does, so an
# engine started from a passing thread lives on, and an engine of an aborted run does not.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engines")


class Engine(ABC):
    """An engine whose data lies in `folder`. It keeps its port for life, and dies with this process."""

    name: ClassVar[str]
    ports_needed: ClassVar[int] = 1

    def __init__(self, folder: Path, spare: Callable[[], int] = spare_port) -> None:
        self.folder = folder
        self.ports: tuple[int, ...] = ()
        self._spare = spare
        self._process: subprocess.Popen[bytes] | None = None

    # --- what each engine says of itself ---

    @abstractmethod
    def require(self) -> None:
        """Raises EngineMissing unless everything is here that a start needs."""

    @abstractmethod
    def prepare(self) -> None:
        """Makes the empty folder ready for the first start. The ports are known."""

    @abstractmethod
    def command(self) -> list[str]:
        """What to run."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it does real work by now. May raise OSError instead of returning False."""

    # --- what everybody does with it ---

    @classmethod
    @contextmanager
    def started(cls, folder: Path) -> Iterator[Self]:
        """This engine alone, until the block ends. The folder is the caller's to remove."""
        engine = cls(folder)
        try:
            engine.start()
            yield engine
        finally:
            engine.kill()

    @property
    def port(self) -> int:
        return self.ports[0]

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Returns once it answers. After a stop or a kill it comes back on the same port, with what it has stored."""
        if self.is_running:
            return
        self.require()
        if self.ports:
            self._run()
            return
        for tries_left in reversed(range(PORT_TRIES_MAX)):
            self.ports = tuple(self._spare() for _ in range(self.ports_needed))
            try:
                shutil.rmtree(self.folder, ignore_errors=True)
                self.folder.mkdir(parents=True)
                self.prepare()
                self._run()
                return
            except BaseException as error:
                # By its own words, too: the taker may have left before we look.
                was_taken = any(is_taken(port) for port in self.ports) or PORT_TAKEN in last_words(self._log)
                self.ports = ()
                if not (isinstance(error, EngineFailed) and was_taken and tries_left):
                    raise

    def stop(self) -> None:
        """Asks it to end in order (SIGTERM), and waits until it has."""
        if self._process is None:
            return
        self._process.terminate()
        self._process.send_signal(signal.SIGCONT)  # a paused process hears nothing else
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Ends it between two instructions (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Makes it stand still (SIGSTOP): its sockets stay open and nobody answers. Returns once it does."""
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Lets it go on (SIGCONT) as if nothing had been."""
        self._running().send_signal(signal.SIGCONT)

    # --- starting ---

    def _run(self) -> None:
        command = ["setpriv", "--pdeathsig", "KILL", *self.command()]
        process = self._process = _spawner.submit(_spawn, command, self.folder, self._log).result()
        try:
            self._wait_until_it_answers(process)
        except BaseException:
            self.kill()
            raise

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_S_MAX
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if all(listens(process.pid, port) for port in self.ports) and self.answers():
                    return
            time.sleep(POLL_S)
        what = f"did not answer within {START_S_MAX:.0f} s" if process.poll() is None else "ended while it started"
        raise EngineFailed(f"{self.name} {what}. Its last words:\n{last_words(self._log)}")

    @property
    def _log(self) -> Path:
        return self.folder / "engine.log"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or not self.is_running:
            raise EngineFailed(f"{self.name} is not running: start it first")
        return self._process


def require_program(engine: str, program: str, package: str) -> None:
    if shutil.which(program) is None:
        raise missing(engine, f"there is no `{program}`", f"Install the package {package}.")


def last_words(log: Path) -> str:
    if not log.exists():
        return "(none)"
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES_MAX:])


def _spawn(command: list[str], folder: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        # A group of its own: Ctrl-C on a test run is for the tests, which end the engines when they are done.
        return subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=0
        )

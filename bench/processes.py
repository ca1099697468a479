"""Children of the bench, seen from outside: started on their core, found by their log, watched in /proc."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import uvloop

ROOT = Path(__file__).resolve().parent.parent
START_S = 60.0
T = TypeVar("T")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


CORES = sorted(os.sched_getaffinity(0))
MEASURED_CORE = CORES[0] if len(CORES) > 1 else None  # on a machine with one core figures mean little


def take_the_other_cores() -> None:
    """The load generator must not disturb what it measures."""
    if MEASURED_CORE is not None:
        os.sched_setaffinity(0, set(CORES[1:]))


def on_a_loop(work: Coroutine[object, object, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


class Child:
    """A process of `bench.child` that listens, or that has told its result."""

    def __init__(self, kind: str, *arguments: str, core: int | None = MEASURED_CORE) -> None:
        pinned = () if core is None else ("--core", str(core))
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        self.process = subprocess.Popen(
            (sys.executable, "-m", "bench.child", kind, *pinned, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,  # ours is for the figures
            stderr=self._log,
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if not name.startswith("SERIATIM_")},
        )

    def wait_for(self, event: str) -> dict[str, Any]:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            for line in self._lines():
                if line.get("event") == event:
                    return line
            if self.process.poll() is not None and not self._lines():
                break
            time.sleep(0.01)
        raise RuntimeError(f"the child said nothing of {event!r}:\n{self.log()}")

    def log(self) -> str:
        return os.pread(self._log.fileno(), 1 << 20, 0).decode(errors="replace")

    def cpu_s(self) -> float:
        return cpu_s(self.process.pid)

    def rss_bytes(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * _PAGE_BYTES

    def end(self) -> None:
        """At once, whatever is connected: what was acknowledged is safe."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self._log.close()

    def stop(self) -> None:
        """Politely, so that a profile is written."""
        self.process.terminate()
        self.process.wait(60)

    def _lines(self) -> list[dict[str, Any]]:
        found = []
        for line in self.log().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # not a log line, or not all of it yet
        return found


def cpu_s(pid: int) -> float:
    """What the process has used so far, with all its threads, in the kernel and outside."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


@contextmanager
def child(kind: str, *arguments: str, core: int | None = MEASURED_CORE) -> Iterator[Child]:
    started = Child(kind, *arguments, core=core)
    try:
        yield started
    finally:
        started.end()

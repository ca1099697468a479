"""Runs tests in a copy of the tree, with a limit of time. The working tree is never touched."""

import compileall
import os
import py_compile
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from tools.mutate import packages
from tools.mutate.mutation import Mutation, write
from tools.mutate.packages import GOLDEN, SOURCE, nearest_first

MEMORY_BYTES_MAX = 16 * 2**30  # of address space: a mutant that never stops to collect is ended before the machine is
TEST_S_MAX = 60  # one test; a hang is noticed by it
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
_NOT_COPIED = (".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info", "build", "dist")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class Fate(StrEnum):
    KILLED = "killed"
    HUNG = "hung"
    GOLDEN_ONLY = "noticed by golden traces only"
    SURVIVED = "SURVIVED"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """`test`: which one failed. Empty if none did, or none was reached."""

    fate: Fate
    test: str
    seconds: float


class Tree:
    """A copy of the working tree, for one trial at a time. Leave it, and nothing is left."""

    def __init__(self, *, real_engines: bool) -> None:
        self.path = Path()
        self._real_engines = real_engines
        self._running: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Tree":
        self._folder = tempfile.TemporaryDirectory(prefix="seriatim-mutate-")
        self.path = Path(self._folder.name) / "tree"
        try:
            self._copy()
        except BaseException:
            self._folder.cleanup()
            raise
        return self

    def _copy(self) -> None:
        shutil.copytree(packages.ROOT, self.path, symlinks=True, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        # Hashes instead of dates: a file may be changed and restored within the same second.
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(self.path / "src", quiet=2, invalidation_mode=mode)

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._folder.cleanup()

    def stop(self) -> None:
        """Ends what runs, with all its children."""
        running, self._running = self._running, None
        if running is None:
            return
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        if running.stdout is not None and not running.stdout.closed:
            running.communicate()

    def imports_itself(self) -> bool:
        """Is it this copy that its tests import, and not the working tree?"""
        done = self._start([sys.executable, "-c", "import seriatim; print(seriatim.__file__)"])
        printed, _ = done.communicate()
        return Path(printed.strip()).is_relative_to(self.path)

    def trial(self, mutation: Mutation, tests: Sequence[str], *, golden: bool, limit_s: float) -> Outcome:
        """What becomes of the mutant. Afterwards the copy is as it was."""
        began = time.monotonic()
        file = self.path / SOURCE / mutation.path
        before = file.read_text(encoding="utf-8")
        write(mutation, self.path / SOURCE)
        try:
            fate, test = self._meets(nearest_first(tests, mutation.path), limit_s)
            if fate is Fate.SURVIVED and golden:
                found, test = self._meets([GOLDEN], limit_s)
                fate = Fate.SURVIVED if found is Fate.SURVIVED else Fate.GOLDEN_ONLY
        finally:
            file.write_text(before, encoding="utf-8")
        return Outcome(fate=fate, test=test, seconds=time.monotonic() - began)

    def failures(self, tests: Sequence[str]) -> list[str]:
        """Of the tree as it is: which of these fail."""
        process = self._start(_pytest(tests, stop=False))
        output, _ = process.communicate()
        return _FAILED.findall(output) or ([] if process.returncode == 0 else [output[-2000:]])

    def _meets(self, tests: Sequence[str], limit_s: float) -> tuple[Fate, str]:
        process = self._start(_pytest(tests, stop=True))
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            self.stop()
            return Fate.HUNG, ""
        if process.returncode == 0:
            return Fate.SURVIVED, ""
        if process.returncode < 0:
            return Fate.KILLED, f"the end of the whole run (signal {-process.returncode})"
        failed = _FAILED.search(output)
        return Fate.KILLED, failed[1] if failed is not None else output.strip().splitlines()[-1]

    def _start(self, command: Sequence[str]) -> "subprocess.Popen[str]":
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.path / "src"),
            "TEST_REAL_ENGINES": "on" if self._real_engines else "off",
            "CI": "",  # there an engine that is left out is a failure, and would count as a mutant that was noticed
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.path / ".hypothesis"),
        }
        # An interrupt between the start and the assignment would leave a process that `stop` does not know.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
        try:
            self._running = subprocess.Popen(
                command,
                cwd=self.path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                preexec_fn=_in_the_child,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self._running


def _in_the_child() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))


def _pytest(tests: Sequence[str], *, stop: bool) -> list[str]:
    options = [
        "-q",
        "-rfE",
        "--tb=no",
        "-n",
        "0",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        f"--timeout={TEST_S_MAX}",
    ]
    return [sys.executable, "-m", "pytest", *(["-x"] if stop else []), *options, *tests]

"""A server as its users meet it: a process of its own, found by what it logs, ended with a signal."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seriatim.domain import limits

COMMAND = (sys.executable, "-m", "seriatim.cli.main")
START_S = 30.0  # far more than a start takes; a machine that tests in parallel may be slow
STOP_S = 45.0  # a drain may take 30 s
WAIT_S = 60.0  # for what must come; far more than it takes

Json = dict[str, Any]


class ServerProcess:
    """Started, and listening once `start` returns. `log` is its stderr, `console` its stdout."""

    def __init__(self, data: Path, *arguments: str, env: str = "test", command: Sequence[str] = COMMAND) -> None:
        self.data = data
        self._out, self._err = data.with_name(f"{data.name}.out"), data.with_name(f"{data.name}.err")
        flags = ("--env", env, "--port", "0", "--internal", "127.0.0.1:0", "--data", str(data), *arguments)
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                (*command, "serve", *flags), stdout=out, stderr=err, env=clean_environment(), cwd=data.parent
            )
        self.host, self.port, self.internal_port = "127.0.0.1", 0, 0

    def wait_until_listening(self) -> "ServerProcess":
        line = self.wait_for_event("listening")
        self.port, self.internal_port = line["port"], line["internal_port"]
        return self

    def wait_for_event(self, event: str) -> Json:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            found = [line for line in self.lines() if line["event"] == event]
            if found:
                return found[-1]
            assert self.process.poll() is None, f"the server ended with {self.process.returncode}:\n{self.log}"
            time.sleep(0.01)
        raise AssertionError(f"no {event} within {START_S:g} s:\n{self.log}")

    @property
    def log(self) -> str:
        return self._err.read_text(encoding="utf-8")

    @property
    def console(self) -> str:
        return self._out.read_text(encoding="utf-8")

    def lines(self) -> list[Json]:
        """The log line by line, as far as it is written. Every line is an object, or this fails."""
        whole, _, _ = self.log.rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def metric(self, name: str, **labels: str) -> float:
        """What the server says of itself at this moment; 0 for a sample that is not there yet."""
        connection = http.client.HTTPConnection(self.host, self.internal_port, timeout=START_S)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        wanted = "".join(f'(?=[^}}]*{label}="{re.escape(value)}")' for label, value in labels.items())
        found = re.search(rf"^{name}\{{{wanted}[^}}]*\}} (\S+)$", text, re.MULTILINE)
        return 0.0 if found is None else float(found[1])

    def signal(self, which: signal.Signals) -> None:
        self.process.send_signal(which)

    def wait(self) -> int:
        return self.process.wait(STOP_S)

    def stop(self) -> int:
        """As an operator stops it. Returns its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """As if the power failed, except for what the operating system still holds."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        if self.process.poll() is None:
            self.kill()


@contextmanager
def serving(
    data: Path, *arguments: str, env: str = "test", command: Sequence[str] = COMMAND
) -> Iterator[ServerProcess]:
    server = ServerProcess(data, *arguments, env=env, command=command)
    try:
        yield server.wait_until_listening()
    finally:
        server.end()


def with_limits(folder: Path, **changed: float) -> Sequence[str]:
    """The command of a server with other limits, for tests that would otherwise wait as long as users do."""
    assert [name for name in changed if not hasattr(limits, name)] == []
    script = folder / "with_limits.py"
    lines = [
        "from seriatim.domain import limits",
        *(f"limits.{name} = {value!r}" for name, value in changed.items()),
        "from seriatim.cli.main import main",
        "main()",
    ]
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return (sys.executable, str(script))


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for what must come, however slow the machine is."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {WAIT_S:g} s: {what}"
        time.sleep(0.02)


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself."""
    return subprocess.run(
        (*COMMAND, *arguments), capture_output=True, text=True, timeout=WAIT_S, env=clean_environment(), cwd=cwd
    )


def clean_environment() -> dict[str, str]:
    """Without settings of the machine that runs the tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SERIATIM_")}

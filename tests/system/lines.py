"""Lines between processes that a test can cut or slow down, on a thread of their own: they outlive each test's loop."""

import asyncio
import json
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tests.support.cut_line import CutLine
from tests.system.server import COMMAND, START_S, STOP_S, clean_environment
from tools.engines.engine import Engine
from tools.engines.kafka import Kafka
from tools.engines.ports import HOST

T = TypeVar("T")
COMMITTED_S = 0.5  # by then DynamoDB Local has done what it answered for


class Lines:
    """Enter it, then `lay` lines by name. A name may stand for several lines, which share their fate."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._live, name="lines")
        self._laid: dict[str, list[CutLine]] = {}

    def __enter__(self) -> "Lines":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for lines in self._laid.values():
            for line in lines:
                self._run(line.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _live(self) -> None:
        """As `asyncio.run` ends: whatever still runs is cancelled, and has its time to close what it opened."""
        try:
            self._loop.run_forever()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(tasks) if tasks else asyncio.sleep(0))
        finally:
            self._loop.close()

    def lay(self, name: str, target_port: int = 0) -> CutLine:
        """`target_port` may be told later, for whoever has to know the line's own port before it listens."""
        line = self._run(CutLine(target_port).__aenter__())
        self._laid.setdefault(name, []).append(line)
        return line

    def cut(self, name: str) -> None:
        self._each(name, CutLine.cut)

    def mend(self, name: str) -> None:
        self._each(name, CutLine.mend)

    def delay(self, name: str, seconds: float) -> None:
        for line in self._laid[name]:
            line.delay_s = seconds

    def reset_one(self, name: str, *at: bytes) -> Callable[[], bool]:
        """The next connection breaks on which all of these are sent at once. What is returned says whether it has."""
        [line] = self._laid[name]
        line.reset_at = at
        return lambda: not line.reset_at

    def traffic(self, name: str) -> int:
        """A number that grows with everything that goes this way, or tries to."""
        return sum(line.chunks_sent + line.attempts for line in self._laid[name])

    def _each(self, name: str, what: Callable[[CutLine], None]) -> None:
        async def do() -> None:
            for line in self._laid[name]:
                what(line)

        self._run(do())

    def _run(self, what: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(START_S)


class BehindALine:
    """DynamoDB Local, whose last words nobody hears: its line is cut a moment before it ends.

    It answers for a transaction a moment before that is committed: of 15 kills under load two lost one that it had
    answered for. No store that we promise anything of does that, and we cannot keep what it has not kept.
    """

    def __init__(self, engine: Engine, lines: Lines, line: str) -> None:
        self._engine = engine
        self._lines = lines
        self._line = line

    def kill(self) -> None:
        self._fall_silent()
        self._engine.kill()

    def stop(self) -> None:
        self._fall_silent()
        self._engine.stop()

    def start(self) -> None:
        self._engine.start()
        self._lines.mend(self._line)

    def pause(self) -> None:
        self._engine.pause()

    def resume(self) -> None:
        self._engine.resume()

    def reset_one(self, *at: bytes) -> Callable[[], bool]:
        """The next call that has all of these in it. What is returned says whether there was one."""
        return self._lines.reset_one(self._line, *at)

    def _fall_silent(self) -> None:
        self._lines.cut(self._line)
        time.sleep(COMMITTED_S)


class KafkaBehindALine(Kafka):
    """It tells its clients the line's address: whatever they first asked, that is where they stay."""

    def __init__(self, folder: Path, line: CutLine) -> None:
        super().__init__(folder)
        self._line = line

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self._line.port}"

    def _addresses(self) -> dict[str, str]:
        return {**super()._addresses(), "advertised.listeners": f"PLAINTEXT://{self.bootstrap}"}


class ExtraGateway:
    """A gateway that reaches its ingest processes by addresses of the test's choice."""

    host = HOST

    def __init__(self, port: int) -> None:
        self.port = port


@contextmanager
def extra_gateway(folder: Path, engines: Mapping[str, str], ingests: Sequence[str]) -> Iterator[ExtraGateway]:
    """`folder`: of the cluster whose keys it shares."""
    log = folder / "gateway-3.log"
    settings = {
        "SERIATIM_DIRECTORY": engines["SERIATIM_DIRECTORY"],
        "SERIATIM_KEYS": str(folder / "cluster" / "keys"),
        "SERIATIM_LOG_FORMAT": "json",
    }
    flags = ("--env", "test", "--instance", "gateway-3", "--port", "0", "--internal", f"{HOST}:0")
    with log.open("wb") as output:
        process = subprocess.Popen(
            (*COMMAND, "gateway", *flags, "--ingest", ",".join(ingests)),
            stdout=output,
            stderr=output,
            env={**clean_environment(), **settings},
            cwd=folder,
        )
    try:
        yield ExtraGateway(_port(process, log))
        process.terminate()
        assert process.wait(STOP_S) == 0, log.read_text(encoding="utf-8")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _port(process: "subprocess.Popen[bytes]", log: Path) -> int:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        for line in log.read_text(encoding="utf-8").splitlines():
            if '"listening"' in line:
                port = json.loads(line)["port"]
                assert isinstance(port, int)
                return port
        time.sleep(0.02)
    raise AssertionError(log.read_text(encoding="utf-8"))

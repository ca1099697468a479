"""The distributed system as its users meet it: `seriatim cluster` on real engines, each role a process of its own."""

import http.client
import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.real_dynamodb import real_dynamodb
from tests.support.real_kafka import real_kafka
from tests.support.real_redis import real_redis
from tests.system.server_process import COMMAND, START_S, STOP_S, WAIT_S, clean_environment, until
from tools.engines.dynamodb import REGION

# More than the command allows its own steps, which says what took too long, on a machine that does much else.
DEPLOYED_S = 150.0
ENDED_S = 3 * STOP_S  # roles of four kinds end one after the other, and gateways may drain for 30 s

_numbers = itertools.count()


class Process:
    """One process of the deployment. It keeps its addresses when it is started again, but not its pid."""

    host = "127.0.0.1"

    def __init__(self, found: dict[str, Any]) -> None:
        self.name: str = found["name"]
        self.role: str = found["role"]
        self.port: int = found["port"]
        self.internal_port: int = found["internal_port"]
        self.rpc_port: int = found["rpc_port"]
        self.log_file = Path(found["log"])

    def ready(self) -> dict[str, bool]:
        """Part by part; empty while it does not answer."""
        try:
            _, body = self._get("/health/ready")
        except OSError:
            return {}
        parts = json.loads(body)["parts"]
        assert isinstance(parts, dict)
        return parts

    def is_ready(self) -> bool:
        parts = self.ready()
        return bool(parts) and all(parts.values())

    def metrics(self) -> str:
        return self._get("/metrics")[1].decode()

    def metric(self, name: str) -> float:
        """All its samples together; 0 if there is none."""
        return sum(float(line.split()[-1]) for line in self.metrics().splitlines() if line.startswith(f"{name}{{"))

    def lines(self) -> list[dict[str, Any]]:
        whole, _, _ = self.log_file.read_text(encoding="utf-8").rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    @property
    def pid(self) -> int:
        """Of its present life."""
        pid = [line["pid"] for line in self.lines() if line["event"] == "listening"][-1]
        assert isinstance(pid, int)
        return pid

    def lives(self) -> int:
        return sum(line["event"] == "listening" for line in self.lines())

    def signal(self, which: signal.Signals) -> None:
        os.kill(self.pid, which)

    def comes_back(self, lives: int) -> None:
        until(lambda: self.lives() > lives and self.is_ready(), f"{self.name} is back")

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.host, self.internal_port, timeout=START_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


class Deployment:
    """`engines`: where they are, as settings in the environment. Logs are in the folder, keys in `cluster/keys`."""

    def __init__(self, processes: Sequence[Process], engines: Mapping[str, str], folder: Path) -> None:
        self.all = processes
        self.engines = engines
        self.folder = folder
        self.gateways = self._of("gateway")
        self.ingests = self._of("ingest")
        self.fanouts = self._of("fanout")
        self.apis = self._of("api")
        self.api = self.apis[0]

    def check(self) -> subprocess.CompletedProcess[str]:
        """`seriatim check` on the stores of this deployment, as an operator runs it."""
        return subprocess.run(
            (*COMMAND, "check", "--json", "--recheck-seconds", "1"),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            env={**clean_environment(), **self.engines},
            cwd=self.folder,
        )

    def _of(self, role: str) -> Sequence[Process]:
        return [each for each in self.all if each.role == role]


def engines_at(dynamodb_url: str, kafka_bootstrap: str, redis_url: str) -> Mapping[str, str]:
    """As settings in the environment, with names for tables and topics that no other test uses."""
    name = f"deployment{os.getpid()}x{next(_numbers)}"
    return {
        "SERIATIM_STORE": f"dynamodb://?endpoint={dynamodb_url}&region={REGION}&prefix={name}_",
        "SERIATIM_EVENTS": f"kafka://{kafka_bootstrap}?prefix={name}.",
        "SERIATIM_DIRECTORY": redis_url,
    }


@contextmanager
def deployed(folder: Path, *flags: str, engines: Mapping[str, str] | None = None) -> Iterator[Deployment]:
    """Two of each role and one REST process unless `flags` say otherwise, with tables and topics of their own.

    `engines`: settings that name others than those which all tests share.
    """
    if engines is None:
        engines = engines_at(real_dynamodb().url, real_kafka().bootstrap, real_redis().url)
    flags = ("--env", "test", "--port", "0", "--json", "--folder", str(folder / "cluster"), *flags)
    out, err = folder / "cluster.out", folder / "cluster.err"
    with out.open("wb") as to_out, err.open("wb") as to_err:
        process = subprocess.Popen(
            (*COMMAND, "cluster", *flags),
            stdout=to_out,
            stderr=to_err,
            env={**clean_environment(), **engines},
            cwd=folder,
        )
    try:
        deadline = time.monotonic() + DEPLOYED_S
        while not out.read_bytes().endswith(b"}\n"):
            assert process.poll() is None, err.read_text(encoding="utf-8")
            assert time.monotonic() < deadline, err.read_text(encoding="utf-8")
            time.sleep(0.05)
        deployment = Deployment([Process(each) for each in json.loads(out.read_bytes())["members"]], engines, folder)
        for each in deployment.all:
            until(each.is_ready, f"{each.name} is ready")
        yield deployment
        process.send_signal(signal.SIGTERM)
        assert process.wait(ENDED_S) == 0, err.read_text(encoding="utf-8")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()

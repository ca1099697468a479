"""Proxies between processes that a test can cut or slow down, on a thread of their own: they outlive a test's loop."""

import asyncio
import json
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tests.support.tcp_proxy import TcpProxy
from tests.system.server_process import COMMAND, START_S, STOP_S, clean_environment
from tools.engines.engine import Engine
from tools.engines.kafka import Kafka
from tools.engines.ports import HOST

T = TypeVar("T")
# Until DynamoDB Local has committed what it answered. A fixed time, because none of its calls reports a commit: a read
# already answers with what is not committed yet.
COMMITTED_S = 0.5


class NetworkProxies:
    """Enter it, then `add` proxies by route. A route may have several proxies, which are cut and slowed together."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._live, name="proxies")
        self._by_route: dict[str, list[TcpProxy]] = {}

    def __enter__(self) -> "NetworkProxies":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for proxies in self._by_route.values():
            for proxy in proxies:
                self._run(proxy.close())
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

    def add(self, route: str, target_port: int = 0) -> TcpProxy:
        """`target_port` may be set later, where the target has to know the proxy's port before it listens itself."""
        proxy = self._run(TcpProxy(target_port).__aenter__())
        self._by_route.setdefault(route, []).append(proxy)
        return proxy

    def cut(self, route: str) -> None:
        self._each(route, TcpProxy.cut)

    def restore(self, route: str) -> None:
        self._each(route, TcpProxy.restore)

    def delay(self, route: str, seconds: float) -> None:
        for proxy in self._by_route[route]:
            proxy.delay_s = seconds

    def slow_at(self, route: str, sent: bytes, seconds: float) -> None:
        """What is sent together with these bytes arrives so much later than the rest. Without bytes, nothing does."""
        for proxy in self._by_route[route]:
            proxy.slow_at, proxy.slow_s = sent, seconds

    def reset_one(self, route: str, *at: bytes) -> Callable[[], bool]:
        """The next connection breaks on which all of these are sent at once. What is returned says whether it has."""
        [proxy] = self._by_route[route]
        proxy.reset_at = at
        return lambda: not proxy.reset_at

    def traffic(self, route: str) -> int:
        """A number that grows with everything that goes this way, or tries to."""
        return sum(proxy.chunks_sent + proxy.attempts for proxy in self._by_route[route])

    def _each(self, route: str, what: Callable[[TcpProxy], None]) -> None:
        async def do() -> None:
            for proxy in self._by_route[route]:
                what(proxy)

        self._run(do())

    def _run(self, what: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(START_S)


class ProxiedDynamoDB:
    """DynamoDB Local, disconnected from its clients before it is killed or stopped.

    DynamoDB Local answers a transaction before it has committed it: 2 of 15 kills under load lost a transaction that
    was answered. DynamoDB itself does not, so the test must not count that loss. Once its clients are disconnected,
    no answer leaves it any more, and what it answered before is committed within COMMITTED_S.
    """

    def __init__(self, engine: Engine, proxies: NetworkProxies, route: str) -> None:
        self._engine = engine
        self._proxies = proxies
        self._route = route

    def kill(self) -> None:
        self._disconnect_clients()
        self._engine.kill()

    def stop(self) -> None:
        self._disconnect_clients()
        self._engine.stop()

    def start(self) -> None:
        self._engine.start()
        self._proxies.restore(self._route)

    def pause(self) -> None:
        self._engine.pause()

    def resume(self) -> None:
        self._engine.resume()

    def reset_one(self, *at: bytes) -> Callable[[], bool]:
        """The next call that has all of these in it. What is returned says whether there was one."""
        return self._proxies.reset_one(self._route, *at)

    @contextmanager
    def slow_for(self, chat_id: str, seconds: float) -> Iterator[None]:
        """Calls about this chat reach DynamoDB so much later, as if its partition were hot; others as always."""
        self._proxies.slow_at(self._route, chat_id.encode(), seconds)
        try:
            yield
        finally:
            self._proxies.slow_at(self._route, b"", 0.0)

    def _disconnect_clients(self) -> None:
        self._proxies.cut(self._route)
        time.sleep(COMMITTED_S)


class ProxiedKafka(Kafka):
    """It advertises the proxy's address, so that clients stay on the proxy after their first request."""

    def __init__(self, folder: Path, proxy: TcpProxy) -> None:
        super().__init__(folder)
        self._proxy = proxy

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self._proxy.port}"

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

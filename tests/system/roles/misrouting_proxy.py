"""A proxy between gateways and two ingest processes that forwards some sends to the wrong one.

To the gateways it is their only ingest. To the ingests it is a gateway whose list of them differs from everyone else's.
"""

import asyncio
import json
import random
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from seriatim.domain.account import Session
from seriatim.domain.message import Draft
from seriatim.engines.grpc.dial import GrpcDialer
from seriatim.engines.grpc.discovery import StaticAddresses
from seriatim.engines.grpc.durability import GrpcDurability, rendezvous
from seriatim.engines.grpc.server import DurabilityServer
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.ports.accounts import Sessions
from seriatim.ports.durability import Answer, BackPage, Durability, History, PrefixPage
from tests.system.deployment import Process
from tests.system.server_process import COMMAND, STOP_S, clean_environment, until

READY_S = 30.0


class MisroutingProxy(Durability, History, Sessions):
    """Every send is routed on its own, those that `misroutes` picks to the ingest that does not own their chat.

    Who does not wait for an ack before the next send of a chat may find the two in another order: that is the point.
    """

    def __init__(self, ingests: Sequence[str], *, seed: int, wrong_share: float) -> None:
        clock = SystemClock()
        self.right = GrpcDurability(StaticAddresses(ingests), GrpcDialer(), clock)
        self.wrong = GrpcDurability(StaticAddresses(ingests), GrpcDialer(), clock, choose=other_than_owner)
        chance = random.Random(seed)
        self.misroutes: Callable[[Draft], bool] = lambda draft: chance.random() < wrong_share
        self.sends: Counter[bool] = Counter()  # by whether they were misrouted

    @property
    def share(self) -> float:
        return self.sends[True] / self.sends.total()

    async def ready(self) -> None:
        async with asyncio.timeout(READY_S):
            while min(len(self.right.ready), len(self.wrong.ready)) < 2:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.02)

    def submit(self, draft: Draft, *, deadline: float, answer: Answer) -> None:
        crossed = self.misroutes(draft)
        self.sends[crossed] += 1
        (self.wrong if crossed else self.right).submit(draft, deadline=deadline, answer=answer)

    # --- what is only asked goes where it belongs ---------------------------------------------------------------------

    async def read(self, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float) -> PrefixPage:
        return await self.right.read(user_id, chat_id, after=after, limit=limit, timeout_s=timeout_s)

    async def read_back(
        self, user_id: str, chat_id: str, *, before: int, after: int, limit: int, timeout_s: float
    ) -> BackPage:
        return await self.right.read_back(
            user_id, chat_id, before=before, after=after, limit=limit, timeout_s=timeout_s
        )

    async def acknowledge(self, user_id: str, chat_id: str, *, sequence: int, timeout_s: float) -> None:
        await self.right.acknowledge(user_id, chat_id, sequence=sequence, timeout_s=timeout_s)

    async def heads(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, int]:
        return await self.right.heads(chat_ids, timeout_s=timeout_s)

    async def joined(self, since: Mapping[str, str], *, timeout_s: float) -> Mapping[str, Sequence[str]]:
        return await self.right.joined(since, timeout_s=timeout_s)

    async def session(self, session_id: str, *, timeout_s: float) -> Session | None:
        return await self.right.session(session_id, timeout_s=timeout_s)


def other_than_owner(key: str, addresses: Sequence[str]) -> str:
    """Not the owner, unless no other process is there."""
    others = [address for address in addresses if address != rendezvous(key, addresses)]
    return others[0] if others else addresses[0]


@asynccontextmanager
async def misrouting_proxy(
    ingests: Sequence[str], *, seed: int, wrong_share: float
) -> AsyncIterator[tuple[MisroutingProxy, str]]:
    """The proxy, connected to both ingests, and the address at which gateways find it."""
    proxy = MisroutingProxy(ingests, seed=seed, wrong_share=wrong_share)
    running = [asyncio.create_task(each.run()) for each in (proxy.right, proxy.wrong)]
    listener = DurabilityServer(proxy, proxy, SystemClock())
    try:
        await proxy.ready()
        port = await listener.start("127.0.0.1", 0)
        yield proxy, f"127.0.0.1:{port}"
    finally:
        await listener.stop()
        for task in running:
            task.cancel()
            await asyncio.wait((task,))


@asynccontextmanager
async def gateways(folder: Path, ingest: str, directory: str, count: int) -> AsyncIterator[Sequence[Process]]:
    """Processes of their own that ask this ingest, and know the keys of the deployment in the folder."""
    started = [_Gateway(folder, f"misrouted-{number}", ingest, directory) for number in range(count)]
    try:
        # In threads: they are not ready before the proxy has answered them, which may be in this very loop.
        yield [await asyncio.to_thread(each.wait_until_ready) for each in started]
        for each in started:
            each.process.terminate()
        assert [await asyncio.to_thread(each.process.wait, STOP_S) for each in started] == [0] * count
    finally:
        for each in started:
            each.process.kill()
            each.process.wait()


class _Gateway:
    def __init__(self, folder: Path, name: str, ingest: str, directory: str) -> None:
        self._name = name
        self._log = folder / f"{name}.log"
        flags = {
            "--env": "test",
            "--instance": name,
            "--port": "0",
            "--internal": "127.0.0.1:0",
            "--keys": str(folder / "cluster" / "keys"),
            "--directory": directory,
            "--ingest": ingest,
            "--log-format": "json",
        }
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                (*COMMAND, "gateway", *(word for flag in flags.items() for word in flag)),
                stdout=log,
                stderr=log,
                env=clean_environment(),
                cwd=folder,
            )

    def wait_until_ready(self) -> Process:
        until(lambda: self.process.poll() is not None or b'"listening"' in self._log.read_bytes(), "it listens")
        assert self.process.poll() is None, self._log.read_text(encoding="utf-8")
        lines = [json.loads(line) for line in self._log.read_bytes().splitlines()]
        ports = next(line for line in lines if line["event"] == "listening")
        found = Process({**ports, "name": self._name, "role": "gateway", "log": str(self._log)})
        until(found.is_ready, f"{self._name} is ready")
        return found

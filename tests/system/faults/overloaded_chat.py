"""A chat that is written to faster than DynamoDB stores it, by writers within their limits; and a calm one beside it.

Both chats belong to the same ingest process, and at each gateway there are writers of both.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count

from seriatim.domain import limits
from seriatim.engines.grpc.durability import rendezvous
from tests.system.devices import Device, Lost, Refused
from tests.system.faults.fault_deployment import FaultDeployment
from tests.system.users import ANSWER_S, User

WRITERS = 12
BURST = (
    limits.SEND_BURST_MAX - 2
)  # of each writer, at once: 216 sends, more than are stored within their deadline of 5 s
PACE_S = 1.1 / limits.SEND_RATE_PER_S
CALM_PACE_S = 0.25
# Three calls for each batch of some 44 messages: fewer than 50 are stored per second. Far below what a call may take.
CALL_S = 0.3
CHATS_TRIED_MAX = 50

_numbers = count()


class OverloadedChat:
    """Enter it to begin, leave it to end. `refusals` are those of the overloaded chat, by code."""

    def __init__(self, deployment: FaultDeployment) -> None:
        self._deployment = deployment
        self.refusals: Counter[str] = Counter()
        self.calm_refusals: list[str] = []
        self.calm_acks = 0
        self.lost = 0
        self.chat_id = ""
        self._devices: list[Device] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "OverloadedChat":
        writers, calm = await asyncio.to_thread(self._sign_in)
        self.chat_id, calm_chat_id = await asyncio.to_thread(self._chats, writers, calm)
        self._devices = [Device(user) for user in (*writers, *calm)]
        await asyncio.gather(*(device.connect() for device in self._devices))
        for device in self._devices[:WRITERS]:
            self._start(self._write(device, self.chat_id))
        for device in self._devices[WRITERS:]:
            self._start(self._write_calmly(device, calm_chat_id))
        return self

    async def __aexit__(self, *reason: object) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(device.close() for device in self._devices))

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 2 * ANSWER_S
        while not condition():
            assert time.monotonic() < deadline, (
                f"refused: {self.refusals}; calm: {self.calm_acks} acks, {self.calm_refusals}"
            )
            await asyncio.sleep(0.02)

    async def _write(self, device: Device, chat_id: str) -> None:
        """Without waiting for answers, at less than the rate that one connection may have."""
        for _ in range(BURST):
            self._start(self._send(device, chat_id))
        while True:
            await asyncio.sleep(PACE_S)
            self._start(self._send(device, chat_id))

    async def _send(self, device: Device, chat_id: str) -> None:
        try:
            await device.send(chat_id, "one of very many")
        except Refused as refused:
            self.refusals[str(refused)] += 1
        except Lost:
            self.lost += 1

    async def _write_calmly(self, device: Device, chat_id: str) -> None:
        while True:
            try:
                await device.send(chat_id, "one of few")
                self.calm_acks += 1
            except (Refused, Lost) as refused:
                self.calm_refusals.append(f"{type(refused).__name__} {refused}")
            await asyncio.sleep(CALM_PACE_S)

    def _start(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- before it begins ---------------------------------------------------------------------------------------------

    def _sign_in(self) -> tuple[Sequence[User], Sequence[User]]:
        """The writers by turns at both gateways, a calm user at each."""
        cluster = self._deployment.cluster
        users = [
            User(cluster.api, f"+49172{next(_numbers):08d}", gateway=cluster.gateways[number % len(cluster.gateways)])
            for number in range(WRITERS + len(cluster.gateways))
        ]
        return users[:WRITERS], users[WRITERS:]

    def _chats(self, writers: Sequence[User], calm: Sequence[User]) -> tuple[str, str]:
        """Two chats of the same ingest process."""
        addresses = sorted(f"127.0.0.1:{each.rpc_port}" for each in self._deployment.cluster.ingests)
        overloaded = writers[0].create_group(*writers[1:])
        for _ in range(CHATS_TRIED_MAX):
            chat_id = calm[0].create_group(*calm[1:])
            if rendezvous(chat_id, addresses) == rendezvous(overloaded, addresses):
                return overloaded, chat_id
        raise AssertionError("no second chat was found for the same process")

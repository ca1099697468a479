"""Many who write at once to a chat of one ingest process, and a few who write to chats of the other one.

The many may be refused. The few must not notice for longer than a second that anything fails elsewhere.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count

from seriatim.engines.grpc.durability import rendezvous
from tests.system.deployment import Deployment, Process
from tests.system.devices import Device, Lost, Refused
from tests.system.users import ANSWER_S, User

WRITERS = 40
DEVICES = 5  # that they share: eight of them write less than ten messages a second
PACE_S = 1.0
BYSTANDER_PACE_S = 0.3
REFUSED_S = 1.0
CHATS_TRIED_MAX = 50

_numbers = count()


class ConcurrentWriters:
    """Enter it to begin, leave it to end. `broken`: the ingest process that the many depend on."""

    def __init__(self, deployment: Deployment, broken: Process) -> None:
        self._deployment = deployment
        self._broken = f"127.0.0.1:{broken.rpc_port}"
        self.chat_id = ""
        self._waiting = 0
        self._over = False
        self._devices: list[Device] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.acks = 0  # of the many
        self.bystander_acks = 0
        self.bystander_refusals: list[list[tuple[float, str]]] = []  # those in a row, when and what

    async def __aenter__(self) -> "ConcurrentWriters":
        users = await asyncio.to_thread(self._people)
        chats = await asyncio.to_thread(self._chats, users)
        self.chat_id = chats[0]
        self._devices = [Device(user) for user in users]
        await asyncio.gather(*(device.connect() for device in self._devices))
        many, calm = self._devices[:DEVICES], self._devices[DEVICES:]
        self._tasks = [asyncio.create_task(self._write(many[each % DEVICES], chats[0])) for each in range(WRITERS)]
        self._tasks += [asyncio.create_task(self._write_as_bystander(device, chats[1])) for device in calm]
        await self.bystanders_progress()
        return self

    async def __aexit__(self, *reason: object) -> None:
        self._over = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(device.close() for device in self._devices))

    async def all_pending(self) -> None:
        """Returns once every one of the many has a send under way."""
        await self._until(lambda: self._waiting == WRITERS)

    async def progress(self) -> None:
        """Returns once as many sends of the many have got through again as there are writers."""
        wanted = self.acks + WRITERS
        await self._until(lambda: self.acks >= wanted)

    async def bystanders_progress(self) -> None:
        """Returns once each of the few has got some more through."""
        wanted = self.bystander_acks + 6
        await self._until(lambda: self.bystander_acks >= wanted)

    def bystanders_refused_s(self) -> float:
        """The longest time from one refusal to the last one before something got through again."""
        return max((row[-1][0] - row[0][0] for row in self.bystander_refusals if row), default=0.0)

    async def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 2 * ANSWER_S
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain; refused: {self.bystander_refusals}"
            await asyncio.sleep(0.02)

    async def _write(self, device: Device, chat_id: str) -> None:
        while not self._over:
            self._waiting += 1
            try:
                with suppress(Refused, Lost):
                    await device.send(chat_id, "one of many")
                    self.acks += 1
            finally:
                self._waiting -= 1
            await asyncio.sleep(PACE_S)

    async def _write_as_bystander(self, device: Device, chat_id: str) -> None:
        refusals: list[tuple[float, str]] = []
        self.bystander_refusals.append(refusals)
        while not self._over:
            try:
                await device.send(chat_id, "one of few")
                self.bystander_acks += 1
                if refusals:
                    refusals = []
                    self.bystander_refusals.append(refusals)
            except Refused as refused:
                refusals.append((time.monotonic(), str(refused)))
            await asyncio.sleep(BYSTANDER_PACE_S)

    # --- before it begins ---------------------------------------------------------------------------------------------

    def _people(self) -> Sequence[User]:
        """The many by turns at both gateways, the few one at each."""
        gateways = self._deployment.gateways
        numbers = [next(_numbers) for _ in range(DEVICES + len(gateways))]
        return [
            User(self._deployment.api, f"+49171{number:08d}", gateway=gateways[place % len(gateways)])
            for place, number in enumerate(numbers)
        ]

    def _chats(self, users: Sequence[User]) -> tuple[str, str]:
        """One of the process that will break, one of the other."""
        addresses = sorted(f"127.0.0.1:{each.rpc_port}" for each in self._deployment.ingests)
        found: dict[bool, str] = {}
        for _ in range(CHATS_TRIED_MAX):
            chat_id = users[0].create_group(*users[1:])
            found.setdefault(rendezvous(chat_id, addresses) == self._broken, chat_id)
            if len(found) == 2:
                return found[True], found[False]
        raise AssertionError("no chats were found for both processes")

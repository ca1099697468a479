"""Many who write at once to a chat of one ingest process, and a few who write to chats of the other one.

What the many are told is theirs. The few must not notice for longer than a second that anything fails elsewhere.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count

from seriatim.engines.grpc.durability import rendezvous
from tests.system.deployment import Deployment, Process
from tests.system.people import ANSWER_S, Person
from tests.system.phones import Lost, Phone, Refused

WRITERS = 40
PHONES = 5  # that they share: eight of them write less than ten messages a second
PACE_S = 1.0
CALM_PACE_S = 0.3
REFUSED_S = 1.0
CHATS_TRIED_MAX = 50

_numbers = count()


class Crowd:
    """Enter it to begin, leave it to end. `broken`: the ingest process that the many depend on."""

    def __init__(self, deployment: Deployment, broken: Process) -> None:
        self._deployment = deployment
        self._broken = f"127.0.0.1:{broken.rpc_port}"
        self.chat_id = ""
        self._waiting = 0
        self._over = False
        self._phones: list[Phone] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.calm_acks = 0
        self.calm_refusals: list[list[tuple[float, str]]] = []  # those in a row, when and what

    async def __aenter__(self) -> "Crowd":
        people = await asyncio.to_thread(self._people)
        chats = await asyncio.to_thread(self._chats, people)
        self.chat_id = chats[0]
        self._phones = [Phone(person) for person in people]
        await asyncio.gather(*(phone.connect() for phone in self._phones))
        many, calm = self._phones[:PHONES], self._phones[PHONES:]
        self._tasks = [asyncio.create_task(self._write(many[each % PHONES], chats[0])) for each in range(WRITERS)]
        self._tasks += [asyncio.create_task(self._write_calmly(phone, chats[1])) for phone in calm]
        await self.calm_goes_on()
        return self

    async def __aexit__(self, *reason: object) -> None:
        self._over = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(phone.hang_up() for phone in self._phones))

    async def all_wait(self) -> None:
        """Returns once every one of the many has a send under way."""
        await self._until(lambda: self._waiting == WRITERS)

    async def calm_goes_on(self) -> None:
        """Returns once each of the few has got some more through."""
        wanted = self.calm_acks + 6
        await self._until(lambda: self.calm_acks >= wanted)

    def calm_was_refused_s(self) -> float:
        """The longest time from one refusal to the last one before something got through again."""
        return max((row[-1][0] - row[0][0] for row in self.calm_refusals if row), default=0.0)

    async def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 2 * ANSWER_S
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain; refused: {self.calm_refusals}"
            await asyncio.sleep(0.02)

    async def _write(self, phone: Phone, chat_id: str) -> None:
        while not self._over:
            self._waiting += 1
            try:
                with suppress(Refused, Lost):
                    await phone.send(chat_id, "one of many")
            finally:
                self._waiting -= 1
            await asyncio.sleep(PACE_S)

    async def _write_calmly(self, phone: Phone, chat_id: str) -> None:
        refusals: list[tuple[float, str]] = []
        self.calm_refusals.append(refusals)
        while not self._over:
            try:
                await phone.send(chat_id, "one of few")
                self.calm_acks += 1
                if refusals:
                    refusals = []
                    self.calm_refusals.append(refusals)
            except Refused as refused:
                refusals.append((time.monotonic(), str(refused)))
            await asyncio.sleep(CALM_PACE_S)

    # --- before it begins ---------------------------------------------------------------------------------------------

    def _people(self) -> Sequence[Person]:
        """The many by turns at both gateways, the few one at each."""
        gateways = self._deployment.gateways
        numbers = [next(_numbers) for _ in range(PHONES + len(gateways))]
        return [
            Person(self._deployment.api, f"+49171{number:08d}", gateway=gateways[place % len(gateways)])
            for place, number in enumerate(numbers)
        ]

    def _chats(self, people: Sequence[Person]) -> tuple[str, str]:
        """One of the process that will break, one of the other."""
        addresses = sorted(f"127.0.0.1:{each.rpc_port}" for each in self._deployment.ingests)
        found: dict[bool, str] = {}
        for _ in range(CHATS_TRIED_MAX):
            chat_id = people[0].create_group(*people[1:])
            found.setdefault(rendezvous(chat_id, addresses) == self._broken, chat_id)
            if len(found) == 2:
                return found[True], found[False]
        raise AssertionError("no chats were found for both processes")

"""The distributed system over real sockets and real engines: what a message costs each role and each engine.

Every process runs where the kernel puts it, and all of them share this machine with the engines and with us. So read
calls and CPU; messages per second say how fast this one machine does everything at once.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from bench.bare_engines import appends, own_topics, transactions
from bench.clients import Client, Writer, in_crowds
from bench.counts import Numbers, less, per_message
from bench.deployment import CHAT, CHATS, SIZES, Deployment, Population, deployed
from bench.distributed_figures import BARE_KAFKA, BARE_STORE, Found
from bench.figures import Sample
from bench.looker import Looker
from bench.processes import on_a_loop
from tools.engines.engines import Engines

MEMORY = Path("/dev/shm")  # DynamoDB Local syncs its disk for each write; the real one is not slowed down by ours
CONTENT_BYTES = 100
CONTENT = ("hello " * CONTENT_BYTES)[:CONTENT_BYTES]
SETTLE_S = 2.0  # after people have come: what a chat leaves behind is flushed by then
ARRIVE_S = 10.0  # for the last pushes of a run


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one run; before it a fifth as much is not timed, and `rest_s` are measured without messages."""

    rounds: int
    seconds: float
    rest_s: float
    bare_s: float


WHOLE = Plan(rounds=3, seconds=6.0, rest_s=4.0, bare_s=2.0)
QUICK = Plan(rounds=1, seconds=3.0, rest_s=2.0, bare_s=1.0)


class Crowd(msgspec.Struct, frozen=True, kw_only=True):
    """`goal`: the most calls to DynamoDB that a message may take. All members of the chats are online."""

    name: str
    writers: int
    members: int
    chats: int = 1
    goal: float

    @property
    def at_once(self) -> int:
        """How many requests at a time a baseline makes that stands beside it."""
        return min(self.writers, CHAT)


CROWDS = (
    Crowd(name="1 writer in a chat of 2", writers=1, members=2, goal=3.0),
    Crowd(name=f"{CHAT} writers in {CHAT} chats of 2", writers=CHAT, members=2, chats=CHAT, goal=3.0),
    Crowd(name=f"{CHAT} writers in a chat of {CHAT}", writers=CHAT, members=CHAT, goal=0.5),
    Crowd(
        name=f"{CHAT * CHATS} writers in {CHATS} chats of {CHAT}",
        writers=CHAT * CHATS,
        members=CHAT,
        chats=CHATS,
        goal=0.5,
    ),
)


def measure(plan: Plan) -> list[Found]:
    """Raises `EngineMissing` when there is an engine that is not on this machine."""
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", file=sys.stderr, flush=True)

    say("starting DynamoDB Local, Kafka and Redis, with their data in memory where there is such a folder")
    root = MEMORY if MEMORY.is_dir() else None
    with Engines.started(root) as engines, tempfile.TemporaryDirectory(prefix="seriatim-bench-") as folder:
        say(f"starting {', '.join(f'{count} {role}' for role, count in SIZES.items())}")
        with deployed(engines, Path(folder)) as deployment:
            say(f"signing {CHAT * CHATS} people in")
            population = on_a_loop(deployment.settle_people())
            on_a_loop(own_topics(deployment.settings.events))
            found = {crowd: Found(name=crowd.name, goal=crowd.goal) for crowd in CROWDS}
            for number in range(plan.rounds):
                bare: dict[int, dict[str, Sample]] = {}
                for crowd in CROWDS:
                    if crowd.at_once not in bare:
                        say(f"round {number + 1}: bare engines, {crowd.at_once} at once")
                        bare[crowd.at_once] = on_a_loop(bare_engines(plan, deployment, population, crowd.at_once))
                    say(f"round {number + 1}: {crowd.name}")
                    numbers = on_a_loop(run(plan, deployment, population, crowd))
                    say(f"  {numbers['acks_per_s']:,.0f} acks/s, {numbers['calls']:.2f} calls per message")
                    found[crowd].rounds.append(numbers)
                    found[crowd].bare.append(bare[crowd.at_once])
    return list(found.values())


async def bare_engines(plan: Plan, deployment: Deployment, population: Population, at_once: int) -> dict[str, Sample]:
    settings, seconds = deployment.settings, plan.bare_s
    senders = [person.user_id for person in population.persons[:CHAT]]
    committed = await transactions(settings.store, population.spare, senders, CONTENT, waiting=at_once, seconds=seconds)
    appended = await appends(settings.events, population.spare, CONTENT, waiting=at_once, seconds=seconds)
    return {BARE_STORE: committed, BARE_KAFKA: appended}


async def run(plan: Plan, deployment: Deployment, population: Population, crowd: Crowd) -> Numbers:
    return await Run(plan, deployment, population, crowd).measure()


class Run:
    """One crowd comes, is silent, writes, and waits until everything has arrived. All of it is accounted for."""

    def __init__(self, plan: Plan, deployment: Deployment, population: Population, crowd: Crowd) -> None:
        self._plan = plan
        self._deployment = deployment
        self._crowd = crowd
        self._looker = Looker(deployment)
        self.writers: list[Writer] = []
        self.clients: list[Client] = []  # chat by chat: neighbours are at different gateways
        chats = population.pairs if crowd.members == 2 else population.crowds
        here = crowd.writers // crowd.chats
        for number, chat_id in enumerate(chats[: crowd.chats]):
            persons = population.persons[number * crowd.members : (number + 1) * crowd.members]
            tokens = [person.tokens[0] for person in persons]
            writers = [Writer(token, chat_id, CONTENT_BYTES) for token in tokens[:here]]
            self.writers += writers
            self.clients += [*writers, *(Client(token, chat_id) for token in tokens[here:])]

    async def measure(self) -> Numbers:
        await in_crowds(self._enter(client, number) for number, client in enumerate(self.clients))
        await asyncio.sleep(SETTLE_S)
        resting = await self._rest()
        before = await self._looker.counts()
        began, used = time.perf_counter(), self._looker.cpu_s()
        speed = await self._write()
        await self._arrive()
        used, took = less(self._looker.cpu_s(), used), time.perf_counter() - began
        after = await self._looker.counts()
        for client in self.clients:
            client.check()
            client.close()
        cost = per_message(before, after, used_s=used, seconds=took, resting=resting)
        return {**speed, **cost}

    async def _enter(self, client: Client, number: int) -> None:
        await client.connect(self._deployment.gateway(number))
        await client.sync(client.chat_id)

    async def _rest(self) -> Numbers:
        """Seconds of CPU in a second of silence."""
        began, used = time.perf_counter(), self._looker.cpu_s()
        await asyncio.sleep(self._plan.rest_s)
        took = time.perf_counter() - began
        return {name: value / took for name, value in less(self._looker.cpu_s(), used).items()}

    async def _write(self) -> Numbers:
        for writer in self.writers:
            writer.begin()
        await asyncio.sleep(self._plan.seconds / 5)
        for writer in self.writers:
            writer.latencies_s.clear()
        began, acks, pushes = time.perf_counter(), self._acks(), self._pushes()
        await asyncio.sleep(self._plan.seconds)
        took, acks, pushes = time.perf_counter() - began, self._acks() - acks, self._pushes() - pushes
        cuts = statistics.quantiles([each for writer in self.writers for each in writer.latencies_s], n=100)
        return {
            "acks_per_s": acks / took,
            "deliveries_per_s": pushes / took,
            "p50_ms": 1000 * cuts[49],
            "p99_ms": 1000 * cuts[98],
        }

    async def _arrive(self) -> None:
        """What is on its way costs its roles as much as what has arrived."""
        for writer in self.writers:
            writer.cease()
        async with asyncio.timeout(ARRIVE_S):
            while any(writer.in_flight for writer in self.writers) or self._pushes() < self._expected():
                for client in self.clients:
                    client.check()
                await asyncio.sleep(0.01)

    def _acks(self) -> int:
        return sum(writer.acks for writer in self.writers)

    def _pushes(self) -> int:
        return sum(client.frames for client in self.clients)

    def _expected(self) -> int:
        """Each message goes to everybody else."""
        return self._acks() * (self._crowd.members - 1)

"""The whole server over real sockets and a real disk, beside the bare store and the bare WebSocket library.

Every round measures a figure and its baselines one after the other, so that all see the same mood of the machine.
"""

import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.clients import Address, Client, Writer, in_crowds
from bench.figures import Measured, Sample
from bench.people import CROWDS, DEVICES, SILENT_EACH, People, gather_people, get, silent
from bench.processes import Child, child, on_a_loop

CONTENT_BYTES = 100
LONG_CONTENT_BYTES = 2000  # fills what the kernel buffers for a reader who does not read
BARE_CHAT = "bare chat: websockets and synced groups"
BARE_STORE = "bare store: synced groups"
BARE_ECHO = "bare websockets: echo"
BARE_BROADCAST = "bare websockets: broadcast"
BARE_IDLE = "bare websockets: idle"
THEY_READ = "beside as many that read"
NO_CHAT = "chat_01HZX3V9GQ2M5T8B7C6D4E3F2A"  # as long as a chat's id
CHAT_WRITERS = 10
PUSH_OVERHEAD_BYTES = 200  # that a pushed frame has more than a sent one
FLOOD_MESSAGES = 1500  # to each of those who do not read: their buffer holds 1000


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured. Seconds are of one round of one figure; a fifth as much before is not counted."""

    rounds: int
    seconds: float
    persons: int
    idle_from: int
    slow_seconds: float


WHOLE = Plan(rounds=3, seconds=1.5, persons=1100, idle_from=100, slow_seconds=3.0)
QUICK = Plan(rounds=1, seconds=0.6, persons=1000, idle_from=100, slow_seconds=1.0)
PARTS = ("acks", "deliveries", "idle", "slow")


def measure(plan: Plan, parts: Sequence[str], *, profiles: Path | None = None) -> list[Measured]:
    """`profiles`: a folder for what cProfile saw in each server. It slows the server down by half."""
    with tempfile.TemporaryDirectory(prefix="seriatim-bench-", ignore_cleanup_errors=True) as root:
        bench = Bench(plan, Path(root), profiles)
        bench.say("signing people in")
        with child("seriatim", "--data", str(bench.data)) as process:
            people = on_a_loop(gather_people(bench.data, listening(process), persons=plan.persons))
        figures: list[Measured] = []
        if "acks" in parts:
            figures += acks(bench, people)
        if "deliveries" in parts:
            figures.append(deliveries(bench, people))
        if "idle" in parts:
            figures.append(idle(bench, people))
        if "slow" in parts:
            figures.append(slow(bench, people))
        return figures


class Bench:
    def __init__(self, plan: Plan, root: Path, profiles: Path | None) -> None:
        self.plan = plan
        self.data = root / "data"
        self._root = root
        self._profiles = profiles
        self._children = 0
        self._began = time.monotonic()

    def say(self, line: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {line}", file=sys.stderr, flush=True)

    @contextmanager
    def seriatim(self, label: str) -> Iterator[Child]:
        """A fresh process on a copy of the folder in which everybody is signed in.

        A copy, for the baselines have young stores, too: one that grows from figure to figure is also compacted, on
        the same core, while it is measured.
        """
        self._children += 1
        data = self._root / f"data{self._children}"
        shutil.copytree(self.data, data, ignore=shutil.ignore_patterns("*.sock"))
        asked = () if self._profiles is None else ("--profile", str(self._profiles / f"{self._children}-{label}.prof"))
        try:
            with child("seriatim", "--data", str(data), *asked) as process:
                yield process
                if self._profiles is not None:
                    process.stop()
        finally:
            shutil.rmtree(data, ignore_errors=True)

    @contextmanager
    def bare_chat(self, members: int) -> Iterator[Child]:
        self._children += 1
        path = self._root / f"chat{self._children}"
        with child("chat", "--data", str(path), "--members", str(members)) as process:
            yield process

    def bare_store(self, crowd: "Crowd") -> Sample:
        """In the same chats: a chat's counter is written once for all its messages of a group."""
        self._children += 1
        chats = max(1, crowd.connections // crowd.chat)
        asked = {
            "--data": str(self._root / f"store{self._children}"),
            "--chats": str(chats),
            "--writers": str(crowd.connections * crowd.depth // chats),
            "--seconds": str(self.plan.seconds),
        }
        with child("store", *[word for pair in asked.items() for word in pair]) as process:
            found = process.wait_for("result")
        return Sample(value=found["value"], cpu_us=found["cpu_us"], p50_ms=found["p50_ms"], p99_ms=found["p99_ms"])


def listening(process: Child) -> Address:
    return Address("127.0.0.1", process.wait_for("listening")["port"])


# --- durable acks -----------------------------------------------------------------------------------------------------


class Crowd(msgspec.Struct, frozen=True):
    """Who writes: so many connections, in chats of so many, each with so many messages on their way at a time."""

    connections: int
    chat: int
    depth: int = 1

    def __str__(self) -> str:
        deep = f", {self.depth} on their way each" if self.depth > 1 else ""
        chats = "" if self.connections == 1 else f" in {'pairs' if self.chat == 2 else f'chats of {self.chat}'}"
        return f"{self.connections} connection{'s' if self.connections > 1 else ''}{chats}{deep}"


CROWDS_OF_WRITERS = (Crowd(1, 2), Crowd(100, 2), Crowd(100, 10), Crowd(1000, 2), Crowd(1000, 10), Crowd(100, 10, 16))


def acks(bench: Bench, people: People) -> list[Measured]:
    """Everybody sends, waits for the ack, and sends again. The rest of the chat is online and gets each message."""
    ours: dict[Crowd, list[Sample]] = {crowd: [] for crowd in CROWDS_OF_WRITERS}
    bare_chats: dict[Crowd, list[Sample]] = {crowd: [] for crowd in CROWDS_OF_WRITERS}
    echoes: dict[tuple[int, int], list[Sample]] = {}
    stores: dict[Crowd, list[Sample]] = {crowd: [] for crowd in CROWDS_OF_WRITERS}
    for number in range(bench.plan.rounds):
        for crowd in CROWDS_OF_WRITERS:
            bench.say(f"acks, round {number + 1}: {crowd}")
            stores[crowd].append(bench.bare_store(crowd))
            if len(echoes.setdefault((crowd.connections, crowd.depth), [])) == number:
                with child("echo") as process:
                    sample = on_a_loop(echo_loop(bench, process, crowd))
                echoes[crowd.connections, crowd.depth].append(sample)
            with bench.bare_chat(crowd.chat) as process:
                bare_chats[crowd].append(on_a_loop(echo_loop(bench, process, crowd)))
            with bench.seriatim(str(crowd)) as process:
                ours[crowd].append(on_a_loop(ack_loop(bench, process, people, crowd)))
    return [
        Measured(
            name="durable acks per second",
            unit=str(crowd),
            rounds=ours[crowd],
            baselines={
                BARE_CHAT: bare_chats[crowd],
                BARE_STORE: stores[crowd],
                BARE_ECHO: echoes[crowd.connections, crowd.depth],
            },
        )
        for crowd in CROWDS_OF_WRITERS
    ]


async def ack_loop(bench: Bench, process: Child, people: People, crowd: Crowd) -> Sample:
    chats = people.pairs if crowd.chat == 2 else people.tens
    writers = [
        Writer(people.token(number), chats[number // crowd.chat], CONTENT_BYTES) for number in range(crowd.connections)
    ]
    await enter(listening(process), writers)
    return await closed_loop(bench.plan.seconds, process, writers, depth=crowd.depth)


async def echo_loop(bench: Bench, process: Child, crowd: Crowd) -> Sample:
    writers = [Writer("", NO_CHAT, CONTENT_BYTES, echoed=True) for _ in range(crowd.connections)]
    await enter(listening(process), writers)
    return await closed_loop(bench.plan.seconds, process, writers, depth=crowd.depth)


async def enter(at: Address, clients: Sequence[Client]) -> None:
    """Connects; who comes with a token to a chat syncs it first."""

    async def one(client: Client) -> None:
        await client.connect(at)
        if client.token and client.chat_id:
            await client.sync(client.chat_id)

    await in_crowds(one(client) for client in clients)


async def closed_loop(
    seconds: float,
    process: Child,
    writers: Sequence[Writer],
    others: Sequence[Client] | None = None,
    *,
    depth: int = 1,
) -> Sample:
    """Lets the writers write, and counts their acks once they are warm; with `others`, what is pushed to those."""

    def count() -> int:
        return sum(each.acks for each in writers) if others is None else sum(each.frames for each in others)

    for writer in writers:
        writer.begin(depth)
    await asyncio.sleep(seconds / 5)
    for writer in writers:
        writer.latencies_s.clear()
    began, counted, load_s, server_s = time.perf_counter(), count(), time.process_time(), process.cpu_s()
    await asyncio.sleep(seconds)
    took = time.perf_counter() - began
    value, load, server = count() - counted, time.process_time() - load_s, process.cpu_s() - server_s
    latencies_s = [each for writer in writers for each in writer.latencies_s]
    for client in (*writers, *(others or ())):
        client.check()
    for client in (*writers, *(others or ())):
        client.close()
    cuts = statistics.quantiles(latencies_s, n=100)
    return Sample(
        value=value / took,
        cpu_us=1e6 * server / max(value, 1),
        p50_ms=1000 * cuts[49],
        p99_ms=1000 * cuts[98],
        load_busy=load / took,
        server_busy=server / took,
    )


# --- deliveries -------------------------------------------------------------------------------------------------------


def deliveries(bench: Bench, people: People) -> Measured:
    """A hundred members with ten devices each; ten of them write, each when the last message was acknowledged."""
    ours: list[Sample] = []
    bare: list[Sample] = []
    for number in range(bench.plan.rounds):
        bench.say(f"deliveries, round {number + 1}")
        with child("broadcast") as process:
            bare.append(on_a_loop(broadcast_loop(bench, process)))
        with bench.seriatim("deliveries") as process:
            ours.append(on_a_loop(delivery_loop(bench, process, people)))
    sockets = 100 * DEVICES
    return Measured(
        name="deliveries per second",
        unit=f"one chat, {sockets} sockets, {CHAT_WRITERS} of them write; the latency is that of their acks",
        rounds=ours,
        baselines={BARE_BROADCAST: bare},
    )


async def delivery_loop(bench: Bench, process: Child, people: People) -> Sample:
    chat_id = people.hundred
    writers = [Writer(people.token(number), chat_id, CONTENT_BYTES) for number in range(CHAT_WRITERS)]
    tokens = [token for person in people.persons[:100] for token in person.tokens]
    taken = {writer.token for writer in writers}
    others = [Client(token, chat_id) for token in tokens if token not in taken]
    await enter(listening(process), [*writers, *others])
    return await closed_loop(bench.plan.seconds, process, writers, [*writers, *others])


async def broadcast_loop(bench: Bench, process: Child) -> Sample:
    """The text that goes round is as long as a pushed frame of ours."""
    writers = [Writer("", NO_CHAT, CONTENT_BYTES + PUSH_OVERHEAD_BYTES, echoed=True) for _ in range(CHAT_WRITERS)]
    others = [Client() for _ in range(100 * DEVICES - CHAT_WRITERS)]
    await enter(listening(process), [*writers, *others])
    return await closed_loop(bench.plan.seconds, process, writers, [*writers, *others])


# --- memory -----------------------------------------------------------------------------------------------------------


def idle(bench: Bench, people: People) -> Measured:
    """How much the process grows from the first hundred connections, greeted and silent, to the last."""
    tokens = people.all_tokens()
    ours: list[Sample] = []
    bare: list[Sample] = []
    for number in range(bench.plan.rounds):
        bench.say(f"idle connections, round {number + 1}")
        with child("echo") as process:
            bare.append(on_a_loop(grown(bench, process, [""] * len(tokens))))
        with bench.seriatim("idle") as process:
            ours.append(on_a_loop(grown(bench, process, tokens)))
    return Measured(
        name="KiB per idle connection",
        unit=f"{len(tokens) - bench.plan.idle_from} connections; resident memory",
        rounds=ours,
        baselines={BARE_IDLE: bare},
        less_is_better=True,
    )


async def grown(bench: Bench, process: Child, tokens: Sequence[str]) -> Sample:
    clients = [Client(token) for token in tokens]
    at, first = listening(process), bench.plan.idle_from
    await enter(at, clients[:first])
    await asyncio.sleep(0.5)
    before = process.rss_bytes()
    await enter(at, clients[first:])
    await asyncio.sleep(0.5)
    after = process.rss_bytes()
    for client in clients:
        client.check()
        client.close()
    return Sample(value=(after - before) / 1024 / (len(tokens) - first))


# --- clients that do not read -----------------------------------------------------------------------------------------


def slow(bench: Bench, people: People) -> Measured:
    """A hundred others chat in pairs, while messages come to 200 clients that read, or that have ceased to."""
    stuck: list[Sample] = []
    reading: list[Sample] = []
    warned_count = 0
    for number in range(bench.plan.rounds):
        bench.say(f"clients that do not read, round {number + 1}")
        with bench.seriatim("readers") as process:
            reading.append(on_a_loop(beside_a_crowd(bench, process, people, reads=True))[0])
        with bench.seriatim("no-readers") as process:
            sample, warned_count = on_a_loop(beside_a_crowd(bench, process, people, reads=False))
            stuck.append(sample)
    return Measured(
        name="acks per second of others, beside clients that do not read",
        unit=f"100 connections in pairs, {CROWDS * SILENT_EACH} that do not read",
        rounds=stuck,
        baselines={THEY_READ: reading},
        note=f"{warned_count} of {CROWDS * SILENT_EACH} were told SLOW_CONSUMER before the measurement began",
    )


async def beside_a_crowd(bench: Bench, process: Child, people: People, *, reads: bool) -> tuple[Sample, int]:
    at = listening(process)
    talkers = [Writer(people.token(each), people.crowds[each], LONG_CONTENT_BYTES) for each in range(CROWDS)]
    crowd = [Client(people.token(one), people.crowds[each]) for each in range(CROWDS) for one in silent(each)]
    first = CROWDS
    writers = [
        Writer(people.token(number), people.pairs[number // 2], CONTENT_BYTES) for number in range(first, first + 100)
    ]
    await enter(at, [*talkers, *writers, *crowd])
    if not reads:
        for client in crowd:
            client.stop_reading()
    await flooded(talkers)
    await asyncio.sleep(0.2)
    internal = Address("127.0.0.1", process.wait_for("listening")["internal_port"])
    warned_count = warned(await get(internal, "/metrics"))
    trickle = asyncio.create_task(trickling(talkers))
    try:
        return await closed_loop(bench.plan.slow_seconds, process, writers), warned_count
    finally:
        trickle.cancel()
        for client in (*talkers, *crowd):
            client.close()


async def flooded(talkers: Sequence[Writer]) -> None:
    """More than the buffers of kernel and server hold for one socket, as fast as it goes."""
    for talker in talkers:
        talker.begin(depth=20)
    going = list(talkers)
    while going:
        await asyncio.sleep(0.01)
        for talker in going:
            talker.check()
            if talker.acks >= FLOOD_MESSAGES:
                talker.cease()
        going = [talker for talker in going if talker.acks < FLOOD_MESSAGES]
    while any(talker.in_flight for talker in talkers):  # noqa: ASYNC110 - a client has no event for it
        await asyncio.sleep(0.01)


async def trickling(talkers: Sequence[Writer]) -> None:
    """The chats of those who do not read go on."""
    while True:
        for talker in talkers:
            talker.send()
        await asyncio.sleep(0.02)


def warned(metrics: str) -> int:
    for line in metrics.splitlines():
        if line.startswith("gateway_errors_sent_total") and 'code="SLOW_CONSUMER"' in line:
            return int(float(line.rpartition(" ")[2]))
    return 0

"""The planes one by one, within one process and without a network, beside the same work done bare.

`make bench ARGS=planes`. Machines are noisy: read the ratios.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from bench.figures import Figure
from seriatim.connection.gateway import Gateway
from seriatim.connection.socket import ClientIdentity
from seriatim.domain.chat import Chat, ChatType
from seriatim.domain.message import Draft, Message, Receipt
from seriatim.durability.ingest import Ingest
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.inprocess.directory import InProcessDirectory, InProcessRegistry
from seriatim.engines.inprocess.push import InProcessChannels, InProcessPush, InProcessPushSubscriber
from seriatim.engines.inprocess.wire import Wire
from seriatim.ports.event_log import MESSAGES
from seriatim.ports.message_log import Entry
from seriatim.ports.push import MessageDelivery
from seriatim.protocol.codec import decode_client_frame, encode
from seriatim.protocol.frames import SendMessage, message_frame
from seriatim.simulation.runner import empty_loop_events_per_s, run_seeds
from seriatim.simulation.stores.catalog import MemoryCatalog
from seriatim.simulation.stores.event_log import MemoryBroker, MemoryEventWriter
from seriatim.simulation.stores.message_log import MemoryMessageLog
from seriatim.simulation.stores.tables import MemoryStore

BATCH = 48  # messages of one full transaction
ROUNDS = 40
SOCKETS = 1000


def figures() -> list[Figure]:
    return [asyncio.run(sends()), decoding(), asyncio.run(delivering()), simulating()]


async def sends() -> Figure:
    """The durability plane over the memory engine, against the engine's own transactions with nothing around them."""
    clock, store = SystemClock(), MemoryStore()
    log = MemoryMessageLog(store, Wire())
    chat = Chat(
        chat_id="chat_bench",
        chat_type=ChatType.GROUP,
        name=None,
        created_by="user_a",
        created_at="",
        updated_at="",
        member_count=1,
    )
    await MemoryCatalog(store, Wire()).create_group(chat, ["user_b"], now_ms=clock.now_ms(), timeout_s=1)

    async def bare() -> None:
        for number in range(ROUNDS):
            entries = [
                Entry(message=message(number * BATCH + index + 1), content_sha256="", expires_at_s=2**40)
                for index in range(BATCH)
            ]
            refused = await log.persist("chat_bare", entries, ["user_a"], token=f"t{number}", now_s=0, timeout_s=1)
            assert refused is None, "the bare engine refused"

    store.put_member(msgspec.structs.replace(store.members("chat_bench")["user_a"], chat_id="chat_bare"), 1)
    bare_s = await timed(bare)

    broker = MemoryBroker({MESSAGES: 4})
    ingest = Ingest(log=log, events=MemoryEventWriter(broker, Wire(), clock.now_ms), clock=clock, producer_id="bench")
    answered: list[object] = []
    done = asyncio.Event()

    def answer(outcome: object) -> None:
        answered.append(outcome)
        if len(answered) == ROUNDS * BATCH:
            done.set()

    async def through_the_plane() -> None:
        for number in range(ROUNDS * BATCH):
            draft = Draft(
                chat_id="chat_bench",
                sender_id="user_a",
                client_message_id=f"00000000-0000-4000-8000-{number:012x}",
                content="hello, world",
            )
            while number - len(answered) >= 500:  # noqa: ASYNC110 - a turn of the loop is what we measure
                await asyncio.sleep(0)
            ingest.submit(draft, deadline=clock.monotonic() + 60, answer=answer)
        await done.wait()

    plane_s = await timed(through_the_plane)
    assert all(isinstance(outcome, Receipt) for outcome in answered), "a send was refused"
    await ingest.drain()
    count = ROUNDS * BATCH
    return Figure(
        name="sends acked by the durability plane",
        unit="one chat, memory engine",
        per_second=count / plane_s,
        baseline="the same messages as bare transactions",
        baseline_per_second=count / bare_s,
    )


def decoding() -> Figure:
    """Strict decoding of a send, against the JSON library alone."""
    text = encode(
        SendMessage(
            client_message_id="550e8400-e29b-41d4-a716-446655440000", chat_id="chat_abc123", content="Hi there " * 20
        )
    ).decode()
    count = 50_000
    return Figure(
        name="client frames decoded",
        unit="200 bytes",
        per_second=count / timed_sync(lambda: [decode_client_frame(text) for _ in range(count)]),
        baseline="JSON to a dict",
        baseline_per_second=count / timed_sync(lambda: [msgspec.json.decode(text) for _ in range(count)]),
    )


async def delivering() -> Figure:
    """One message to a thousand connections of a gateway, against writing the encoded frame to a thousand sockets."""
    clock = SystemClock()
    registry, channels = InProcessRegistry(), InProcessChannels()
    gateway = Gateway(
        "gateway_bench",
        Ingest(
            log=MemoryMessageLog(MemoryStore(), Wire()),
            events=MemoryEventWriter(MemoryBroker({MESSAGES: 1}), Wire(), clock.now_ms),
            clock=clock,
            producer_id="bench",
        ),
        InProcessDirectory(registry, Wire(), clock.now_ms),
        InProcessPush(channels, Wire()),
        InProcessPushSubscriber(channels, Wire()),
        clock,
    )
    await gateway.start()
    sockets = [Sink() for _ in range(SOCKETS)]
    for number, socket in enumerate(sockets):
        identity = ClientIdentity(
            user_id=f"user_{number}",
            device_id=f"{number}",
            session_id="sess",
            token_expires_at_ms=clock.now_ms() + 3_600_000,
        )
        await gateway.open(socket, identity)
    names = tuple(gateway.connections)
    rounds = 20

    async def bare() -> None:
        for number in range(rounds):
            frame = encode(message_frame(message(number + 1), number))
            for socket in sockets:
                socket.write([frame])
            await asyncio.sleep(0)

    async def through_the_gateway() -> None:
        for number in range(rounds):
            gateway.received([MessageDelivery(connection_ids=names, message=message(number + 1), prev_sequence=number)])
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    bare_s = await timed(bare)
    before = sum(socket.frames for socket in sockets)
    gateway_s = await timed(through_the_gateway)
    delivered = sum(socket.frames for socket in sockets) - before
    assert delivered == rounds * SOCKETS, f"{delivered} frames left the gateway"
    await gateway.stop()
    return Figure(
        name="deliveries by the gateway",
        unit=f"{SOCKETS} sockets without a network",
        per_second=delivered / gateway_s,
        baseline="the frame written to each socket",
        baseline_per_second=rounds * SOCKETS / bare_s,
    )


def simulating() -> Figure:
    summary = run_seeds(range(1, 61), profile="mixed")
    return Figure(
        name="simulated schedules",
        unit="mixed profile",
        per_second=summary.schedules_per_core_s,
        baseline="as many events in an empty loop",
        baseline_per_second=empty_loop_events_per_s() * summary.schedules / summary.events_run,
    )


class Sink:
    """A socket that is always ready and sends nothing anywhere."""

    def __init__(self) -> None:
        self.frames = 0

    @property
    def writable(self) -> bool:
        return True

    def write(self, frames: Sequence[bytes]) -> None:
        self.frames += len(frames)

    def ping(self) -> None:
        return

    def close(self, code: int, reason: str) -> None:
        return


def message(sequence: int) -> Message:
    return Message(
        message_id=f"msg_{sequence:026d}",
        chat_id="chat_bare",
        sequence=sequence,
        sender_id="user_a",
        client_message_id=f"00000000-0000-4000-9000-{sequence:012x}",
        content="hello, world",
        content_type="text/plain",
        created_at="2026-01-30T14:30:00.000Z",
    )


async def timed(work: Callable[[], Awaitable[None]]) -> float:
    began = time.process_time()
    await work()
    return time.process_time() - began


def timed_sync(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began

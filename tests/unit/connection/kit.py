"""A gateway with nothing real around it: virtual time, a socket that remembers, a durability whose answers we choose."""

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import ParamSpec

import msgspec

from seriatim.connection.connection import Connection
from seriatim.connection.gateway import Gateway
from seriatim.connection.observe import Unobserved
from seriatim.connection.socket import Identity
from seriatim.domain.breaker import BreakerState
from seriatim.domain.errors import SeriatimError
from seriatim.domain.message import Draft, Message, Receipt
from seriatim.ports.directory import CachedMembers, Registration
from seriatim.ports.durability import Answer, PrefixPage
from seriatim.ports.push import Delivery, Parcel, ParcelReceiver
from seriatim.protocol.codec import decode_server_frame, encode
from seriatim.protocol.frames import (
    Ack,
    ClientFrame,
    CloseReason,
    ConnectionClosing,
    ErrorFrame,
    MessageBatch,
    MessageFrame,
    SendMessage,
    ServerFrame,
    SyncRequest,
)

P = ParamSpec("P")
UUID = "550e8400-e29b-41d4-a716-446655440000"
CHAT, USER, DEVICE, GATEWAY = "chat_a", "user_1", "device_1", "gw_1"


# --- time ------------------------------------------------------------------------------------------------------------


def virtual_time(test: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """Runs the test on a loop that skips all waiting. What nobody handled fails the test."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        failures: list[dict[str, object]] = []
        loop = _SkippingLoop()
        loop.set_exception_handler(lambda _, context: failures.append(context))
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(test(*args, **kwargs))
        assert failures == []

    return run


class _SkippingSelector(selectors.SelectSelector):
    now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing is left that could ever happen"
        self.now += max(0.0, timeout)
        return super().select(0)


class _SkippingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._skipping = _SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now


class FakeClock:
    """`chance` is what `random` answers; bits count up, so ids are distinct."""

    def __init__(self, chance: float = 0.0) -> None:
        self.chance = chance
        self._bits = 0

    def now_ms(self) -> int:
        return 1_769_783_400_000 + int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def random(self) -> float:
        return self.chance

    def random_bits(self, bits: int) -> int:
        self._bits += 1
        return self._bits


async def turns(count: int = 5) -> None:
    """Lets everything that is ready happen; no time passes."""
    for _ in range(count):
        await asyncio.sleep(0)


# --- the world around a gateway ----------------------------------------------------------------------------------------


class FakeSocket:
    def __init__(self) -> None:
        self.room = True
        self.writes: list[list[bytes]] = []
        self.pings = 0
        self.ponged: Callable[[], None] = lambda: None  # how the peer answers a ping
        self.closed: tuple[int, str] | None = None

    @property
    def writable(self) -> bool:
        return self.room

    def write(self, frames: Sequence[bytes]) -> None:
        assert self.closed is None, "a frame after the close"
        self.writes.append(list(frames))

    def ping(self) -> None:
        self.pings += 1
        self.ponged()

    def close(self, code: int, reason: str) -> None:
        assert self.closed is None, "closed twice"
        self.closed = (code, reason)

    @property
    def frames(self) -> list[ServerFrame]:
        decoded = [decode_server_frame(frame) for frames in self.writes for frame in frames]
        return [frame for frame in decoded if isinstance(frame, ServerFrame)]

    def of(self, kind: type[msgspec.Struct]) -> list[ServerFrame]:
        return [frame for frame in self.frames if type(frame) is kind]

    @property
    def messages(self) -> list[int]:
        return [frame.sequence for frame in self.frames if type(frame) is MessageFrame]

    @property
    def batches(self) -> list[MessageBatch]:
        return [frame for frame in self.frames if isinstance(frame, MessageBatch)]

    @property
    def errors(self) -> list[ErrorFrame]:
        return [frame for frame in self.frames if isinstance(frame, ErrorFrame)]

    @property
    def codes(self) -> list[str]:
        return [frame.code for frame in self.errors]

    @property
    def closing(self) -> ConnectionClosing | None:
        return next((frame for frame in self.frames if isinstance(frame, ConnectionClosing)), None)


class FakeDurability:
    """Chats are lists of sequences. Reads can be failed or held; submits are answered by the test."""

    def __init__(self) -> None:
        self.chats: dict[str, list[int]] = {}
        self.submitted: list[tuple[Draft, float, Answer]] = []
        self.reads: list[tuple[str, int, int]] = []  # chat, after, limit
        self.acks: list[tuple[str, int]] = []
        self.heads_asked: list[Sequence[str]] = []
        self.failures: list[SeriatimError] = []  # raised by the next calls, one each
        self.content = "Hi"
        self.gate = asyncio.Event()  # closed: every asynchronous call waits
        self.gate.set()

    def submit(self, draft: Draft, *, deadline: float, answer: Answer) -> None:
        self.submitted.append((draft, deadline, answer))

    def answer(self, index: int, outcome: Receipt | SeriatimError) -> None:
        self.submitted[index][2](outcome)

    async def read(self, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float) -> PrefixPage:
        self.reads.append((chat_id, after, limit))
        await self._pass()
        stored = self.chats.get(chat_id, [])
        above = [sequence for sequence in stored if sequence > after]
        through = above[limit - 1] if len(above) > limit else max(stored, default=0)
        found = tuple(a_message(sequence, chat_id, self.content) for sequence in above[:limit])
        return PrefixPage(messages=found, through=through, has_more=len(above) > limit)

    async def acknowledge(self, user_id: str, chat_id: str, *, sequence: int, timeout_s: float) -> None:
        self.acks.append((chat_id, sequence))
        await self._pass()

    async def heads(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, int]:
        self.heads_asked.append(chat_ids)
        await self._pass()
        return {chat_id: max(self.chats[chat_id]) for chat_id in chat_ids if self.chats.get(chat_id)}

    async def _pass(self) -> None:
        await asyncio.sleep(0)
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)


class FakeDirectory:
    def __init__(self) -> None:
        self.registered: dict[str, Registration] = {}
        self.failure: SeriatimError | None = None
        self.during_register: Callable[[], None] = lambda: None

    async def register(self, registrations: Sequence[Registration], *, timeout_s: float) -> None:
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        self.registered.update({each.connection_id: each for each in registrations})
        self.during_register()

    async def unregister(self, registration: Registration, *, timeout_s: float) -> None:
        await asyncio.sleep(0)
        self.registered.pop(registration.connection_id, None)

    async def connections(self, user_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, Sequence[Registration]]:
        await asyncio.sleep(0)
        return {user: [each for each in self.registered.values() if each.user_id == user] for user in user_ids}

    async def cached_members(self, chat_id: str, *, timeout_s: float) -> CachedMembers | None:
        raise AssertionError("a gateway routes nothing")

    async def cache_members(self, chat_id: str, members: CachedMembers, *, timeout_s: float) -> None:
        raise AssertionError("a gateway routes nothing")

    async def forget_members(self, chat_id: str, *, timeout_s: float) -> None:
        raise AssertionError("a gateway routes nothing")


class FakePush:
    def __init__(self) -> None:
        self.published: list[tuple[str, Parcel]] = []

    async def publish(self, parcels: Sequence[tuple[str, Parcel]], *, timeout_s: float) -> Sequence[bool]:
        self.published.extend(parcels)
        return [True] * len(parcels)


class FakeSubscriber:
    def __init__(self) -> None:
        self.subscribed: list[str] = []

    async def subscribe(self, gateway_id: str, receiver: ParcelReceiver, *, timeout_s: float) -> None:
        self.subscribed.append(gateway_id)

    async def unsubscribe(self, gateway_id: str) -> None:
        self.subscribed.remove(gateway_id)


class Observed(Unobserved):
    def __init__(self) -> None:
        self.high: list[int] = []
        self.ends: list[CloseReason | None] = []
        self.unknown: list[str] = []
        self.breaker_states: list[BreakerState] = []
        self.strays = 0

    def buffer_high(self, frames: int) -> None:
        self.high.append(frames)

    def connection_closed(self, reason: CloseReason | None) -> None:
        self.ends.append(reason)

    def unknown_frame(self, frame_type: str) -> None:
        self.unknown.append(frame_type)

    def breaker(self, state: BreakerState) -> None:
        self.breaker_states.append(state)

    def unknown_connection(self) -> None:
        self.strays += 1


class World:
    """A gateway, started, and everything it was handed."""

    def __init__(self, chance: float = 0.0) -> None:
        self.clock = FakeClock(chance)
        self.durability = FakeDurability()
        self.directory = FakeDirectory()
        self.push = FakePush()
        self.subscriber = FakeSubscriber()
        self.observed = Observed()
        self.gateway = Gateway(
            GATEWAY,
            self.durability,
            self.directory,
            self.push,
            self.subscriber,
            self.clock,
            observe=self.observed,
        )

    def identity(self, device_id: str = DEVICE, user_id: str = USER, expires_in_s: float = 1e6) -> Identity:
        return Identity(
            user_id=user_id,
            device_id=device_id,
            session_id="sess_1",
            token_expires_at_ms=self.clock.now_ms() + int(expires_in_s * 1000),
        )

    async def connect(self, device_id: str = DEVICE, expires_in_s: float = 1e6) -> tuple[Connection, FakeSocket]:
        """Connected, greeted, and nothing written since."""
        socket = FakeSocket()
        connection = await self.gateway.open(socket, self.identity(device_id, expires_in_s=expires_in_s))
        socket.ponged = connection.ponged
        await turns()
        socket.writes.clear()
        return connection, socket

    async def synced(self, stored: Sequence[int], after: int = 0) -> tuple[Connection, FakeSocket]:
        """Connected, and LIVE in CHAT, which holds these messages."""
        self.durability.chats[CHAT] = list(stored)
        connection, socket = await self.connect()
        await ask(connection, SyncRequest(chat_id=CHAT, last_acked_sequence=after))
        assert len(socket.batches) == 1
        assert not socket.batches[0].has_more
        socket.writes.clear()
        self.durability.reads.clear()
        return connection, socket

    def deliver(self, connection: Connection, sequence: int, prev: int | None, chat_id: str = CHAT) -> None:
        """A push; the message is stored by then, as it always is."""
        stored = self.durability.chats.setdefault(chat_id, [])
        if sequence not in stored:
            stored.append(sequence)
            stored.sort()
        self.gateway.received(
            Delivery(
                connection_ids=(connection.connection_id,), message=a_message(sequence, chat_id), prev_sequence=prev
            )
        )


def with_world(test: Callable[[World], Awaitable[None]] | None = None, *, chance: float = 0.0) -> Callable[..., object]:
    """A test of a started gateway, in virtual time; afterwards the gateway stops and nothing is left running."""

    def decorate(test: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
        async def run() -> None:
            world = World(chance)
            await world.gateway.start()
            await test(world)
            await world.gateway.stop()
            assert len(asyncio.all_tasks()) == 1, "a task was forgotten"

        run.__name__ = run.__qualname__ = getattr(test, "__name__", "test")
        run.__doc__ = test.__doc__
        return virtual_time(run)

    return decorate if test is None else decorate(test)


# --- small things ------------------------------------------------------------------------------------------------------


async def ask(connection: Connection, *frames: ClientFrame) -> None:
    """The client sends; everything that follows without time passing has happened afterwards."""
    for frame in frames:
        connection.received(encode(frame))
    await turns(8)


def a_send(number: int = 0, chat_id: str = CHAT) -> SendMessage:
    return SendMessage(client_message_id=f"{number:08d}{UUID[8:]}", chat_id=chat_id, content="Hi")


def an_ack(sequence: int, chat_id: str = CHAT) -> Ack:
    return Ack(chat_id=chat_id, last_acked_sequence=sequence)


def a_sync(after: int, chat_id: str = CHAT, limit: int = 100) -> SyncRequest:
    return SyncRequest(chat_id=chat_id, last_acked_sequence=after, limit=limit)


def a_message(sequence: int, chat_id: str = CHAT, content: str = "Hi") -> Message:
    return Message(
        message_id=f"msg_{sequence}",
        chat_id=chat_id,
        sequence=sequence,
        sender_id="user_2",
        client_message_id=UUID,
        content=content,
        content_type="text/plain",
        created_at="2026-01-30T14:30:00.000Z",
    )


def a_receipt(sequence: int, prev: int | None = None) -> Receipt:
    return Receipt(
        message_id=f"msg_{sequence}", sequence=sequence, created_at="2026-01-30T14:30:00.000Z", prev_sequence=prev
    )

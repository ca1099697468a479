"""A started gateway with nothing real around it, in virtual time, and small words for what clients do."""

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import ParamSpec

from seriatim.connection.gateway import Gateway
from seriatim.connection.session.connection import Connection
from seriatim.connection.socket import ClientIdentity
from seriatim.ports.push import MessageDelivery
from seriatim.protocol.codec import encode
from seriatim.protocol.frames import Ack, ClientFrame, SendMessage, SyncRequest
from tests.unit.connection.fakes import (
    CHAT,
    UUID,
    FakeClock,
    FakeDirectory,
    FakeDurability,
    FakePush,
    FakeSocket,
    FakeSubscriber,
    Observed,
    a_message,
)

P = ParamSpec("P")
USER, DEVICE, GATEWAY = "user_1", "device_1", "gw_1"


# --- time ----------------------------------------------------------------------------------------------------------


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

    def stall(self, seconds: float) -> None:
        self._skipping.now += seconds


def stall(seconds: float) -> None:
    """The loop does nothing else for so long: whatever becomes due meanwhile is late. Only in virtual time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, _SkippingLoop)
    loop.stall(seconds)


async def turns(count: int = 5) -> None:
    """Lets everything that is ready happen; no time passes."""
    for _ in range(count):
        await asyncio.sleep(0)


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

    def identity(self, device_id: str = DEVICE, user_id: str = USER, expires_in_s: float = 1e6) -> ClientIdentity:
        return ClientIdentity(
            user_id=user_id,
            device_id=device_id,
            session_id="sess_1",
            token_expires_at_ms=self.clock.now_ms() + int(expires_in_s * 1000),
        )

    async def connect(self, device_id: str = DEVICE, expires_in_s: float = 1e6) -> tuple[Connection, FakeSocket]:
        """Connected, greeted, and nothing written since."""
        socket = FakeSocket()
        connection = await self.gateway.open(socket, self.identity(device_id, expires_in_s=expires_in_s))
        socket.pong_received = connection.pong_received
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
        self.gateway.received([a_delivery(connection, sequence, prev, chat_id)])

    def deliver_run(self, *deliveries: MessageDelivery) -> None:
        """Pushes that arrive together, of messages that are stored by then."""
        for each in deliveries:
            stored = self.durability.chats.setdefault(each.message.chat_id, [])
            stored.append(each.message.sequence)
            stored.sort()
        self.gateway.received(deliveries)


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


# --- small things --------------------------------------------------------------------------------------------------


def a_delivery(connection: Connection, sequence: int, prev: int | None, chat_id: str = CHAT) -> MessageDelivery:
    return MessageDelivery(
        connection_ids=(connection.connection_id,), message=a_message(sequence, chat_id), prev_sequence=prev
    )


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

"""A gateway on fakes, in virtual time, and functions for what its clients do. See the fixture `harness`."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Sequence

import pytest

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

USER, DEVICE, GATEWAY = "user_1", "device_1", "gw_1"

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

# --- time -------------------------------------------------------------------------------------------------------------


def run_on_loop(work: Coroutine[object, object, None], loop_factory: LoopFactory) -> None:
    """An unhandled failure, or a task that was not ended, fails the test."""
    failures: list[dict[str, object]] = []

    async def checked() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        await work
        assert len(asyncio.all_tasks()) == 1, "a task was not ended"

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(checked())
    assert failures == []


class _SkippingSelector(selectors.SelectSelector):
    now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing is left that could ever happen"
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Skips all waiting."""

    def __init__(self) -> None:
        self._skipping = _SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now

    def stall(self, seconds: float) -> None:
        self._skipping.now += seconds


def stall(seconds: float) -> None:
    """Blocks the loop for so long in virtual time: timers that become due meanwhile are late."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.stall(seconds)


async def turns(count: int = 5) -> None:
    """Runs everything that is ready; no time passes."""
    for _ in range(count):
        await asyncio.sleep(0)


class GatewayHarness:
    """A gateway, and the fakes that it was given."""

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

    async def run(self, test: Awaitable[None]) -> None:
        await self.gateway.start()
        await test
        await self.gateway.stop()

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


# --- frames --------------------------------------------------------------------------------------------------


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


def gateway_chance(chance: float) -> pytest.MarkDecorator:
    """Every random number of the gateway is this one."""
    return pytest.mark.parametrize("harness", [chance], indirect=True)

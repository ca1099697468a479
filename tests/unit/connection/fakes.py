"""Doubles of what a gateway is handed: a socket that remembers, a durability that answers as scripted, and the rest."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from seriatim.connection.observer import GatewayObserver
from seriatim.domain.errors import SeriatimError
from seriatim.domain.message import Draft, Message, Receipt
from seriatim.ports.directory import CachedMembers, Registration
from seriatim.ports.durability import Answer, PrefixPage
from seriatim.ports.push import PushEnvelope, PushReceiver
from seriatim.protocol.codec import decode_server_frame
from seriatim.protocol.frames import CloseReason, ConnectionClosing, ErrorFrame, MessageBatch, MessageFrame, ServerFrame

UUID = "550e8400-e29b-41d4-a716-446655440000"
CHAT = "chat_a"


class FakeClock:
    """`chance` is what `random` answers; bits count up, so ids are distinct."""

    def __init__(self, chance: float = 0.0) -> None:
        self.chance = chance
        self.skew_s = 0
        self._bits = 0

    def now_ms(self) -> int:
        return 1_769_783_400_000 + int((self.monotonic() + self.skew_s) * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def random(self) -> float:
        return self.chance

    def random_bits(self, bits: int) -> int:
        self._bits += 1
        return self._bits


class FakeSocket:
    def __init__(self) -> None:
        self.room = True
        self.writes: list[list[bytes]] = []
        self.pings = 0
        self.pong_received: Callable[[], None] = lambda: None  # how the peer answers a ping
        self.closed: tuple[int, str] | None = None

    @property
    def writable(self) -> bool:
        return self.room

    def write(self, frames: Sequence[bytes]) -> None:
        assert self.closed is None, "a frame after the close"
        self.writes.append(list(frames))

    def ping(self) -> None:
        self.pings += 1
        self.pong_received()

    def close(self, code: int, reason: str) -> None:
        assert self.closed is None, "closed twice"
        self.closed = (code, reason)

    @property
    def is_open(self) -> bool:
        return self.closed is None

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
        self.joined_asked: list[Mapping[str, str]] = []
        self.memberships: dict[str, list[str]] = {}
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

    async def joined(self, since: Mapping[str, str], *, timeout_s: float) -> Mapping[str, Sequence[str]]:
        self.joined_asked.append(since)
        if self.failures:
            raise self.failures.pop(0)
        return {user_id: self.memberships[user_id] for user_id in since if user_id in self.memberships}

    async def _pass(self) -> None:
        await asyncio.sleep(0)
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)


class FakeDirectory:
    def __init__(self) -> None:
        self.registered: dict[str, Registration] = {}
        self.failure: SeriatimError | None = None
        self.before_register: Callable[[], None] = lambda: None
        self.during_register: Callable[[], None] = lambda: None

    async def register(self, registrations: Sequence[Registration], *, timeout_s: float) -> None:
        self.before_register()
        for _ in range(5):
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

    async def cached_members(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, CachedMembers]:
        raise AssertionError("a gateway routes nothing")

    async def cache_members(self, chat_id: str, members: CachedMembers, *, timeout_s: float) -> None:
        raise AssertionError("a gateway routes nothing")

    async def forget_members(self, chat_id: str, *, timeout_s: float) -> None:
        raise AssertionError("a gateway routes nothing")


class FakePush:
    def __init__(self) -> None:
        self.published: list[tuple[str, PushEnvelope]] = []

    async def publish(self, envelopes: Sequence[tuple[str, PushEnvelope]], *, timeout_s: float) -> Sequence[bool]:
        self.published.extend(envelopes)
        return [True] * len(envelopes)


class FakeSubscriber:
    def __init__(self) -> None:
        self.subscribed: list[str] = []

    async def subscribe(self, gateway_id: str, receiver: PushReceiver, *, timeout_s: float) -> None:
        self.subscribed.append(gateway_id)

    async def unsubscribe(self, gateway_id: str) -> None:
        self.subscribed.remove(gateway_id)


class Observed(GatewayObserver):
    def __init__(self) -> None:
        self.high: list[int] = []
        self.ends: list[CloseReason | None] = []
        self.unknown: list[str] = []
        self.strays = 0
        self.repetitions = 0

    def buffer_high(self, frames: int) -> None:
        self.high.append(frames)

    def connection_closed(self, reason: CloseReason | None) -> None:
        self.ends.append(reason)

    def unknown_frame(self, frame_type: str) -> None:
        self.unknown.append(frame_type)

    def unknown_connection(self, messages: int) -> None:
        self.strays += messages

    def repeated(self) -> None:
        self.repetitions += 1


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

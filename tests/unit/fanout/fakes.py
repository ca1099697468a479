"""Small stand-ins for what fanout needs, each with a switch to fail, and makers of events and records."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from seriatim.domain import events
from seriatim.domain.chat import Role
from seriatim.domain.errors import OutcomeUnknown
from seriatim.domain.message import TEXT, Message
from seriatim.fanout.observer import FanoutObserver, SkipReason
from seriatim.ports.catalog import Members
from seriatim.ports.directory import CachedMembers, Registration
from seriatim.ports.event_log import MESSAGES, DeadLetter, Partition, RebalanceListener, Record
from seriatim.ports.push import MessageDelivery, PushEnvelope

CHAT = "chat_1"
TIME = "2026-01-30T14:30:00.000Z"
P0 = Partition(MESSAGES, 0)


async def until(condition: Callable[[], bool]) -> None:
    """Lets everything else run until the condition holds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never happened")


async def let_everything_run() -> None:
    """Runs every task until it waits for something."""
    for _ in range(200):
        await asyncio.sleep(0)


# --- events and records ----------------------------------------------------------------------------------------------


def message(sequence: int = 1, *, chat_id: str = CHAT, sender_id: str = "ann") -> Message:
    return Message(
        message_id=f"msg_{chat_id}_{sequence}",
        chat_id=chat_id,
        sequence=sequence,
        sender_id=sender_id,
        client_message_id="550e8400-e29b-41d4-a716-446655440000",
        content=f"text {sequence}",
        content_type=TEXT,
        created_at=TIME,
    )


def message_value(
    sequence: int = 1,
    *,
    chat_id: str = CHAT,
    version: int | None = None,
    origin: str | None = "ann-phone",
    prev: int | None = None,
) -> bytes:
    return events.encode_message(
        events.message_persisted(
            message(sequence, chat_id=chat_id),
            prev_sequence=prev,
            members_version=version,
            origin_connection_id=origin,
            producer_id="ingest-1",
            trace_id="",
            event_time=TIME,
        )
    )


def membership_value(chat_id: str = CHAT, user_id: str = "bob") -> bytes:
    return events.membership_changed(
        event_id="evt_1",
        chat_id=chat_id,
        user_id=user_id,
        change_type=events.ChangeType.REMOVED,
        role=Role.MEMBER,
        changed_by="ann",
        changed_at=TIME,
        member_count_after=1,
        producer_id="api-1",
        trace_id="",
        event_time=TIME,
    )


def record(
    value: bytes | None = None, *, offset: int = 0, partition: Partition = P0, key: bytes | None = CHAT.encode()
) -> Record:
    return Record(partition=partition, offset=offset, key=key, value=value, headers=(), timestamp_ms=0)


def registration(connection_id: str, *, gateway_id: str = "gw-1") -> Registration:
    """`ann-phone` is Ann's phone."""
    user_id, _, device_id = connection_id.partition("-")
    return Registration(
        connection_id=connection_id,
        user_id=user_id,
        device_id=device_id,
        session_id="sess_1",
        gateway_id=gateway_id,
        connected_at=TIME,
    )


# --- stand-ins -------------------------------------------------------------------------------------------------------


class FixedClock:
    def now_ms(self) -> int:
        return 1_769_783_400_000

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def random(self) -> float:
        return 0.5

    def random_bits(self, bits: int) -> int:
        return 0


class RecordingObserver(FanoutObserver):
    """Records what fanout reports."""

    def __init__(self) -> None:
        self.offsets: list[tuple[Partition, int]] = []
        self.connections = 0
        self.envelopes = 0
        self.skips: list[SkipReason] = []
        self.retries = 0
        self.cache_failures = 0
        self.versions: list[int] = []
        self.dead_letters = 0
        self.pages: list[Partition] = []
        self.commit_failures = 0
        self.restarts = 0

    def handled(self, run: Sequence[Record]) -> None:
        self.offsets += [(record.partition, record.offset) for record in run]

    def delivered(self, envelopes: int, connections: int) -> None:
        self.connections += connections
        self.envelopes += envelopes

    def skipped(self, reason: SkipReason, error: Exception | None = None) -> None:
        self.skips.append(reason)

    def retried(self) -> None:
        self.retries += 1

    def cache_failed(self) -> None:
        self.cache_failures += 1

    def unknown_version(self, event_version: int) -> None:
        self.versions.append(event_version)

    def dead_letter_written(self, dead_letter: DeadLetter) -> None:
        self.dead_letters += 1

    def dead_letter_failed(self, partition: Partition, error: Exception) -> None:
        self.pages.append(partition)

    def commit_failed(self, partition: Partition, error: Exception) -> None:
        self.commit_failures += 1

    def restarted(self, error: Exception) -> None:
        self.restarts += 1


class FakeRoster:
    def __init__(self, version: int, *user_ids: str) -> None:
        self.answer = Members(version, user_ids)
        self.failures = 0  # this many calls fail
        self.failing_chats: tuple[str, ...] = ()  # chats whose members cannot be read
        self.calls = 0
        self.gate: asyncio.Event | None = None  # an answer is read, and then waits here

    async def members(self, chat_id: str, *, timeout_s: float) -> Members:
        self.calls += 1
        if chat_id in self.failing_chats:
            raise OutcomeUnknown("members")
        if self.failures:
            self.failures -= 1
            raise OutcomeUnknown("members")
        answer = self.answer
        if self.gate is not None:
            await self.gate.wait()
        return answer


class FakeDirectory:
    def __init__(self, *registrations: Registration) -> None:
        self.online: dict[str, list[Registration]] = {}
        for each in registrations:
            self.online.setdefault(each.user_id, []).append(each)
        self.cache: dict[str, CachedMembers] = {}
        self.down: tuple[str, ...] = ()  # names of the methods that fail
        self.lookups = 0
        self.cache_reads: list[tuple[str, ...]] = []

    async def register(self, registrations: Sequence[Registration], *, timeout_s: float) -> None:
        raise AssertionError("fanout never registers")

    async def unregister(self, registration: Registration, *, timeout_s: float) -> None:
        raise AssertionError("fanout never unregisters")

    async def connections(self, user_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, Sequence[Registration]]:
        self._answer("connections")
        self.lookups += 1
        return {user_id: self.online[user_id] for user_id in user_ids if user_id in self.online}

    async def cached_members(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, CachedMembers]:
        self._answer("cached_members")
        self.cache_reads.append(tuple(chat_ids))
        return {chat_id: self.cache[chat_id] for chat_id in chat_ids if chat_id in self.cache}

    async def cache_members(self, chat_id: str, members: CachedMembers, *, timeout_s: float) -> None:
        self._answer("cache_members")
        assert members.user_ids, "an empty list is not cached"
        self.cache[chat_id] = members

    async def forget_members(self, chat_id: str, *, timeout_s: float) -> None:
        self._answer("forget_members")
        self.cache.pop(chat_id, None)

    def _answer(self, method: str) -> None:
        if method in self.down:
            raise OutcomeUnknown(method)


class FakePush:
    def __init__(self) -> None:
        self.calls: list[Sequence[tuple[str, PushEnvelope]]] = []
        self.down = False
        self.unsubscribed: tuple[str, ...] = ()

    async def publish(self, envelopes: Sequence[tuple[str, PushEnvelope]], *, timeout_s: float) -> Sequence[bool]:
        if self.down:
            raise OutcomeUnknown("publish")
        self.calls.append(envelopes)
        return [gateway_id not in self.unsubscribed for gateway_id, _ in envelopes]

    def sent(self) -> list[tuple[str, tuple[str, ...], int]]:
        """(gateway, connections, sequence), in order."""
        return [
            (gateway_id, envelope.connection_ids, envelope.message.sequence)
            for call in self.calls
            for gateway_id, envelope in call
            if isinstance(envelope, MessageDelivery)
        ]


class FakeDeadLetters:
    def __init__(self) -> None:
        self.written: list[DeadLetter] = []
        self.down = False

    async def write(self, dead_letter: DeadLetter, *, timeout_s: float) -> None:
        if self.down:
            raise OutcomeUnknown("write_dead_letter")
        self.written.append(dead_letter)


class FakeReader:
    """For one worker: records commits, pauses and resumes in their order. It has nothing to poll."""

    def __init__(self) -> None:
        self.calls_made: list[tuple[str, int]] = []
        self.errors: list[Exception] = []  # raised by the next commits, one each
        self.gate: asyncio.Event | None = None

    def commits(self) -> list[int]:
        return [offset for what, offset in self.calls_made if what == "commit"]

    async def open(self, topics: Sequence[str], listener: RebalanceListener) -> None: ...

    async def poll(self, *, limit: int) -> Sequence[Record]:
        return ()

    async def commit(self, partition: Partition, next_offset: int, *, timeout_s: float) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.calls_made.append(("commit", next_offset))

    def seek(self, partition: Partition, offset: int) -> None:
        self.calls_made.append(("seek", offset))

    def pause(self, partition: Partition) -> None:
        self.calls_made.append(("pause", partition.number))

    def resume(self, partition: Partition) -> None:
        self.calls_made.append(("resume", partition.number))

    async def close(self) -> None: ...

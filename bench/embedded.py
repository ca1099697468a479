"""Whole sends through the durability plane on the embedded engine, beside bare synced groups of the same store.

`make bench ARGS=store`. The disk decides: read the ratios.
"""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Protocol

import msgspec

from bench.figures import Figure
from seriatim.domain import limits
from seriatim.domain.chat import Chat, ChatType
from seriatim.domain.errors import SeriatimError
from seriatim.domain.message import TEXT, Draft, Message, Receipt
from seriatim.durability.ingest import Ingest
from seriatim.engines.embedded.atomic_store import EmbeddedAtomicStore
from seriatim.engines.embedded.catalog import EmbeddedCatalog
from seriatim.engines.embedded.event_log import EmbeddedEventLog, EmbeddedEventWriter
from seriatim.engines.embedded.message_log import EmbeddedMessageLog
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.disk import Disk
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.storage.rows import CounterRow
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.shared import store_rules
from seriatim.ports.durability import Answer
from seriatim.ports.event_log import MESSAGES
from seriatim.ports.message_log import Entry

CROWDS = ((1, 1), (10, 10), (1, 100), (100, 10), (1, 1000))  # chats, and how many of each wait for an ack at a time
SECONDS = 1.0  # each figure and each baseline, in turn
ROUNDS = 5  # the median is printed
SENDERS = 50  # in one chat at most; more who wait are the same people's other devices
PARTITIONS = 64
DEADLINE_S = 60.0
CONTENT = "hello, world, how are you today? " * 3


def figures(*, rounds: int = ROUNDS) -> list[Figure]:
    return [figure(chats, each, rounds=rounds) for chats, each in CROWDS]


def figure(chats: int, writers: int, *, rounds: int) -> Figure:
    """The round whose ratio is the median: a disk has moods, and both sides of a round see the same one."""
    found = [one_round(chats, writers) for _ in range(rounds)]
    bare, ours = sorted(found, key=lambda each: each[1] / each[0])[rounds // 2]
    return Figure(
        name="durable acks, from submit to receipt",
        unit=f"{chats * writers} waiting in {chats} chat{'s' if chats > 1 else ''}",
        per_second=ours,
        baseline="bare synced groups: key, message, counter",
        baseline_per_second=bare,
    )


def one_round(chats: int, writers: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory(prefix="seriatim-bench-") as root:
        return bare_groups(Path(root) / "bare", chats, writers), asyncio.run(sends(Path(root) / "data", chats, writers))


# --- ours -------------------------------------------------------------------------------------------------------------


async def sends(path: Path, chats: int, writers: int) -> float:
    """Messages acknowledged in a second by the durability plane."""
    folder, clock = Folder.open(path), SystemClock()
    log = await EmbeddedEventLog.open(folder, {MESSAGES: PARTITIONS})
    ingest = Ingest(
        log=EmbeddedMessageLog(folder),
        events=EmbeddedEventWriter(log, clock),
        clock=clock,
        producer_id="bench",
        atomic_store=EmbeddedAtomicStore(folder, log, clock),
    )
    catalog = EmbeddedCatalog(folder)
    people = [sender(number) for number in range(min(writers, SENDERS))]
    await asyncio.gather(
        *(catalog.create_group(chat(each), people[1:], now_ms=1, timeout_s=DEADLINE_S) for each in range(chats))
    )
    crowd = Crowd(ingest.submit, chats, writers)
    crowd.begin(SECONDS)
    await crowd.silent()
    rate = crowd.rate()
    await ingest.drain()
    await folder.close()
    return rate


class Submit(Protocol):
    def __call__(self, draft: Draft, *, deadline: float, answer: Answer) -> None: ...


class Crowd:
    """Writers who each send their next message when the last one was acknowledged, by callback, as a gateway does."""

    def __init__(self, submit: Submit, chats: int, writers: int) -> None:
        self.waiting = 0
        self._submit = submit
        self._writers = [(f"chat_{number}", sender(each)) for each in range(writers) for number in range(chats)]
        self._sent = self._acked = 0
        self._began = self._until = self._ended = 0.0
        self._silent = asyncio.Event()

    def begin(self, seconds: float) -> None:
        self._began = time.perf_counter()
        self._until = self._began + seconds
        self.waiting = len(self._writers)
        for chat_id, sender_id in self._writers:
            self._send(chat_id, sender_id)

    async def silent(self) -> None:
        await self._silent.wait()

    def rate(self) -> float:
        return self._acked / (self._ended - self._began)

    def _send(self, chat_id: str, sender_id: str) -> None:
        self._sent += 1
        draft = Draft(chat_id=chat_id, sender_id=sender_id, client_message_id=client_id(self._sent), content=CONTENT)

        def answered(outcome: Receipt | SeriatimError) -> None:
            assert isinstance(outcome, Receipt), outcome
            self._acked += 1
            if time.perf_counter() < self._until:
                self._send(chat_id, sender_id)
                return
            self.waiting -= 1
            if self.waiting == 0:
                self._ended = time.perf_counter()
                self._silent.set()

        self._submit(draft, deadline=time.monotonic() + DEADLINE_S, answer=answered)


# --- the baseline -----------------------------------------------------------------------------------------------------


def bare_groups(path: Path, chats: int, writers: int) -> float:
    """The same crowd before the store alone: whoever waits is written in one batch and synced, then all are answered.

    A key that is there is refused, a counter counts; nothing is checked, published or promised beyond that.
    """
    disk = Disk(path, create=True)
    waiting: list[tuple[Draft, Answer]] = []
    crowd = Crowd(lambda draft, *, deadline, answer: waiting.append((draft, answer)), chats, writers)
    counters: dict[str, int] = {}
    crowd.begin(SECONDS)
    while crowd.waiting:
        group, waiting[:] = list(waiting), []
        changes: dict[bytes, bytes | None] = {}
        receipts = [put_message(disk, changes, counters, draft) for draft, _ in group]
        for chat_id, sequence in counters.items():
            counter = msgspec.structs.replace(store_rules.NEW_COUNTER, allocated=sequence)
            changes[rows.counter_key(chat_id)] = rows.COUNTER.encode(CounterRow(counter=counter))
        disk.write(changes)
        disk.sync()
        for (_, answer), receipt in zip(group, receipts, strict=True):
            answer(receipt)
    disk.close()
    return crowd.rate()


def put_message(disk: Disk, changes: dict[bytes, bytes | None], counters: dict[str, int], draft: Draft) -> Receipt:
    chat_id = draft.chat_id
    sequence = counters[chat_id] = counters.get(chat_id, 0) + 1
    key = rows.idempotency_key(rows.keys_prefix(chat_id), draft.client_message_id)
    assert disk.get(key) is None, "sent twice"
    message = Message(
        message_id=f"msg_{sequence:026d}",
        chat_id=chat_id,
        sequence=sequence,
        sender_id=draft.sender_id,
        client_message_id=draft.client_message_id,
        content=draft.content,
        content_type=TEXT,
        created_at="2026-01-30T14:30:00.000Z",
    )
    entry = Entry(message=message, content_sha256="0" * 64, expires_at_s=limits.KEY_LIFETIME_S)
    changes[key] = rows.KEY.encode(store_rules.key_of(entry))
    changes[rows.slot_key(rows.slots_prefix(chat_id), sequence)] = rows.encode_slot(message)
    return Receipt(message_id=message.message_id, sequence=sequence, created_at=message.created_at)


def sender(number: int) -> str:
    return f"user_{number % SENDERS}"


def client_id(number: int) -> str:
    """Scattered like real ones: a store finds ascending keys more easily."""
    return f"00000000-0000-4000-9000-{number * 0x9E3779B97F4B % 2**48:012x}"


def chat(number: int) -> Chat:
    return Chat(
        chat_id=f"chat_{number}",
        chat_type=ChatType.GROUP,
        name=None,
        created_by=sender(0),
        created_at="",
        updated_at="",
        member_count=0,
    )

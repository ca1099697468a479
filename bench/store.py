"""The baseline of every durable ack: the same rows through the same store, group-committed, and nothing else.

One thread takes all that waits, writes it in one batch, syncs, and tells the event loop; whoever was answered asks
again. Key, message and counter are stored and a taken key would be refused; nothing is published or checked.
"""

import asyncio
import statistics
import threading
import time
from collections import deque
from pathlib import Path
from queue import SimpleQueue

import msgspec

from bench.embedded import Crowd, put_message
from seriatim.domain.message import Draft, Receipt
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.disk import Disk
from seriatim.engines.embedded.storage.rows import CounterRow
from seriatim.engines.shared import store_rules
from seriatim.ports.durability import Answer


def grouped_appends(path: Path, chats: int, writers: int, seconds: float) -> dict[str, float]:
    """So many chats, in each of which so many wait."""
    return asyncio.run(_grouped_appends(path, chats, writers, seconds))


async def _grouped_appends(path: Path, chats: int, writers: int, seconds: float) -> dict[str, float]:
    disk = Disk(path, create=True)
    log = GroupedLog(disk)
    crowd = Crowd(log.submit, chats, writers)
    busy_s = time.process_time()
    crowd.begin(seconds)
    await crowd.silent()
    busy_s = time.process_time() - busy_s
    log.close()
    disk.close()
    cuts = statistics.quantiles(log.latencies_s, n=100)
    return {
        "value": crowd.rate(),
        "cpu_us": 1e6 * busy_s / len(log.latencies_s),
        "p50_ms": 1000 * cuts[49],
        "p99_ms": 1000 * cuts[98],
    }


class GroupedLog:
    """The smallest thing that keeps the promise "stored once, synced before the answer"."""

    def __init__(self, disk: Disk) -> None:
        self.latencies_s: list[float] = []
        self._disk = disk
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[Draft, Answer, float]] = deque()
        self._counters: dict[str, int] = {}
        self._wake: SimpleQueue[bool] = SimpleQueue()
        self._awake = False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def submit(self, draft: Draft, *, deadline: float, answer: Answer) -> None:
        self._waiting.append((draft, answer, time.perf_counter()))
        if not self._awake:
            self._awake = True
            self._loop.call_soon(self._wake.put, True)  # at the end of the turn: who asks in it goes along

    def close(self) -> None:
        self._wake.put(False)
        self._thread.join()

    def _work(self) -> None:
        while self._wake.get():
            group = [self._waiting.popleft() for _ in range(len(self._waiting))]
            changes: dict[bytes, bytes | None] = {}
            receipts = [put_message(self._disk, changes, self._counters, draft) for draft, _, _ in group]
            for chat_id in dict.fromkeys(draft.chat_id for draft, _, _ in group):
                counter = msgspec.structs.replace(store_rules.NEW_COUNTER, allocated=self._counters[chat_id])
                changes[rows.counter_key(chat_id)] = rows.COUNTER.encode(CounterRow(counter=counter))
            self._disk.write(changes)
            self._disk.sync()
            answers = [(answer, receipt, asked) for (_, answer, asked), receipt in zip(group, receipts, strict=True)]
            self._loop.call_soon_threadsafe(self._answer, answers)

    def _answer(self, answers: list[tuple[Answer, Receipt, float]]) -> None:
        self._awake = False
        now = time.perf_counter()
        for answer, receipt, asked in answers:
            self.latencies_s.append(now - asked)
            answer(receipt)

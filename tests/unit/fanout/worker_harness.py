"""A partition's worker with its surroundings, for tests that give it records and check what it does with them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from seriatim.fanout.partition_worker import DeadLetters, PartitionWorker
from seriatim.ports.event_log import Record
from tests.unit.fanout.fakes import P0, FakeDeadLetters, FakeReader, FixedClock, RecordingObserver, record


class WorkerHarness:
    """The handler is the harness itself. `fails` says what it raises for an offset and an attempt at it.

    A run that fails has done nothing: its records are `done` only when all of it was handled.
    """

    def __init__(self) -> None:
        self.reader = FakeReader()
        self.dead_letters = FakeDeadLetters()
        self.observer = RecordingObserver()
        self.runs: list[list[int]] = []  # the offsets of each attempt
        self.done: list[int] = []
        self.fails: Callable[[int, int], Exception | None] = lambda offset, attempt: None
        self.held: dict[int, asyncio.Event] = {}
        clock = FixedClock()
        dead_letters = DeadLetters(
            self.dead_letters, clock, consumer_group="fanout-workers", consumer_id="fanout-1", observe=self.observer
        )
        self.worker = PartitionWorker(P0, self.reader, self, dead_letters, clock, self.observer)

    async def handle(self, run: Sequence[Record]) -> None:
        offsets = [each.offset for each in run]
        self.runs.append(offsets)
        for offset in offsets:
            if offset in self.held:
                await self.held[offset].wait()
            error = self.fails(offset, self.attempts.count(offset))
            if error is not None:
                raise error
        self.done += offsets
        self.reader.calls_made += [("handled", offset) for offset in offsets]

    @property
    def attempts(self) -> list[int]:
        return [offset for run in self.runs for offset in run]

    def hold(self, offset: int) -> asyncio.Event:
        self.held[offset] = asyncio.Event()
        return self.held[offset]

    def enqueue(self, *offsets: int) -> None:
        self.worker.enqueue([record(offset=offset) for offset in offsets])

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.worker.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait((task,))

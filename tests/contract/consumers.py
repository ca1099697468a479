"""Consumers for the event log's contract: they read on their own, and check which of them has which partition."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType

from seriatim.ports.event_log import MESSAGES, Event, EventReader, Partition, Record
from tests.contract.event_engines import SOON_S, EventLogEngine, soon, until

GROUP = "readers"


class Consumer:
    """One reader with its listener. It handles each record as it comes and commits what it handled when asked to."""

    def __init__(self, name: str, reader: EventReader, hands: dict[Partition, str]) -> None:
        self.name = name
        self.reader = reader
        self.handled: list[Record] = []
        self.owned: list[Partition] = []
        self.lost_partitions: list[Partition] = []
        self.on_revoked: Callable[[Sequence[Partition]], Awaitable[None]] = self.commit_handled
        self._hands = hands
        self._taken: list[Partition] = []
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self.reader.open([MESSAGES], self)

    def start(self) -> None:
        """Polls from now on, until stopped."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Polls no more, but stays a member: what a stuck process looks like."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def check(self) -> None:
        """Fails if the consumer failed on its own."""
        if self._task is not None and self._task.done():
            self._task.result()

    def is_out(self) -> None:
        """The group took its partitions away; it need not have heard of it."""
        for partition in self.owned:
            if partition not in self._taken:
                self._taken.append(partition)
                del self._hands[partition]

    async def commit_handled(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            offsets = [record.offset for record in self.handled if record.partition == partition]
            if offsets:
                await self.reader.commit(partition, offsets[-1] + 1, timeout_s=SOON_S)

    def assigned(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            other = self._hands.get(partition)
            assert other is None, f"{partition} was given to {self.name} while {other} had it"
            self._hands[partition] = self.name
            self.owned.append(partition)

    async def revoked(self, partitions: Sequence[Partition]) -> None:
        await self.on_revoked(partitions)
        for partition in partitions:
            self.owned.remove(partition)
            if partition in self._taken:
                self._taken.remove(partition)
                continue
            assert self._hands.get(partition) == self.name, f"{partition} was revoked too late, or twice"
            del self._hands[partition]

    def lost(self, partitions: Sequence[Partition]) -> None:
        self.is_out()
        for partition in partitions:
            self.lost_partitions.append(partition)
            self.owned.remove(partition)
            self._taken.remove(partition)

    async def _run(self) -> None:
        while True:
            self.handled.extend(await self.reader.poll(limit=3))


class Crew:
    """The consumers of one test, and which of them holds each partition, by the assignments that they got."""

    def __init__(self, engine: EventLogEngine) -> None:
        self.engine = engine
        self.hands: dict[Partition, str] = {}
        self.consumers: list[Consumer] = []

    async def __aenter__(self) -> "Crew":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for consumer in self.consumers:
            with suppress(Exception):
                await consumer.stop()

    async def hire(self, name: str, *, group: str = GROUP, start: bool = True) -> Consumer:
        """A consumer that has joined. With `start`, it polls, and has got its first partition."""
        consumer = Consumer(name, self.engine.reader(group, name), self.hands if group == GROUP else {})
        self.consumers.append(consumer)
        await consumer.open()
        if start:
            consumer.start()
            await self.until(lambda: bool(consumer.owned), f"{name} gets a partition")
        return consumer

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        def met() -> bool:
            for consumer in self.consumers:
                consumer.check()
            return condition()

        await until(self.engine, met, what)

    async def until_shared(self) -> None:
        """Every partition is assigned, and every consumer that polls has a share."""
        await self.until(
            lambda: len(self.hands) == 4 and all(consumer.owned for consumer in self.consumers), "a fair share"
        )

    async def expel(self, consumer: Consumer) -> None:
        await self.engine.expel(GROUP, consumer.name)
        consumer.is_out()


async def fill(engine: EventLogEngine, count: int, *, key: str = "chat_1", start: int = 0) -> Partition:
    """Appends `count` numbered events of one chat; returns the partition they are in."""
    events = [Event(key=key, value=b"%d" % number) for number in range(start, start + count)]
    await engine.writer().append(MESSAGES, events, timeout_s=SOON_S)
    return next(record.partition for record in await engine.stored(MESSAGES) if record.key == key.encode())


async def read(engine: EventLogEngine, consumer: Consumer, count: int) -> list[bytes | None]:
    """Polls by hand until `count` records came."""
    records: list[Record] = []
    while len(records) < count:
        records += await soon(engine, _poll(consumer), f"{count} records, {len(records)} came")
    consumer.handled += records
    return [record.value for record in records]


async def _poll(consumer: Consumer) -> Sequence[Record]:
    return await consumer.reader.poll(limit=3)

"""A consumer on the strict event log in memory, with a push that can be held back and readers that fail."""

import asyncio
from collections.abc import Sequence

from seriatim.domain.errors import ServiceUnavailable
from seriatim.domain.sharding import partition as partition_of
from seriatim.engines.inprocess.wire import Wire
from seriatim.fanout.consumer import FanoutConsumer
from seriatim.ports.event_log import DEAD_LETTERS, MEMBERSHIPS, MESSAGES, Event, Partition, RebalanceListener, Record
from seriatim.ports.push import MessageDelivery, PushEnvelope
from seriatim.simulation.stores.event_log import MemoryBroker, MemoryDeadLetterWriter, MemoryEventWriter
from seriatim.simulation.stores.event_reader import MemoryEventReader
from tests.unit.fanout.fakes import (
    FakeDirectory,
    FakePush,
    FakeRoster,
    FixedClock,
    RecordingObserver,
    message_value,
    registration,
)

GROUP = "fanout-workers"
PARTITIONS = 2
CHATS = tuple(
    next(chat for chat in (f"chat_{n}" for n in range(100)) if partition_of(chat, PARTITIONS) == number)
    for number in range(PARTITIONS)
)  # one chat for each partition
P0, P1 = (Partition(MESSAGES, number) for number in range(PARTITIONS))


class HeldPush(FakePush):
    """Holds back the messages of some chats until they are released."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: dict[tuple[str, int], asyncio.Event] = {}
        self.begun: list[tuple[str, int]] = []

    def hold(self, chat_id: str, sequence: int) -> asyncio.Event:
        self.gates[chat_id, sequence] = asyncio.Event()
        return self.gates[chat_id, sequence]

    async def publish(self, envelopes: Sequence[tuple[str, PushEnvelope]], *, timeout_s: float) -> Sequence[bool]:
        places = _places(envelopes)
        self.begun += places
        for gate in [self.gates[place] for place in places if place in self.gates]:
            await gate.wait()
        return await super().publish(envelopes, timeout_s=timeout_s)

    def places(self) -> list[tuple[str, int]]:
        return [place for call in self.calls for place in _places(call)]


class ConsumerHarness:
    """A broker, a member who is online, and as many fanout processes as a test starts."""

    def __init__(self, run_records: int) -> None:
        self.run_records = run_records  # that are handled together
        self.broker = MemoryBroker({MESSAGES: PARTITIONS, MEMBERSHIPS: 1, DEAD_LETTERS: 1})
        self.roster = FakeRoster(1, "ann", "bob")
        self.directory = FakeDirectory(registration("bob-phone"))
        self.push = HeldPush()
        self.ledgers: dict[str, RecordingObserver] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self._writer = MemoryEventWriter(self.broker, Wire(), FixedClock().now_ms)

    def service(self, name: str, *, reader: MemoryEventReader | None = None) -> FanoutConsumer:
        clock = FixedClock()
        self.ledgers.setdefault(name, RecordingObserver())
        return FanoutConsumer(
            reader or MemoryEventReader(self.broker, Wire(), GROUP, name),
            MemoryDeadLetterWriter(self.broker, Wire(), clock.now_ms),
            self.roster,
            self.directory,
            self.push,
            clock,
            consumer_id=name,
            observe=self.ledgers[name],
        )

    def start(self, service: FanoutConsumer) -> None:
        self.tasks.append(asyncio.create_task(service.run()))

    async def publish(self, chat_id: str, *sequences: int) -> None:
        events = [Event(key=chat_id, value=message_value(each, chat_id=chat_id)) for each in sequences]
        await self._writer.append(MESSAGES, events, timeout_s=1)

    async def publish_rubbish(self, chat_id: str) -> None:
        await self._writer.append(MESSAGES, [Event(key=chat_id, value=b"{")], timeout_s=1)

    def committed(self, partition: Partition) -> int | None:
        return self.broker.committed(GROUP, partition)

    def drained(self) -> bool:
        ends = self.broker.end_offsets(MESSAGES)
        return all((self.committed(partition) or 0) == end for partition, end in ends.items())

    def holders(self) -> list[str]:
        return sorted(dict.fromkeys(self.broker.holders(GROUP).values()))

    def dead_letters(self) -> int:
        return len(self.broker.records(DEAD_LETTERS))


class FlakyReader(MemoryEventReader):
    """Its first attempts to join fail, and then its first polls."""

    def __init__(self, broker: MemoryBroker, *, failures: int) -> None:
        super().__init__(broker, Wire(), GROUP, "f1")
        self._failures = failures
        self._refusals = failures

    async def open(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        if self._refusals:
            self._refusals -= 1
            raise ServiceUnavailable("join")
        await super().open(topics, listener)

    async def poll(self, *, limit: int) -> Sequence[Record]:
        if self._failures:
            self._failures -= 1
            raise ServiceUnavailable("poll")
        return await super().poll(limit=limit)


class StalledReader(MemoryEventReader):
    """Once it has returned records it polls no more, so it never learns that it was expelled."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker, Wire(), GROUP, "f1")
        self._served = False

    async def poll(self, *, limit: int) -> Sequence[Record]:
        if self._served:
            await asyncio.Event().wait()
        records = await super().poll(limit=limit)
        self._served = True
        return records


def _places(envelopes: Sequence[tuple[str, PushEnvelope]]) -> list[tuple[str, int]]:
    return [(each.message.chat_id, each.message.sequence) for _, each in envelopes if isinstance(each, MessageDelivery)]

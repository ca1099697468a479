"""Engines that break one promise each. The contract is worth something only if it rejects every one of them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from seriatim.engines.inprocess.wire import Wire
from seriatim.engines.shared.consumer_group import Assignment, Grant, GroupCoordinator, MemberKey
from seriatim.ports.event_log import (
    DeadLetter,
    DeadLetterWriter,
    Event,
    EventReader,
    EventWriter,
    Partition,
    RebalanceListener,
    Record,
)
from seriatim.simulation.stores.event_log import MemoryBroker, MemoryDeadLetterWriter, MemoryEventWriter
from seriatim.simulation.stores.event_reader import MemoryEventReader
from tests.contract.event_engines import PARTITIONS, MemoryEventLogEngine

T = TypeVar("T")


# --- event log: writers --------------------------------------------------------------------------------------------


class Reordering(MemoryEventLogEngine):
    def writer(self, wire: Wire | None = None) -> EventWriter:
        return _Rewriter(self.broker, lambda events: events[::-1])


class LosingTheLast(MemoryEventLogEngine):
    def writer(self, wire: Wire | None = None) -> EventWriter:
        return _Rewriter(self.broker, lambda events: events[:-1])


class Doubling(MemoryEventLogEngine):
    def writer(self, wire: Wire | None = None) -> EventWriter:
        return _Rewriter(self.broker, lambda events: [*events, events[-1]])


class DroppingHeaders(MemoryEventLogEngine):
    def writer(self, wire: Wire | None = None) -> EventWriter:
        return _Rewriter(self.broker, lambda events: [Event(key=each.key, value=each.value) for each in events])


class AckingFirst(MemoryEventLogEngine):
    """The append returns and the event is written a little later, if nothing happens until then."""

    def writer(self, wire: Wire | None = None) -> EventWriter:
        return MemoryEventWriter(self.broker, _Hasty(), lambda: 0)

    def dead_letters(self) -> DeadLetterWriter:
        return MemoryDeadLetterWriter(self.broker, _Hasty(), lambda: 0)


class WritingNoDeadLetter(MemoryEventLogEngine):
    def dead_letters(self) -> DeadLetterWriter:
        return _Nowhere()


class IgnoringTheKey(MemoryEventLogEngine):
    def writer(self, wire: Wire | None = None) -> EventWriter:
        return _Rewriter(self.broker, lambda events: events, partition=0)


class _Rewriter:
    def __init__(
        self,
        broker: MemoryBroker,
        change: Callable[[Sequence[Event]], Sequence[Event]],
        *,
        partition: int | None = None,
    ) -> None:
        self._broker = broker
        self._change = change
        self._partition = partition
        self._sound = MemoryEventWriter(broker, Wire(), lambda: 0)

    async def append(self, topic: str, events: Sequence[Event], *, timeout_s: float) -> None:
        changed = self._change(events)
        if self._partition is None:
            await self._sound.append(topic, changed, timeout_s=timeout_s)
        else:
            rows = [(event.key.encode(), event.value, event.headers) for event in changed]
            self._broker.append(Partition(topic, self._partition), rows, 0)


class _Hasty(Wire):
    async def call(
        self, operation: str, apply: Callable[[], T], *, timeout_s: float, finish: Callable[[], None] | None = None
    ) -> T:
        asyncio.get_running_loop().call_soon(apply)
        return None  # type: ignore[return-value]


class _Nowhere:
    async def write(self, dead_letter: DeadLetter, *, timeout_s: float) -> None:
        return


# --- event log: readers --------------------------------------------------------------------------------------------


class _ReaderEngine(MemoryEventLogEngine):
    kind: type[MemoryEventReader]

    def reader(self, group: str, consumer_id: str, wire: Wire | None = None) -> EventReader:
        return self.kind(self.broker, Wire(), group, consumer_id)


class CommittingNothing(_ReaderEngine):
    class kind(MemoryEventReader):
        async def commit(self, partition: Partition, next_offset: int, *, timeout_s: float) -> None:
            return


class IgnoringSeeks(_ReaderEngine):
    class kind(MemoryEventReader):
        def seek(self, partition: Partition, offset: int) -> None:
            return


class IgnoringPauses(_ReaderEngine):
    class kind(MemoryEventReader):
        def pause(self, partition: Partition) -> None:
            return


class KeepingPauses(_ReaderEngine):
    """What was paused when it was given back is paused when it comes again, as librdkafka does by itself."""

    class kind(MemoryEventReader):
        def __init__(self, broker: MemoryBroker, wire: Wire, group: str, consumer_id: str) -> None:
            super().__init__(broker, wire, group, consumer_id)
            self._kept: set[Partition] = set()

        def pause(self, partition: Partition) -> None:
            super().pause(partition)
            self._kept.add(partition)

        async def _apply_assignment(self, assignment: Assignment, listener: RebalanceListener) -> None:
            await super()._apply_assignment(assignment, listener)
            for partition, assigned in self._assigned.items():
                assigned.paused = partition in self._kept


class NeverLeaving(_ReaderEngine):
    class kind(MemoryEventReader):
        async def close(self) -> None:
            return


class SkippingRecords(_ReaderEngine):
    """What it fetched beyond the limit is forgotten."""

    class kind(MemoryEventReader):
        async def poll(self, *, limit: int) -> Sequence[Record]:
            return (await super().poll(limit=limit + 1))[:limit]


class IgnoringTheLimit(_ReaderEngine):
    class kind(MemoryEventReader):
        async def poll(self, *, limit: int) -> Sequence[Record]:
            return await super().poll(limit=limit * 2)


class Oversleeping(_ReaderEngine):
    """Sleeps through whatever arrives while it waits."""

    class kind(MemoryEventReader):
        def _wake(self) -> None:
            return


class _Coordinating(MemoryEventLogEngine):
    kind: type[GroupCoordinator]

    def __init__(self) -> None:
        super().__init__()
        self.broker = _Broker(self.kind)


class _Broker(MemoryBroker):
    def __init__(self, kind: type[GroupCoordinator]) -> None:
        super().__init__(PARTITIONS)
        self._kind = kind

    def group(self, name: str) -> GroupCoordinator:
        found = self._groups.get(name)
        if found is None:
            found = self._groups[name] = self._kind(self._partitions)
        return found


class HandingToTwo(_Coordinating):
    """Grants a partition to its new owner while the old one still has it."""

    class kind(GroupCoordinator):
        def assignment(self, key: MemberKey, seen: int, released: Sequence[Grant]) -> Assignment | None:
            for partition in self._members[key].target:
                self._holders.pop(partition, None)
            return super().assignment(key, seen, released)


class StartingAtTheEnd(_Coordinating):
    class kind(GroupCoordinator):
        def assignment(self, key: MemberKey, seen: int, released: Sequence[Grant]) -> Assignment | None:
            assignment = super().assignment(key, seen, released)
            if assignment is None:
                return None
            late = [Grant(grant.partition, grant.number, 1_000) for grant in assignment.held]
            return Assignment(assignment.version, tuple(late), assignment.revoke)


class StartingAtTheBeginning(_Coordinating):
    class kind(GroupCoordinator):
        def assignment(self, key: MemberKey, seen: int, released: Sequence[Grant]) -> Assignment | None:
            self.committed.clear()
            return super().assignment(key, seen, released)


class TrustingZombies(_Coordinating):
    class kind(GroupCoordinator):
        def commit(self, key: MemberKey, grant: Grant, next_offset: int, turn: int) -> bool:
            self.committed[grant.partition] = next_offset
            return True


class FencingTooLate(_Coordinating):
    """Says `Fenced`, but has stored the offset."""

    class kind(GroupCoordinator):
        def commit(self, key: MemberKey, grant: Grant, next_offset: int, turn: int) -> bool:
            self.committed[grant.partition] = next_offset
            return super().commit(key, grant, next_offset, turn)


class NeverExpelling(_Coordinating):
    class kind(GroupCoordinator):
        def expel(self, consumer_id: str) -> None:
            return

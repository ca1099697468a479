"""The event log in memory: a broker that outlives the processes, and the handles with which they write to it.

Reading is in `consumer_group`. The broker is stricter than Kafka: nothing is created, replaced or forgiven silently.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from seriatim.domain.errors import InternalError, OutcomeUnknown
from seriatim.domain.sharding import partition as partition_of
from seriatim.engines.inprocess.wire import Wire
from seriatim.engines.shared.consumer_group import Assignment, Grant, GroupCoordinator, MemberKey
from seriatim.engines.shared.dead_letter_record import dead_letter_record
from seriatim.ports.event_log import DEAD_LETTERS, DeadLetter, Event, Headers, Partition, Record


class BrokerObserver:
    """Does nothing; override what you want to see. Called when a change is applied, in the order of the log."""

    def appended(self, record: Record) -> None: ...

    def committed(self, group: str, partition: Partition, next_offset: int) -> None: ...


class PollRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One poll of a reader; positions in the order in which they are served."""

    member: MemberKey
    seen: int
    released: tuple[Grant, ...]
    positions: tuple[tuple[Partition, int], ...]
    limit: int


class PollAnswer(msgspec.Struct, frozen=True):
    """An assignment comes first and alone: a reader applies it before it gets records."""

    assignment: Assignment | None
    batches: tuple[tuple[Record, ...], ...] = ()


class MemoryBroker:
    """The server. Its methods are called at the moment a request is applied, or by tools and the simulator."""

    def __init__(self, partitions: Mapping[str, int], observer: BrokerObserver | None = None) -> None:
        self._partitions = dict(partitions)
        self._logs: dict[Partition, list[Record]] = {
            Partition(topic, number): [] for topic, count in partitions.items() for number in range(count)
        }
        self._groups: dict[str, GroupCoordinator] = {}
        self._observer: BrokerObserver = observer or BrokerObserver()
        self._readers = 0

    # --- for tools and the simulator -------------------------------------------------------------------------------

    def records(self, topic: str) -> Sequence[Record]:
        """All records of a topic, partition by partition, each in offset order."""
        return [record for partition, log in self._logs.items() if partition.topic == topic for record in log]

    def end_offsets(self, topic: str) -> Mapping[Partition, int]:
        return {partition: len(log) for partition, log in self._logs.items() if partition.topic == topic}

    def committed(self, group: str, partition: Partition) -> int | None:
        return self.group(group).committed.get(partition)

    def lag(self, group: str) -> Mapping[Partition, int]:
        """Records not yet committed, for every partition of the topics the group ever subscribed to."""
        coordinator = self.group(group)
        return {
            partition: len(log) - coordinator.committed.get(partition, 0)
            for partition, log in self._logs.items()
            if partition.topic in coordinator.topics
        }

    def holders(self, group: str) -> Mapping[Partition, str]:
        """Which consumer holds which partition at this moment; those on the move are left out."""
        return self.group(group).holders()

    def expel(self, group: str, consumer_id: str) -> None:
        """A session timeout: the consumer's partitions go to others, whether or not it still lives."""
        self.group(group).expel(consumer_id)

    # --- for the handles -------------------------------------------------------------------------------------------

    def partition_count(self, topic: str) -> int:
        count = self._partitions.get(topic)
        if count is None:
            raise InternalError(f"there is no topic {topic}; topics are created explicitly")
        return count

    def append(self, partition: Partition, events: Sequence[tuple[bytes | None, bytes, Headers]], now_ms: int) -> None:
        log = self._logs[partition]
        for key, value, headers in events:
            record = Record(
                partition=partition, offset=len(log), key=key, value=value, headers=headers, timestamp_ms=now_ms
            )
            log.append(record)
            self._observer.appended(record)
        for group in self._groups.values():
            group.appended(partition)

    def group(self, name: str) -> GroupCoordinator:
        found = self._groups.get(name)
        if found is None:
            found = self._groups[name] = GroupCoordinator(self._partitions)
        return found

    def new_reader_number(self) -> int:
        """Distinguishes readers with the same name; nothing else depends on it."""
        self._readers += 1
        return self._readers

    def poll(self, group: str, request: PollRequest) -> PollAnswer | None:
        """None: that reader is not a member, or not any more."""
        coordinator = self.group(group)
        if not coordinator.knows(request.member):
            return None
        assignment = coordinator.assignment(request.member, request.seen, request.released)
        if assignment is not None:
            return PollAnswer(assignment)
        batches = self._fetch(request.positions, request.limit)
        if not batches:
            coordinator.arm(request.member)
        return PollAnswer(None, batches)

    def commit(self, group: str, member: MemberKey, grant: Grant, next_offset: int, turn: int) -> None:
        if self.group(group).commit(member, grant, next_offset, turn):
            self._observer.committed(group, grant.partition, next_offset)

    def _fetch(self, positions: Sequence[tuple[Partition, int]], limit: int) -> tuple[tuple[Record, ...], ...]:
        batches: list[tuple[Record, ...]] = []
        for partition, offset in positions:
            log = self._logs[partition]
            if offset < len(log) and limit > 0:
                batches.append(tuple(log[offset : offset + limit]))
                limit -= len(batches[-1])
        return tuple(batches)


class MemoryEventWriter:
    """Implements `EventWriter`."""

    def __init__(self, broker: MemoryBroker, wire: Wire, now_ms: Callable[[], int]) -> None:
        self._broker = broker
        self._wire = wire
        self._now_ms = now_ms

    async def append(self, topic: str, events: Sequence[Event], *, timeout_s: float) -> None:
        if not events:
            return
        key = events[0].key
        if any(event.key != key for event in events):
            raise InternalError("the events of one append share one key")
        partition = Partition(topic, partition_of(key, self._broker.partition_count(topic)))
        await self._wire.call("append", partial(self._apply, partition, tuple(events)), timeout_s=timeout_s)

    def _apply(self, partition: Partition, events: Sequence[Event]) -> None:
        kept = self._wire.events_kept(len(events))
        rows = [(event.key.encode(), event.value, event.headers) for event in events[:kept]]
        self._broker.append(partition, rows, self._now_ms())
        if kept < len(events):
            raise OutcomeUnknown(f"append: {kept} of {len(events)} events are in the log")


class MemoryDeadLetterWriter:
    """Implements `DeadLetterWriter`."""

    def __init__(self, broker: MemoryBroker, wire: Wire, now_ms: Callable[[], int]) -> None:
        self._broker = broker
        self._wire = wire
        self._now_ms = now_ms

    async def write(self, dead_letter: DeadLetter, *, timeout_s: float) -> None:
        partition, key, value = dead_letter_record(dead_letter, self._broker.partition_count(DEAD_LETTERS))
        await self._wire.call("write", partial(self._apply, partition, key, value), timeout_s=timeout_s)

    def _apply(self, partition: Partition, key: bytes | None, value: bytes) -> None:
        self._broker.append(partition, [(key, value, ())], self._now_ms())

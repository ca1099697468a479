"""The event log in the data folder: topics, their partitions, and the handles with which they are written.

An append joins the same group commit as everything else. Reading is in `event_reader`.
"""

from collections import deque
from collections.abc import Mapping, Sequence

from seriatim.domain import limits
from seriatim.domain.errors import InternalError
from seriatim.domain.events import MessagePersisted
from seriatim.domain.sharding import partition as partition_of
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.storage.rows import EventRow
from seriatim.engines.embedded.storage.snapshot import WriteTransaction
from seriatim.engines.shared.consumer_group import GroupCoordinator
from seriatim.engines.shared.dead_letter_record import dead_letter_record
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import CHATS, DEAD_LETTERS, MEMBERSHIPS, MESSAGES, DeadLetter, Event, Partition, Record

# Of a new folder. Partitions are for sharing work among machines, and here is one: few make long runs, and a run costs
# fanout little more than a record. A few all the same: they take turns with a crowd's messages, where a single one gets
# so late that gateways begin to read back, and a record that cannot be handled holds up its own only.
PARTITIONS: Mapping[str, int] = {MESSAGES: 4, MEMBERSHIPS: 1, CHATS: 1, DEAD_LETTERS: 1}


Appended = tuple[EventRow, MessagePersisted | None]  # as it is stored, and as its writer built it


class EmbeddedEventLog:
    """What all handles of this process share: topics, ends, and who reads what."""

    def __init__(self, folder: Folder, partitions: Mapping[str, int]) -> None:
        self.disk = folder.disk
        self.writer = folder.writer
        self.partitions = dict(partitions)
        self._ends: dict[Partition, int] = {}
        self._tails: dict[Partition, deque[Record]] = {
            partition: deque(maxlen=limits.EVENT_TAIL_RECORDS_MAX) for partition in self.all_partitions()
        }
        self._groups: dict[str, GroupCoordinator] = {}
        self._readers = 0
        self._load_ends()
        folder.writer.mended.append(self._mended)

    @classmethod
    async def open(cls, folder: Folder, partitions: Mapping[str, int]) -> "EmbeddedEventLog":
        """Makes the topics that are not there yet, with so many partitions.

        One that is there keeps the number it was made with: the order of its chats depends on it.
        """

        def decide(transaction: WriteTransaction) -> dict[str, int]:
            counts = dict(partitions)
            for topic, count in partitions.items():
                made = rows.NUMBER.found(transaction.get(rows.topic_key(topic)))
                if made is None:
                    transaction.put(rows.topic_key(topic), rows.NUMBER.encode(count))
                else:
                    counts[topic] = made
            return counts

        return cls(folder, await folder.writer.commit("topics", decide, timeout_s=limits.STORE_TIMEOUT_S))

    def partition_count(self, topic: str) -> int:
        count = self.partitions.get(topic)
        if count is None:
            raise InternalError(f"there is no topic {topic}; topics are created explicitly")
        return count

    def all_partitions(self) -> Sequence[Partition]:
        return [Partition(topic, number) for topic, count in self.partitions.items() for number in range(count)]

    # --- writing ------------------------------------------------------------------------------------------------------

    async def append(
        self, operation: str, partition: Partition, events: Sequence[Appended], *, timeout_s: float
    ) -> None:
        await self.writer.commit(
            operation,
            lambda transaction: self.put(transaction, partition, events),
            timeout_s=timeout_s,
            applied=lambda: self.appended({partition: events}),
        )

    def put(self, transaction: WriteTransaction, partition: Partition, events: Sequence[Appended]) -> None:
        """Behind all that was decided before."""
        end_key = rows.end_key(partition)
        end = rows.NUMBER.found(transaction.get(end_key)) or 0
        keys = rows.event_keys(partition, end, len(events))
        transaction.changes.update(zip(keys, [rows.EVENT.encode(row) for row, _ in events], strict=True))
        transaction.put(end_key, rows.NUMBER.encode(end + len(events)))

    def appended(self, events: Mapping[Partition, Sequence[Appended]]) -> None:
        """What is in the log now is what readers ask for next: they need not fetch it from the disk."""
        for partition, fresh in events.items():
            end = self._ends[partition]
            self._tails[partition].extend(
                [
                    Record(
                        partition=partition,
                        offset=offset,
                        key=row.key,
                        value=row.value,
                        headers=row.headers,
                        timestamp_ms=row.timestamp_ms,
                        decoded=decoded,
                    )
                    for offset, (row, decoded) in enumerate(fresh, end)
                ]
            )
            self._ends[partition] = end + len(fresh)
            for group in self._groups.values():
                group.appended(partition)

    def let_go(self, partition: Partition, newest: int) -> None:
        """The records up to this one are removed, or were read, so that they are hardly ever asked for again."""
        tail = self._tails[partition]
        while tail and tail[0].offset <= newest:
            tail.popleft()

    # --- reading ------------------------------------------------------------------------------------------------------

    def group(self, name: str) -> GroupCoordinator:
        """Consumers live in this process, so their group does; what they committed is in the folder."""
        found = self._groups.get(name)
        if found is None:
            found = self._groups[name] = GroupCoordinator(self.partitions)
            for partition in self.all_partitions():
                committed = rows.NUMBER.found(self.disk.get(rows.offset_key(name, partition)))
                if committed is not None:
                    found.committed[partition] = committed
        return found

    def new_reader_number(self) -> int:
        """Distinguishes readers of the same name; nothing else depends on it."""
        self._readers += 1
        return self._readers

    def fetch(self, partition: Partition, offset: int, limit: int) -> list[Record]:
        """Records from `offset` on, up to the synced end; those that retention removed are passed over."""
        found: list[Record] = []
        end = self._ends.get(partition, 0)
        if offset >= end or limit <= 0:
            return found
        tail = self._tails[partition]
        if tail and tail[0].offset <= offset:
            first = offset - tail[0].offset
            # By index and not by `islice`: what is asked for lies at the end, and a deque reaches that at once.
            return [tail[number] for number in range(first, min(first + limit, len(tail)))]
        for key, value in self.disk.scan(rows.event_key(partition, offset), rows.event_key(partition, end)):
            found.append(record_of(partition, key, value))
            if len(found) == limit:
                break
        return found

    def has(self, partition: Partition, offset: int) -> bool:
        """There is a record at this offset or above it."""
        return offset < self._ends[partition]

    def end_offsets(self, topic: str) -> Mapping[Partition, int]:
        return {partition: end for partition, end in self._ends.items() if partition.topic == topic}

    def records(self, topic: str) -> Sequence[Record]:
        """All records of a topic, partition by partition, each in offset order: for tools and checkers."""
        partitions = [Partition(topic, number) for number in range(self.partition_count(topic))]
        return [record for each in partitions for record in self.fetch(each, 0, self._ends[each])]

    def lag(self, name: str) -> Mapping[Partition, int]:
        """Records not yet committed, for every partition of the topics the group subscribed to."""
        group = self.group(name)
        return {
            partition: end - group.committed.get(partition, 0)
            for partition, end in self._ends.items()
            if partition.topic in group.topics
        }

    def _mended(self) -> None:
        """What an interrupted write left in the log is there, or it is not; now it shows."""
        self._load_ends()
        for group in self._groups.values():
            for partition in self.all_partitions():
                group.appended(partition)

    def _load_ends(self) -> None:
        for partition in self.all_partitions():
            self._tails[partition].clear()  # an append of unknown outcome may have left a gap in it
            self._ends[partition] = rows.NUMBER.found(self.disk.get(rows.end_key(partition))) or 0


def record_of(partition: Partition, key: bytes, value: bytes) -> Record:
    row = rows.EVENT.decode(value)
    return Record(
        partition=partition,
        offset=rows.last_number(key),
        key=row.key,
        value=row.value,
        headers=row.headers,
        timestamp_ms=row.timestamp_ms,
    )


class EmbeddedEventWriter:
    """Implements `EventWriter`. All events of a call are in the log, or none."""

    def __init__(self, log: EmbeddedEventLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    async def append(self, topic: str, events: Sequence[Event], *, timeout_s: float) -> None:
        if not events:
            return
        key = events[0].key
        if any(event.key != key for event in events):
            raise InternalError("the events of one append share one key")
        partition = Partition(topic, partition_of(key, self._log.partition_count(topic)))
        raw, now_ms = key.encode(), self._clock.now_ms()
        fresh = [(EventRow(raw, event.value, event.headers, now_ms), event.decoded) for event in events]
        await self._log.append("append", partition, fresh, timeout_s=timeout_s)


class EmbeddedDeadLetterWriter:
    """Implements `DeadLetterWriter`."""

    def __init__(self, log: EmbeddedEventLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    async def write(self, dead_letter: DeadLetter, *, timeout_s: float) -> None:
        partition, key, value = dead_letter_record(dead_letter, self._log.partition_count(DEAD_LETTERS))
        row = EventRow(key, value, (), self._clock.now_ms())
        await self._log.append("write_dead_letter", partition, [(row, None)], timeout_s=timeout_s)

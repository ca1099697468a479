"""A reader of the embedded event log: one member of a consumer group, its positions, and its part in rebalances.

Reader, group and log are in one process: nothing between them is late or lost, so each poll simply asks.
"""

import asyncio
from collections.abc import Sequence

from seriatim.domain.errors import InternalError
from seriatim.engines.embedded.event_log import EmbeddedEventLog
from seriatim.engines.embedded.storage import rows
from seriatim.engines.shared.assigned_partitions import AssignedPartitions, PartitionPosition
from seriatim.engines.shared.consumer_group import Assignment, MemberKey
from seriatim.ports.event_log import Partition, RebalanceListener, Record


class EmbeddedEventReader(AssignedPartitions):
    """Implements `EventReader`."""

    def __init__(self, log: EmbeddedEventLog, group: str, consumer_id: str) -> None:
        self._log = log
        self._name = group
        self._group = log.group(group)
        self._member = MemberKey(consumer_id, log.new_reader_number(), 0)
        self._topics: tuple[str, ...] = ()
        self._listener: RebalanceListener | None = None
        self._assigned: dict[Partition, PartitionPosition] = {}
        self._seen = 0
        self._turn = 0
        self._commits = 0
        self._polling = False
        self._waiter: asyncio.Future[None] | None = None

    async def open(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        for topic in topics:
            self._log.partition_count(topic)
        self._topics = tuple(topics)
        self._listener = listener
        self._assigned.clear()
        self._join()

    async def poll(self, *, limit: int) -> Sequence[Record]:
        """May also raise `ServiceUnavailable` while the folder cannot be read; then no record was passed over."""
        if self._polling:
            raise InternalError("one poll at a time: two would tear the order of a partition")
        if self._listener is None:
            raise InternalError("this reader is not open")
        self._polling = True
        try:
            await asyncio.sleep(0)  # a backlog is polled in a loop: others must run, too
            return await self._poll(self._listener, limit)
        finally:
            self._polling = False

    async def commit(self, partition: Partition, next_offset: int, *, timeout_s: float) -> None:
        assigned = self._require_assigned(partition)
        self._commits += 1
        # The group knows it at once, the disk in a moment. After a crash both begin again at what the disk knows: some
        # records come twice, as they may anyway. A sync for each commit would hold up the sends that come next.
        if self._group.commit(self._member, assigned.grant, next_offset, self._commits):
            self._log.writer.write_lazily({rows.offset_key(self._name, partition): rows.NUMBER.encode(next_offset)})

    async def close(self) -> None:
        """A poll that still waits ends without records."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        self._wake()
        try:
            if self._assigned:
                await listener.revoked(tuple(self._assigned))
        finally:
            self._assigned.clear()
            self._group.leave(self._member)

    def _join(self) -> None:
        """A new epoch each time, so that a commit of an earlier one is fenced."""
        self._member = MemberKey(self._member.consumer_id, self._member.reader, self._member.epoch + 1)
        self._seen = 0
        self._group.join(self._member, self._topics, self._wake)

    async def _poll(self, listener: RebalanceListener, limit: int) -> Sequence[Record]:
        while self._listener is listener:
            if not self._group.knows(self._member):
                self._lose(listener)
                self._join()
            assignment = self._group.assignment(self._member, self._seen, ())
            if assignment is not None:
                await self._apply_assignment(assignment, listener)
                continue
            records = self._fetch(limit)
            if records:
                return records
            self._group.arm(self._member)
            await self._sleep()
        return ()

    def _lose(self, listener: RebalanceListener) -> None:
        lost = tuple(self._assigned)
        self._assigned.clear()
        if lost:
            listener.lost(lost)

    async def _apply_assignment(self, assignment: Assignment, listener: RebalanceListener) -> None:
        """First gives back, then takes: what is granted may be gone by the time a revocation is finished."""
        if assignment.revoke:
            await self._release_revoked(assignment, listener)
            return
        self._seen = assignment.version
        fresh = [grant for grant in assignment.held if grant.partition not in self._assigned]
        for grant in fresh:
            self._assigned[grant.partition] = PartitionPosition(grant)
        if fresh:
            listener.assigned(tuple([grant.partition for grant in fresh]))

    async def _release_revoked(self, assignment: Assignment, listener: RebalanceListener) -> None:
        revoked = tuple([partition for partition in assignment.revoke if partition in self._assigned])
        member = self._member
        if revoked:
            await listener.revoked(revoked)
        for partition in revoked:
            self._assigned.pop(partition, None)
        if self._group.knows(member):  # else it was expelled or closed meanwhile, and holds nothing
            self._group.assignment(
                member, self._seen, [each for each in assignment.held if each.partition in assignment.revoke]
            )

    def _fetch(self, limit: int) -> list[Record]:
        """Each poll begins with another partition, so that a busy one does not starve the others."""
        ready = [
            (partition, each)
            for partition, each in self._assigned.items()
            if not each.paused and self._log.has(partition, each.position)
        ]
        if not ready:
            return []
        self._turn = (self._turn + 1) % len(ready)
        records: list[Record] = []
        moved: list[tuple[Partition, PartitionPosition, int]] = []
        for partition, assigned in ready[self._turn :] + ready[: self._turn]:
            if found := self._log.fetch(partition, assigned.position, limit - len(records)):
                records += found
                moved.append((partition, assigned, found[-1].offset + 1))
        # Moved only now: a read that failed half-way passes over nothing.
        for partition, assigned, position in moved:
            assigned.position = position
            self._log.let_go(partition, position - 1)
        return records

    async def _sleep(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

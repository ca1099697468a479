"""A reader of the memory event log: one member of a consumer group, its positions, and its part in rebalances.

One exchange with the broker says it all: what was given back, what is held, where to read on. Any exchange may be
lost or come late without harm, because the reader changes its own state only when an answer arrives.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from seriatim.domain import limits
from seriatim.domain.errors import InternalError, ServiceUnavailable
from seriatim.engines.inprocess.wire import Wire
from seriatim.engines.shared.assigned_partitions import AssignedPartitions, PartitionPosition
from seriatim.engines.shared.consumer_group import Assignment, Grant, MemberKey
from seriatim.ports.event_log import Partition, RebalanceListener, Record
from seriatim.simulation.stores.event_log import MemoryBroker, PollRequest


class MemoryEventReader(AssignedPartitions):
    """Implements `EventReader`."""

    def __init__(self, broker: MemoryBroker, wire: Wire, group: str, consumer_id: str) -> None:
        self._broker = broker
        self._wire = wire
        self._group = group
        self._member = MemberKey(consumer_id, broker.new_reader_number(), 0)
        self._topics: tuple[str, ...] = ()
        self._listener: RebalanceListener | None = None
        self._assigned: dict[Partition, PartitionPosition] = {}
        self._released: list[Grant] = []
        self._seen = 0
        self._turn = 0
        self._commits = 0
        self._polling = False
        self._woken = False
        self._waiter: asyncio.Future[None] | None = None

    async def open(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        for topic in topics:
            self._broker.partition_count(topic)
        self._topics = tuple(topics)
        self._listener = listener
        self._assigned.clear()
        self._released.clear()
        await self._join()

    async def poll(self, *, limit: int) -> Sequence[Record]:
        """As promised by the port. May also raise `ServiceUnavailable`; then no record was passed over."""
        if self._polling:
            raise InternalError("one poll at a time: two would tear the order of a partition")
        if self._listener is None:
            raise InternalError("this reader is not open")
        self._polling = True
        try:
            return await self._poll(self._listener, limit)
        finally:
            self._polling = False

    async def commit(self, partition: Partition, next_offset: int, *, timeout_s: float) -> None:
        assigned = self._require_assigned(partition)
        self._commits += 1
        apply = partial(self._broker.commit, self._group, self._member, assigned.grant, next_offset, self._commits)
        await self._wire.call("commit", apply, timeout_s=timeout_s)

    async def close(self) -> None:
        """A poll that still waits ends without records. If the leave is lost, the session timeout does its work."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        self._wake()
        try:
            if self._assigned:
                await listener.revoked(tuple(self._assigned))
        finally:
            self._assigned.clear()
            apply = partial(self._broker.group(self._group).leave, self._member)
            with suppress(ServiceUnavailable):
                await self._wire.call("leave", apply, timeout_s=limits.GROUP_TIMEOUT_S)

    async def _join(self) -> None:
        """A new epoch each time: requests of the old one that are still in flight have no effect."""
        self._member = MemberKey(self._member.consumer_id, self._member.reader, self._member.epoch + 1)
        self._seen = 0
        wake = partial(self._wire.deliver, self._wake)
        apply = partial(self._broker.group(self._group).join, self._member, self._topics, wake)
        await self._wire.call("join", apply, timeout_s=limits.GROUP_TIMEOUT_S)

    async def _poll(self, listener: RebalanceListener, limit: int) -> Sequence[Record]:
        while self._listener is listener:
            # Cleared before asking: what happens while the answer travels must not be slept through.
            self._woken = False
            released = tuple(self._released)
            request = PollRequest(
                member=self._member, seen=self._seen, released=released, positions=self._positions(), limit=limit
            )
            apply = partial(self._broker.poll, self._group, request)
            answer = await self._wire.call("poll", apply, timeout_s=limits.GROUP_TIMEOUT_S)
            if self._listener is not listener:
                break
            if answer is None:
                self._lose(listener)
                await self._join()
                continue
            del self._released[: len(released)]
            if answer.assignment is not None:
                await self._apply_assignment(answer.assignment, listener)
                continue
            records = self._accept(request, answer.batches)
            if records:
                return records
            await self._sleep()
        return ()

    def _positions(self) -> tuple[tuple[Partition, int], ...]:
        """Each poll begins with another partition, so that a busy one does not starve the others."""
        ready = [(partition, each.position) for partition, each in self._assigned.items() if not each.paused]
        if not ready:
            return ()
        self._turn = (self._turn + 1) % len(ready)
        return tuple(ready[self._turn :] + ready[: self._turn])

    def _lose(self, listener: RebalanceListener) -> None:
        lost = tuple(self._assigned)
        self._assigned.clear()
        self._released.clear()
        if lost:
            listener.lost(lost)

    async def _apply_assignment(self, assignment: Assignment, listener: RebalanceListener) -> None:
        """First gives back, then takes: what an answer grants may be gone by the time a revocation is finished."""
        revoked = tuple([partition for partition in assignment.revoke if partition in self._assigned])
        if revoked:
            await listener.revoked(revoked)
            for partition in revoked:
                assigned = self._assigned.pop(partition, None)
                if assigned is not None:  # else the reader was closed meanwhile
                    self._released.append(assigned.grant)
            return
        fresh: list[Partition] = []
        for grant in assignment.held:
            if grant.partition in assignment.revoke:
                # Granted and withdrawn before this reader knew of it; only this reader can give it back.
                self._released.append(grant)
            elif grant.partition not in self._assigned:
                self._assigned[grant.partition] = PartitionPosition(grant)
                fresh.append(grant.partition)
        self._seen = assignment.version
        if fresh:
            listener.assigned(tuple(fresh))

    def _accept(self, request: PollRequest, batches: Sequence[Sequence[Record]]) -> Sequence[Record]:
        """Drops records of partitions that were paused or moved while the answer was in flight; they are read again."""
        asked = dict(request.positions)
        records: list[Record] = []
        for batch in batches:
            partition = batch[0].partition
            assigned = self._assigned.get(partition)
            if assigned is not None and not assigned.paused and assigned.position == asked[partition]:
                assigned.position += len(batch)
                records.extend(batch)
        return records

    async def _sleep(self) -> None:
        if self._woken:
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(limits.POLL_WAIT_S, self._wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _wake(self) -> None:
        self._woken = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

"""A reader of the event log in Kafka: its assigned partitions, the records that have arrived, and rebalances.

All of this runs on the loop; `group_membership` has the thread. A membership that has ended is replaced by a new one.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice

from seriatim.domain import limits
from seriatim.domain.errors import InternalError, SeriatimError
from seriatim.engines.kafka.cluster import Cluster
from seriatim.engines.kafka.errors import RebalanceInProgress, outcome_unknown
from seriatim.engines.kafka.group_membership import GroupMembership, PendingRebalance, VersionedRecord
from seriatim.ports.event_log import Fenced, Partition, RebalanceListener, Record


class KafkaEventReader:
    """Implements `EventReader`."""

    def __init__(
        self,
        cluster: Cluster,
        partitions: Mapping[str, int],
        group: str,
        consumer_id: str,
        *,
        session_s: float = limits.KAFKA_SESSION_S,
        heartbeat_s: float = limits.KAFKA_HEARTBEAT_S,
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._settings = cluster.consumer_settings(group, consumer_id, session_s=session_s, heartbeat_s=heartbeat_s)
        self.records_skipped = 0  # old ones, of partitions for which the group had committed nothing
        self._topics: tuple[str, ...] = ()
        self._listener: RebalanceListener | None = None
        self._membership: GroupMembership | None = None
        self._membership_ended = False  # expelled or failed: its partitions are lost
        self._failure: SeriatimError | None = None
        self._rebalance: PendingRebalance | None = None
        self._assigned: dict[Partition, _PartitionBuffer] = {}
        self._versions = 0
        self._turn = 0
        self._polling = False
        self._waiter: asyncio.Future[None] | None = None

    async def open(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        for topic in topics:
            if topic not in self._partitions:
                raise InternalError(f"there is no topic {topic}; topics are created explicitly")
        self._topics = tuple(topics)
        self._listener = listener
        self._assigned.clear()
        await self._join()

    async def poll(self, *, limit: int) -> Sequence[Record]:
        """As promised by the port. May also raise `ServiceUnavailable`; then no record was passed over."""
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
        """Kafka checks the member, not the partition: a late commit of this reader may follow one of the next owner.

        That is harmless: it covers only what was handled, and what it lowers is handled twice at worst. A commit that
        Kafka refuses because of a rebalance is repeated until the timeout: it may be the last chance to commit.
        """
        refused: RebalanceInProgress | None = None
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        return await self._commit(partition, next_offset)
                    except RebalanceInProgress as error:
                        refused = error
                    await asyncio.sleep(limits.KAFKA_RETRY_BACKOFF_S)
                    refused = None
        except TimeoutError:
            raise refused or outcome_unknown("commit") from None

    async def _commit(self, partition: Partition, next_offset: int) -> None:
        assigned, membership = self._assigned.get(partition), self._membership
        if assigned is None or membership is None or self._membership_ended:
            raise Fenced(f"{partition.topic}/{partition.number} is not assigned to this reader")
        try:
            await membership.commit(partition, next_offset, assigned.member)
        except Fenced:
            if self._assigned.get(partition) is assigned:
                self._end_membership()  # the next poll reports the loss to the listener
            raise

    def seek(self, partition: Partition, offset: int) -> None:
        """No effect on a partition that is not assigned, like `pause` and `resume`: its loss will be reported."""
        assigned = self._assigned.get(partition)
        if assigned is not None and self._membership is not None:
            assigned.arrived.clear()
            version, assigned.version = assigned.version, self._next_version()
            self._membership.seek(partition, offset, version=version, next_version=assigned.version)

    def pause(self, partition: Partition) -> None:
        assigned = self._assigned.get(partition)
        if assigned is not None:
            assigned.paused = True

    def resume(self, partition: Partition) -> None:
        assigned = self._assigned.get(partition)
        if assigned is not None:
            assigned.paused = False
            if assigned.stopped and self._membership is not None:
                assigned.stopped = False
                self._membership.resume(partition, version=assigned.version)
            self._wake()

    async def close(self) -> None:
        """A poll that still waits ends without records. If Kafka does not answer, the session times out there."""
        listener, self._listener = self._listener, None
        self._wake()
        try:
            if listener is not None and self._assigned and not self._membership_ended:
                await listener.revoked(tuple(self._assigned))
        finally:
            self._assigned.clear()
            await self.leave()

    # --- joining and leaving ------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        await self.leave()
        topics = {topic: self._partitions[topic] for topic in self._topics}
        self._membership_ended, self._failure = False, None
        self._membership = GroupMembership(self._cluster, topics, self._settings, self)
        self._membership.start()
        try:
            await self._membership.opened
        except BaseException:
            self._membership_ended = True
            raise

    async def leave(self) -> None:
        """Ends the membership without calling the listener, as when the process ends in an orderly way.

        A thread that hangs in a commit is left behind: it ends when Kafka answers, or with the process.
        """
        membership = self._membership
        if membership is None:
            return
        membership.end()
        await asyncio.wait([membership.ended], timeout=limits.KAFKA_LEAVE_S)
        if self._membership is membership:
            self._membership, self._rebalance = None, None

    def _end_membership(self) -> None:
        self._membership_ended = True
        self._wake()

    # --- called by the membership -------------------------------------------------------------------------------------

    def on_records(self, records: Sequence[VersionedRecord]) -> None:
        for each in records:
            record = each.record
            assigned = self._assigned.get(record.partition)
            if assigned is None or assigned.version != each.version:
                continue  # it was read before a rebalance or a seek
            assigned.arrived.append(record)
            if (
                assigned.paused
                and len(assigned.arrived) >= limits.KAFKA_PAUSED_RECORDS_MAX
                and self._membership is not None
            ):
                assigned.stopped = True
                self._membership.pause(record.partition, version=assigned.version)
        self._wake()

    def on_rebalance(self, rebalance: PendingRebalance) -> None:
        self._rebalance = rebalance
        self._wake()

    def on_skipped(self, records: int) -> None:
        self.records_skipped += records

    def on_failure(self, error: SeriatimError) -> None:
        self._failure = error
        self._end_membership()

    # --- polling ------------------------------------------------------------------------------------------------------

    async def _poll(self, listener: RebalanceListener, limit: int) -> Sequence[Record]:
        while self._listener is listener:
            if self._membership_ended or self._membership is None:
                await self._join_again(listener)
                continue
            if self._rebalance is not None:
                await self._handle_rebalance(self._rebalance, listener)
                continue
            records = self._take_arrived(limit)
            if records:
                return records
            self._membership.request_records(limit)
            await self._sleep()
        return ()

    async def _join_again(self, listener: RebalanceListener) -> None:
        lost = tuple(self._assigned)
        self._assigned.clear()
        if lost:
            listener.lost(lost)
        await self.leave()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        await self._join()

    async def _handle_rebalance(self, rebalance: PendingRebalance, listener: RebalanceListener) -> None:
        """If this is cancelled, the rebalance waits for the next poll or for the end of the membership."""
        if rebalance.kind == "assigned":
            for partition in rebalance.partitions:
                self._assigned[partition] = _PartitionBuffer(rebalance.member, self._next_version())
            rebalance.versions = {partition: self._assigned[partition].version for partition in rebalance.partitions}
            self._release(rebalance)
            listener.assigned(tuple(rebalance.partitions))
            return
        revoked = tuple([partition for partition in self._assigned if partition in rebalance.partitions])
        if rebalance.kind == "revoked" and revoked:
            await listener.revoked(revoked)
        for partition in revoked:
            self._assigned.pop(partition, None)
        self._release(rebalance)
        if rebalance.kind == "lost" and revoked:
            listener.lost(revoked)

    def _release(self, rebalance: PendingRebalance) -> None:
        if self._rebalance is rebalance:
            self._rebalance = None
        if self._membership is not None:
            self._membership.release(rebalance)

    def _take_arrived(self, limit: int) -> Sequence[Record]:
        """Each poll begins with another partition, so that a busy one does not starve the others."""
        ready = [each for each in self._assigned.values() if each.arrived and not each.paused]
        if not ready:
            return ()
        self._turn = (self._turn + 1) % len(ready)
        records: list[Record] = []
        for assigned in ready[self._turn :] + ready[: self._turn]:
            taken = list(islice(assigned.arrived, limit - len(records)))
            for _ in taken:
                assigned.arrived.popleft()
            records += taken
        return records

    def _next_version(self) -> int:
        self._versions += 1
        return self._versions

    async def _sleep(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _PartitionBuffer:
    """An assigned partition. `stopped`: librdkafka was paused, too; a short pause is kept here only."""

    __slots__ = ("arrived", "member", "paused", "stopped", "version")

    def __init__(self, member: str, version: int) -> None:
        self.member = member
        self.version = version
        self.arrived: deque[Record] = deque()
        self.paused = False
        self.stopped = False

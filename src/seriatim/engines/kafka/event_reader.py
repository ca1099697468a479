"""A reader of the event log in Kafka: what it holds, what has arrived, and its part in rebalances.

All of this is on the loop; `membership` has the thread. A membership that is over is replaced by a new one.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice

from seriatim.domain import limits
from seriatim.domain.errors import InternalError, SeriatimError
from seriatim.engines.kafka.cluster import Cluster
from seriatim.engines.kafka.errors import Rebalancing, unknown
from seriatim.engines.kafka.group_membership import Change, Membership, Read
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
        self._settings = cluster.consumer(group, consumer_id, session_s=session_s, heartbeat_s=heartbeat_s)
        self.records_passed_over = 0  # old ones, of partitions for which the group had committed nothing
        self._topics: tuple[str, ...] = ()
        self._listener: RebalanceListener | None = None
        self._membership: Membership | None = None
        self._is_over = False  # the membership: expelled or failed. What it held is lost
        self._failure: SeriatimError | None = None
        self._change: Change | None = None
        self._holdings: dict[Partition, _Holding] = {}
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
        self._holdings.clear()
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
        """Kafka checks the member, not the partition: a late commit of ours may still follow the next owner's.

        That is harmless: it covers only what was handled, and what it lowers is handled twice at worst. A commit that
        Kafka refuses because of a rebalance is repeated until the timeout: it may be the last chance to commit.
        """
        refused: Rebalancing | None = None
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        return await self._commit(partition, next_offset)
                    except Rebalancing as error:
                        refused = error
                    await asyncio.sleep(limits.KAFKA_RETRY_BACKOFF_S)
                    refused = None
        except TimeoutError:
            raise refused or unknown("commit") from None

    async def _commit(self, partition: Partition, next_offset: int) -> None:
        holding, membership = self._holdings.get(partition), self._membership
        if holding is None or membership is None or self._is_over:
            raise Fenced(f"{partition.topic}/{partition.number} is not ours")
        try:
            await membership.commit(partition, next_offset, holding.member)
        except Fenced:
            if self._holdings.get(partition) is holding:
                self._end_membership()  # whoever is fenced waits to be told of the loss
            raise

    def seek(self, partition: Partition, offset: int) -> None:
        """Like `pause` and `resume` without effect on a partition that is not ours: who asks will soon be told."""
        holding = self._holdings.get(partition)
        if holding is not None and self._membership is not None:
            holding.arrived.clear()
            version, holding.version = holding.version, self._next_version()
            self._membership.seek(partition, offset, version=version, next_version=holding.version)

    def pause(self, partition: Partition) -> None:
        holding = self._holdings.get(partition)
        if holding is not None:
            holding.paused = True

    def resume(self, partition: Partition) -> None:
        holding = self._holdings.get(partition)
        if holding is not None:
            holding.paused = False
            if holding.stopped and self._membership is not None:
                holding.stopped = False
                self._membership.resume(partition, version=holding.version)
            self._wake()

    async def close(self) -> None:
        """A poll that still waits ends without records. If Kafka cannot be told, the session timeout does its work."""
        listener, self._listener = self._listener, None
        self._wake()
        try:
            if listener is not None and self._holdings and not self._is_over:
                await listener.revoked(tuple(self._holdings))
        finally:
            self._holdings.clear()
            await self.leave()

    # --- joining and leaving ------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        await self.leave()
        topics = {topic: self._partitions[topic] for topic in self._topics}
        self._is_over, self._failure = False, None
        self._membership = Membership(self._cluster, topics, self._settings, self)
        self._membership.start()
        try:
            await self._membership.opened
        except BaseException:
            self._is_over = True
            raise

    async def leave(self) -> None:
        """Ends the membership without a word to the listener, like a process that ends but says goodbye.

        A thread that hangs in a commit is left behind: it ends when Kafka answers, or with the process.
        """
        membership = self._membership
        if membership is None:
            return
        membership.end()
        await asyncio.wait([membership.ended], timeout=limits.KAFKA_LEAVE_S)
        if self._membership is membership:
            self._membership, self._change = None, None

    def _end_membership(self) -> None:
        self._is_over = True
        self._wake()

    # --- what the membership tells us ---------------------------------------------------------------------------------

    def arrived(self, reads: Sequence[Read]) -> None:
        for read in reads:
            record = read.record
            holding = self._holdings.get(record.partition)
            if holding is None or holding.version != read.version:
                continue  # it was read before a rebalance or a seek
            holding.arrived.append(record)
            if (
                holding.paused
                and len(holding.arrived) >= limits.KAFKA_PAUSED_RECORDS_MAX
                and self._membership is not None
            ):
                holding.stopped = True
                self._membership.pause(record.partition, version=holding.version)
        self._wake()

    def changing(self, change: Change) -> None:
        self._change = change
        self._wake()

    def passed_over(self, records: int) -> None:
        self.records_passed_over += records

    def failed(self, error: SeriatimError) -> None:
        self._failure = error
        self._end_membership()

    # --- polling ------------------------------------------------------------------------------------------------------

    async def _poll(self, listener: RebalanceListener, limit: int) -> Sequence[Record]:
        while self._listener is listener:
            if self._is_over or self._membership is None:
                await self._begin_again(listener)
                continue
            if self._change is not None:
                await self._obey(self._change, listener)
                continue
            records = self._take(limit)
            if records:
                return records
            self._membership.want(limit)
            await self._sleep()
        return ()

    async def _begin_again(self, listener: RebalanceListener) -> None:
        lost = tuple(self._holdings)
        self._holdings.clear()
        if lost:
            listener.lost(lost)
        await self.leave()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        await self._join()

    async def _obey(self, change: Change, listener: RebalanceListener) -> None:
        """If this is cut short, the rebalance waits for the next poll or for the end."""
        if change.kind == "assigned":
            for partition in change.partitions:
                self._holdings[partition] = _Holding(change.member, self._next_version())
            change.versions = {partition: self._holdings[partition].version for partition in change.partitions}
            self._finish(change)
            listener.assigned(tuple(change.partitions))
            return
        ours = tuple([partition for partition in self._holdings if partition in change.partitions])
        if change.kind == "revoked" and ours:
            await listener.revoked(ours)
        for partition in ours:
            self._holdings.pop(partition, None)
        self._finish(change)
        if change.kind == "lost" and ours:
            listener.lost(ours)

    def _finish(self, change: Change) -> None:
        if self._change is change:
            self._change = None
        if self._membership is not None:
            self._membership.release(change)

    def _take(self, limit: int) -> Sequence[Record]:
        """Each poll begins with another partition, so that a busy one does not starve the others."""
        ready = [each for each in self._holdings.values() if each.arrived and not each.paused]
        if not ready:
            return ()
        self._turn = (self._turn + 1) % len(ready)
        records: list[Record] = []
        for holding in ready[self._turn :] + ready[: self._turn]:
            taken = list(islice(holding.arrived, limit - len(records)))
            for _ in taken:
                holding.arrived.popleft()
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


class _Holding:
    """A partition in our hands. `stopped`: Kafka was told of the pause; a short one it need not know of."""

    __slots__ = ("arrived", "member", "paused", "stopped", "version")

    def __init__(self, member: str, version: int) -> None:
        self.member = member
        self.version = version
        self.arrived: deque[Record] = deque()
        self.paused = False
        self.stopped = False

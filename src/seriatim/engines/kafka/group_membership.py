"""One membership in a consumer group, and the thread of its librdkafka consumer, which serves one caller at a time.

The thread reads only when the loop has requested records. During a rebalance it waits until the loop has released the
rebalance, and serves commits meanwhile. A membership that has ended is replaced by a new one; it is never restarted.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Condition, Thread
from typing import Literal, Protocol

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError, ServiceUnavailable
from seriatim.engines.kafka.cluster import Cluster, refuse_mismatch
from seriatim.engines.kafka.commit_queue import CommitQueue
from seriatim.engines.kafka.errors import FAILED, unavailable
from seriatim.engines.kafka.lost_offsets import skip_old_records
from seriatim.engines.kafka.records import record_of
from seriatim.ports.event_log import Partition, Record

LOGGER = logging.getLogger("seriatim.kafka")
RebalanceKind = Literal["assigned", "revoked", "lost"]


class PendingRebalance:
    """A rebalance that waits until the loop releases it. For assigned partitions the loop sets their `versions`."""

    def __init__(self, kind: RebalanceKind, partitions: Sequence[Partition], member: str) -> None:
        self.kind = kind
        self.partitions = partitions
        self.member = member
        self.versions: Mapping[Partition, int] = {}
        self.is_released = False


class VersionedRecord(msgspec.Struct, frozen=True):
    """A record, and the version of its partition at the moment it was read."""

    record: Record
    version: int | None


class PartitionCommand(msgspec.Struct, frozen=True):
    """A seek, pause or resume: given on the loop, executed in the thread if the partition still has this version."""

    partition: Partition
    version: int
    execute: Callable[[], None]


class MembershipListener(Protocol):
    """Called on the loop."""

    def on_records(self, records: Sequence[VersionedRecord]) -> None: ...

    def on_rebalance(self, rebalance: PendingRebalance) -> None: ...

    def on_skipped(self, records: int) -> None: ...

    def on_failure(self, error: SeriatimError) -> None: ...


class GroupMembership:
    def __init__(
        self,
        cluster: Cluster,
        partitions: Mapping[str, int],
        settings: Mapping[str, object],
        listener: MembershipListener,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._cluster = cluster
        self._partitions = partitions
        self._listener = listener
        self._consumer = Consumer(dict(settings), logger=LOGGER)
        self._commits = CommitQueue(cluster, self._loop)
        self._versions: dict[Partition, int] = {}  # only the thread reads and writes it
        self._condition = Condition()  # guards the four below
        self._requested = 0
        self._commands: list[PartitionCommand] = []
        self._rebalance: PendingRebalance | None = None
        self._ending = False
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = Thread(target=self._run, name="kafka-consumer", daemon=True)

    # --- called on the loop -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """`opened` is set when the consumer has subscribed to its topics."""
        self._thread.start()

    def request_records(self, limit: int) -> None:
        with self._condition:
            self._requested = limit
            self._condition.notify()

    def commit(self, partition: Partition, offset: int, member: str) -> asyncio.Future[None]:
        with self._condition:
            result = self._commits.add(partition, offset, member)
            if self._ending:
                self._commits.refuse()
            self._condition.notify()
        return result

    def release(self, rebalance: PendingRebalance) -> None:
        """The loop has handled the rebalance. Commits of revoked partitions that still wait are fenced."""
        if rebalance.kind != "assigned":
            self._commits.fence(rebalance.partitions)
        with self._condition:
            rebalance.is_released = True
            self._condition.notify()

    def seek(self, partition: Partition, offset: int, *, version: int, next_version: int) -> None:
        """Of the partition at this version. Records read after the seek have `next_version`."""
        self._command(partition, version, lambda: self._seek(partition, offset, next_version))

    def pause(self, partition: Partition, *, version: int) -> None:
        self._command(partition, version, lambda: self._consumer.pause([self._topic_partition(partition)]))

    def resume(self, partition: Partition, *, version: int) -> None:
        self._command(partition, version, lambda: self._consumer.resume([self._topic_partition(partition)]))

    def end(self) -> None:
        """Leaves the group without calling the listener. `ended` is set when that is done."""
        with self._condition:
            self._ending = True
            if self._rebalance is not None:
                self._rebalance.is_released = True
            self._condition.notify()

    def _command(self, partition: Partition, version: int, execute: Callable[[], None]) -> None:
        with self._condition:
            self._commands.append(PartitionCommand(partition, version, execute))
            self._condition.notify()

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._join()
            self._call_on_loop(self._joined)
            while self._serve():
                pass
        except Exception as error:
            self._call_on_loop(self._failed, _translated(error))
        finally:
            self.end()  # from here on a rebalance does not wait for the loop, and no commit is accepted
            self._commits.refuse()
            self._consumer.close()
            self._call_on_loop(self._end)

    def _join(self) -> None:
        found = self._consumer.list_topics(timeout=limits.GROUP_TIMEOUT_S)
        counts = {name: len(topic.partitions) for name, topic in found.topics.items() if topic.error is None}
        refuse_mismatch(self._cluster, self._partitions, counts)
        names = [self._cluster.prefixed(topic) for topic in self._partitions]
        self._consumer.subscribe(names, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def _serve(self) -> bool:
        """One round: commands, commits, then one read if records are requested. False: the membership ends."""
        with self._condition:
            while not (self._requested or self._commands or self._commits.has_pending or self._ending):
                self._condition.wait()
            requested, commands = self._requested, self._commands
            self._commands = []
            if self._ending:
                return False
        for command in commands:
            # Another version: the partition was revoked, and perhaps assigned again, after the command was given.
            if self._versions.get(command.partition) == command.version:
                command.execute()
        self._commits.flush(self._consumer)
        records = self._read(requested) if requested else []
        if records:
            with self._condition:
                self._requested = 0
            self._call_on_loop(self._listener.on_records, records)
        return True

    def _read(self, limit: int) -> list[VersionedRecord]:
        """Waits for the first record, then takes what is there. One by one: a rebalance may lie between two."""
        records: list[VersionedRecord] = []
        message = self._consumer.poll(limits.KAFKA_WAIT_S)
        while message is not None:
            error = message.error()
            if error is None:
                record = record_of(self._cluster, message)
                records.append(VersionedRecord(record, self._versions.get(record.partition)))
            elif error.fatal():
                raise KafkaException(error)
            else:
                LOGGER.warning("consumer: %s; reading goes on when the broker is well again", error.name())
            if len(records) == limit:
                break
            message = self._consumer.poll(0)
        return records

    def _seek(self, partition: Partition, offset: int, version: int) -> None:
        place = self._topic_partition(partition, offset)
        try:
            self._consumer.seek(place)
        except KafkaException:
            # librdkafka refuses to seek in a partition that is just starting. Assigning it again with an offset works.
            self._consumer.incremental_unassign([place])
            self._consumer.incremental_assign([place])
        self._versions[partition] = version

    def _on_assign(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        rebalance = self._rebalance_of("assigned", places)
        self._wait_for_release(rebalance)
        self._versions.update(rebalance.versions)
        skipped = skip_old_records(consumer, places) if rebalance.versions else 0  # else it is about to leave
        if skipped:
            self._call_on_loop(self._listener.on_skipped, skipped)
        consumer.incremental_assign(places)
        # librdkafka keeps a pause across a revocation. The resume command was dropped with the partition.
        consumer.resume(places)

    def _on_revoke(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._unassign("revoked", consumer, places)

    def _on_lost(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._unassign("lost", consumer, places)

    def _unassign(self, kind: RebalanceKind, consumer: Consumer, places: list[TopicPartition]) -> None:
        rebalance = self._rebalance_of(kind, places)
        self._wait_for_release(rebalance)
        for partition in rebalance.partitions:
            self._versions.pop(partition, None)
        if self._ending:
            # Else it would join again for the remaining partitions, and leave only after the others have joined.
            consumer.unsubscribe()
        consumer.incremental_unassign(places)

    def _rebalance_of(self, kind: RebalanceKind, places: Sequence[TopicPartition]) -> PendingRebalance:
        partitions = [Partition(self._cluster.unprefixed(place.topic), place.partition) for place in places]
        return PendingRebalance(kind, partitions, self._consumer.memberid())

    def _wait_for_release(self, rebalance: PendingRebalance) -> None:
        """The loop handles the rebalance and releases it. The group waits no longer than `max.poll.interval.ms`."""
        with self._condition:
            if self._ending or not rebalance.partitions:
                return
            self._rebalance = rebalance
        self._call_on_loop(self._listener.on_rebalance, rebalance)
        while not self._is_released(rebalance):
            self._commits.flush(self._consumer)

    def _is_released(self, rebalance: PendingRebalance) -> bool:
        """Waits until the rebalance is released (True) or a commit is pending (False)."""
        with self._condition:
            while not (rebalance.is_released or self._commits.has_pending):
                self._condition.wait()
            if rebalance.is_released:
                self._rebalance = None
            return rebalance.is_released

    def _topic_partition(self, partition: Partition, offset: int = -1001) -> TopicPartition:
        return TopicPartition(self._cluster.prefixed(partition.topic), partition.number, offset)

    def _call_on_loop(self, callback: Callable[..., None], *arguments: object) -> None:
        # RuntimeError: the loop is closed, and this thread was left behind.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)

    # --- called on the loop by the thread -----------------------------------------------------------------------------

    def _joined(self) -> None:
        if not self.opened.done():
            self.opened.set_result(None)

    def _failed(self, error: SeriatimError) -> None:
        if self.opened.done():
            self._listener.on_failure(error)
        else:
            self.opened.set_exception(error)

    def _end(self) -> None:
        self._thread.join()  # its last act was this call
        if not self.opened.done():
            self.opened.cancel()
        self.ended.set_result(None)


def _translated(error: Exception) -> SeriatimError:
    if isinstance(error, SeriatimError):
        return error
    if isinstance(error, KafkaException):
        return unavailable("consumer", error.args[0])
    LOGGER.error("consumer: ended by a bug", exc_info=error)
    return ServiceUnavailable(FAILED, log_reason="consumer: ended by a bug; it joins again")

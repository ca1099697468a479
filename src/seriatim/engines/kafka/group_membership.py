"""One membership in a consumer group, and the thread it lives in: librdkafka's consumer serves one caller at a time.

The thread does nothing of its own accord: it reads when records are wanted, and a rebalance stands still until the
loop has dealt with it; commits are served meanwhile. A membership ends and is replaced; it never begins again.
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
from seriatim.engines.kafka.commits import Commits
from seriatim.engines.kafka.errors import unavailable
from seriatim.engines.kafka.lost_offsets import pass_over_old_records
from seriatim.engines.kafka.records import record_of
from seriatim.ports.event_log import Partition, Record

LOGGER = logging.getLogger("seriatim.kafka")
Kind = Literal["assigned", "revoked", "lost"]


class Change:
    """A rebalance, which stands still until it is released. Who takes partitions says under which version."""

    def __init__(self, kind: Kind, partitions: Sequence[Partition], member: str) -> None:
        self.kind = kind
        self.partitions = partitions
        self.member = member
        self.versions: Mapping[Partition, int] = {}
        self.is_released = False


class Read(msgspec.Struct, frozen=True):
    """A record, and the version of its partition at the moment it was read."""

    record: Record
    version: int | None


class Order(msgspec.Struct, frozen=True):
    """Something to do to a partition, given on the loop and carried out in the thread, if it still has this version."""

    partition: Partition
    version: int
    act: Callable[[], None]


class Owner(Protocol):
    """Who is told, on the loop."""

    def arrived(self, reads: Sequence[Read]) -> None: ...

    def changing(self, change: Change) -> None: ...

    def passed_over(self, records: int) -> None: ...

    def failed(self, error: SeriatimError) -> None: ...


class Membership:
    def __init__(
        self, cluster: Cluster, partitions: Mapping[str, int], settings: Mapping[str, object], owner: Owner
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._cluster = cluster
        self._partitions = partitions
        self._owner = owner
        self._consumer = Consumer(dict(settings), logger=LOGGER)
        self._commits = Commits(cluster, self._loop)
        self._versions: dict[Partition, int] = {}  # of the reading thread, like the rest of what it reads
        self._bell = Condition()  # guards the four below
        self._wanted = 0
        self._orders: list[Order] = []
        self._change: Change | None = None
        self._ending = False
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = Thread(target=self._run, name="kafka-consumer", daemon=True)

    # --- from the loop ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """`opened` says when the group was asked for."""
        self._thread.start()

    def want(self, limit: int) -> None:
        with self._bell:
            self._wanted = limit
            self._bell.notify()

    def commit(self, partition: Partition, offset: int, member: str) -> asyncio.Future[None]:
        with self._bell:
            answer = self._commits.add(partition, offset, member)
            if self._ending:
                self._commits.refuse()
            self._bell.notify()
        return answer

    def release(self, change: Change) -> None:
        """The loop has dealt with it. What was given back is committed no more."""
        if change.kind != "assigned":
            self._commits.forget(change.partitions)
        with self._bell:
            change.is_released = True
            self._bell.notify()

    def seek(self, partition: Partition, offset: int, *, version: int, next_version: int) -> None:
        """Of the partition at this version; what is read from then on has the next one."""
        self._order(partition, version, lambda: self._seek(partition, offset, next_version))

    def pause(self, partition: Partition, *, version: int) -> None:
        self._order(partition, version, lambda: self._consumer.pause([self._place(partition)]))

    def resume(self, partition: Partition, *, version: int) -> None:
        self._order(partition, version, lambda: self._consumer.resume([self._place(partition)]))

    def end(self) -> None:
        """Leaves the group, without telling anybody what it held. `ended` says when that is done."""
        with self._bell:
            self._ending = True
            if self._change is not None:
                self._change.is_released = True
            self._bell.notify()

    def _order(self, partition: Partition, version: int, act: Callable[[], None]) -> None:
        with self._bell:
            self._orders.append(Order(partition, version, act))
            self._bell.notify()

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._join()
            self._tell(self._joined)
            while self._serve():
                pass
        except Exception as error:
            self._tell(self._failed, _in_our_words(error))
        finally:
            self.end()  # from here on nobody is asked about partitions, and no commit is taken
            self._commits.refuse()
            self._consumer.close()
            self._tell(self._end)

    def _join(self) -> None:
        found = self._consumer.list_topics(timeout=limits.GROUP_TIMEOUT_S)
        counts = {name: len(topic.partitions) for name, topic in found.topics.items() if topic.error is None}
        refuse_mismatch(self._cluster, self._partitions, counts)
        names = [self._cluster.name(topic) for topic in self._partitions]
        self._consumer.subscribe(names, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def _serve(self) -> bool:
        """One turn: what was ordered, commits, then one reading if records are wanted. False: it is time to end."""
        with self._bell:
            while not (self._wanted or self._orders or self._commits.are_waiting or self._ending):
                self._bell.wait()
            wanted, orders = self._wanted, self._orders
            self._orders = []
            if self._ending:
                return False
        for order in orders:
            # Another version: the partition was revoked, and perhaps assigned again, after the order was given.
            if self._versions.get(order.partition) == order.version:
                order.act()
        self._commits.perform(self._consumer)
        reads = self._read(wanted) if wanted else []
        if reads:
            with self._bell:
                self._wanted = 0
            self._tell(self._owner.arrived, reads)
        return True

    def _read(self, limit: int) -> list[Read]:
        """Waits for the first record, then takes what is there. One by one: a rebalance may lie between two."""
        reads: list[Read] = []
        message = self._consumer.poll(limits.KAFKA_WAIT_S)
        while message is not None:
            error = message.error()
            if error is None:
                record = record_of(self._cluster, message)
                reads.append(Read(record, self._versions.get(record.partition)))
            elif error.fatal():
                raise KafkaException(error)
            else:
                LOGGER.warning("consumer: %s; reading goes on when it is mended", error.name())
            if len(reads) == limit:
                break
            message = self._consumer.poll(0)
        return reads

    def _seek(self, partition: Partition, offset: int, version: int) -> None:
        place = self._place(partition, offset)
        try:
            self._consumer.seek(place)
        except KafkaException:
            # A partition that is just starting cannot be sought; assigned anew with an offset, it can.
            self._consumer.incremental_unassign([place])
            self._consumer.incremental_assign([place])
        self._versions[partition] = version

    def _on_assign(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        change = self._change_of("assigned", places)
        self._pass(change)
        self._versions.update(change.versions)
        passed_over = pass_over_old_records(consumer, places) if change.versions else 0  # else it is about to leave
        if passed_over:
            self._tell(self._owner.passed_over, passed_over)
        consumer.incremental_assign(places)
        # librdkafka keeps a pause across a revocation. The order that was to end it was dropped with the partition.
        consumer.resume(places)

    def _on_revoke(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._give_back("revoked", consumer, places)

    def _on_lost(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._give_back("lost", consumer, places)

    def _give_back(self, kind: Kind, consumer: Consumer, places: list[TopicPartition]) -> None:
        change = self._change_of(kind, places)
        self._pass(change)
        for partition in change.partitions:
            self._versions.pop(partition, None)
        if self._ending:
            # Else it would join again for what is left, and its goodbye would wait behind the others' joining.
            consumer.unsubscribe()
        consumer.incremental_unassign(places)

    def _change_of(self, kind: Kind, places: Sequence[TopicPartition]) -> Change:
        partitions = [Partition(self._cluster.topic(place.topic), place.partition) for place in places]
        return Change(kind, partitions, self._consumer.memberid())

    def _pass(self, change: Change) -> None:
        """To the loop, and back when it is done. The group waits for us no longer than `max.poll.interval.ms`."""
        with self._bell:
            if self._ending or not change.partitions:
                return
            self._change = change
        self._tell(self._owner.changing, change)
        while self._waits_for(change):
            self._commits.perform(self._consumer)

    def _waits_for(self, change: Change) -> bool:
        with self._bell:
            while not (change.is_released or self._commits.are_waiting):
                self._bell.wait()
            if change.is_released:
                self._change = None
            return not change.is_released

    def _place(self, partition: Partition, offset: int = -1001) -> TopicPartition:
        return TopicPartition(self._cluster.name(partition.topic), partition.number, offset)

    def _tell(self, what: Callable[..., None], *details: object) -> None:
        # A loop that is closed asks for nothing any more: this thread was left behind.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what, *details)

    # --- on the loop again --------------------------------------------------------------------------------------------

    def _joined(self) -> None:
        if not self.opened.done():
            self.opened.set_result(None)

    def _failed(self, error: SeriatimError) -> None:
        if self.opened.done():
            self._owner.failed(error)
        else:
            self.opened.set_exception(error)

    def _end(self) -> None:
        self._thread.join()  # it has nothing left to do
        if not self.opened.done():
            self.opened.cancel()
        self.ended.set_result(None)


def _in_our_words(error: Exception) -> SeriatimError:
    if isinstance(error, SeriatimError):
        return error
    if isinstance(error, KafkaException):
        return unavailable("consumer", error.args[0])
    LOGGER.error("consumer: ended by a bug", exc_info=error)
    return ServiceUnavailable("consumer: ended by a bug; it joins again")

"""Commits of one consumer that wait to be sent: all that gather while one request is under way go out in the next."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from seriatim.engines.kafka.cluster import Cluster
from seriatim.engines.kafka.errors import EXPELLED, unavailable
from seriatim.ports.event_log import Fenced, Partition


class CommitQueue:
    """`add` and `fence` are called on the loop, the rest in the thread of the consumer."""

    def __init__(self, cluster: Cluster, loop: asyncio.AbstractEventLoop) -> None:
        self._cluster = cluster
        self._loop = loop
        self._lock = Lock()
        self._pending: dict[Partition, _PendingCommit] = {}

    def add(self, partition: Partition, offset: int, member: str) -> asyncio.Future[None]:
        """The latest offset of a partition replaces an earlier one that still waits, and its result settles both.

        The result is `Fenced` if the consumer is no longer the member to which the partition was assigned.
        """
        result: asyncio.Future[None] = self._loop.create_future()
        with self._lock:
            before = self._pending.get(partition)
            results = [] if before is None else before.results
            self._pending[partition] = _PendingCommit(offset, member, [*results, result])
        return result

    def fence(self, partitions: Sequence[Partition]) -> None:
        """The partitions were revoked. A request that was sent already cannot be recalled."""
        with self._lock:
            gone = {partition: self._pending.pop(partition) for partition in partitions if partition in self._pending}
        _settle(gone, dict.fromkeys(gone, Fenced("the partition was given back")))

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def flush(self, consumer: Consumer) -> None:
        """Blocks until Kafka has answered, however long that takes: nothing can be read meanwhile, either."""
        commits = self._take()
        if commits:
            self._settle_on_loop(commits, self._commit(consumer, commits))

    def refuse(self) -> None:
        """The consumer is about to leave its group."""
        commits = self._take()
        error = Fenced("this consumer has left its group")
        self._settle_on_loop(commits, dict.fromkeys(commits, error))

    def _settle_on_loop(
        self, commits: "Mapping[Partition, _PendingCommit]", errors: Mapping[Partition, Exception | None]
    ) -> None:
        with suppress(RuntimeError):  # the loop is closed, and with it all callers are gone
            self._loop.call_soon_threadsafe(_settle, commits, errors)

    def _take(self) -> "Mapping[Partition, _PendingCommit]":
        with self._lock:
            commits, self._pending = self._pending, {}
        return commits

    def _commit(
        self, consumer: Consumer, commits: "Mapping[Partition, _PendingCommit]"
    ) -> Mapping[Partition, Exception | None]:
        # A consumer that lost its membership commits without a member id, and a group without members accepts that.
        member = consumer.memberid()
        fenced = [partition for partition, commit in commits.items() if commit.member != member]
        errors: dict[Partition, Exception | None] = {
            partition: Fenced("it was assigned to a former member") for partition in fenced
        }
        offsets = [
            TopicPartition(self._cluster.prefixed(partition.topic), partition.number, commit.offset)
            for partition, commit in commits.items()
            if partition not in errors
        ]
        if not offsets:
            return errors
        try:
            committed = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            return {**dict.fromkeys(commits, _translated(error.args[0])), **errors}
        for place in committed:
            partition = Partition(self._cluster.unprefixed(place.topic), place.partition)
            errors[partition] = None if place.error is None else _translated(place.error)
        return errors


class _PendingCommit:
    __slots__ = ("member", "offset", "results")

    def __init__(self, offset: int, member: str, results: list[asyncio.Future[None]]) -> None:
        self.offset = offset
        self.member = member
        self.results = results


def _settle(commits: Mapping[Partition, _PendingCommit], errors: Mapping[Partition, Exception | None]) -> None:
    for partition, commit in commits.items():
        error = errors[partition]
        for result in commit.results:
            if result.done():
                continue  # the caller was cancelled
            if error is None:
                result.set_result(None)
            else:
                result.set_exception(error)


def _translated(error: KafkaError) -> Exception:
    """A rebalance in progress is no loss: partitions that stay can be committed again in a moment."""
    if error.code() in EXPELLED:
        return Fenced(f"the group does not know this consumer: {error.name()}")
    return unavailable("commit", error)

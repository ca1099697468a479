"""Commits of one consumer that wait for their turn: all that gather in the meantime go out in one request."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from seriatim.engines.kafka.cluster import Cluster
from seriatim.engines.kafka.errors import EXPELLED, unavailable
from seriatim.ports.event_log import Fenced, Partition


class Commits:
    """`add` and `forget` belong to the loop, the rest to the thread of the consumer."""

    def __init__(self, cluster: Cluster, loop: asyncio.AbstractEventLoop) -> None:
        self._cluster = cluster
        self._loop = loop
        self._lock = Lock()
        self._waiting: dict[Partition, _Commit] = {}

    def add(self, partition: Partition, offset: int, member: str) -> asyncio.Future[None]:
        """The latest offset of a partition is the one that counts: an earlier one that still waits is answered by it.

        The answer is `Fenced` if the group does not know us any more as the member to whom the partition was given.
        """
        answer: asyncio.Future[None] = self._loop.create_future()
        with self._lock:
            before = self._waiting.get(partition)
            answers = [] if before is None else before.answers
            self._waiting[partition] = _Commit(offset, member, [*answers, answer])
        return answer

    def forget(self, partitions: Sequence[Partition]) -> None:
        """They belong to others now. A request that is on its way cannot be called back."""
        with self._lock:
            gone = {partition: self._waiting.pop(partition) for partition in partitions if partition in self._waiting}
        _settle(gone, dict.fromkeys(gone, Fenced("the partition was given back")))

    @property
    def are_waiting(self) -> bool:
        return bool(self._waiting)

    def perform(self, consumer: Consumer) -> None:
        """Blocks until Kafka has answered, however long that takes: nothing can be read meanwhile, either."""
        commits = self._take()
        if commits:
            self._tell(commits, self._commit(consumer, commits))

    def refuse(self) -> None:
        """The consumer is about to leave its group."""
        commits = self._take()
        error = Fenced("this consumer has left its group")
        self._tell(commits, dict.fromkeys(commits, error))

    def _tell(self, commits: "Mapping[Partition, _Commit]", errors: Mapping[Partition, Exception | None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(_settle, commits, errors)

    def _take(self) -> "Mapping[Partition, _Commit]":
        with self._lock:
            commits, self._waiting = self._waiting, {}
        return commits

    def _commit(
        self, consumer: Consumer, commits: "Mapping[Partition, _Commit]"
    ) -> Mapping[Partition, Exception | None]:
        # A consumer that lost its membership would commit as nobody, and a group without members believes nobody.
        member = consumer.memberid()
        fenced = [partition for partition, commit in commits.items() if commit.member != member]
        errors: dict[Partition, Exception | None] = {each: Fenced("it was given to a former member") for each in fenced}
        offsets = [
            TopicPartition(self._cluster.name(partition.topic), partition.number, commit.offset)
            for partition, commit in commits.items()
            if partition not in errors
        ]
        if not offsets:
            return errors
        try:
            answers = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            return {**dict.fromkeys(commits, _translated(error.args[0])), **errors}
        for answer in answers:
            place = Partition(self._cluster.topic(answer.topic), answer.partition)
            errors[place] = None if answer.error is None else _translated(answer.error)
        return errors


class _Commit:
    __slots__ = ("answers", "member", "offset")

    def __init__(self, offset: int, member: str, answers: list[asyncio.Future[None]]) -> None:
        self.offset = offset
        self.member = member
        self.answers = answers


def _settle(commits: Mapping[Partition, _Commit], errors: Mapping[Partition, Exception | None]) -> None:
    for partition, commit in commits.items():
        error = errors[partition]
        for answer in commit.answers:
            if answer.done():
                continue  # the caller left
            if error is None:
                answer.set_result(None)
            else:
                answer.set_exception(error)


def _translated(error: KafkaError) -> Exception:
    """A rebalance that is going on is no loss: partitions that stay can be committed again in a moment."""
    if error.code() in EXPELLED:
        return Fenced(f"the group does not know this consumer: {error.name()}")
    return unavailable("commit", error)

"""Appends to Kafka: many at once, and of each append a prefix of its records arrives, or all of them.

librdkafka may drop a record that is too old and then send the next one of the same append. Before it does, everything
that waits is dropped and a new librdkafka producer is started: the callers repeat their appends from the beginning.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from threading import Thread

import confluent_kafka
import msgspec
from confluent_kafka import KafkaError, KafkaException, Message

from seriatim.domain import limits
from seriatim.domain.errors import InternalError, OutcomeUnknown, ServiceUnavailable, Throttled
from seriatim.engines.kafka.cluster import Cluster
from seriatim.engines.kafka.errors import FAILED, outcome_unknown
from seriatim.ports.event_log import Headers, Partition

LOGGER = logging.getLogger("seriatim.kafka")


class ProducerRecord(msgspec.Struct, frozen=True):
    key: bytes | None
    value: bytes
    headers: Headers = ()


class Producer:
    """Writes to these topics and to no others. Made inside a running event loop; close it."""

    def __init__(self, cluster: Cluster, partitions: Mapping[str, int], client_id: str) -> None:
        self._cluster = cluster
        self._partitions = dict(partitions)
        self._settings = cluster.producer_settings(client_id)
        self._ending: list[_ProducerInstance] = []
        # Started here and not at the first append: librdkafka takes half a second to get its producer id.
        self._instance: _ProducerInstance | None = _ProducerInstance(self._settings)

    def partition_count(self, topic: str) -> int:
        count = self._partitions.get(topic)
        if count is None:
            raise InternalError(f"there is no topic {topic} here; topics are created explicitly")
        return count

    async def append(
        self, operation: str, partition: Partition, records: Sequence[ProducerRecord], *, timeout_s: float
    ) -> None:
        """Returns once all records are acknowledged by all replicas in sync. After `OutcomeUnknown` they may arrive."""
        if timeout_s <= 0:
            raise outcome_unknown(operation)
        append = _PendingAppend(operation, len(records))
        self._current().send(append, self._cluster.prefixed(partition.topic), partition.number, records)
        try:
            async with asyncio.timeout(timeout_s):
                await append.result
        except TimeoutError:
            raise outcome_unknown(operation) from None

    async def close(self, *, timeout_s: float = limits.KAFKA_GIVE_UP_S) -> None:
        """Waits for pending appends, but no longer than this; then they are dropped."""
        instance, self._instance = self._instance, None
        if instance is not None:
            await instance.wait_until_empty(timeout_s)
            instance.abort()
            self._ending.append(instance)
        for each in self._ending:
            await each.ended
        self._ending.clear()

    def _current(self) -> "_ProducerInstance":
        if self._instance is None:
            raise ServiceUnavailable(FAILED, log_reason="this producer is closed")
        if self._instance.is_aborted:
            self._ending = [each for each in self._ending if not each.ended.done()]
            self._ending.append(self._instance)
            self._instance = _ProducerInstance(self._settings)
        return self._instance


class _PendingAppend:
    """One append. The thread counts its delivery reports; everything else happens on the loop."""

    __slots__ = ("began_s", "error", "operation", "result", "unreported")

    def __init__(self, operation: str, records: int) -> None:
        loop = asyncio.get_running_loop()
        self.result: asyncio.Future[None] = loop.create_future()
        self.began_s = loop.time()
        self.operation = operation
        self.unreported = records
        self.error: KafkaError | None = None

    def settle(self) -> None:
        if self.result.done():
            return  # the caller was cancelled or timed out
        if self.error is None:
            self.result.set_result(None)
        else:
            self.result.set_exception(outcome_unknown(self.operation, self.error))


class _ProducerInstance:
    """One producer of librdkafka and the thread that polls its delivery reports. It is aborted by the first failure."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._loop = asyncio.get_running_loop()
        self.is_aborted = False
        self._producer = confluent_kafka.Producer(dict(settings), logger=self)
        self._pending: dict[_PendingAppend, None] = {}  # in the order in which they began
        self._reported: list[_PendingAppend] = []  # of the thread
        self._age_timer: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = Thread(target=self._run, name="kafka-producer", daemon=True)
        self._thread.start()

    def send(self, append: _PendingAppend, topic: str, number: int, records: Sequence[ProducerRecord]) -> None:
        """All records or the first of them: a queue that is full half-way aborts the instance and the append."""
        sent, report = 0, partial(self._delivered, append)
        try:
            for each in records:
                self._producer.produce(
                    topic, each.value, each.key, number, on_delivery=report, headers=list(each.headers)
                )
                sent += 1
        except BufferError:
            if sent:
                self.abort()
                half = f"{append.operation}: too much waits for Kafka, and a part of it was sent"
                raise OutcomeUnknown(FAILED, log_reason=half) from None
            full = f"{append.operation}: too much waits for Kafka; repeat it after a pause"
            raise Throttled("too much waits for the event log; retry after a pause", log_reason=full) from None
        except KafkaException as error:
            self.abort()
            raise outcome_unknown(append.operation, error.args[0]) from error
        self._pending[append] = None
        self._empty.clear()
        if self._age_timer is None:
            self._age_timer = self._loop.call_later(limits.KAFKA_GIVE_UP_S, self._check_age)

    async def wait_until_empty(self, timeout_s: float) -> None:
        """Returns when no append is pending, or after that time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            return

    def abort(self) -> None:
        """The thread drops pending records; every append gets a result. Records that were sent may still arrive."""
        self.is_aborted = True
        if self._age_timer is not None:
            self._age_timer.cancel()
            self._age_timer = None

    def log(self, level: int, text: str, *details: object) -> None:
        """Called by librdkafka. Its complaints about records that were dropped on purpose are left out."""
        if not self.is_aborted:
            LOGGER.log(level, text, *details)

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self.is_aborted:
                self._poll()
                self._settle_on_loop()
            self._producer.purge()
            while len(self._producer):
                self._poll()
            self._settle_on_loop()
        finally:
            self._loop.call_soon_threadsafe(self._end)

    def _poll(self) -> None:
        """Only what is fatal to the producer is raised. The reports of the records lost with it follow as always."""
        try:
            self._producer.poll(limits.KAFKA_WAIT_S)
        except KafkaException:
            self.is_aborted = True
            self._loop.call_soon_threadsafe(self.abort)

    def _delivered(self, append: _PendingAppend, error: KafkaError | None, _message: Message) -> None:
        append.unreported -= 1
        append.error = append.error or error
        if append.unreported == 0:
            self._reported.append(append)

    def _settle_on_loop(self) -> None:
        """All appends of one poll in one call: waking the loop costs more than a report."""
        if self._reported:
            reported, self._reported = self._reported, []
            self._loop.call_soon_threadsafe(self._settle, reported)

    # --- called on the loop by the thread -----------------------------------------------------------------------------

    def _settle(self, reported: Sequence[_PendingAppend]) -> None:
        for append in reported:
            self._pending.pop(append, None)
            append.settle()
            if append.error is not None and not self.is_aborted:
                self.abort()
        if not self._pending:
            self._empty.set()

    def _check_age(self) -> None:
        """If the oldest append waits too long, librdkafka would soon drop records of it one after another."""
        self._age_timer = None
        oldest = next(iter(self._pending), None)
        if oldest is None:
            return
        left_s = oldest.began_s + limits.KAFKA_GIVE_UP_S - self._loop.time()
        if left_s <= 0:
            self.abort()
        else:
            self._age_timer = self._loop.call_later(left_s, self._check_age)

    def _end(self) -> None:
        self._thread.join()  # its last act was this call
        self._pending.clear()
        self._empty.set()
        self.ended.set_result(None)

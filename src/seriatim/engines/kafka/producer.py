"""Events on their way to Kafka: many appends at once, and of each one a prefix arrives, or all of it.

librdkafka may drop an event that is too old and then send the next one of the same append. So before it does we drop
everything that waits, and begin again with a new producer: whoever waited repeats its append from the beginning.
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
from seriatim.engines.kafka.errors import unknown
from seriatim.ports.event_log import Headers, Partition

LOGGER = logging.getLogger("seriatim.kafka")


class Row(msgspec.Struct, frozen=True):
    key: bytes | None
    value: bytes
    headers: Headers = ()


class Producer:
    """Writes to these topics and to no others. Made inside a running event loop; close it."""

    def __init__(self, cluster: Cluster, partitions: Mapping[str, int], client_id: str) -> None:
        self._cluster = cluster
        self._partitions = dict(partitions)
        self._settings = cluster.producer(client_id)
        self._old: list[_Line] = []
        # At once and not at the first append: being given its producer id takes a line half a second.
        self._line: _Line | None = _Line(self._settings)

    def partition_count(self, topic: str) -> int:
        count = self._partitions.get(topic)
        if count is None:
            raise InternalError(f"there is no topic {topic} here; topics are created explicitly")
        return count

    async def append(self, operation: str, partition: Partition, rows: Sequence[Row], *, timeout_s: float) -> None:
        """Returns once all rows are acknowledged by all replicas in sync. After `OutcomeUnknown` they may arrive."""
        if timeout_s <= 0:
            raise unknown(operation)
        call = _Call(operation, len(rows))
        self._current().send(call, self._cluster.name(partition.topic), partition.number, rows)
        try:
            async with asyncio.timeout(timeout_s):
                await call.answer
        except TimeoutError:
            raise unknown(operation) from None

    async def close(self, *, timeout_s: float = limits.KAFKA_GIVE_UP_S) -> None:
        """Waits for what is on its way, but no longer than this; then it is dropped."""
        line, self._line = self._line, None
        if line is not None:
            await line.drained(timeout_s)
            line.give_up()
            self._old.append(line)
        for each in self._old:
            await each.ended
        self._old.clear()

    def _current(self) -> "_Line":
        if self._line is None:
            raise ServiceUnavailable("this producer is closed")
        if self._line.is_over:
            self._old = [each for each in self._old if not each.ended.done()]
            self._old.append(self._line)
            self._line = _Line(self._settings)
        return self._line


class _Call:
    """One append. The thread counts its reports; everything else happens on the loop."""

    __slots__ = ("answer", "began_s", "error", "left", "operation")

    def __init__(self, operation: str, rows: int) -> None:
        loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[None] = loop.create_future()
        self.began_s = loop.time()
        self.operation = operation
        self.left = rows
        self.error: KafkaError | None = None

    def settle(self) -> None:
        if self.answer.done():
            return  # the caller left
        if self.error is None:
            self.answer.set_result(None)
        else:
            self.answer.set_exception(unknown(self.operation, self.error))


class _Line:
    """One producer of librdkafka and the thread that hears its reports. Once something failed on it, it is over."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._loop = asyncio.get_running_loop()
        self.is_over = False
        self._producer = confluent_kafka.Producer(dict(settings), logger=self)
        self._waiting: dict[_Call, None] = {}  # in the order in which they began
        self._reported: list[_Call] = []  # of the thread
        self._alarm: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = Thread(target=self._listen, name="kafka-producer", daemon=True)
        self._thread.start()

    def send(self, call: _Call, topic: str, number: int, rows: Sequence[Row]) -> None:
        """All rows or the first of them: a queue that is full in the middle ends the line, and with it the append."""
        sent, report = 0, partial(self._delivered, call)
        try:
            for row in rows:
                self._producer.produce(topic, row.value, row.key, number, on_delivery=report, headers=list(row.headers))
                sent += 1
        except BufferError:
            if sent:
                self.give_up()
                raise OutcomeUnknown(f"{call.operation}: too much waits for Kafka, and a part of it was sent") from None
            raise Throttled(f"{call.operation}: too much waits for Kafka; repeat it after a pause") from None
        except KafkaException as error:
            self.give_up()
            raise unknown(call.operation, error.args[0]) from error
        self._waiting[call] = None
        self._empty.clear()
        if self._alarm is None:
            self._alarm = self._loop.call_later(limits.KAFKA_GIVE_UP_S, self._look)

    async def drained(self, timeout_s: float) -> None:
        """Returns when nothing waits, or after that time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            return

    def give_up(self) -> None:
        """The thread drops what waits; every caller gets an answer. What is on the wire may still arrive."""
        self.is_over = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def log(self, level: int, text: str, *details: object) -> None:
        """What librdkafka says. That it is cross about our giving up is no news."""
        if not self.is_over:
            LOGGER.log(level, text, *details)

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        try:
            while not self.is_over:
                self._hear()
                self._hand_over()
            self._producer.purge()
            while len(self._producer):
                self._hear()
            self._hand_over()
        finally:
            self._loop.call_soon_threadsafe(self._end)

    def _hear(self) -> None:
        """Raised is only what is fatal to this line. The reports of what was lost with it come as always."""
        try:
            self._producer.poll(limits.KAFKA_WAIT_S)
        except KafkaException:
            self.is_over = True
            self._loop.call_soon_threadsafe(self.give_up)

    def _delivered(self, call: _Call, error: KafkaError | None, _message: Message) -> None:
        call.left -= 1
        call.error = call.error or error
        if call.left == 0:
            self._reported.append(call)

    def _hand_over(self) -> None:
        """All reports of a turn in one go: waking the loop costs more than a report."""
        if self._reported:
            reported, self._reported = self._reported, []
            self._loop.call_soon_threadsafe(self._settle, reported)

    # --- on the loop again --------------------------------------------------------------------------------------------

    def _settle(self, reported: Sequence[_Call]) -> None:
        for call in reported:
            self._waiting.pop(call, None)
            call.settle()
            if call.error is not None and not self.is_over:
                self.give_up()
        if not self._waiting:
            self._empty.set()

    def _look(self) -> None:
        """Somebody waits too long: soon librdkafka would drop the events of one append one after another."""
        self._alarm = None
        oldest = next(iter(self._waiting), None)
        if oldest is None:
            return
        left_s = oldest.began_s + limits.KAFKA_GIVE_UP_S - self._loop.time()
        if left_s <= 0:
            self.give_up()
        else:
            self._alarm = self._loop.call_later(left_s, self._look)

    def _end(self) -> None:
        self._thread.join()  # it has nothing left to do
        self._waiting.clear()
        self._empty.set()
        self.ended.set_result(None)

"""The engines themselves, asked by our own clients and by nothing else: what a send cannot be faster than."""

import asyncio
import itertools
import statistics
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence

from bench.figures import Sample
from seriatim.domain import limits
from seriatim.domain.events import MessagePersisted, encode_message, headers, message_persisted
from seriatim.domain.ids import MESSAGE, new_ulid
from seriatim.domain.message import TEXT, Message, content_digest
from seriatim.domain.times import iso
from seriatim.engines.dynamodb.message_log import DynamoMessageLog
from seriatim.engines.dynamodb.store import DynamoStore
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.kafka.cluster import Cluster
from seriatim.engines.kafka.event_writer import KafkaEventWriter
from seriatim.engines.kafka.producer import Producer
from seriatim.engines.kafka.topic_control import KafkaTopicControl
from seriatim.operations import topics
from seriatim.ports.event_log import MESSAGES, Event
from seriatim.ports.message_log import Entry
from seriatim.runtime.wiring.dynamodb import DynamoDbUrl, dynamodb

PATIENCE_S = 10.0
OWN_TOPICS = "bare."  # fanout must not read what a baseline writes
_sequences = itertools.count(1)  # of the spare chat: a slot is filled once in a run of the bench
_clock = SystemClock()


async def transactions(
    store: str, chat_id: str, senders: Sequence[str], content: str, *, waiting: int, seconds: float
) -> Sample:
    """One message in each transaction, as `ingest` writes it: key, slot, and whether the sender is a member."""
    place = DynamoDbUrl.parse(store)
    async with dynamodb(place.endpoint, place.region, _clock) as client:
        log = DynamoMessageLog(DynamoStore(client, _clock, prefix=place.prefix))

        async def commit(writer: int) -> None:
            message = _message(chat_id, senders[writer % len(senders)], content)
            expires_at_s = _clock.now_ms() // 1000 + limits.KEY_LIFETIME_S
            entry = Entry(message=message, content_sha256=content_digest(content), expires_at_s=expires_at_s)
            refused = await log.persist(
                chat_id,
                [entry],
                [message.sender_id],
                token=_ulid(),
                now_s=_clock.now_ms() // 1000,
                timeout_s=PATIENCE_S,
            )
            if refused is not None:
                raise RuntimeError(f"a bare transaction was refused: {refused}")

        return await _repeated(commit, waiting=waiting, seconds=seconds)


async def own_topics(events: str) -> None:
    kafka = Cluster.parse(events)
    await topics.create(
        KafkaTopicControl(kafka), topics.PROFILES["single"], prefix=OWN_TOPICS, report=lambda _line: None
    )


async def appends(events: str, chat_id: str, content: str, *, waiting: int, seconds: float) -> Sample:
    """One event in each append, acknowledged by all replicas, as `ingest` publishes it."""
    cluster = Cluster(bootstrap=Cluster.parse(events).bootstrap, prefix=OWN_TOPICS)
    producer = Producer(cluster, {MESSAGES: topics.PARTITIONS[MESSAGES]}, "bare")
    writer = KafkaEventWriter(producer)

    async def append(_writer: int) -> None:
        message = _message(chat_id, "user_bare", content)
        value = encode_message(
            message_persisted(
                message,
                prev_sequence=message.sequence - 1,
                members_version=1,
                origin_connection_id=f"conn_{message.message_id}",
                producer_id="bare",
                trace_id="",
                event_time=message.created_at,
            )
        )
        event = Event(key=chat_id, value=value, headers=headers(MessagePersisted, "", republished=False))
        await writer.append(MESSAGES, [event], timeout_s=PATIENCE_S)

    try:
        await append(0)  # it is given its producer id now
        return await _repeated(append, waiting=waiting, seconds=seconds)
    finally:
        await producer.close()


async def _repeated(step: Callable[[int], Awaitable[None]], *, waiting: int, seconds: float) -> Sample:
    """`waiting` at a time, each again when it is done. The first fifth is not counted."""
    taken_s: list[float] = []
    end = time.perf_counter() + seconds * 1.2

    async def again(writer: int) -> None:
        while (began := time.perf_counter()) < end:
            await step(writer)
            taken_s.append(time.perf_counter() - began)

    async with asyncio.TaskGroup() as group:
        for writer in range(waiting):
            group.create_task(again(writer))
        await asyncio.sleep(seconds / 5)
        taken_s.clear()
        began, cpu_s = time.perf_counter(), time.process_time()
        await asyncio.sleep(seconds)
        done, took, used_s = len(taken_s), time.perf_counter() - began, time.process_time() - cpu_s
    cuts = statistics.quantiles(taken_s, n=100)
    return Sample(value=done / took, cpu_us=1e6 * used_s / max(done, 1), p50_ms=1000 * cuts[49], p99_ms=1000 * cuts[98])


def _message(chat_id: str, sender_id: str, content: str) -> Message:
    return Message(
        message_id=MESSAGE + _ulid(),
        chat_id=chat_id,
        sequence=next(_sequences),
        sender_id=sender_id,
        client_message_id=str(uuid.uuid4()),
        content=content,
        content_type=TEXT,
        created_at=iso(_clock.now_ms()),
    )


def _ulid() -> str:
    return new_ulid(_clock.now_ms(), _clock.random_bits)

"""What becomes of appends when Kafka stands still, dies or comes back: answers in time, and no hole in an append."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import InternalError, OutcomeUnknown, ServiceUnavailable, Throttled
from seriatim.domain.sharding import partition as partition_of
from seriatim.engines.kafka import producer as producers
from seriatim.engines.kafka.cluster import Cluster, TopicMismatch, check_partitions
from seriatim.engines.kafka.event_writer import KafkaEventWriter
from seriatim.engines.kafka.producer import Producer, ProducerRecord
from seriatim.ports.event_log import DEAD_LETTERS, MESSAGES, Event, Partition, Record
from tests.support.real_kafka import PATIENCE_S, RawKafka, real_kafka

TOPICS = {MESSAGES: 4, DEAD_LETTERS: 2}
CLUSTER = Cluster(bootstrap="127.0.0.1:1")


@asynccontextmanager
async def topics() -> AsyncIterator[RawKafka]:
    raw = RawKafka(real_kafka(), TOPICS)
    await raw.create_topics()
    try:
        yield raw
    finally:
        await asyncio.to_thread(real_kafka)
        await raw.close()


@asynccontextmanager
async def writing(raw: RawKafka) -> AsyncIterator[KafkaEventWriter]:
    producer = Producer(raw.cluster, TOPICS, "test")
    try:
        yield KafkaEventWriter(producer)
    finally:
        await producer.close(timeout_s=0.1)
        assert [each.name for each in threading.enumerate() if each.name == "kafka-producer"] == []


def events(key: str, count: int, start: int = 0, size: int = 0) -> list[Event]:
    """Padded with what cannot be compressed, so that many take many requests."""
    return [Event(key=key, value=b"%d " % number + os.urandom(size)) for number in range(start, start + count)]


def numbers(records: Sequence[Record], key: str) -> list[int]:
    return [int((record.value or b"").split()[0]) for record in records if record.key == key.encode()]


def test_the_settings_are_those_of_the_specification_except_for_the_count_of_retries() -> None:
    settings = CLUSTER.producer_settings("ingest-0")
    assert {name: settings[name] for name in settings if name in _SPECIFIED} == _SPECIFIED
    assert "retries" not in settings  # decision 0033
    assert settings["enable.gapless.guarantee"] is True
    assert limits.PUBLISH_TIMEOUT_S < limits.KAFKA_GIVE_UP_S < limits.KAFKA_REQUEST_S < limits.KAFKA_DELIVERY_S


_SPECIFIED = {
    "acks": "all",
    "enable.idempotence": True,
    "retry.backoff.ms": 100,
    "delivery.timeout.ms": 30_000,
    "request.timeout.ms": 29_000,
    "compression.type": "lz4",
    "linger.ms": 5,
    "batch.size": 65_536,
}


async def test_events_go_to_the_partition_that_our_own_hash_says() -> None:
    async with topics() as raw, writing(raw) as writer:
        keys = ["chat_abc123", "chat_xyz789", "chat_000001", "chat_测试", "", "chat_🎉🎊"]
        await asyncio.gather(*[writer.append(MESSAGES, events(key, 1), timeout_s=PATIENCE_S) for key in keys])
        found = {(record.key or b"").decode(): record.partition.number for record in await raw.stored(MESSAGES)}
        assert found == {key: partition_of(key, 4) for key in keys}


async def test_a_broker_that_stands_still_is_not_waited_for_and_what_was_sent_arrives_later_in_order() -> None:
    async with topics() as raw, writing(raw) as writer:
        await writer.append(MESSAGES, events("chat_1", 1), timeout_s=PATIENCE_S)
        raw.kafka.pause()
        try:
            began = asyncio.get_running_loop().time()
            with pytest.raises(OutcomeUnknown):
                await writer.append(MESSAGES, events("chat_1", 3, start=1), timeout_s=0.3)
            assert asyncio.get_running_loop().time() - began < 2
        finally:
            raw.kafka.resume()
        await writer.append(MESSAGES, events("chat_1", 3, start=1), timeout_s=PATIENCE_S)
        assert numbers(await raw.stored(MESSAGES), "chat_1") == [0, 1, 2, 3, 1, 2, 3]


async def test_a_producer_that_closes_while_kafka_stands_still_is_not_waited_for() -> None:
    async with topics() as raw:
        producer = Producer(raw.cluster, TOPICS, "test")
        writer = KafkaEventWriter(producer)
        await writer.append(MESSAGES, events("chat_1", 1), timeout_s=PATIENCE_S)
        raw.kafka.pause()
        try:
            waiting = asyncio.create_task(writer.append(MESSAGES, events("chat_1", 3), timeout_s=PATIENCE_S))
            await asyncio.sleep(0.05)
            async with asyncio.timeout(3):
                await producer.close(timeout_s=0.1)
            with pytest.raises(OutcomeUnknown):
                await waiting
        finally:
            raw.kafka.resume()


async def test_when_a_broker_is_gone_for_long_everyone_is_answered_and_later_appends_succeed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "KAFKA_GIVE_UP_S", 1.0)
    async with topics() as raw, writing(raw) as writer:
        await insist(lambda: writer.append(MESSAGES, events("first", 1), timeout_s=5))
        await asyncio.to_thread(raw.kafka.kill)
        waiting = [writer.append(MESSAGES, events(f"chat_{n}", 5), timeout_s=PATIENCE_S) for n in range(10)]
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(answer) for answer in answers] == [OutcomeUnknown] * 10
        await asyncio.to_thread(raw.kafka.start)
        await insist(lambda: writer.append(MESSAGES, events("chat_9", 5), timeout_s=5))
        stored = await raw.stored(MESSAGES)
        assert numbers(stored, "chat_9")[-5:] == [0, 1, 2, 3, 4]
        assert numbers(stored, "chat_1") == []  # what was given up did not arrive behind everybody's back


@pytest.mark.parametrize("trouble", ["kill", "pause"])
async def test_whatever_fails_first_appearances_are_in_order(trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishers of appends that take many requests each, which repeat what failed; and a broker that fails."""
    monkeypatch.setattr(limits, "KAFKA_GIVE_UP_S", 1.0)
    over, failures = asyncio.Event(), 0
    async with topics() as raw, writing(raw) as writer:

        async def publish(key: str) -> int:
            """How many events were acknowledged."""
            nonlocal failures
            acked = 0
            while not over.is_set():
                try:
                    await writer.append(MESSAGES, events(key, 40, start=acked, size=5_000), timeout_s=2)
                    acked += 40
                except ServiceUnavailable:
                    failures += 1
            return acked

        await insist(lambda: writer.append(MESSAGES, events("first", 1), timeout_s=5))
        publishing = {key: asyncio.create_task(publish(key)) for key in ("chat_1", "chat_2", "chat_3")}
        await asyncio.sleep(0.3)
        if trouble == "kill":
            await asyncio.to_thread(raw.kafka.kill)
            await asyncio.to_thread(raw.kafka.start)
        else:
            for _ in range(2):
                raw.kafka.pause()
                await asyncio.sleep(1.5)
                raw.kafka.resume()
                await asyncio.sleep(1)
        over.set()
        acked = {key: await task for key, task in publishing.items()}
        stored = await raw.stored(MESSAGES)
    assert failures, "nothing went wrong: the test shows nothing"
    for key, count in acked.items():
        found = list(dict.fromkeys(numbers(stored, key)))
        assert found == list(range(len(found))), f"{key}: out of order"
        assert len(found) >= count, f"{key}: acknowledged and not there"


async def test_an_event_too_large_for_kafka_does_not_hold_up_the_others() -> None:
    async with topics() as raw, writing(raw) as writer:
        with pytest.raises(OutcomeUnknown):
            await writer.append(MESSAGES, events("chat_1", 2, size=3_000_000), timeout_s=PATIENCE_S)
        await insist(lambda: writer.append(MESSAGES, events("chat_2", 1), timeout_s=5))


async def test_too_much_that_waits_is_refused_and_nothing_of_it_is_sent() -> None:
    settings = CLUSTER.producer_settings("full") | {"queue.buffering.max.messages": 3}
    instance = producers._ProducerInstance(settings)  # no broker listens at that address
    records = [ProducerRecord(b"chat_1", b"0")] * 3
    append = producers._PendingAppend("append", 3)
    instance.send(append, "messages", 0, records)
    with pytest.raises(Throttled):
        instance.send(producers._PendingAppend("append", 1), "messages", 0, records[:1])
    assert not instance.is_aborted
    instance.abort()
    with pytest.raises(OutcomeUnknown):
        await append.result
    await instance.ended


async def test_an_append_that_finds_room_for_a_part_only_aborts_the_instance() -> None:
    settings = CLUSTER.producer_settings("full") | {"queue.buffering.max.messages": 3}
    instance = producers._ProducerInstance(settings)
    with pytest.raises(OutcomeUnknown):
        instance.send(producers._PendingAppend("append", 5), "messages", 0, [ProducerRecord(b"chat_1", b"0")] * 5)
    assert instance.is_aborted
    await instance.ended


async def test_a_producer_writes_to_its_own_topics_and_to_no_others() -> None:
    producer = Producer(CLUSTER, {DEAD_LETTERS: 8}, "fanout-0")
    with pytest.raises(InternalError):
        await KafkaEventWriter(producer).append(MESSAGES, events("chat_1", 1), timeout_s=1)
    await producer.close()
    with pytest.raises(ServiceUnavailable):
        await producer.append("write_dead_letter", Partition(DEAD_LETTERS, 0), [ProducerRecord(None, b"")], timeout_s=1)


async def test_a_topic_with_another_number_of_partitions_is_refused_at_the_start() -> None:
    async with topics() as raw:
        check_partitions(raw.cluster, TOPICS, timeout_s=PATIENCE_S)
        with pytest.raises(TopicMismatch, match="has 4 partitions and not 64"):
            check_partitions(raw.cluster, {MESSAGES: 64}, timeout_s=PATIENCE_S)
        with pytest.raises(TopicMismatch, match="there is no topic"):
            check_partitions(raw.cluster, {"messages.misspelt": 4}, timeout_s=PATIENCE_S)
    with pytest.raises(ServiceUnavailable):
        check_partitions(CLUSTER, TOPICS, timeout_s=0.5)


def test_an_address_names_brokers_a_prefix_and_options_and_shows_no_password() -> None:
    cluster = Cluster.parse("kafka://one:9092,two:9092?prefix=staging.&sasl.password=secret")
    assert (cluster.bootstrap, cluster.prefix) == ("one:9092,two:9092", "staging.")
    assert cluster.client_settings("x")["sasl.password"] == "secret"
    assert cluster.unprefixed(cluster.prefixed(MESSAGES)) == MESSAGES
    assert "secret" not in repr(cluster)


@pytest.mark.parametrize("url", ["redis://one:9092", "kafka://", "kafka://one:9092/topic", "kafka://one?prefix", ""])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"address|field"):
        Cluster.parse(url)


async def insist(act: Callable[[], object]) -> None:
    """A new instance takes a moment to be given its producer id, longer while the broker starts."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(ServiceUnavailable):
                await act()  # type: ignore[misc]
                return

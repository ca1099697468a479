"""The contract of the event log's writers. Each promise quotes its sentence of ports/event_log.py.

What readers are promised is in test_event_reader.py; both are one suite.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from seriatim.domain.errors import InternalError, OutcomeUnknown
from seriatim.domain.sharding import partition
from seriatim.engines.inprocess.wire import Wire
from seriatim.ports import event_log as port
from seriatim.ports.event_log import DEAD_LETTERS, MESSAGES, DeadLetter, Event, Partition, Record
from seriatim.simulation.stores.event_log import BrokerObserver
from tests.contract.event_engines import (
    EVENT_LOGS,
    PARTITIONS,
    SOON_S,
    EventLogEngine,
    MemoryEventLogEngine,
    Suite,
    keep,
)

SUITE: Suite[EventLogEngine] = Suite(port)


@SUITE.promise
async def appended_events_are_stored_in_order_in_the_partition_of_their_key(engine: EventLogEngine) -> None:
    """Returns once all events survive the loss of a broker, in this order, in the partition of their key."""
    writer = engine.writer()
    await writer.append(MESSAGES, events("chat_abc123", 0, 5), timeout_s=SOON_S)
    await writer.append(MESSAGES, events("chat_abc123", 5, 6), timeout_s=SOON_S)
    stored = await engine.stored(MESSAGES)
    assert [record.value for record in stored] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    home = Partition(MESSAGES, partition("chat_abc123", PARTITIONS[MESSAGES]))
    assert [(record.partition, record.offset) for record in stored] == [(home, offset) for offset in range(6)]


@SUITE.promise
async def an_event_is_in_the_log_at_the_moment_append_returns(engine: EventLogEngine) -> None:
    """Returns once all events survive the loss of a broker, in this order, in the partition of their key."""
    for count in range(1, 4):
        await engine.writer().append(MESSAGES, events("chat_1", count, count + 1), timeout_s=SOON_S)
        assert len(await engine.stored(MESSAGES)) == count


@SUITE.promise
async def key_value_and_headers_come_back_as_they_were_given(engine: EventLogEngine) -> None:
    """Key and value are what the log holds, valid or not."""
    event = Event(key="chat_测试", value=b"\x00\xff not JSON", headers=(("trace_id", b"\x01"), ("trace_id", b"")))
    await engine.writer().append(MESSAGES, [event], timeout_s=SOON_S)
    (record,) = await engine.stored(MESSAGES)
    assert (record.key, record.value, record.headers) == ("chat_测试".encode(), event.value, event.headers)


@SUITE.promise
async def writers_at_the_same_time_keep_the_order_within_each_key(engine: EventLogEngine) -> None:
    """Returns once all events survive the loss of a broker, in this order, in the partition of their key."""

    async def one_chat(key: str) -> None:
        writer = engine.writer()
        for start in range(0, 9, 3):
            await writer.append(MESSAGES, events(key, start, start + 3), timeout_s=SOON_S)

    keys = [f"chat_{number}" for number in range(10)]
    await asyncio.gather(*[one_chat(key) for key in keys])
    stored = await engine.stored(MESSAGES)
    for key in keys:
        assert [record.value for record in stored if record.key == key.encode()] == [b"%d" % n for n in range(9)]


@SUITE.promise
async def events_of_several_keys_in_one_call_are_refused(engine: EventLogEngine) -> None:
    """All events of one call have one key."""
    with pytest.raises(InternalError):
        await engine.writer().append(MESSAGES, [*events("chat_1", 0, 1), *events("chat_2", 1, 2)], timeout_s=SOON_S)
    assert await engine.stored(MESSAGES) == []


@SUITE.promise
async def a_topic_is_never_created_by_writing_to_it(engine: EventLogEngine) -> None:
    """Topics are created explicitly (docs/spec/data.md#topics)."""
    with pytest.raises(InternalError):
        await engine.writer().append("messages.misspelt", events("chat_1", 0, 1), timeout_s=SOON_S)


@SUITE.promise
async def an_append_without_time_left_ends_as_unknown(engine: EventLogEngine) -> None:
    """After `OutcomeUnknown` a prefix of them may be there, or arrive later."""
    with pytest.raises(OutcomeUnknown):
        await engine.writer().append(MESSAGES, events("chat_1", 0, 3), timeout_s=0)
    assert [record.value for record in await engine.stored(MESSAGES)] in [[], [b"0"], [b"0", b"1"], [b"0", b"1", b"2"]]


@SUITE.promise
async def a_dead_letter_is_in_the_log_with_the_whole_record_when_write_returns(engine: EventLogEngine) -> None:
    """Returns once the dead letter survives the loss of a broker."""
    await engine.dead_letters().write(dead_letter(key=b"chat_abc123", value=b"{broken"), timeout_s=SOON_S)
    stored = await engine.stored(DEAD_LETTERS)
    assert len(stored) == 1
    record = stored[0]
    assert (record.partition.number, record.key) == (6, b"chat_abc123")
    assert msgspec.json.decode(record.value or b"") == {
        "dlq_metadata": {
            "original_topic": MESSAGES,
            "original_partition": 11,
            "original_offset": 12847,
            "original_timestamp": "2026-01-30T14:30:00.000Z",
            "consumer_group": "fanout-workers",
            "consumer_id": "fanout-1",
            "failure_reason": "BadEvent: missing sequence",
            "failure_timestamp": "2026-01-30T14:30:01.234Z",
            "processing_attempts": 1,
        },
        "original_record": {"key": "chat_abc123", "value": "e2Jyb2tlbg==", "headers": [["trace_id", "AQ=="]]},
    }


@SUITE.promise
async def a_dead_letter_without_a_usable_key_has_none_and_follows_its_source_partition(engine: EventLogEngine) -> None:
    """Returns once the dead letter survives the loss of a broker."""
    for key in (None, b"\xff\xfe"):
        await engine.dead_letters().write(dead_letter(key=key, value=None), timeout_s=SOON_S)
    stored = await engine.stored(DEAD_LETTERS)
    assert [(record.partition.number, record.key) for record in stored] == [(11 % 8, None), (11 % 8, None)]


@pytest.mark.parametrize("engine", EVENT_LOGS)
@pytest.mark.parametrize("promise", SUITE.promises)
async def test_the_event_log_keeps(
    promise: Callable[[EventLogEngine], Awaitable[None]], engine: Callable[[], EventLogEngine]
) -> None:
    await keep(promise, engine)


@pytest.mark.parametrize("kept", [0, 1, 2])
async def test_a_cut_append_leaves_a_prefix_and_says_that_it_does_not_know(kept: int) -> None:
    """After `OutcomeUnknown` a prefix of them may be there, or arrive later."""

    class Cutting(Wire):
        def events_kept(self, count: int) -> int:
            return kept

    engine = MemoryEventLogEngine()
    with pytest.raises(OutcomeUnknown):
        await engine.writer(Cutting()).append(MESSAGES, events("chat_1", 0, 3), timeout_s=SOON_S)
    assert [record.value for record in await engine.stored(MESSAGES)] == [b"0", b"1", b"2"][:kept]


async def test_a_watcher_sees_every_record_in_the_order_of_the_log() -> None:
    seen: list[Record] = []

    class Watcher(BrokerObserver):
        def appended(self, record: Record) -> None:
            seen.append(record)

        def committed(self, group: str, partition: Partition, next_offset: int) -> None:
            raise AssertionError("no test commits here")

    engine = MemoryEventLogEngine(Watcher())
    await engine.writer().append(MESSAGES, events("chat_1", 0, 3), timeout_s=SOON_S)
    assert seen == await engine.stored(MESSAGES)


def events(key: str, start: int, end: int) -> list[Event]:
    return [Event(key=key, value=b"%d" % number) for number in range(start, end)]


def dead_letter(*, key: bytes | None, value: bytes | None) -> DeadLetter:
    record = Record(
        partition=Partition(MESSAGES, 11),
        offset=12847,
        key=key,
        value=value,
        headers=(("trace_id", b"\x01"),),
        timestamp_ms=1_769_783_400_000,
    )
    return DeadLetter(
        record=record,
        reason="BadEvent: missing sequence",
        attempts=1,
        consumer_group="fanout-workers",
        consumer_id="fanout-1",
        failed_at_ms=1_769_783_401_234,
    )

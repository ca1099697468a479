"""The scenarios of docs/spec/data.md#scenarios about the event log and its consumers: S33 to S37."""

import asyncio
import json

import msgspec
import pytest

from seriatim.domain import limits
from seriatim.domain.dead_letter import DeadLetterBody
from seriatim.domain.events import encode_message, message_persisted
from seriatim.domain.message import TEXT, Message
from seriatim.domain.times import iso
from seriatim.fanout.observer import SkipReason
from seriatim.ports.event_log import MESSAGES, Event, Record
from seriatim.simulation.stores.event_log import MemoryBroker, MemoryEventWriter
from tests.support.cluster_harness import MESSAGES_0, ClusterHarness
from tests.support.durability_harness import ANN, BOB, CHAT, DurabilityHarness, draft
from tests.support.scripted_wire import UNAVAILABLE, ScriptedWire, late

# --- S33: one partitioner ------------------------------------------------------------------------------------------


async def test_s33_records_lie_where_the_vectors_say(harness: DurabilityHarness) -> None:
    """The vectors themselves, and what moves when a count doubles, are tests of the domain."""
    for count, expected in ((64, (22, 42, 45)), (128, (86, 106, 109)), (16, (6, 10, 13)), (8, (6, 2, 5))):
        broker = MemoryBroker({MESSAGES: count})
        writer = MemoryEventWriter(broker, ScriptedWire(), harness.now_ms)
        for chat_id in ("chat_abc123", "chat_xyz789", "chat_000001"):
            await writer.append(MESSAGES, [Event(key=chat_id, value=b"{}")], timeout_s=1)
        found = {record.key: record.partition.number for record in broker.records(MESSAGES)}
        assert found == dict(zip((b"chat_abc123", b"chat_xyz789", b"chat_000001"), expected, strict=True))


# --- S34 to S37: the consumer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("run_records", [1, 2])
async def test_s34_after_a_rebalance_in_the_middle_of_a_batch_the_offset_is_the_first_unhandled(
    cluster: ClusterHarness, run_records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a batch half handled, when its owner leaves, then committed = handled + 1 and the next loses nothing."""
    monkeypatch.setattr(limits, "RUN_RECORDS_MAX", run_records)
    bob = await cluster.connect(BOB)
    cluster.fanout.directory_wire.always("connections", late(0.2))
    for number in range(1, 8):
        await cluster.ingest.stored(draft(number))
    await cluster.until(lambda: len(bob.pushes) >= 3)
    await cluster.fanout.stop()
    handled = cluster.fanout.recorded.handled_offsets[MESSAGES_0]
    assert 3 <= len(handled) < 7
    assert cluster.next_offset() == handled[-1] + 1
    successor = await cluster.add_fanout("fanout-2")
    await cluster.until(lambda: cluster.next_offset() == 7)
    assert bob.pushes == [1, 2, 3, 4, 5, 6, 7]
    assert successor.recorded.handled_offsets[MESSAGES_0] == list(range(handled[-1] + 1, 7))


@pytest.mark.parametrize("run_records", [1, 2])
async def test_s34_after_a_crash_in_the_middle_of_a_batch_some_may_come_twice_and_none_is_missing(
    cluster: ClusterHarness, run_records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RUN_RECORDS_MAX", run_records)
    bob = await cluster.connect(BOB)
    cluster.fanout.directory_wire.always("connections", late(0.2))
    for number in range(1, 8):
        await cluster.ingest.stored(draft(number))
    await cluster.until(lambda: len(bob.pushes) >= 3)
    assert len(bob.pushes) == 3
    await asyncio.sleep(0.1)  # the fourth is in its hands
    cluster.fanout.crash()
    assert cluster.next_offset() <= 3
    await cluster.add_fanout("fanout-2")
    await cluster.until(lambda: cluster.next_offset() == 7)
    assert sorted(dict.fromkeys(bob.pushes)) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("poison", [b"", b"{", b'{"event_type":"MessagePersisted"}', b'{"event_type":"Unheard"}'])
async def test_s35_a_record_that_cannot_be_read_becomes_a_dead_letter_at_once_and_the_partition_flows(
    cluster: ClusterHarness, poison: bytes
) -> None:
    bob = await cluster.connect(BOB)
    cluster.append_raw(poison)
    await cluster.ingest.stored(draft(1))
    await cluster.until(lambda: bob.pushes == [1], within_s=1)
    [dead_letter] = cluster.dead_letters()
    assert _attempts(dead_letter) == 1
    await cluster.until(lambda: cluster.next_offset() == 2)
    assert cluster.fanout.recorded.retries == 0


async def test_s35_a_record_that_meets_a_bug_every_time_becomes_a_dead_letter_after_3_attempts(
    cluster: ClusterHarness,
) -> None:
    bob = await cluster.connect(BOB)
    cluster.fanout.push.bugs = 3
    await cluster.ingest.stored(draft(1))
    await cluster.ingest.stored(draft(2))
    await cluster.until(lambda: bob.pushes == [2], within_s=2)
    [dead_letter] = cluster.dead_letters()
    assert _attempts(dead_letter) == 3
    await cluster.until(lambda: cluster.next_offset() == 2)


async def test_s35_a_record_that_cannot_be_read_leaves_its_run_and_its_neighbours_come_once_in_order(
    cluster: ClusterHarness,
) -> None:
    """Bob never synced: he is shown whatever fanout brings, so a message that came twice would show."""
    bob = await cluster.connect(BOB)
    cluster.fanout.directory_wire.on("connections", late(0.5))
    await cluster.ingest.stored(draft(1))  # while fanout asks for it, the others gather
    await cluster.ingest.stored(draft(2))
    cluster.append_raw(b"{")
    await cluster.ingest.stored(draft(3))
    await cluster.until(lambda: len(bob.pushes) >= 3, within_s=2)
    await cluster.until(lambda: cluster.next_offset() == 4)
    assert bob.pushes == [1, 2, 3]
    assert [_attempts(dead_letter) for dead_letter in cluster.dead_letters()] == [1]
    assert cluster.fanout.recorded.handled_offsets[MESSAGES_0] == [0, 1, 2, 3]


async def test_s35_a_bug_met_by_a_run_is_met_by_its_records_one_by_one_and_only_the_culprit_becomes_a_dead_letter(
    cluster: ClusterHarness,
) -> None:
    bob = await cluster.connect(BOB)
    cluster.fanout.directory_wire.on("connections", late(0.5))
    await cluster.ingest.stored(draft(1))
    await cluster.ingest.stored(draft(2))
    await cluster.ingest.stored(draft(3))
    await cluster.ingest.stored(draft(4))
    await cluster.until(lambda: bob.pushes == [1])
    cluster.fanout.push.bugs = 1 + 3  # the run of 2, 3 and 4 once, and then 2 three times
    await cluster.until(lambda: 4 in bob.pushes, within_s=2)
    assert bob.pushes == [1, 3, 4]
    assert [_attempts(dead_letter) for dead_letter in cluster.dead_letters()] == [3]
    await cluster.until(lambda: cluster.next_offset() == 4)


def _attempts(dead_letter: Record) -> int:
    return msgspec.json.decode(dead_letter.value or b"", type=DeadLetterBody).dlq_metadata.processing_attempts


async def test_s36_trouble_downstream_is_skipped_and_never_a_dead_letter(cluster: ClusterHarness) -> None:
    """Given directory, push or roster failing, then the offset advances, nothing becomes a dead letter or is lost."""
    bob = await cluster.synced(BOB)
    troubles = [
        (cluster.fanout.store_wire, "*", SkipReason.ROSTER),
        (cluster.fanout.directory_wire, "*", SkipReason.DIRECTORY),
        (cluster.fanout.push_wire, "publish", SkipReason.PUSH),
    ]
    for number, (wire, operation, skip) in enumerate(troubles, start=1):
        wire.always(operation, UNAVAILABLE)
        await cluster.ingest.stored(draft(number))
        await asyncio.sleep(3)  # the roster is asked three times
        assert cluster.next_offset() == number
        assert cluster.fanout.recorded.skips[-1] is skip
        wire.heal()
    assert cluster.dead_letters() == []
    await cluster.ingest.stored(draft(4))
    await cluster.until(lambda: bob.pushes == [1, 2, 3, 4], within_s=1)


async def test_s36_a_gateway_that_is_gone_is_skipped(cluster: ClusterHarness) -> None:
    await cluster.connect(BOB)
    cluster.gateway.crash()
    await cluster.ingest.stored(draft(1))
    await cluster.until(lambda: cluster.next_offset() == 1)
    assert (cluster.fanout.recorded.skips, cluster.dead_letters()) == ([SkipReason.GATEWAY_GONE], [])


async def test_s37_an_event_without_its_optional_fields_is_delivered_with_their_defaults(
    cluster: ClusterHarness,
) -> None:
    """The sender is left out then, because it is unknown which of its connections has the message already."""
    ann, bob = await cluster.connect(ANN), await cluster.connect(BOB)
    cluster.append_raw(
        _event(cluster, without=("client_message_id", "origin_connection_id", "prev_sequence", "members_version"))
    )
    await cluster.until(lambda: bob.pushes == [1], within_s=1)
    assert ann.pushes == []
    assert cluster.dead_letters() == []


async def test_s37_an_event_of_an_unknown_version_is_read_as_version_1_with_a_warning(cluster: ClusterHarness) -> None:
    bob = await cluster.connect(BOB)
    cluster.append_raw(_event(cluster, event_version=99, fields_of_tomorrow={"mood": "calm"}))
    await cluster.until(lambda: bob.pushes == [1], within_s=1)
    assert cluster.fanout.recorded.versions == [99]
    assert cluster.dead_letters() == []


def _event(cluster: ClusterHarness, *, without: tuple[str, ...] = (), **changes: object) -> bytes:
    """The event of message 1, as another producer would write it."""
    created_at = iso(cluster.now_ms())
    message = Message(
        message_id="msg_1",
        chat_id=CHAT,
        sequence=1,
        sender_id=ANN,
        client_message_id="",
        content="Hi",
        content_type=TEXT,
        created_at=created_at,
    )
    cluster.store.fill(message)
    cluster.set_counter(CHAT, 1, published=1)
    encoded = encode_message(
        message_persisted(
            message,
            prev_sequence=0,
            members_version=1,
            origin_connection_id="conn_elsewhere",
            producer_id="ingest-9",
            trace_id="",
            event_time=created_at,
        )
    )
    fields = {**json.loads(encoded), **changes}
    for name in without:
        del fields["payload"][name]
    return json.dumps(fields).encode()

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
from seriatim.fanout.observer import Skip
from seriatim.ports.event_log import MESSAGES, Event, Record
from seriatim.simulation.stores.event_log import MemoryBroker, MemoryEventWriter
from tests.support.bench import ANN, BOB, CHAT, Bench, draft, simulate, simulated
from tests.support.town import MESSAGES_0, Town, in_town
from tests.support.wire import UNAVAILABLE, ScriptedWire, late

# --- S33: one partitioner ------------------------------------------------------------------------------------------


@simulated
async def test_s33_records_lie_where_the_vectors_say(bench: Bench) -> None:
    """The vectors themselves, and what moves when a count doubles, are tests of the domain."""
    for count, expected in ((64, (22, 42, 45)), (128, (86, 106, 109)), (16, (6, 10, 13)), (8, (6, 2, 5))):
        broker = MemoryBroker({MESSAGES: count})
        writer = MemoryEventWriter(broker, ScriptedWire(), bench.now_ms)
        for chat_id in ("chat_abc123", "chat_xyz789", "chat_000001"):
            await writer.append(MESSAGES, [Event(key=chat_id, value=b"{}")], timeout_s=1)
        found = {record.key: record.partition.number for record in broker.records(MESSAGES)}
        assert found == dict(zip((b"chat_abc123", b"chat_xyz789", b"chat_000001"), expected, strict=True))


# --- S34 to S37: the consumer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("run_records", [1, 2])
def test_s34_after_a_rebalance_in_the_middle_of_a_batch_the_offset_is_the_first_unhandled(
    run_records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a batch half handled, when its owner leaves, then committed = handled + 1 and the next loses nothing."""
    monkeypatch.setattr(limits, "RUN_RECORDS_MAX", run_records)

    @in_town
    async def story(town: Town) -> None:
        bob = await town.connect(BOB)
        town.fanout.directory_wire.always("connections", late(0.2))
        for number in range(1, 8):
            await town.ingest.stored(draft(number))
        await town.until(lambda: len(bob.pushes) >= 3)
        await town.fanout.stop()
        handled = town.fanout.notes.handled_offsets[MESSAGES_0]
        assert 3 <= len(handled) < 7
        assert town.next_offset() == handled[-1] + 1
        successor = await town.add_fanout("fanout-2")
        await town.until(lambda: town.next_offset() == 7)
        assert bob.pushes == [1, 2, 3, 4, 5, 6, 7]
        assert successor.notes.handled_offsets[MESSAGES_0] == list(range(handled[-1] + 1, 7))

    simulate(story)


@pytest.mark.parametrize("run_records", [1, 2])
def test_s34_after_a_crash_in_the_middle_of_a_batch_some_may_come_twice_and_none_is_missing(
    run_records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RUN_RECORDS_MAX", run_records)

    @in_town
    async def story(town: Town) -> None:
        bob = await town.connect(BOB)
        town.fanout.directory_wire.always("connections", late(0.2))
        for number in range(1, 8):
            await town.ingest.stored(draft(number))
        await town.until(lambda: len(bob.pushes) >= 3)
        assert len(bob.pushes) == 3
        await asyncio.sleep(0.1)  # the fourth is in its hands
        town.fanout.crash()
        assert town.next_offset() <= 3
        await town.add_fanout("fanout-2")
        await town.until(lambda: town.next_offset() == 7)
        assert sorted(dict.fromkeys(bob.pushes)) == [1, 2, 3, 4, 5, 6, 7]

    simulate(story)


@pytest.mark.parametrize("poison", [b"", b"{", b'{"event_type":"MessagePersisted"}', b'{"event_type":"Unheard"}'])
def test_s35_a_record_that_cannot_be_read_becomes_a_dead_letter_at_once_and_the_partition_flows(poison: bytes) -> None:
    @in_town
    async def story(town: Town) -> None:
        bob = await town.connect(BOB)
        town.append_raw(poison)
        await town.ingest.stored(draft(1))
        await town.until(lambda: bob.pushes == [1], within_s=1)
        [dead_letter] = town.dead_letters()
        assert _attempts(dead_letter) == 1
        await town.until(lambda: town.next_offset() == 2)
        assert town.fanout.notes.retries == 0

    simulate(story)


@simulated
@in_town
async def test_s35_a_record_that_meets_a_bug_every_time_becomes_a_dead_letter_after_3_attempts(town: Town) -> None:
    bob = await town.connect(BOB)
    town.fanout.push.bugs = 3
    await town.ingest.stored(draft(1))
    await town.ingest.stored(draft(2))
    await town.until(lambda: bob.pushes == [2], within_s=2)
    [dead_letter] = town.dead_letters()
    assert _attempts(dead_letter) == 3
    await town.until(lambda: town.next_offset() == 2)


@simulated
@in_town
async def test_s35_a_record_that_cannot_be_read_leaves_its_run_and_its_neighbours_come_once_in_order(
    town: Town,
) -> None:
    """Bob never synced: he is shown whatever fanout brings, so a message that came twice would show."""
    bob = await town.connect(BOB)
    town.fanout.directory_wire.on("connections", late(0.5))
    await town.ingest.stored(draft(1))  # while fanout asks for it, the others gather
    await town.ingest.stored(draft(2))
    town.append_raw(b"{")
    await town.ingest.stored(draft(3))
    await town.until(lambda: len(bob.pushes) >= 3, within_s=2)
    await town.until(lambda: town.next_offset() == 4)
    assert bob.pushes == [1, 2, 3]
    assert [_attempts(dead_letter) for dead_letter in town.dead_letters()] == [1]
    assert town.fanout.notes.handled_offsets[MESSAGES_0] == [0, 1, 2, 3]


@simulated
@in_town
async def test_s35_a_bug_met_by_a_run_is_met_by_its_records_one_by_one_and_only_the_culprit_becomes_a_dead_letter(
    town: Town,
) -> None:
    bob = await town.connect(BOB)
    town.fanout.directory_wire.on("connections", late(0.5))
    await town.ingest.stored(draft(1))
    await town.ingest.stored(draft(2))
    await town.ingest.stored(draft(3))
    await town.ingest.stored(draft(4))
    await town.until(lambda: bob.pushes == [1])
    town.fanout.push.bugs = 1 + 3  # the run of 2, 3 and 4 once, and then 2 three times
    await town.until(lambda: 4 in bob.pushes, within_s=2)
    assert bob.pushes == [1, 3, 4]
    assert [_attempts(dead_letter) for dead_letter in town.dead_letters()] == [3]
    await town.until(lambda: town.next_offset() == 4)


def _attempts(dead_letter: Record) -> int:
    return msgspec.json.decode(dead_letter.value or b"", type=DeadLetterBody).dlq_metadata.processing_attempts


@simulated
@in_town
async def test_s36_trouble_downstream_is_skipped_and_never_a_dead_letter(town: Town) -> None:
    """Given directory, push or roster failing, then the offset advances, nothing becomes a dead letter or is lost."""
    bob = await town.synced(BOB)
    troubles = [
        (town.fanout.store_wire, "*", Skip.ROSTER),
        (town.fanout.directory_wire, "*", Skip.DIRECTORY),
        (town.fanout.push_wire, "publish", Skip.PUSH),
    ]
    for number, (wire, operation, skip) in enumerate(troubles, start=1):
        wire.always(operation, UNAVAILABLE)
        await town.ingest.stored(draft(number))
        await asyncio.sleep(3)  # the roster is asked three times
        assert town.next_offset() == number
        assert town.fanout.notes.skips[-1] is skip
        wire.heal()
    assert town.dead_letters() == []
    await town.ingest.stored(draft(4))
    await town.until(lambda: bob.pushes == [1, 2, 3, 4], within_s=1)


@simulated
@in_town
async def test_s36_a_gateway_that_is_gone_is_skipped(town: Town) -> None:
    await town.connect(BOB)
    town.gateway.crash()
    await town.ingest.stored(draft(1))
    await town.until(lambda: town.next_offset() == 1)
    assert (town.fanout.notes.skips, town.dead_letters()) == ([Skip.GATEWAY_GONE], [])


@simulated
@in_town
async def test_s37_an_event_without_its_optional_fields_is_delivered_with_their_defaults(town: Town) -> None:
    """The sender is left out then, because nobody knows which of its connections has the message already."""
    ann, bob = await town.connect(ANN), await town.connect(BOB)
    town.append_raw(
        _event(town, without=("client_message_id", "origin_connection_id", "prev_sequence", "members_version"))
    )
    await town.until(lambda: bob.pushes == [1], within_s=1)
    assert ann.pushes == []
    assert town.dead_letters() == []


@simulated
@in_town
async def test_s37_an_event_of_an_unknown_version_is_read_as_version_1_with_a_warning(town: Town) -> None:
    bob = await town.connect(BOB)
    town.append_raw(_event(town, event_version=99, fields_of_tomorrow={"mood": "calm"}))
    await town.until(lambda: bob.pushes == [1], within_s=1)
    assert town.fanout.notes.versions == [99]
    assert town.dead_letters() == []


def _event(town: Town, *, without: tuple[str, ...] = (), **changes: object) -> bytes:
    """The event of message 1, as another producer would write it."""
    created_at = iso(town.now_ms())
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
    town.store.fill(message)
    town.set_counter(CHAT, 1, published=1)
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

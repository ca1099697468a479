"""The scenarios of docs/spec/data.md#scenarios about too much and too broken: S26 to S30."""

import asyncio
import json

import pytest
from msgspec import UNSET

from seriatim.domain import limits
from seriatim.domain.circuit_breaker import BreakerState
from seriatim.protocol.frames import ErrorFrame, MessageAck, SyncRequest
from tests.support.cluster_harness import ClusterHarness
from tests.support.durability_harness import ANN, BOB, CHAT, EVE, draft, key_id
from tests.support.scripted_client import ScriptedClient, a_send
from tests.support.scripted_wire import LOST_REQUEST, UNAVAILABLE

# --- S26: slow consumers -------------------------------------------------------------------------------------------


async def test_s26_a_buffer_that_fills_is_noted_then_announced_then_closed(cluster: ClusterHarness) -> None:
    """Given a client that reads too slowly, then 80 % is a warning, 95 % an error frame, and 5 s later the end."""
    bob = await cluster.synced(BOB)
    bob.stop_reading()
    await _push(cluster, bob, 1, 800)
    assert (cluster.gateway.recorded.high, bob.codes) == ([], [])
    await _push(cluster, bob, 801, 801)
    assert cluster.gateway.recorded.high == [801]
    await _push(cluster, bob, 802, 950)
    assert cluster.gateway.recorded.slow == 0
    await _push(cluster, bob, 951, 951)
    assert cluster.gateway.recorded.slow == 1
    bob.resume_reading(writes=1)
    began = cluster.loop.time()
    await cluster.until(lambda: bob.closed is not None, within_s=6)
    [warning] = bob.errors
    assert (warning.code, warning.grace_period) == ("SLOW_CONSUMER", limits.SLOW_CONSUMER_GRACE_S)
    assert warning.details == {"buffer_size": 951, "buffer_limit": 1000}
    assert bob.closed == (1008, "slow_consumer")
    assert bob.closed_at - began == pytest.approx(limits.SLOW_CONSUMER_GRACE_S, abs=0.01)
    assert bob.closing is not None
    assert (bob.closing.reason, bob.closing.reconnect_allowed) == ("slow_consumer", True)


async def test_s26_a_client_drained_below_80_percent_stays_and_misses_nothing(cluster: ClusterHarness) -> None:
    """Given a warned client, when it drains below 80 % within 5 s, then it stays connected."""
    bob = await cluster.synced(BOB)
    bob.stop_reading()
    await _push(cluster, bob, 1, 960)
    await asyncio.sleep(limits.SLOW_CONSUMER_GRACE_S - 0.1)
    bob.resume_reading(writes=20)  # of about 16 messages each
    await asyncio.sleep(1)
    assert bob.closed is None
    bob.resume_reading()
    await cluster.until(lambda: len(bob.pushes) == 960)
    assert bob.pushes == list(range(1, 961))
    assert bob.codes == ["SLOW_CONSUMER"]


async def test_s26_a_client_drained_to_just_above_80_percent_is_closed_all_the_same(cluster: ClusterHarness) -> None:
    bob = await cluster.synced(BOB)
    bob.stop_reading()
    await _push(cluster, bob, 1, 960)
    bob.resume_reading(writes=8)
    await asyncio.sleep(limits.SLOW_CONSUMER_GRACE_S + 0.1)
    assert bob.closed == (1008, "slow_consumer")


async def _push(cluster: ClusterHarness, client: ScriptedClient, first: int, last: int) -> None:
    for sequence in range(first, last + 1):
        cluster.deliver(client, cluster.put_message(sequence, content="x" * 3900), sequence - 1)
    cluster.set_counter(CHAT, last, published=last)
    await asyncio.sleep(0.001)


# --- S27: every rejection is an error frame (docs/spec/websocket.md#errors) ---------------------------------------


def _sends(**changes: object) -> str:
    send = {"type": "send_message", "chat_id": CHAT, "client_message_id": key_id(1), "content": "Hi"}
    return json.dumps({**send, **changes})


@pytest.mark.parametrize(
    ("said", "code", "details"),
    [
        ("{", "INVALID_MESSAGE", {"reason": "not_json"}),
        (b"\xff", "INVALID_MESSAGE", {"reason": "not_json"}),
        ("[]", "INVALID_MESSAGE", {"reason": "not_an_object"}),
        ("{}", "INVALID_MESSAGE", {"field": "type"}),
        (_sends(chat_id="no such id!"), "INVALID_MESSAGE", {"field": "chat_id"}),
        (_sends(client_message_id="1"), "INVALID_MESSAGE", {"field": "client_message_id"}),
        (_sends(content=7), "INVALID_MESSAGE", {"field": "content"}),
        (_sends(content=""), "INVALID_MESSAGE", {"field": "content"}),
        (_sends(content="x" * 4097), "MESSAGE_TOO_LARGE", {"max_bytes": 4096}),
        (_sends(content_type="text/html"), "INVALID_CONTENT_TYPE", UNSET),
        (
            '{"type":"ack","chat_id":"chat_1","last_acked_sequence":-1}',
            "INVALID_MESSAGE",
            _AT := {"field": "last_acked_sequence"},
        ),
        ('{"type":"ack","chat_id":"chat_1","last_acked_sequence":"47"}', "INVALID_MESSAGE", _AT),
        ('{"type":"sync_request","chat_id":"chat_1","last_acked_sequence":-1}', "INVALID_MESSAGE", _AT),
        ('{"type":"sync_request","chat_id":"chat_1","last_acked_sequence":true}', "INVALID_MESSAGE", _AT),
        (
            '{"type":"sync_request","chat_id":"chat_1","last_acked_sequence":0,"limit":0}',
            "INVALID_MESSAGE",
            {"field": "limit"},
        ),
    ],
)
async def test_s27_a_frame_that_cannot_be_obeyed_is_answered(
    cluster: ClusterHarness, said: str | bytes, code: str, details: object
) -> None:
    ann = await cluster.connect(ANN)
    ann.send_text(said)
    await cluster.until(lambda: bool(ann.errors), within_s=1)
    [error] = ann.errors
    assert (error.code, error.retryable, error.details) == (code, False, details)
    assert cluster.counter().allocated == 0
    assert await ann.posted(2) == 1, "one bad frame ended the connection"


async def test_s27_an_outsider_gets_the_same_answer_for_a_chat_that_exists_and_one_that_does_not(
    cluster: ClusterHarness,
) -> None:
    eve = await cluster.connect(EVE)
    there, not_there = await eve.refused(1), await eve.refused(2, chat_id="chat_404")
    assert (there.code, there.retryable) == ("NOT_A_MEMBER", False)
    assert (there.code, there.message) == (not_there.code, not_there.message)
    for chat_id in (CHAT, "chat_404"):
        eve.send(SyncRequest(chat_id=chat_id, last_acked_sequence=0, request_id=f"sync-{chat_id}"))
    await cluster.until(lambda: len(eve.errors) == 4, within_s=1)
    assert [error.code for error in eve.errors[2:]] == ["NOT_A_MEMBER"] * 2
    assert sorted(str(error.request_id) for error in eve.errors[2:]) == [f"sync-{CHAT}", "sync-chat_404"]
    assert cluster.counter().allocated == 0


async def test_s27_the_ack_of_a_removed_member_is_answered_and_changes_nothing(cluster: ClusterHarness) -> None:
    cluster.given_messages(3)
    bob = await cluster.synced(BOB)
    cluster.remove(BOB)
    bob.ack(3)
    await cluster.until(lambda: bob.codes == ["NOT_A_MEMBER"], within_s=1)
    assert cluster.acknowledged(BOB) == 0


async def test_s27_an_id_in_use_by_another_sender_is_answered(cluster: ClusterHarness) -> None:
    await cluster.ingest.stored(draft(1, sender_id=BOB))
    ann = await cluster.connect(ANN)
    error = await ann.refused(1)
    assert (error.code, error.details) == (
        "INVALID_MESSAGE",
        {"field": "client_message_id", "reason": "client_message_id_in_use"},
    )


async def test_s27_a_failing_store_and_a_failing_event_log_are_answered_as_worth_a_retry(
    cluster: ClusterHarness,
) -> None:
    ann = await cluster.connect(ANN)
    for wire in (cluster.ingest.wire, cluster.ingest.events_wire):
        wire.always("*", UNAVAILABLE)
        error = await ann.refused(1)
        assert (error.code, error.retryable, error.chat_id) == ("SERVICE_UNAVAILABLE", True, CHAT)
        wire.heal()
    assert await ann.posted(1) == 1


async def test_s27_a_sync_that_fails_is_answered(cluster: ClusterHarness) -> None:
    bob = await cluster.connect(BOB)
    cluster.ingest.wire.always("read", UNAVAILABLE)
    bob.send(SyncRequest(chat_id=CHAT, last_acked_sequence=0, request_id="r-1"))
    await cluster.until(lambda: bool(bob.errors), within_s=limits.PERSIST_DEADLINE_S)
    [error] = bob.errors
    assert (error.code, error.request_id, error.chat_id) == ("SERVICE_UNAVAILABLE", "r-1", CHAT)


async def test_s27_a_chat_that_waits_for_repair_is_answered_slowly_and_does_not_trip_the_breaker(
    cluster: ClusterHarness,
) -> None:
    cluster.store.lose_counter(CHAT)
    ann = await cluster.connect(ANN)
    for number in range(limits.BREAKER_FAILURES_MAX + 1):
        error = await ann.refused(number)
        assert (error.code, error.retryable, error.retry_after_seconds) == ("INTERNAL_ERROR", True, 60)
    assert _breaker(cluster) is BreakerState.CLOSED


async def test_s27_a_send_to_a_gateway_that_shuts_down_is_answered(cluster: ClusterHarness) -> None:
    ann = await cluster.connect(ANN)
    cluster.ingest.wire.always("lookup", LOST_REQUEST)
    ann.send(a_send(1))  # keeps the connection from closing at once
    await asyncio.sleep(0.1)
    cluster.gateway.process.start(cluster.gateway.gateway.drain())
    await cluster.until(lambda: ann.closing is not None)
    error = await ann.refused(2)
    assert (error.code, error.retryable) == ("SERVICE_UNAVAILABLE", True)
    await cluster.until(lambda: ann.closed == (1001, "server_shutdown"), within_s=limits.DRAIN_S)
    assert [frame.client_message_id for frame in ann.errors] == [key_id(2), key_id(1)], "the first was left unanswered"


async def test_s27_ten_bad_frames_in_a_minute_are_ten_errors_and_the_end(cluster: ClusterHarness) -> None:
    ann = await cluster.connect(ANN)
    for _ in range(10):
        assert ann.closed is None
        ann.send_text("{")
    await asyncio.sleep(0.1)
    assert ann.codes == ["INVALID_MESSAGE"] * 10
    assert ann.closed == (1008, "protocol_error")


# --- S28: the circuit breaker --------------------------------------------------------------------------------------


async def test_s28_five_failures_open_the_breaker_and_one_probe_decides_after_30_seconds(
    cluster: ClusterHarness,
) -> None:
    """Given a store that refuses, then after 5 failures sends fail at once, and every 30 s one of them tries again."""
    cluster.add_chat("chat_2")
    ann = await cluster.connect(ANN)
    wire = cluster.ingest.wire
    wire.always("lookup", UNAVAILABLE)
    for number in range(limits.BREAKER_FAILURES_MAX):
        assert _breaker(cluster) is BreakerState.CLOSED
        await ann.refused(number, chat_id="chat_2" if number == 2 else CHAT)  # not one chat alone
    assert _breaker(cluster) is BreakerState.OPEN

    asked, began = wire.count("lookup"), cluster.loop.time()
    error = await ann.refused(10)
    assert error.code == "SERVICE_UNAVAILABLE"
    assert error.retry_after_seconds == pytest.approx(limits.BREAKER_OPEN_S, abs=0.1)
    assert cluster.loop.time() - began < 0.01
    assert wire.count("lookup") == asked, "an open breaker lets nothing through"

    await asyncio.sleep(limits.BREAKER_OPEN_S)
    await asyncio.gather(ann.refused(11), ann.refused(12))
    assert wire.count("lookup") == asked + 1, "one probe, not two"
    assert _breaker(cluster) is BreakerState.OPEN

    await asyncio.sleep(limits.BREAKER_OPEN_S)
    wire.heal()
    assert await ann.posted(13) == 1
    assert _breaker(cluster) is BreakerState.CLOSED
    assert await ann.posted(14) == 2


async def test_s28_failures_spread_over_more_than_30_seconds_open_nothing(cluster: ClusterHarness) -> None:
    ann = await cluster.connect(ANN)
    cluster.ingest.wire.always("lookup", UNAVAILABLE)
    for number in range(2 * limits.BREAKER_FAILURES_MAX):
        await ann.refused(number)
        await asyncio.sleep(limits.BREAKER_WINDOW_S / (limits.BREAKER_FAILURES_MAX - 1) + 0.1)
    assert _breaker(cluster) is BreakerState.CLOSED


def _breaker(cluster: ClusterHarness) -> BreakerState:
    return cluster.ingest.ingest.store_breaker


# --- S29: the send rate --------------------------------------------------------------------------------------------


async def test_s29_more_than_20_at_once_and_more_than_10_a_second_are_refused_and_take_no_sequence(
    cluster: ClusterHarness,
) -> None:
    ann = await cluster.connect(ANN)
    _burst(ann, 1, 25)
    await asyncio.sleep(1)
    assert ann.codes == ["RATE_LIMITED"] * 5
    assert all(_waits(error) for error in ann.errors)
    _burst(ann, 26, 12)
    await asyncio.sleep(0.9)
    assert len(ann.of(MessageAck)) == 30
    assert ann.codes == ["RATE_LIMITED"] * 7
    assert cluster.counter().allocated == 30
    assert ann.closed is None


async def test_s29_ten_a_second_can_go_on_for_ever(cluster: ClusterHarness) -> None:
    ann = await cluster.connect(ANN)
    for number in range(100):
        ann.send(a_send(number))
        await asyncio.sleep(1 / limits.SEND_RATE_PER_S)
    await asyncio.sleep(1)
    assert ann.codes == []
    assert cluster.counter().allocated == 100


def _burst(client: ScriptedClient, first: int, count: int) -> None:
    for number in range(first, first + count):
        client.send(a_send(number))


def _waits(error: ErrorFrame) -> bool:
    return error.retry_after_seconds is not UNSET and error.retry_after_seconds >= 1


# --- S30: the inbound queue ----------------------------------------------------------------------------------------


async def test_s30_the_101st_unanswered_request_is_refused_and_the_others_are_answered(cluster: ClusterHarness) -> None:
    bob = await cluster.connect(BOB)
    cluster.ingest.wire.always("read", LOST_REQUEST)
    for number in range(limits.INBOUND_REQUESTS_MAX + 1):
        bob.send(SyncRequest(chat_id=CHAT, last_acked_sequence=0, request_id=f"r-{number}"))
    await asyncio.sleep(0.01)
    [error] = bob.errors
    assert (error.code, error.request_id, error.retry_after_seconds) == ("SERVER_BUSY", "r-100", 1)
    cluster.ingest.wire.heal()
    await cluster.until(lambda: len(bob.batches) + len(bob.errors) == 101, within_s=10)
    assert len(bob.batches) >= 95, "only those already lost may fail"
    answered = [frame.request_id for frame in bob.batches] + [frame.request_id for frame in bob.errors]
    assert sorted(map(str, answered)) == sorted(f"r-{number}" for number in range(101))

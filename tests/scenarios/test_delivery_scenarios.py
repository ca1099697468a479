"""The scenarios of docs/spec/data.md#scenarios from end to end: catching up, failing over, acknowledging."""

import asyncio

from seriatim.domain import limits
from seriatim.protocol.codec import encode
from seriatim.protocol.frames import MessageAck, SyncRequest
from seriatim.simulation.clients.device import Device
from tests.support.cluster_harness import ClusterHarness
from tests.support.durability_harness import ANN, BOB, CHAT, CID, draft, key_id
from tests.support.scripted_client import a_send
from tests.support.scripted_wire import LOST_REQUEST, late

# --- S17: catching up ----------------------------------------------------------------------------------------------


async def test_s17_pages_say_whether_there_is_more_and_where_it_begins(cluster: ClusterHarness) -> None:
    """Given 250 slots and a watermark of 7, when the client follows the pages, then it gets 8..250 ascending."""
    cluster.given_messages(250)
    bob = await cluster.connect(BOB)
    pages = await bob.sync_all(after=7)
    assert [len(page.messages) for page in pages] == [100, 100, 43]
    assert [page.has_more for page in pages] == [True, True, False]
    assert [page.next_sequence for page in pages] == [108, 208, None]
    assert bob.seen == list(range(8, 251))


async def test_s17_a_page_without_messages_still_leads_on(cluster: ClusterHarness) -> None:
    for sequence in range(1, 31):
        cluster.put_tombstone(sequence)
    cluster.put_message(31)
    cluster.set_counter(CHAT, 31, published=31)
    bob = await cluster.connect(BOB)
    pages = await bob.sync_all(after=0, limit=10)
    assert [page.next_sequence for page in pages] == [11, 21, 31, None]
    assert bob.seen == [31]


async def test_s17_a_page_too_heavy_for_a_frame_is_cut_and_continued(cluster: ClusterHarness) -> None:
    cluster.given_messages(300, content="x" * 4096)
    bob = await cluster.connect(BOB)
    pages = await bob.sync_all(after=0, limit=500)
    assert bob.seen == list(range(1, 301))
    assert max(len(encode(page)) for page in pages) <= 512 * 1024


# --- S19: reconnecting ---------------------------------------------------------------------------------------------


async def test_s19_a_device_far_behind_the_watermark_catches_up_from_its_own_cursor(cluster: ClusterHarness) -> None:
    """Given a watermark of 5 from the phone, when the tablet syncs from 2, then it gets 3..5 and lowers nothing."""
    cluster.given_messages(5)
    phone = await cluster.synced(BOB, "phone")
    phone.ack(5)
    await cluster.until(lambda: cluster.acknowledged(BOB) == 5)
    tablet = await cluster.connect(BOB, "tablet")
    await tablet.sync_all(after=2)
    assert tablet.seen == [3, 4, 5]
    tablet.ack(3)
    await asyncio.sleep(1)
    assert cluster.acknowledged(BOB) == 5


async def test_s19_a_client_that_lost_its_socket_before_the_ack_gets_the_same_sequence(cluster: ClusterHarness) -> None:
    ann = await cluster.connect(ANN)
    cluster.ingest.events_wire.on("append", late(0.3))
    ann.send(a_send(1))
    await cluster.until(lambda: len(cluster.messages()) == 1)
    ann.close_by_client()
    again = await cluster.connect(ANN)
    answer = await again.post(1)
    assert isinstance(answer, MessageAck)
    assert (answer.sequence, answer.deduplicated) == (1, True)
    assert cluster.contents() == ["text 1"]
    assert ann.of(MessageAck) == []


async def test_s19_a_gateway_killed_in_the_middle_of_fanout_costs_no_client_a_message(cluster: ClusterHarness) -> None:
    """Given real clients, when their gateway dies while messages are pushed, then each has all of them, once."""
    devices = [cluster.device(BOB, "bobs-phone"), cluster.device(CID, "cids-phone")]
    await cluster.until(lambda: not any(device.unsettled for device in devices))
    first = cluster.gateway
    await cluster.add_gateway("gateway-2")
    cluster.fanout.push_wire.always("publish", late(0.1))
    for number in range(1, 4):
        await cluster.ingest.stored(draft(number))
    await cluster.until(lambda: len(_has(devices[0])) >= 3)
    for number in range(4, 11):
        await cluster.ingest.stored(draft(number))
    first.crash()
    assert len(_has(devices[0])) < 10, "the kill came too late to prove anything"
    await cluster.until(lambda: all(len(_has(device)) == 10 for device in devices), within_s=20)
    assert [_has(device) for device in devices] == [list(range(1, 11))] * 2


async def test_s19_under_concurrent_load_everyone_sees_the_same_order(cluster: ClusterHarness) -> None:
    users = {"anns-phone": ANN, "anns-laptop": ANN, "bobs-phone": BOB, "cids-phone": CID}
    devices = [cluster.device(user_id, name) for name, user_id in users.items()]
    for number in range(40):
        devices[number % 4].send(CHAT, key_id(number), f"text {number}")
        await asyncio.sleep(0.02)
    await cluster.until(lambda: all(len(_has(device)) == 40 for device in devices), within_s=60)
    assert [_has(device) for device in devices] == [list(range(1, 41))] * 4
    assert sorted(cluster.contents()) == sorted(f"text {number}" for number in range(40))


async def test_s19_answers_that_are_lost_again_and_again_make_no_second_message(cluster: ClusterHarness) -> None:
    """Given an event log whose acks are late, when the real client retries end to end, then one message is there."""
    ann, bob = cluster.device(ANN, "anns-phone"), cluster.device(BOB, "bobs-phone")
    cluster.ingest.events_wire.on("append", late(6), late(6), late(6))
    ann.send(CHAT, key_id(1), "once")
    await cluster.until(lambda: not ann.unsettled and _has(bob) == [1], within_s=120)
    assert cluster.contents() == ["once"]
    assert (_has(ann), _has(bob)) == ([1], [1])


def _has(device: Device) -> list[int]:
    """What its application was given of CHAT, in that order."""
    return device.delivered.get(CHAT, [])


# --- S31: something is killed --------------------------------------------------------------------------------------


async def test_s31_after_its_gateway_was_killed_a_client_reconnects_syncs_and_sends_what_it_owes(
    cluster: ClusterHarness,
) -> None:
    ann, bob = cluster.device(ANN, "anns-phone"), cluster.device(BOB, "bobs-phone")
    await cluster.until(lambda: not ann.unsettled and not bob.unsettled)
    cluster.gateway.crash()
    ann.send(CHAT, key_id(1), "into the dark")
    await cluster.ingest.stored(draft(2, sender_id=CID))  # while no connection is registered
    await asyncio.sleep(1)
    assert (_has(ann), _has(bob)) == ([], [])
    await cluster.add_gateway("gateway-2")
    await cluster.until(lambda: _has(ann) == _has(bob) == [1, 2], within_s=20)
    assert cluster.contents() == ["text 2", "into the dark"]


async def test_s31_with_the_store_killed_sends_and_syncs_fail_within_5_seconds(cluster: ClusterHarness) -> None:
    ann = await cluster.connect(ANN)
    cluster.ingest.wire.always("*", LOST_REQUEST)
    began = cluster.loop.time()
    error = await ann.refused(1)
    assert (error.code, error.retryable) == ("SERVICE_UNAVAILABLE", True)
    assert cluster.loop.time() - began <= limits.PERSIST_DEADLINE_S + 0.01
    ann.send(SyncRequest(chat_id=CHAT, last_acked_sequence=0, request_id="r-1"))
    await asyncio.sleep(limits.PERSIST_DEADLINE_S + 0.01)
    assert [(error.code, error.request_id) for error in ann.errors[1:]] == [("SERVICE_UNAVAILABLE", "r-1")]
    cluster.ingest.wire.heal()
    assert await ann.posted(1) == 1


async def test_s31_with_the_event_log_killed_a_send_fails_within_5_seconds_and_does_not_hang(
    cluster: ClusterHarness,
) -> None:
    ann = await cluster.connect(ANN)
    cluster.ingest.events_wire.always("append", LOST_REQUEST)
    began = cluster.loop.time()
    error = await ann.refused(1)
    assert (error.code, error.retryable) == ("SERVICE_UNAVAILABLE", True)
    assert cluster.loop.time() - began <= limits.PERSIST_DEADLINE_S + 0.01


async def test_s31_with_the_ingest_process_killed_a_send_fails_within_5_seconds(cluster: ClusterHarness) -> None:
    ann = await cluster.connect(ANN)
    cluster.ingest.crash()
    began = cluster.loop.time()
    error = await ann.refused(1)
    assert (error.code, error.retryable) == ("SERVICE_UNAVAILABLE", True)
    assert cluster.loop.time() - began <= limits.PERSIST_DEADLINE_S + 0.01


# --- S42, S43: ours ------------------------------------------------------------------------------------------------


async def test_s42_an_ack_of_ten_to_the_fifteenth_counts_as_the_newest_message(cluster: ClusterHarness) -> None:
    cluster.given_messages(7)
    bob = await cluster.synced(BOB)
    bob.ack(10**15)
    await cluster.until(lambda: cluster.acknowledged(BOB) == 7)
    await cluster.ingest.stored(draft(8))
    await cluster.until(lambda: 8 in bob.pushes)
    bob.ack(8)
    await cluster.until(lambda: cluster.acknowledged(BOB) == 8)
    assert bob.codes == []


async def test_s42_an_ack_beyond_the_end_by_a_client_with_a_cursor_beyond_the_end_poisons_nothing(
    cluster: ClusterHarness,
) -> None:
    cluster.given_messages(7)
    bob = await cluster.connect(BOB)
    await bob.sync(10**15)
    bob.ack(10**15)
    await asyncio.sleep(1)
    assert cluster.acknowledged(BOB) <= 7
    await cluster.ingest.stored(draft(8))
    await cluster.until(lambda: bob.pushes == [8], within_s=1)


async def test_s43_after_a_flush_of_redis_everyone_is_reachable_within_a_heartbeat_on_the_same_socket(
    cluster: ClusterHarness,
) -> None:
    clients = [await cluster.synced(user_id, device) for user_id in (BOB, CID) for device in ("phone", "laptop")]
    cluster.registry.wipe()
    cluster.channels.wipe()
    cluster.channels.restore("gateway-1")
    await asyncio.sleep(limits.PING_INTERVAL_S)
    await cluster.ingest.stored(draft(1))
    await cluster.until(lambda: all(client.pushes == [1] for client in clients), within_s=1)
    assert all(client.closed is None for client in clients)

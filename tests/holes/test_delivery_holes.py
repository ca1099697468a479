"""The holes of docs/spec/delivery.md#the-holes that connection and fanout close, each as its shortest story.

Each story runs with all rules, where it ends well, and without each of the rules that close its hole, where it must
not (`conftest.py`).
"""

import asyncio

import pytest

from seriatim.domain import limits
from seriatim.domain.chat import Role
from seriatim.protocol.frames import ErrorFrame
from tests.holes.delivery_rules import (
    an_unwritten_dead_letter_counts_as_written,
    own_messages_are_not_counted,
    registrations_do_not_expire_one_by_one,
    warnings_wait_their_turn,
    what_was_fetched_counts_as_handled,
)
from tests.support.cluster_harness import MEMBERSHIPS_0, MESSAGES_0, ClusterHarness
from tests.support.durability_harness import ANN, BOB, CHAT, CID, draft
from tests.support.scripted_client import ScriptedClient
from tests.support.scripted_wire import UNAVAILABLE, CallOutcome, late

DAN = "user_dan"  # joins later
GRACE_S = limits.SLOW_CONSUMER_GRACE_S  # read here: a test that removes its rule changes the limit

closed_by = pytest.mark.closed_by

# --- H2: a dropped push and a cumulative ack -----------------------------------------------------------------------


@closed_by("naive-gateway")
async def test_h2_a_push_after_a_lost_one_waits_until_the_lost_one_was_read_back(cluster: ClusterHarness) -> None:
    bob = await cluster.synced(BOB)
    await cluster.ingest.stored(draft(1))
    await cluster.until(lambda: bob.pushes == [1])
    cluster.gateway.push_wire.pushes_to_lose = 1
    await cluster.ingest.stored(draft(2))
    await cluster.ingest.stored(draft(3))
    await cluster.until(lambda: 3 in bob.pushes)
    assert bob.pushes == [1, 2, 3], "a client that acknowledges 3 has everything below it"


@closed_by("ack-unclamped")
async def test_h2_an_ack_beyond_what_was_sent_in_one_piece_does_not_count(cluster: ClusterHarness) -> None:
    bob = await cluster.synced(BOB)
    await cluster.ingest.stored(draft(1))
    await cluster.until(lambda: bob.pushes == [1])
    cluster.gateway.push_wire.pushes_to_lose = 1
    await cluster.ingest.stored(draft(2))
    bob.ack(2)  # which was stored, and lost on its way here
    await asyncio.sleep(1)
    assert cluster.acknowledged(BOB) == 1


# --- H9: deaf sockets ----------------------------------------------------------------------------------------------


@closed_by("expire-only-heartbeat")
async def test_h9_after_a_loss_of_the_registry_a_socket_is_found_again_within_a_heartbeat(
    cluster: ClusterHarness,
) -> None:
    bob = await cluster.connect(BOB)
    cluster.registry.wipe()
    await asyncio.sleep(limits.PING_INTERVAL_S)
    assert list(cluster.registry.connections((BOB,), cluster.now_ms())) == [BOB]
    await cluster.ingest.stored(draft(1))
    await cluster.until(lambda: bob.pushes == [1], within_s=1)


@closed_by("no-tail-probe")
async def test_h9_a_lost_last_push_is_found_by_the_probe(cluster: ClusterHarness) -> None:
    bob = await cluster.synced(BOB)
    cluster.gateway.push_wire.pushes_to_lose = 1
    await cluster.ingest.stored(draft(1))
    await cluster.until(lambda: bob.pushes == [1], within_s=limits.PROBE_INTERVAL_MAX_S + 1)


@closed_by("no-tail-probe")
async def test_h9_what_an_interrupted_subscription_missed_is_found_as_soon_as_it_stands_again(
    cluster: ClusterHarness,
) -> None:
    bob = await cluster.synced(BOB)
    cluster.channels.interrupt("gateway-1")
    await cluster.ingest.stored(draft(1))
    await asyncio.sleep(1)
    assert bob.pushes == []
    cluster.channels.restore("gateway-1")
    await cluster.until(lambda: bob.pushes == [1], within_s=1)


# --- H10: dead devices ---------------------------------------------------------------------------------------------


@closed_by(registrations_do_not_expire_one_by_one)
async def test_h10_a_dead_device_is_forgotten_although_another_one_keeps_its_user_alive(
    cluster: ClusterHarness,
) -> None:
    doomed = await cluster.add_gateway("gateway-2")
    await cluster.connect(BOB, "phone", to=doomed)
    laptop = await cluster.connect(BOB, "laptop")
    doomed.crash()
    await asyncio.sleep(limits.REGISTRATION_TTL_S + 1)
    await cluster.ingest.stored(draft(1))
    await cluster.until(lambda: laptop.pushes == [1], within_s=1)
    assert cluster.fanout.recorded.skips == [], "a push went to a connection that is gone"
    assert cluster.registry.listed(BOB) == (laptop.connection.connection_id,)


# --- H11: a stale member cache -------------------------------------------------------------------------------------


@closed_by("cache-without-version")
async def test_h11_a_list_read_before_a_removal_and_cached_after_it_leaks_nothing(cluster: ClusterHarness) -> None:
    cid, bob = await cluster.synced(CID), await cluster.synced(BOB)
    cluster.fanout.directory_wire.on("cache_members", late(0.5))
    await cluster.ingest.stored(draft(1))  # fanout has read the members, and its cache is still on the way
    await asyncio.sleep(0.1)
    await cluster.members.remove(CHAT, CID, by=ANN)
    await cluster.ingest.stored(draft(2))
    await cluster.until(lambda: bob.pushes == [1, 2])
    cached = cluster.registry.cached([CHAT], cluster.now_ms()).get(CHAT)
    assert 2 not in cid.pushes, "a removed member was shown a later message"
    assert cached is not None
    assert CID not in cached.user_ids


@closed_by("cache-without-version")
async def test_h11_a_member_whose_addition_published_no_event_gets_the_next_message(cluster: ClusterHarness) -> None:
    dan = await cluster.connect(DAN)
    await cluster.ingest.stored(draft(1))
    await cluster.until(lambda: CHAT in cluster.registry.cached([CHAT], cluster.now_ms()))
    cluster.add_member_without_event(DAN)
    await cluster.ingest.stored(draft(2))
    await cluster.until(lambda: dan.pushes == [2], within_s=1)


# --- H12: the consumer skips ---------------------------------------------------------------------------------------


@closed_by("commit-before-processing")
async def test_h12_a_record_in_the_hands_of_a_dying_worker_is_taken_up_by_the_next(cluster: ClusterHarness) -> None:
    bob = await cluster.connect(BOB)
    cluster.fanout.directory_wire.always("connections", late(0.5))
    await cluster.ingest.stored(draft(1))
    await asyncio.sleep(0.2)
    cluster.fanout.crash()
    await cluster.add_fanout("fanout-2")
    await cluster.until(lambda: bob.pushes == [1], within_s=1)


@closed_by("poison-skipped")
async def test_h12_a_record_that_met_a_bug_is_tried_again_before_the_next_one(cluster: ClusterHarness) -> None:
    bob = await cluster.connect(BOB)  # not synced: only fanout brings it messages
    cluster.fanout.push.bugs = 1
    await cluster.ingest.stored(draft(1))
    await cluster.ingest.stored(draft(2))
    await cluster.until(lambda: 2 in bob.pushes, within_s=2)
    assert bob.pushes == [1, 2]
    assert cluster.dead_letters() == []


@closed_by(what_was_fetched_counts_as_handled)
async def test_h12_records_fetched_but_not_begun_are_left_to_the_next_owner(cluster: ClusterHarness) -> None:
    bob = await cluster.connect(BOB)
    cluster.fanout.directory_wire.always("connections", late(0.2))
    for number in range(1, 6):
        await cluster.ingest.stored(draft(number))
    await cluster.fanout.stop()
    assert len(bob.pushes) < 5, "it should have left in the middle"
    await cluster.add_fanout("fanout-2")
    await cluster.until(lambda: cluster.next_offset() == 5, within_s=2)
    assert bob.pushes == [1, 2, 3, 4, 5]


# --- H13: a dead letter cannot be written --------------------------------------------------------------------------


@closed_by(an_unwritten_dead_letter_counts_as_written)
async def test_h13_a_record_is_passed_only_once_its_dead_letter_is_written_and_other_partitions_go_on(
    cluster: ClusterHarness,
) -> None:
    bob = await cluster.connect(BOB)
    cluster.fanout.dead_letters_wire.always("write", UNAVAILABLE)
    cluster.append_raw(b"no event")
    await cluster.ingest.stored(draft(1))
    await cluster.members.add(CHAT, DAN, Role.MEMBER, by=ANN)
    await asyncio.sleep(5)
    assert cluster.next_offset(MESSAGES_0) == 0, "the record would be lost"
    assert MESSAGES_0 in cluster.fanout.recorded.pages, "no page was recorded"
    assert cluster.next_offset(MEMBERSHIPS_0) == 1, "another partition was held up"
    cluster.fanout.dead_letters_wire.heal()
    await cluster.until(lambda: bob.pushes == [1], within_s=limits.DEAD_LETTER_RETRY_MAX_S)
    assert len(cluster.dead_letters()) == 1


# --- H16: live overtakes sync --------------------------------------------------------------------------------------


@closed_by("live-overtakes-sync")
async def test_h16_a_live_message_waits_for_the_sync_that_runs(cluster: ClusterHarness) -> None:
    cluster.given_messages(2)
    bob = await cluster.connect(BOB)
    cluster.ingest.wire.on("read", CallOutcome(response_s=0.5))
    page = asyncio.ensure_future(bob.sync(0))
    await asyncio.sleep(0.1)
    await cluster.ingest.stored(draft(3))
    await asyncio.sleep(0.2)
    assert bob.seen == [], "the live message came before the page"
    await page
    await cluster.until(lambda: 3 in bob.seen)
    assert bob.seen == [1, 2, 3]


# --- H17: slow consumers -------------------------------------------------------------------------------------------


@closed_by("unbounded-buffer", "full-buffer-drops", "slow-closed-at-once")
async def test_h17_a_client_that_drains_within_the_grace_lost_nothing_and_is_not_closed(
    cluster: ClusterHarness,
) -> None:
    bob = await cluster.synced(BOB)
    bob.stop_reading()
    fullest = await flood(cluster, bob, 1200)
    assert fullest == limits.OUTBOUND_FRAMES_MAX
    await asyncio.sleep(GRACE_S - 0.5)
    assert bob.closed is None, "closed inside the grace period"
    bob.resume_reading()
    await cluster.until(lambda: 1200 in bob.pushes)
    assert bob.pushes == list(range(1, 1201))
    await asyncio.sleep(GRACE_S)
    assert bob.closed is None


@closed_by("slow-closed-at-once", warnings_wait_their_turn)
async def test_h17_a_client_that_stays_slow_is_warned_5_seconds_before_the_close_and_learns_where_to_sync_from(
    cluster: ClusterHarness,
) -> None:
    bob = await cluster.synced(BOB)
    bob.stop_reading()
    await flood(cluster, bob, 1200, content="x" * 4000)
    bob.resume_reading(writes=1)  # a write holds about 16 of these
    await cluster.until(lambda: bob.closed is not None, within_s=GRACE_S + 1)
    assert bob.codes == ["SLOW_CONSUMER"]
    assert bob.closed_at - bob.time_of(ErrorFrame) >= GRACE_S
    assert bob.closing is not None
    assert bob.closing.sync_from_sequence == {CHAT: len(bob.pushes)}
    again = await cluster.connect(BOB)
    await again.sync_all(after=len(bob.pushes))
    assert bob.pushes + again.seen == list(range(1, 1201))


# --- H18: the sender's side ----------------------------------------------------------------------------------------


@closed_by("own-ack-advances")
async def test_h18_an_own_message_does_not_pass_over_one_that_was_lost(cluster: ClusterHarness) -> None:
    ann = await cluster.synced(ANN)
    cluster.gateway.push_wire.pushes_to_lose = 1
    await cluster.ingest.stored(draft(1, sender_id=BOB))
    assert await ann.posted(2) == 2
    ann.ack(2)
    await asyncio.sleep(limits.GAP_WAIT_S / 2)
    assert cluster.acknowledged(ANN) == 0, "the ack of an own message is no proof of those before it"
    await cluster.until(lambda: ann.pushes == [1], within_s=1)


@closed_by("skip-senders-devices")
async def test_h18_the_senders_other_devices_get_the_message(cluster: ClusterHarness) -> None:
    phone, laptop = await cluster.synced(ANN, "phone"), await cluster.synced(ANN, "laptop")
    await phone.posted(1)
    await cluster.until(lambda: laptop.pushes == [1], within_s=1)
    assert phone.pushes == []


@closed_by(own_messages_are_not_counted)
async def test_h18_what_follows_an_own_message_needs_no_reading_back_and_no_echo(cluster: ClusterHarness) -> None:
    phone = await cluster.synced(ANN)
    await phone.posted(1)
    await cluster.ingest.stored(draft(2, sender_id=BOB))
    await cluster.until(lambda: 2 in phone.pushes)
    assert phone.pushes == [2]
    assert cluster.gateway.recorded.filled_messages == 0


# --- helpers -------------------------------------------------------------------------------------------------------


async def flood(cluster: ClusterHarness, client: ScriptedClient, count: int, *, content: str = "text") -> int:
    """Stores and pushes so many messages at once; returns how full the client's buffer was at most."""
    fullest = 0
    for sequence in range(1, count + 1):
        message = cluster.put_message(sequence, content=content)
        cluster.deliver(client, message, sequence - 1)
        fullest = max(fullest, client.connection._outbound.waiting)
    cluster.set_counter(CHAT, count, published=count)
    for _ in range(100):  # the gateway checks the buffer; no time passes
        await asyncio.sleep(0)
    return fullest

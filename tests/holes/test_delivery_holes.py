"""The holes of docs/spec/delivery.md#the-holes that connection and fanout close, each as its shortest story.

Every story is told twice: with the rule that closes the hole it ends well, with the rule taken out it must not.
"""

import asyncio

from seriatim.domain import limits
from seriatim.domain.chat import Role
from seriatim.protocol.frames import ErrorFrame
from tests.holes.removed_delivery_rules import (
    a_failed_record_is_passed,
    a_full_buffer_drops,
    a_slow_consumer_is_closed_at_once,
    an_unwritten_dead_letter_counts_as_written,
    mutant,
    own_messages_are_not_counted,
    the_sets_decide_who_lives,
    warnings_wait_their_turn,
    what_was_fetched_counts_as_handled,
)
from tests.support.bench import ANN, BOB, CHAT, CID, draft
from tests.support.holes import closed_by
from tests.support.town import MEMBERSHIPS_0, MESSAGES_0, Town, in_town
from tests.support.town_client import TownClient
from tests.support.wire import UNAVAILABLE, Fate, late

DAN = "user_dan"  # joins later

# --- H2: a dropped push and a cumulative ack -----------------------------------------------------------------------


@closed_by(mutant("naive-gateway"))
@in_town
async def test_h2_a_push_after_a_lost_one_waits_until_the_lost_one_was_read_back(town: Town) -> None:
    bob = await town.synced(BOB)
    await town.ingest.stored(draft(1))
    await town.until(lambda: bob.pushes == [1])
    town.gateway.push_wire.losing = 1
    await town.ingest.stored(draft(2))
    await town.ingest.stored(draft(3))
    await town.until(lambda: 3 in bob.pushes)
    assert bob.pushes == [1, 2, 3], "whoever acknowledges 3 now has everything below it"


@closed_by(mutant("ack-unclamped"))
@in_town
async def test_h2_an_ack_beyond_what_was_sent_in_one_piece_does_not_count(town: Town) -> None:
    bob = await town.synced(BOB)
    await town.ingest.stored(draft(1))
    await town.until(lambda: bob.pushes == [1])
    town.gateway.push_wire.losing = 1
    await town.ingest.stored(draft(2))
    bob.ack(2)  # which was stored, and lost on its way here
    await asyncio.sleep(1)
    assert town.acknowledged(BOB) == 1


# --- H9: deaf sockets ----------------------------------------------------------------------------------------------


@closed_by(mutant("expire-only-heartbeat"))
@in_town
async def test_h9_after_a_loss_of_the_registry_a_socket_is_found_again_within_a_heartbeat(town: Town) -> None:
    bob = await town.connect(BOB)
    town.registry.wipe()
    await asyncio.sleep(limits.PING_INTERVAL_S)
    assert list(town.registry.connections((BOB,), town.now_ms())) == [BOB]
    await town.ingest.stored(draft(1))
    await town.until(lambda: bob.pushes == [1], within_s=1)


@closed_by(mutant("no-tail-probe"))
@in_town
async def test_h9_a_lost_last_push_is_found_by_the_probe(town: Town) -> None:
    bob = await town.synced(BOB)
    town.gateway.push_wire.losing = 1
    await town.ingest.stored(draft(1))
    await town.until(lambda: bob.pushes == [1], within_s=limits.PROBE_INTERVAL_MAX_S + 1)


@closed_by(mutant("no-tail-probe"))
@in_town
async def test_h9_what_an_interrupted_subscription_missed_is_found_as_soon_as_it_stands_again(town: Town) -> None:
    bob = await town.synced(BOB)
    town.channels.interrupt("gateway-1")
    await town.ingest.stored(draft(1))
    await asyncio.sleep(1)
    assert bob.pushes == []
    town.channels.restore("gateway-1")
    await town.until(lambda: bob.pushes == [1], within_s=1)


# --- H10: dead devices ---------------------------------------------------------------------------------------------


@closed_by(the_sets_decide_who_lives)
@in_town
async def test_h10_a_dead_device_is_forgotten_although_another_one_keeps_its_user_alive(town: Town) -> None:
    doomed = await town.add_gateway("gateway-2")
    await town.connect(BOB, "phone", to=doomed)
    laptop = await town.connect(BOB, "laptop")
    doomed.crash()
    await asyncio.sleep(limits.REGISTRATION_TTL_S + 1)
    await town.ingest.stored(draft(1))
    await town.until(lambda: laptop.pushes == [1], within_s=1)
    assert town.fanout.notes.skips == [], "somebody was sent to who is long gone"
    assert town.registry.listed(BOB) == (laptop.connection.connection_id,)


# --- H11: a stale member cache -------------------------------------------------------------------------------------


@closed_by(mutant("cache-without-version"))
@in_town
async def test_h11_a_list_read_before_a_removal_and_cached_after_it_leaks_nothing(town: Town) -> None:
    cid, bob = await town.synced(CID), await town.synced(BOB)
    town.fanout.directory_wire.on("cache_members", late(0.5))
    await town.ingest.stored(draft(1))  # fanout has read the members, and its cache is still on the way
    await asyncio.sleep(0.1)
    await town.members.remove(CHAT, CID, by=ANN)
    await town.ingest.stored(draft(2))
    await town.until(lambda: bob.pushes == [1, 2])
    cached = town.registry.cached([CHAT], town.now_ms()).get(CHAT)
    assert 2 not in cid.pushes, "a removed member was shown a later message"
    assert cached is not None
    assert CID not in cached.user_ids


@closed_by(mutant("cache-without-version"))
@in_town
async def test_h11_a_member_nobody_was_told_of_gets_the_next_message(town: Town) -> None:
    dan = await town.connect(DAN)
    await town.ingest.stored(draft(1))
    await town.until(lambda: CHAT in town.registry.cached([CHAT], town.now_ms()))
    town.add_untold(DAN)
    await town.ingest.stored(draft(2))
    await town.until(lambda: dan.pushes == [2], within_s=1)


# --- H12: the consumer skips ---------------------------------------------------------------------------------------


@closed_by(mutant("commit-before-processing"))
@in_town
async def test_h12_a_record_in_the_hands_of_a_dying_worker_is_taken_up_by_the_next(town: Town) -> None:
    bob = await town.connect(BOB)
    town.fanout.directory_wire.always("connections", late(0.5))
    await town.ingest.stored(draft(1))
    await asyncio.sleep(0.2)
    town.fanout.crash()
    await town.add_fanout("fanout-2")
    await town.until(lambda: bob.pushes == [1], within_s=1)


@closed_by(a_failed_record_is_passed)
@in_town
async def test_h12_a_record_that_met_a_bug_is_tried_again_before_the_next_one(town: Town) -> None:
    bob = await town.connect(BOB)  # not synced: nobody but fanout brings it anything
    town.fanout.push.bugs = 1
    await town.ingest.stored(draft(1))
    await town.ingest.stored(draft(2))
    await town.until(lambda: 2 in bob.pushes, within_s=2)
    assert bob.pushes == [1, 2]
    assert town.dead_letters() == []


@closed_by(what_was_fetched_counts_as_handled)
@in_town
async def test_h12_records_fetched_but_not_begun_are_left_to_the_next_owner(town: Town) -> None:
    bob = await town.connect(BOB)
    town.fanout.directory_wire.always("connections", late(0.2))
    for number in range(1, 6):
        await town.ingest.stored(draft(number))
    await town.fanout.stop()
    assert len(bob.pushes) < 5, "it should have left in the middle"
    await town.add_fanout("fanout-2")
    await town.until(lambda: town.next_offset() == 5, within_s=2)
    assert bob.pushes == [1, 2, 3, 4, 5]


# --- H13: a dead letter cannot be written --------------------------------------------------------------------------


@closed_by(an_unwritten_dead_letter_counts_as_written)
@in_town
async def test_h13_a_record_is_passed_only_once_its_dead_letter_is_written_and_other_partitions_go_on(
    town: Town,
) -> None:
    bob = await town.connect(BOB)
    town.fanout.dead_letters_wire.always("write", UNAVAILABLE)
    town.append_raw(b"no event")
    await town.ingest.stored(draft(1))
    await town.members.add(CHAT, DAN, Role.MEMBER, by=ANN)
    await asyncio.sleep(5)
    assert town.next_offset(MESSAGES_0) == 0, "the record would be lost"
    assert MESSAGES_0 in town.fanout.notes.pages, "nobody was paged"
    assert town.next_offset(MEMBERSHIPS_0) == 1, "another partition was held up"
    town.fanout.dead_letters_wire.heal()
    await town.until(lambda: bob.pushes == [1], within_s=limits.DEAD_LETTER_RETRY_MAX_S)
    assert len(town.dead_letters()) == 1


# --- H16: live overtakes sync --------------------------------------------------------------------------------------


@closed_by(mutant("live-overtakes-sync"))
@in_town
async def test_h16_a_live_message_waits_for_the_sync_that_runs(town: Town) -> None:
    town.given_messages(2)
    bob = await town.connect(BOB)
    town.ingest.wire.on("read", Fate(response_s=0.5))
    page = asyncio.ensure_future(bob.sync(0))
    await asyncio.sleep(0.1)
    await town.ingest.stored(draft(3))
    await asyncio.sleep(0.2)
    assert bob.seen == [], "the live message came before the page"
    await page
    await town.until(lambda: 3 in bob.seen)
    assert bob.seen == [1, 2, 3]


# --- H17: slow consumers -------------------------------------------------------------------------------------------


@closed_by(mutant("unbounded-buffer"), a_full_buffer_drops, a_slow_consumer_is_closed_at_once)
@in_town
async def test_h17_a_client_that_drains_within_the_grace_lost_nothing_and_is_not_closed(town: Town) -> None:
    bob = await town.synced(BOB)
    bob.stop_reading()
    fullest = await flood(town, bob, 1200)
    assert fullest == limits.OUTBOUND_FRAMES_MAX
    await asyncio.sleep(limits.SLOW_CONSUMER_GRACE_S - 0.5)
    assert bob.closed is None, "closed inside the grace period"
    bob.resume_reading()
    await town.until(lambda: 1200 in bob.pushes)
    assert bob.pushes == list(range(1, 1201))
    await asyncio.sleep(limits.SLOW_CONSUMER_GRACE_S)
    assert bob.closed is None


@closed_by(a_slow_consumer_is_closed_at_once, warnings_wait_their_turn)
@in_town
async def test_h17_a_client_that_stays_slow_is_warned_5_seconds_before_the_close_and_told_where_to_sync_from(
    town: Town,
) -> None:
    bob = await town.synced(BOB)
    bob.stop_reading()
    await flood(town, bob, 1200, content="x" * 4000)
    bob.resume_reading(writes=1)  # a write holds about 16 of these
    await town.until(lambda: bob.closed is not None, within_s=limits.SLOW_CONSUMER_GRACE_S + 1)
    assert bob.codes == ["SLOW_CONSUMER"]
    assert bob.closed_at - bob.time_of(ErrorFrame) >= limits.SLOW_CONSUMER_GRACE_S
    assert bob.closing is not None
    assert bob.closing.sync_from_sequence == {CHAT: len(bob.pushes)}
    again = await town.connect(BOB)
    await again.sync_all(after=len(bob.pushes))
    assert bob.pushes + again.seen == list(range(1, 1201))


# --- H18: the sender's side ----------------------------------------------------------------------------------------


@closed_by(mutant("own-ack-advances"))
@in_town
async def test_h18_an_own_message_does_not_pass_over_one_that_was_lost(town: Town) -> None:
    ann = await town.synced(ANN)
    town.gateway.push_wire.losing = 1
    await town.ingest.stored(draft(1, sender_id=BOB))
    assert await ann.posted(2) == 2
    ann.ack(2)
    await asyncio.sleep(limits.GAP_WAIT_S / 2)
    assert town.acknowledged(ANN) == 0, "the ack of an own message is no proof of those before it"
    await town.until(lambda: ann.pushes == [1], within_s=1)


@closed_by(mutant("skip-senders-devices"))
@in_town
async def test_h18_the_senders_other_devices_get_the_message(town: Town) -> None:
    phone, laptop = await town.synced(ANN, "phone"), await town.synced(ANN, "laptop")
    await phone.posted(1)
    await town.until(lambda: laptop.pushes == [1], within_s=1)
    assert phone.pushes == []


@closed_by(own_messages_are_not_counted)
@in_town
async def test_h18_what_follows_an_own_message_needs_no_reading_back_and_no_echo(town: Town) -> None:
    phone = await town.synced(ANN)
    await phone.posted(1)
    await town.ingest.stored(draft(2, sender_id=BOB))
    await town.until(lambda: 2 in phone.pushes)
    assert phone.pushes == [2]
    assert town.gateway.notes.filled_messages == 0


# --- helpers -------------------------------------------------------------------------------------------------------


async def flood(town: Town, client: TownClient, count: int, *, content: str = "text") -> int:
    """Stores and pushes so many messages at once; returns how full the client's buffer was at most."""
    fullest = 0
    for sequence in range(1, count + 1):
        message = town.put_message(sequence, content=content)
        town.deliver(client, message, sequence - 1)
        fullest = max(fullest, client.connection._outbound.waiting)
    town.set_counter(CHAT, count, published=count)
    for _ in range(100):  # the gateway looks at the buffer; no time passes
        await asyncio.sleep(0)
    return fullest

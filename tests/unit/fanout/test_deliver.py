"""Who gets a message, and what happens when something below does not answer."""

import asyncio

import msgspec
import pytest

from seriatim.domain import events
from seriatim.domain.chat import Chat, ChatType
from seriatim.domain.events import BadEvent, MessagePersisted
from seriatim.fanout.observer import Skip
from seriatim.ports.catalog import Members
from seriatim.ports.directory import CachedMembers
from seriatim.ports.push import MessageDelivery
from tests.unit.fanout.doubles import CHAT, TIME, membership_value, message, message_value, record, registration, until
from tests.unit.fanout.scene import Scene


@pytest.fixture
def scene() -> Scene:
    return Scene()


# --- recipients ---------------------------------------------------------------------------------------------------


async def test_each_gateway_gets_one_envelope_that_names_its_connections(scene: Scene) -> None:
    await scene.handle(message_value(7))
    assert sorted(scene.push.sent()) == [("gw-1", ("bob-phone", "cid-phone"), 7), ("gw-2", ("ann-laptop",), 7)]


async def test_one_message_costs_one_lookup_and_one_publish_call(scene: Scene) -> None:
    await scene.handle(message_value())
    assert (scene.directory.lookups, len(scene.push.calls)) == (1, 1)


async def test_the_envelope_carries_the_message_and_its_predecessor_unchanged(scene: Scene) -> None:
    await scene.handle(message_value(7, prev=5))
    _, envelope = scene.push.calls[0][0]
    assert isinstance(envelope, MessageDelivery)
    assert (envelope.message, envelope.prev_sequence) == (message(7), 5)


async def test_what_its_writer_told_is_believed_and_not_decoded_again(scene: Scene) -> None:
    decoded = events.decode(CHAT.encode(), message_value(7, prev=5))
    assert isinstance(decoded, MessagePersisted)
    await scene.deliverer.handle([msgspec.structs.replace(record(b"not looked at"), decoded=decoded)])
    _, envelope = scene.push.calls[0][0]
    assert isinstance(envelope, MessageDelivery)
    assert (envelope.message, envelope.prev_sequence) == (message(7), 5)


async def test_the_senders_other_devices_get_the_message_and_the_originating_connection_does_not(scene: Scene) -> None:
    await scene.handle(message_value(origin="ann-phone"))
    assert "ann-laptop" in scene.reached()
    assert "ann-phone" not in scene.reached()


async def test_without_an_origin_the_sender_is_left_out_altogether(scene: Scene) -> None:
    await scene.handle(message_value(origin=None))
    assert scene.reached() == ["bob-phone", "cid-phone"]


async def test_h10_a_device_that_the_directory_does_not_list_gets_nothing_while_its_sibling_does(scene: Scene) -> None:
    scene.directory.online["bob"] = [registration("bob-laptop", gateway_id="gw-3")]
    await scene.handle(message_value())
    assert "bob-laptop" in scene.reached()
    assert "bob-phone" not in scene.reached()


async def test_nobody_online_means_nothing_to_publish(scene: Scene) -> None:
    scene.directory.online.clear()
    await scene.handle(message_value())
    assert scene.push.calls == []
    assert scene.ledger.skips == []


async def test_an_unknown_chat_reaches_nobody_and_is_not_cached(scene: Scene) -> None:
    scene.roster.answer = Members(0, ())
    await scene.handle(message_value())
    assert scene.push.calls == []
    assert scene.directory.cache == {}


async def test_deliveries_are_counted_in_connections_and_in_what_gateways_were_sent(scene: Scene) -> None:
    await scene.handle(message_value())
    assert (scene.ledger.connections, scene.ledger.envelopes) == (3, 2)


# --- the member cache ---------------------------------------------------------------------------------------------


async def test_a_refill_caches_the_list_with_its_version_and_the_next_message_uses_it(scene: Scene) -> None:
    scene.roster.answer = Members(4, ("ann", "bob"))
    await scene.handle(message_value(1, version=4))
    await scene.handle(message_value(2, version=4))
    assert scene.directory.cache[CHAT] == CachedMembers(4, ("ann", "bob"))
    assert scene.roster.calls == 1


async def test_h11_a_cache_older_than_the_event_is_not_believed(scene: Scene) -> None:
    scene.directory.cache[CHAT] = CachedMembers(1, ("ann", "bob", "eve"))
    scene.directory.online["eve"] = [registration("eve-phone")]
    scene.roster.answer = Members(2, ("ann", "bob"))
    await scene.handle(message_value(version=2))
    assert "eve-phone" not in scene.reached()
    assert "bob-phone" in scene.reached()


async def test_h11_an_old_list_written_back_after_the_invalidation_does_no_harm(scene: Scene) -> None:
    scene.directory.online["eve"] = [registration("eve-phone")]
    scene.roster.answer = Members(1, ("ann", "bob", "eve"))
    scene.roster.gate = asyncio.Event()
    slow = asyncio.create_task(scene.handle(message_value(1, version=1)))
    await until(lambda: scene.roster.calls == 1)
    scene.roster.answer = Members(2, ("ann", "bob"))  # Eve is removed, and the cache is told
    await scene.handle(membership_value(user_id="eve"))
    scene.roster.gate.set()
    await slow
    assert scene.directory.cache[CHAT].version == 1, "the schedule of the story: the old list is back"
    scene.push.calls.clear()
    await scene.handle(message_value(2, version=2))
    assert "eve-phone" not in scene.reached()
    assert scene.directory.cache[CHAT] == CachedMembers(2, ("ann", "bob"))


async def test_a_cache_newer_than_the_event_is_believed(scene: Scene) -> None:
    scene.directory.cache[CHAT] = CachedMembers(9, ("ann", "bob"))
    await scene.handle(message_value(version=8))
    assert scene.roster.calls == 0
    assert sorted(scene.reached()) == ["ann-laptop", "bob-phone"]


async def test_an_event_without_a_version_believes_no_cache(scene: Scene) -> None:
    scene.directory.cache[CHAT] = CachedMembers(9, ("eve",))
    await scene.handle(message_value(version=None))
    assert scene.roster.calls == 1
    assert "eve-phone" not in scene.reached()


async def test_an_empty_cached_list_is_a_miss(scene: Scene) -> None:
    scene.directory.cache[CHAT] = CachedMembers(5, ())
    await scene.handle(message_value(version=1))
    assert "bob-phone" in scene.reached()


async def test_a_roster_behind_the_event_is_used_once_and_not_cached(scene: Scene) -> None:
    scene.roster.answer = Members(1, ("ann", "bob"))
    await scene.handle(message_value(version=2))
    assert "bob-phone" in scene.reached()
    assert scene.directory.cache == {}


async def test_a_membership_change_clears_the_chats_cache_and_no_other(scene: Scene) -> None:
    scene.directory.cache = {CHAT: CachedMembers(1, ("bob",)), "chat_2": CachedMembers(1, ("cid",))}
    await scene.handle(membership_value(CHAT))
    assert list(scene.directory.cache) == ["chat_2"]


async def test_a_new_chat_asks_for_nothing(scene: Scene) -> None:
    chat = Chat(
        chat_id=CHAT,
        chat_type=ChatType.GROUP,
        name="Us",
        created_by="ann",
        created_at=TIME,
        updated_at=TIME,
        member_count=2,
    )
    scene.directory.cache[CHAT] = CachedMembers(1, ("bob",))
    await scene.handle(
        events.chat_created(
            chat,
            event_id="evt_1",
            initial_members=("ann", "bob"),
            producer_id="api-1",
            trace_id="",
            event_time=TIME,
        )
    )
    assert (scene.push.calls, scene.roster.calls, CHAT in scene.directory.cache) == ([], 0, True)


# --- S36: trouble below is counted and passed over ----------------------------------------------------------------


async def test_s36_a_roster_that_fails_twice_is_asked_a_third_time(scene: Scene) -> None:
    scene.roster.failures = 2
    await scene.handle(message_value())
    assert "bob-phone" in scene.reached()
    assert (scene.roster.calls, scene.ledger.retries, scene.ledger.skips) == (3, 2, [])


async def test_s36_a_roster_that_fails_three_times_is_not_asked_again(scene: Scene) -> None:
    scene.roster.failures = 1000
    await scene.handle(message_value())
    assert (scene.roster.calls, scene.ledger.skips) == (3, [Skip.ROSTER])


@pytest.mark.parametrize("method", ["cached_members", "connections"])
async def test_s36_a_directory_in_trouble_skips_the_message_at_once(scene: Scene, method: str) -> None:
    scene.directory.down = (method,)
    await scene.handle(message_value())
    assert scene.ledger.skips == [Skip.DIRECTORY]
    assert scene.push.calls == []


async def test_s36_a_failing_push_skips_the_message_at_once(scene: Scene) -> None:
    scene.push.down = True
    await scene.handle(message_value())
    assert (scene.ledger.skips, scene.ledger.connections) == ([Skip.PUSH] * 2, 0), "one for each gateway"


async def test_s36_a_gateway_that_nobody_listens_on_is_counted_and_the_others_are_served(scene: Scene) -> None:
    scene.push.deaf = ("gw-1",)
    await scene.handle(message_value())
    assert scene.ledger.skips == [Skip.GATEWAY_GONE]
    assert (scene.ledger.connections, scene.ledger.envelopes) == (1, 1)


async def test_a_cache_that_cannot_be_written_does_not_keep_the_message_back(scene: Scene) -> None:
    scene.directory.down = ("cache_members",)
    await scene.handle(message_value(version=1))
    assert "bob-phone" in scene.reached()
    assert (scene.ledger.cache_failures, scene.ledger.skips) == (1, [])


async def test_a_cache_that_cannot_be_cleared_is_counted_and_passed_over(scene: Scene) -> None:
    scene.directory.down = ("forget_members",)
    await scene.handle(membership_value())
    assert scene.ledger.cache_failures == 1


# --- what an event must be ----------------------------------------------------------------------------------------


async def test_a_record_that_is_no_event_is_refused(scene: Scene) -> None:
    with pytest.raises(BadEvent):
        await scene.handle(b"{")


async def test_a_record_under_another_chats_key_is_refused_and_reaches_nobody(scene: Scene) -> None:
    with pytest.raises(BadEvent):
        await scene.handle(message_value(), chat_id="chat_2")
    assert scene.push.calls == []


async def test_a_newer_event_version_is_delivered_all_the_same_and_reported(scene: Scene) -> None:
    await scene.handle(message_value().replace(b'"event_version":1', b'"event_version":2'))
    assert "bob-phone" in scene.reached()
    assert scene.ledger.versions == [2]

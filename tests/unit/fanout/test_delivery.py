"""Who gets a message, and what happens when something below does not answer."""

import asyncio

import msgspec
import pytest

from seriatim.domain import events
from seriatim.domain.chat import Chat, ChatType
from seriatim.domain.events import BadEvent, MessagePersisted
from seriatim.fanout.observer import SkipReason
from seriatim.ports.catalog import Members
from seriatim.ports.directory import CachedMembers
from seriatim.ports.push import MessageDelivery
from tests.unit.fanout.delivery_harness import DeliveryHarness
from tests.unit.fanout.fakes import CHAT, TIME, membership_value, message, message_value, record, registration, until


@pytest.fixture
def harness() -> DeliveryHarness:
    return DeliveryHarness()


# --- recipients ---------------------------------------------------------------------------------------------------


async def test_each_gateway_gets_one_envelope_that_names_its_connections(harness: DeliveryHarness) -> None:
    await harness.handle(message_value(7))
    assert sorted(harness.push.sent()) == [("gw-1", ("bob-phone", "cid-phone"), 7), ("gw-2", ("ann-laptop",), 7)]


async def test_one_message_costs_one_lookup_and_one_publish_call(harness: DeliveryHarness) -> None:
    await harness.handle(message_value())
    assert (harness.directory.lookups, len(harness.push.calls)) == (1, 1)


async def test_the_envelope_carries_the_message_and_its_predecessor_unchanged(harness: DeliveryHarness) -> None:
    await harness.handle(message_value(7, prev=5))
    _, envelope = harness.push.calls[0][0]
    assert isinstance(envelope, MessageDelivery)
    assert (envelope.message, envelope.prev_sequence) == (message(7), 5)


async def test_an_event_that_its_writer_decoded_is_not_decoded_again(harness: DeliveryHarness) -> None:
    decoded = events.decode(CHAT.encode(), message_value(7, prev=5))
    assert isinstance(decoded, MessagePersisted)
    await harness.deliverer.handle([msgspec.structs.replace(record(b"not looked at"), decoded=decoded)])
    _, envelope = harness.push.calls[0][0]
    assert isinstance(envelope, MessageDelivery)
    assert (envelope.message, envelope.prev_sequence) == (message(7), 5)


async def test_the_senders_other_devices_get_the_message_and_the_originating_connection_does_not(
    harness: DeliveryHarness,
) -> None:
    await harness.handle(message_value(origin="ann-phone"))
    assert "ann-laptop" in harness.reached()
    assert "ann-phone" not in harness.reached()


async def test_without_an_origin_the_sender_is_left_out_altogether(harness: DeliveryHarness) -> None:
    await harness.handle(message_value(origin=None))
    assert harness.reached() == ["bob-phone", "cid-phone"]


async def test_h10_a_device_that_the_directory_does_not_list_gets_nothing_while_its_sibling_does(
    harness: DeliveryHarness,
) -> None:
    harness.directory.online["bob"] = [registration("bob-laptop", gateway_id="gw-3")]
    await harness.handle(message_value())
    assert "bob-laptop" in harness.reached()
    assert "bob-phone" not in harness.reached()


async def test_without_members_online_there_is_nothing_to_publish(harness: DeliveryHarness) -> None:
    harness.directory.online.clear()
    await harness.handle(message_value())
    assert harness.push.calls == []
    assert harness.observer.skips == []


async def test_an_event_of_an_unknown_chat_is_not_delivered_and_the_chat_is_not_cached(
    harness: DeliveryHarness,
) -> None:
    harness.roster.answer = Members(0, ())
    await harness.handle(message_value())
    assert harness.push.calls == []
    assert harness.directory.cache == {}


async def test_deliveries_are_counted_in_connections_and_in_what_gateways_were_sent(harness: DeliveryHarness) -> None:
    await harness.handle(message_value())
    assert (harness.observer.connections, harness.observer.envelopes) == (3, 2)


# --- the member cache ---------------------------------------------------------------------------------------------


async def test_a_refill_caches_the_list_with_its_version_and_the_next_message_uses_it(harness: DeliveryHarness) -> None:
    harness.roster.answer = Members(4, ("ann", "bob"))
    await harness.handle(message_value(1, version=4))
    await harness.handle(message_value(2, version=4))
    assert harness.directory.cache[CHAT] == CachedMembers(4, ("ann", "bob"))
    assert harness.roster.calls == 1


async def test_h11_a_cache_older_than_the_event_is_not_believed(harness: DeliveryHarness) -> None:
    harness.directory.cache[CHAT] = CachedMembers(1, ("ann", "bob", "eve"))
    harness.directory.online["eve"] = [registration("eve-phone")]
    harness.roster.answer = Members(2, ("ann", "bob"))
    await harness.handle(message_value(version=2))
    assert "eve-phone" not in harness.reached()
    assert "bob-phone" in harness.reached()


async def test_h11_an_old_list_written_back_after_the_invalidation_does_no_harm(harness: DeliveryHarness) -> None:
    harness.directory.online["eve"] = [registration("eve-phone")]
    harness.roster.answer = Members(1, ("ann", "bob", "eve"))
    harness.roster.gate = asyncio.Event()
    slow = asyncio.create_task(harness.handle(message_value(1, version=1)))
    await until(lambda: harness.roster.calls == 1)
    harness.roster.answer = Members(2, ("ann", "bob"))  # Eve is removed, and the cache is dropped
    await harness.handle(membership_value(user_id="eve"))
    harness.roster.gate.set()
    await slow
    assert harness.directory.cache[CHAT].version == 1, "the schedule of the story: the old list is back"
    harness.push.calls.clear()
    await harness.handle(message_value(2, version=2))
    assert "eve-phone" not in harness.reached()
    assert harness.directory.cache[CHAT] == CachedMembers(2, ("ann", "bob"))


async def test_a_cache_newer_than_the_event_is_believed(harness: DeliveryHarness) -> None:
    harness.directory.cache[CHAT] = CachedMembers(9, ("ann", "bob"))
    await harness.handle(message_value(version=8))
    assert harness.roster.calls == 0
    assert sorted(harness.reached()) == ["ann-laptop", "bob-phone"]


async def test_an_event_without_a_version_believes_no_cache(harness: DeliveryHarness) -> None:
    harness.directory.cache[CHAT] = CachedMembers(9, ("eve",))
    await harness.handle(message_value(version=None))
    assert harness.roster.calls == 1
    assert "eve-phone" not in harness.reached()


async def test_an_empty_cached_list_is_a_miss(harness: DeliveryHarness) -> None:
    harness.directory.cache[CHAT] = CachedMembers(5, ())
    await harness.handle(message_value(version=1))
    assert "bob-phone" in harness.reached()


async def test_a_roster_behind_the_event_is_used_once_and_not_cached(harness: DeliveryHarness) -> None:
    harness.roster.answer = Members(1, ("ann", "bob"))
    await harness.handle(message_value(version=2))
    assert "bob-phone" in harness.reached()
    assert harness.directory.cache == {}


async def test_a_membership_change_clears_the_chats_cache_and_no_other(harness: DeliveryHarness) -> None:
    harness.directory.cache = {CHAT: CachedMembers(1, ("bob",)), "chat_2": CachedMembers(1, ("cid",))}
    await harness.handle(membership_value(CHAT))
    assert list(harness.directory.cache) == ["chat_2"]


async def test_a_new_chat_asks_for_nothing(harness: DeliveryHarness) -> None:
    chat = Chat(
        chat_id=CHAT,
        chat_type=ChatType.GROUP,
        name="Us",
        created_by="ann",
        created_at=TIME,
        updated_at=TIME,
        member_count=2,
    )
    harness.directory.cache[CHAT] = CachedMembers(1, ("bob",))
    await harness.handle(
        events.chat_created(
            chat,
            event_id="evt_1",
            initial_members=("ann", "bob"),
            producer_id="api-1",
            trace_id="",
            event_time=TIME,
        )
    )
    assert (harness.push.calls, harness.roster.calls, CHAT in harness.directory.cache) == ([], 0, True)


# --- S36: trouble below is counted and passed over ----------------------------------------------------------------


async def test_s36_a_roster_that_fails_twice_is_asked_a_third_time(harness: DeliveryHarness) -> None:
    harness.roster.failures = 2
    await harness.handle(message_value())
    assert "bob-phone" in harness.reached()
    assert (harness.roster.calls, harness.observer.retries, harness.observer.skips) == (3, 2, [])


async def test_s36_a_roster_that_fails_three_times_is_not_asked_again(harness: DeliveryHarness) -> None:
    harness.roster.failures = 1000
    await harness.handle(message_value())
    assert (harness.roster.calls, harness.observer.skips) == (3, [SkipReason.ROSTER])


@pytest.mark.parametrize("method", ["cached_members", "connections"])
async def test_s36_a_directory_in_trouble_skips_the_message_at_once(harness: DeliveryHarness, method: str) -> None:
    harness.directory.down = (method,)
    await harness.handle(message_value())
    assert harness.observer.skips == [SkipReason.DIRECTORY]
    assert harness.push.calls == []


async def test_s36_a_failing_push_skips_the_message_at_once(harness: DeliveryHarness) -> None:
    harness.push.down = True
    await harness.handle(message_value())
    assert (harness.observer.skips, harness.observer.connections) == ([SkipReason.PUSH] * 2, 0), "one for each gateway"


async def test_s36_a_gateway_without_a_subscriber_is_counted_and_the_others_are_served(
    harness: DeliveryHarness,
) -> None:
    harness.push.unsubscribed = ("gw-1",)
    await harness.handle(message_value())
    assert harness.observer.skips == [SkipReason.GATEWAY_GONE]
    assert (harness.observer.connections, harness.observer.envelopes) == (1, 1)


async def test_a_cache_that_cannot_be_written_does_not_keep_the_message_back(harness: DeliveryHarness) -> None:
    harness.directory.down = ("cache_members",)
    await harness.handle(message_value(version=1))
    assert "bob-phone" in harness.reached()
    assert (harness.observer.cache_failures, harness.observer.skips) == (1, [])


async def test_a_cache_that_cannot_be_cleared_is_counted_and_passed_over(harness: DeliveryHarness) -> None:
    harness.directory.down = ("forget_members",)
    await harness.handle(membership_value())
    assert harness.observer.cache_failures == 1


# --- what an event must be ----------------------------------------------------------------------------------------


async def test_a_record_that_is_no_event_is_refused(harness: DeliveryHarness) -> None:
    with pytest.raises(BadEvent):
        await harness.handle(b"{")


async def test_a_record_under_another_chats_key_is_refused_and_not_delivered(harness: DeliveryHarness) -> None:
    with pytest.raises(BadEvent):
        await harness.handle(message_value(), chat_id="chat_2")
    assert harness.push.calls == []


async def test_a_newer_event_version_is_delivered_all_the_same_and_reported(harness: DeliveryHarness) -> None:
    await harness.handle(message_value().replace(b'"event_version":1', b'"event_version":2'))
    assert "bob-phone" in harness.reached()
    assert harness.observer.versions == [2]

"""Messages that are delivered together: who is asked how often, what keeps its order, and who is hurt by trouble."""

import asyncio

import pytest

from seriatim.domain.events import BadEvent
from seriatim.fanout.observer import SkipReason
from seriatim.ports.catalog import Members
from seriatim.ports.directory import CachedMembers
from seriatim.ports.push import MessageDelivery
from tests.unit.fanout.delivery_harness import DeliveryHarness
from tests.unit.fanout.fakes import CHAT, membership_value, message_value, registration, until

OTHER, THIRD = "chat_2", "chat_3"


@pytest.fixture
def harness() -> DeliveryHarness:
    return DeliveryHarness()


def sent_to(harness: DeliveryHarness, gateway_id: str, chat_id: str = CHAT) -> list[int]:
    """The messages of a chat that a gateway was given, in that order."""
    return [
        envelope.message.sequence
        for call in harness.push.calls
        for name, envelope in call
        if name == gateway_id and isinstance(envelope, MessageDelivery) and envelope.message.chat_id == chat_id
    ]


# --- asked once ---------------------------------------------------------------------------------------------------


async def test_the_messages_of_a_chat_cost_one_question_about_members_one_about_connections_and_one_push(
    harness: DeliveryHarness,
) -> None:
    await harness.handle(*(message_value(number, version=1) for number in range(1, 6)))
    assert (harness.directory.cache_reads, harness.roster.calls) == ([(CHAT,)], 1)
    assert (harness.directory.lookups, len(harness.push.calls)) == (1, 1)
    assert sent_to(harness, "gw-1") == [1, 2, 3, 4, 5]


async def test_all_chats_of_a_run_are_asked_about_at_once_and_leave_in_one_push(harness: DeliveryHarness) -> None:
    await harness.run(
        (CHAT, message_value(1, version=1)),
        (OTHER, message_value(1, chat_id=OTHER, version=1)),
        (CHAT, message_value(2, version=1)),
        (OTHER, message_value(2, chat_id=OTHER, version=1)),
    )
    assert harness.directory.cache_reads == [(CHAT, OTHER)]
    assert (harness.roster.calls, harness.directory.lookups, len(harness.push.calls)) == (2, 1, 1)


async def test_the_newest_version_of_a_run_decides_whether_a_cache_is_believed(harness: DeliveryHarness) -> None:
    harness.directory.cache[CHAT] = CachedMembers(1, ("ann", "bob", "eve"))
    harness.directory.online["eve"] = [registration("eve-phone")]
    harness.roster.answer = Members(2, ("ann", "bob"))
    await harness.handle(message_value(1, version=1), message_value(2, version=2), message_value(3, version=1))
    assert harness.roster.calls == 1
    assert "eve-phone" not in harness.reached()
    assert sent_to(harness, "gw-1") == [1, 2, 3]
    assert harness.directory.cache[CHAT] == CachedMembers(2, ("ann", "bob"))


async def test_a_cache_as_new_as_the_newest_version_of_a_run_is_believed(harness: DeliveryHarness) -> None:
    harness.directory.cache[CHAT] = CachedMembers(2, ("ann", "bob"))
    await harness.handle(message_value(1, version=1), message_value(2, version=2))
    assert harness.roster.calls == 0
    assert sorted(harness.reached()) == ["ann-laptop", "ann-laptop", "bob-phone", "bob-phone"]


async def test_a_roster_behind_the_newest_version_of_a_run_is_not_cached(harness: DeliveryHarness) -> None:
    harness.roster.answer = Members(1, ("ann", "bob"))
    await harness.handle(message_value(1, version=1), message_value(2, version=2))
    assert sent_to(harness, "gw-1") == [1, 2]
    assert harness.directory.cache == {}


@pytest.mark.parametrize("versions", [(None, 1), (1, None), (1, None, 1)])
async def test_one_event_without_a_version_makes_no_cache_good_enough_for_its_run(
    harness: DeliveryHarness, versions: tuple[int | None, ...]
) -> None:
    harness.directory.cache[CHAT] = CachedMembers(9, ("eve",))
    harness.directory.online["eve"] = [registration("eve-phone")]
    await harness.handle(*(message_value(number, version=each) for number, each in enumerate(versions, start=1)))
    assert harness.roster.calls == 1
    assert "eve-phone" not in harness.reached()


async def test_an_event_without_a_version_does_not_spoil_the_cache_of_another_chat(harness: DeliveryHarness) -> None:
    harness.directory.cache[OTHER] = CachedMembers(1, ("bob",))
    await harness.run((CHAT, message_value(1)), (OTHER, message_value(1, chat_id=OTHER, version=1)))
    assert harness.roster.calls == 1
    assert sent_to(harness, "gw-1", OTHER) == [1]


# --- order and recipients -----------------------------------------------------------------------------------------


async def test_the_messages_of_a_chat_reach_each_gateway_in_their_order_whatever_lies_between_them(
    harness: DeliveryHarness,
) -> None:
    await harness.run(
        (CHAT, message_value(7, prev=6)),
        (OTHER, message_value(4, chat_id=OTHER)),
        (CHAT, message_value(8, prev=7)),
        (THIRD, message_value(1, chat_id=THIRD)),
        (OTHER, message_value(5, chat_id=OTHER)),
        (CHAT, message_value(9, prev=8)),
    )
    for gateway_id in ("gw-1", "gw-2"):
        assert sent_to(harness, gateway_id) == [7, 8, 9]
        assert sent_to(harness, gateway_id, OTHER) == [4, 5]
        assert sent_to(harness, gateway_id, THIRD) == [1]


async def test_each_message_of_a_run_carries_its_own_predecessor(harness: DeliveryHarness) -> None:
    await harness.handle(message_value(5, prev=3), message_value(6, prev=5))
    envelopes = [envelope for _, envelope in harness.push.calls[0] if isinstance(envelope, MessageDelivery)]
    assert sorted({(envelope.message.sequence, envelope.prev_sequence) for envelope in envelopes}) == [(5, 3), (6, 5)]


async def test_each_message_of_a_run_leaves_out_its_own_origin_and_no_other(harness: DeliveryHarness) -> None:
    await harness.handle(
        message_value(1, origin="ann-phone"), message_value(2, origin="ann-laptop"), message_value(3, origin=None)
    )
    assert sorted(harness.push.sent()) == [
        ("gw-1", ("ann-phone", "bob-phone", "cid-phone"), 2),
        ("gw-1", ("bob-phone", "cid-phone"), 1),
        ("gw-1", ("bob-phone", "cid-phone"), 3),
        ("gw-2", ("ann-laptop",), 1),
    ]


async def test_a_membership_change_in_a_run_clears_the_cache_before_its_messages_are_addressed(
    harness: DeliveryHarness,
) -> None:
    harness.directory.cache[CHAT] = CachedMembers(9, ("eve",))
    harness.directory.online["eve"] = [registration("eve-phone")]
    await harness.handle(message_value(1, version=1), membership_value(user_id="eve"), message_value(2, version=1))
    assert "eve-phone" not in harness.reached()
    assert sent_to(harness, "gw-1") == [1, 2]


# --- what no decoder understands ----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", range(3))
async def test_a_malformed_record_in_a_run_is_refused_before_anything_was_done(
    harness: DeliveryHarness, place: int
) -> None:
    harness.directory.cache[OTHER] = CachedMembers(1, ("bob",))
    events = [(CHAT, message_value(1).replace(b'"event_version":1', b'"event_version":2'))]
    events.append((OTHER, membership_value(OTHER)))
    events.insert(place, (CHAT, b"{"))
    with pytest.raises(BadEvent):
        await harness.run(*events)
    assert (harness.push.calls, harness.directory.cache_reads, harness.roster.calls) == ([], [], 0)
    assert OTHER in harness.directory.cache, "a cache was cleared that will be cleared again"
    assert harness.observer.versions == [], "a version was reported that will be reported again"


# --- S36: trouble below -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("troubled", [CHAT, OTHER, THIRD])
async def test_s36_a_roster_in_trouble_with_one_chat_of_a_run_keeps_back_no_other(
    harness: DeliveryHarness, troubled: str
) -> None:
    harness.roster.failing_chats = (troubled,)
    await harness.run(
        *((chat_id, message_value(n, chat_id=chat_id)) for n in (1, 2) for chat_id in (CHAT, OTHER, THIRD))
    )
    for chat_id in (CHAT, OTHER, THIRD):
        assert sent_to(harness, "gw-1", chat_id) == ([] if chat_id == troubled else [1, 2])
    assert harness.observer.skips == [SkipReason.ROSTER] * 2, "one for each message that was not pushed"


@pytest.mark.parametrize("method", ["cached_members", "connections"])
async def test_s36_a_directory_in_trouble_is_counted_for_each_message_of_the_run_and_asked_nothing_more(
    harness: DeliveryHarness, method: str
) -> None:
    harness.directory.down = (method,)
    await harness.run(*((chat_id, message_value(1, chat_id=chat_id)) for chat_id in (CHAT, OTHER, THIRD)))
    assert harness.push.calls == []
    assert harness.observer.skips == [SkipReason.DIRECTORY] * 3
    assert harness.roster.calls == (0 if method == "cached_members" else 3)


async def test_s36_a_message_kept_back_by_the_roster_and_then_by_the_directory_is_counted_once(
    harness: DeliveryHarness,
) -> None:
    harness.roster.failing_chats = (OTHER,)
    harness.directory.down = ("connections",)
    await harness.run(*((chat_id, message_value(1, chat_id=chat_id)) for chat_id in (CHAT, OTHER)))
    assert sorted(harness.observer.skips) == [SkipReason.DIRECTORY, SkipReason.ROSTER]


async def test_s36_chats_are_asked_about_side_by_side_so_that_a_silent_roster_holds_up_a_run_no_longer_than_one_chat(
    harness: DeliveryHarness,
) -> None:
    harness.roster.gate = asyncio.Event()
    running = asyncio.create_task(
        harness.run(*((each, message_value(1, chat_id=each)) for each in (CHAT, OTHER, THIRD)))
    )
    await until(lambda: harness.roster.calls == 3)
    harness.roster.gate.set()
    await running
    assert [sent_to(harness, "gw-1", each) for each in (CHAT, OTHER, THIRD)] == [[1], [1], [1]]


async def test_a_run_that_is_cancelled_leaves_no_question_behind(harness: DeliveryHarness) -> None:
    harness.roster.gate = asyncio.Event()
    running = asyncio.create_task(harness.run((CHAT, message_value(1)), (OTHER, message_value(1, chat_id=OTHER))))
    await until(lambda: harness.roster.calls == 2)
    running.cancel()
    await asyncio.wait((running,))
    assert running.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_bug_met_by_one_chat_of_a_run_fails_the_run_before_anything_is_pushed(
    harness: DeliveryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = harness.roster.members

    async def moody(chat_id: str, *, timeout_s: float) -> Members:
        if chat_id == OTHER:
            raise ZeroDivisionError
        return await ask(chat_id, timeout_s=timeout_s)

    monkeypatch.setattr(harness.roster, "members", moody)
    with pytest.raises(Exception, match="TaskGroup"):
        await harness.run(*((each, message_value(1, chat_id=each)) for each in (CHAT, OTHER, THIRD)))
    assert harness.push.calls == []
    with pytest.raises(ZeroDivisionError):  # alone it says what it died of, and so does its dead letter
        await harness.run((OTHER, message_value(1, chat_id=OTHER)))


async def test_s36_a_push_that_fails_is_counted_for_each_envelope_of_the_run(harness: DeliveryHarness) -> None:
    harness.push.down = True
    await harness.handle(message_value(1), message_value(2))
    assert (harness.observer.skips, harness.observer.connections) == ([SkipReason.PUSH] * 4, 0)


async def test_s36_a_gateway_gone_is_counted_for_each_of_its_envelopes_and_the_others_are_served(
    harness: DeliveryHarness,
) -> None:
    harness.push.unsubscribed = ("gw-1",)
    await harness.handle(message_value(1), message_value(2))
    assert (harness.observer.skips, harness.observer.connections) == ([SkipReason.GATEWAY_GONE] * 2, 2)

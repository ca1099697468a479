"""Chats that a connected user has joined: their messages are seen within the bound of the probe, pushed or not (H9)."""

import asyncio

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown
from seriatim.domain.message import Receipt
from seriatim.domain.times import iso
from tests.unit.connection.fakes import CHAT
from tests.unit.connection.gateway_harness import USER, GatewayHarness, a_send, a_sync, ask, gateway_chance

NEW = "chat_new"


@gateway_chance(0.99)
async def test_b3_the_first_message_of_a_new_chat_is_pushed_within_the_bound_of_the_probe(
    harness: GatewayHarness,
) -> None:
    """Its own push was lost, and no later one shows a gap. With the longest pauses that chance can choose."""
    _, socket = await harness.synced([1])
    harness.durability.memberships[USER] = [CHAT, NEW]
    harness.durability.chats[NEW] = [1]
    await asyncio.sleep(limits.PROBE_INTERVAL_MAX_S)
    assert socket.messages == [1]
    await asyncio.sleep(5 * limits.PROBE_INTERVAL_MAX_S)
    assert socket.messages == [1]


@gateway_chance(0.99)
async def test_b3_a_device_that_connects_late_in_a_round_waits_no_longer(harness: GatewayHarness) -> None:
    await harness.synced([1])
    await asyncio.sleep(33)
    _, socket = await harness.connect("device_2")
    harness.durability.memberships[USER] = [NEW]
    harness.durability.chats[NEW] = [1]
    await asyncio.sleep(limits.PROBE_INTERVAL_MAX_S)
    assert socket.messages == [1]


async def test_b3_what_pushes_have_shown_is_not_sent_again(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    harness.durability.memberships[USER] = [NEW]
    harness.deliver(connection, 1, None, NEW)
    await asyncio.sleep(100)
    assert socket.messages == [1]
    assert harness.durability.reads == []
    harness.durability.chats[NEW] = [1, 2, 3]
    await asyncio.sleep(limits.PROBE_INTERVAL_MAX_S)
    assert socket.messages == [1, 2, 3]


async def test_b3_an_own_message_in_a_chat_that_was_never_synced_is_not_echoed(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    harness.durability.memberships[USER] = [CHAT]
    await ask(connection, a_send())
    harness.durability.chats[CHAT] = [1]
    harness.durability.answer(0, Receipt(message_id="msg_1", sequence=1, created_at=""))
    await asyncio.sleep(100)
    assert harness.durability.joined_asked
    assert socket.messages == []


async def test_b3_a_synced_chat_is_left_to_the_probe(harness: GatewayHarness) -> None:
    await harness.synced([1])
    harness.durability.memberships[USER] = [CHAT]
    await asyncio.sleep(29)
    harness.durability.heads_asked.clear()
    await asyncio.sleep(30)
    assert harness.durability.heads_asked == [[CHAT]]  # by the probe alone


async def test_b3_of_an_old_chat_with_a_long_history_only_the_newest_messages_are_pushed(
    harness: GatewayHarness,
) -> None:
    _, socket = await harness.connect()
    harness.durability.memberships[USER] = [NEW]
    last = 3 * limits.NEW_CHATS_SLOTS_MAX
    harness.durability.chats[NEW] = list(range(1, last + 1))
    await asyncio.sleep(limits.PROBE_INTERVAL_MAX_S)
    assert socket.messages == list(range(last - limits.NEW_CHATS_SLOTS_MAX + 1, last + 1))


async def test_b3_a_new_chat_is_read_from_its_first_slot_however_short_a_page_is(harness: GatewayHarness) -> None:
    """Its newest slots may be tombstones, of which a page shows nothing."""
    _, socket = await harness.connect()
    harness.durability.memberships[USER] = [NEW]
    harness.durability.chats[NEW] = [1, 2, 3]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "FILL_SLOTS_MAX", 1)
        await asyncio.sleep(limits.PROBE_INTERVAL_MAX_S)
    assert socket.messages == [1, 2, 3]


async def test_b3_a_sync_that_begins_meanwhile_takes_over(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    harness.durability.memberships[USER] = [NEW]
    harness.durability.chats[NEW] = [1]
    await asyncio.sleep(39)
    harness.durability.gate.clear()
    await asyncio.sleep(3)  # the heads are asked for
    harness.durability.gate.set()
    await ask(connection, a_sync(0, NEW))
    await asyncio.sleep(100)
    assert len(socket.batches) == 1
    assert socket.messages == []


async def test_b3_a_user_is_asked_about_once_however_many_devices_are_connected(harness: GatewayHarness) -> None:
    await harness.connect("device_1")
    await harness.connect("device_2")
    await asyncio.sleep(limits.NEW_CHATS_EVERY_S + 2 * limits.NEW_CHATS_TICK_S)
    connected_ms = harness.clock.now_ms() - int((limits.NEW_CHATS_EVERY_S + 2 * limits.NEW_CHATS_TICK_S) * 1000)
    since = iso(connected_ms - int(limits.NEW_CHATS_BEFORE_S * 1000))
    assert harness.durability.joined_asked == [{USER: since}]


async def test_b3_a_question_that_fails_is_asked_again_soon(harness: GatewayHarness) -> None:
    _, socket = await harness.connect()
    harness.durability.memberships[USER] = [NEW]
    harness.durability.chats[NEW] = [1]
    harness.durability.failures = [OutcomeUnknown("away"), OutcomeUnknown("away")]
    await asyncio.sleep(limits.PROBE_INTERVAL_MAX_S)
    assert socket.messages == [1]


async def test_b3_who_has_left_is_not_asked_about(harness: GatewayHarness) -> None:
    connection, _ = await harness.connect()
    connection.lost()
    await asyncio.sleep(200)
    assert harness.durability.joined_asked == []


async def test_b3_a_connection_that_ends_while_the_question_is_open_gets_nothing(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    harness.durability.memberships[USER] = [NEW]
    harness.durability.chats[NEW] = [1]
    await asyncio.sleep(39)
    harness.durability.gate.clear()
    await asyncio.sleep(3)
    connection.lost()
    harness.durability.gate.set()
    await asyncio.sleep(10)
    assert harness.durability.reads == []
    assert socket.messages == []


async def test_b3_users_are_asked_about_in_bounded_portions(harness: GatewayHarness) -> None:
    for number in range(limits.NEW_CHATS_USERS_MAX + 1):
        harness.gateway._new_chat_probe.watch(f"user_{number}", _Somewhere())
    await asyncio.sleep(limits.NEW_CHATS_EVERY_S + 2 * limits.NEW_CHATS_TICK_S)
    assert [len(users) for users in harness.durability.joined_asked] == [limits.NEW_CHATS_USERS_MAX, 1]


class _Somewhere:
    def unsynced(self, chat_ids: object) -> list[str]:
        return []

    def joined(self, chat_id: str, head: int) -> None:
        return

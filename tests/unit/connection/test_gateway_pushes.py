"""Pushes that arrive together: each connection gets its own, in order, and one that fails hinders no other."""

import asyncio
from random import Random

import pytest

from seriatim.connection.session.connection import Connection
from seriatim.domain import limits
from seriatim.domain.message import Receipt
from seriatim.ports.push import CloseOrder, MessageDelivery
from seriatim.protocol.frames import MessageFrame
from tests.unit.connection.fakes import CHAT, a_message
from tests.unit.connection.gateway_harness import GatewayHarness, a_delivery, a_send, a_sync, ask, turns

OTHER = "chat_other"


def to(*connections: Connection, sequence: int, prev: int | None) -> MessageDelivery:
    ids = tuple([each.connection_id for each in connections])
    return MessageDelivery(connection_ids=ids, message=a_message(sequence), prev_sequence=prev)


async def test_a_run_leaves_in_one_write_and_in_order(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    harness.deliver_run(*(a_delivery(connection, sequence, sequence - 1) for sequence in (2, 3, 4)))
    await turns()
    assert socket.messages == [2, 3, 4]
    assert len(socket.writes) == 1


async def test_h16_the_chats_of_a_run_are_kept_apart_however_they_are_mixed(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    harness.durability.chats[OTHER] = [1]
    await ask(connection, a_sync(0, OTHER))
    socket.writes.clear()
    harness.durability.reads.clear()
    harness.deliver_run(
        a_delivery(connection, 2, 1),
        a_delivery(connection, 2, 1, OTHER),
        a_delivery(connection, 3, 2),
        a_delivery(connection, 1, None, "chat_never_synced"),
        a_delivery(connection, 3, 2, OTHER),
        a_delivery(connection, 2, 1, "chat_never_synced"),
    )
    await turns()
    assert socket.messages == [2, 2, 3, 1, 3, 2]
    assert harness.durability.reads == [], "nothing was missing"


async def test_h18_an_own_message_between_those_of_a_run_is_passed_and_not_sent(harness: GatewayHarness) -> None:
    """Its ack comes before the pushes of what others wrote at the same moment."""
    connection, socket = await harness.synced([1])
    harness.durability.chats[CHAT] = [1, 2]  # another sender's, whose push is still on its way
    await ask(connection, a_send())
    harness.durability.answer(0, Receipt(message_id="msg_3", sequence=3, created_at="", prev_sequence=2))
    harness.deliver_run(a_delivery(connection, 2, 1), a_delivery(connection, 4, 3), a_delivery(connection, 5, 4))
    await turns()
    assert socket.messages == [2, 4, 5]
    assert harness.durability.reads == [], "nothing was missing"


async def test_h2_what_is_missing_in_a_run_is_read_back_and_keeps_the_rest_waiting(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    harness.durability.chats[CHAT] = [1, 3]
    harness.deliver_run(a_delivery(connection, 2, 1), a_delivery(connection, 4, 3), a_delivery(connection, 5, 4))
    await turns()
    assert socket.messages == [2]
    await asyncio.sleep(2 * limits.GAP_WAIT_S)
    assert socket.messages == [2, 3, 4, 5]


async def test_h2_a_gap_that_the_rest_of_its_run_closes_costs_no_read(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    harness.deliver_run(a_delivery(connection, 3, 2), a_delivery(connection, 2, 1))
    await turns()
    assert socket.messages == [2, 3]
    await asyncio.sleep(2 * limits.GAP_WAIT_S)
    assert harness.durability.reads == []


async def test_h17_a_run_longer_than_the_buffer_fills_it_and_no_more_and_the_rest_is_read_back(
    harness: GatewayHarness,
) -> None:
    connection, socket = await harness.synced([1])
    socket.room = False
    last = limits.OUTBOUND_FRAMES_MAX + 50
    harness.deliver_run(*(a_delivery(connection, sequence, sequence - 1) for sequence in range(2, last + 1)))
    await turns()
    assert connection.waiting == limits.OUTBOUND_FRAMES_MAX
    socket.room = True
    connection.writable()
    await turns(200)
    assert socket.messages == list(range(2, last + 1))


async def test_h17_a_run_that_sets_free_what_waited_in_many_chats_fills_the_buffer_and_no_more(
    harness: GatewayHarness,
) -> None:
    """The run itself would have found room; but not with all that waited for its first messages."""
    connection, socket = await harness.synced([1])
    others = [f"{CHAT}_{number}" for number in range(8)]
    for chat_id in others:
        harness.durability.chats[chat_id] = [1]
        await ask(connection, a_sync(1, chat_id))
    socket.writes.clear()
    socket.room = False
    held = range(3, 3 + limits.HELD_MESSAGES_MAX)
    harness.deliver_run(*(a_delivery(connection, each, each - 1, chat_id) for chat_id in others for each in held))
    harness.deliver_run(*(a_delivery(connection, each, each - 1) for each in range(2, 502)))
    assert connection.waiting == 500
    harness.deliver_run(
        *(a_delivery(connection, 2, 1, chat_id) for chat_id in others),
        *(a_delivery(connection, each, each - 1) for each in range(502, 752)),
    )
    assert connection.waiting == limits.OUTBOUND_FRAMES_MAX
    socket.room = True
    connection.writable()
    await asyncio.sleep(5)
    for chat_id in (CHAT, *others):
        sent = [each.sequence for each in socket.frames if isinstance(each, MessageFrame) and each.chat_id == chat_id]
        assert sent == harness.durability.chats[chat_id][1:]


async def test_a_close_order_between_two_pushes_comes_between_them(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    order = CloseOrder(connection_id=connection.connection_id, reason="session_revoked")
    harness.gateway.received([to(connection, sequence=2, prev=1), order, to(connection, sequence=3, prev=2)])
    await turns()
    assert socket.messages == [2]
    assert connection.closed
    assert harness.observed.strays == 1, "the push after it found no connection"


async def test_a_bug_met_by_one_connection_keeps_no_other_from_its_pushes(harness: GatewayHarness) -> None:
    broken, _ = await harness.connect("device_1")
    fine, socket = await harness.connect("device_2")
    met: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: met.append(context))

    def deliver(run: object) -> None:
        raise ZeroDivisionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broken, "deliver", deliver)
        harness.gateway.received([to(broken, fine, sequence=1, prev=None), to(broken, fine, sequence=2, prev=1)])
    await turns()
    assert socket.messages == [1, 2]
    assert [type(each["exception"]) for each in met] == [ZeroDivisionError]


async def test_h2_whatever_is_missing_on_a_live_chat_is_always_being_waited_for_or_read_back(
    harness: GatewayHarness,
) -> None:
    """What else arrives need not look again then, and does not."""
    connection, _ = await harness.synced([1])
    stored = harness.durability.chats[CHAT]
    chance = Random(1)
    behind = 0
    for number in range(400):
        first = stored[-1] + 1
        stored.extend(range(first, first + chance.randint(1, 4)))
        fresh = [sequence for sequence in stored if sequence >= first]
        if chance.random() < 0.4:
            await ask(connection, a_send(number))
            sequence = fresh.pop(chance.randrange(len(fresh)))
            index = len(harness.durability.submitted) - 1
            receipt = Receipt(message_id="msg", sequence=sequence, created_at="", prev_sequence=sequence - 1)
            harness.durability.answer(index, receipt)
        pushed = [sequence for sequence in fresh if chance.random() < 0.8]
        harness.gateway.received([to(connection, sequence=sequence, prev=sequence - 1) for sequence in pushed])
        if chance.random() < 0.2:
            connection.head(CHAT, stored[-1])
        cursor = connection._delivery.cursor(CHAT)
        assert cursor is not None
        assert cursor.filling or not cursor.behind
        behind += cursor.behind
        await asyncio.sleep(chance.choice((0, 0.05, 0.2)))
    assert behind > 50, "this shows something only if gaps are met"

"""The client's obligations 4, 5 and 6: every message once, in order, and acks that never claim too much."""

from seriatim.client.actions import Disconnect, ListChats, Sent, Stopped, Transmit
from seriatim.client.session import ClientState
from seriatim.client.store import MemoryClientStore
from seriatim.protocol.frames import (
    Ack,
    ConnectionClosing,
)
from tests.unit.client.session_steps import (
    CHAT,
    ME,
    acks,
    at_cursor,
    batch,
    delivered,
    frames,
    greet,
    item,
    make_ready,
    message,
    own_ack,
    push,
    ready,
    session_over,
    syncs,
    uuid,
)

# --- obligations 4 and 5: receiving and gaps ------------------------------------------------------------------------


def test_a_push_that_follows_the_cursor_is_stored_and_delivered() -> None:
    store = at_cursor(4)
    session = ready(store)
    assert delivered(session.received(push(5, 4), 1)) == [5]
    assert store.cursor(CHAT) == 5
    assert store.messages(CHAT)[-1] == message(5)


def test_a_repeated_push_is_delivered_once() -> None:
    session = ready(at_cursor(4))
    session.received(push(5, 4), 1)
    assert session.received(push(5, 4), 1) == []
    assert session.received(push(3, 2), 1) == []


def test_a_gap_in_the_numbers_that_skips_no_message_is_harmless() -> None:
    store = at_cursor(4)
    session = ready(store)
    actions = session.received(push(9, 4), 1)
    assert delivered(actions) == [9]
    assert syncs(actions) == []
    assert store.cursor(CHAT) == 9


def test_on_a_synced_chat_an_unknown_predecessor_is_harmless() -> None:
    session = ready(at_cursor(4))
    assert delivered(session.received(push(9, None), 1)) == [9]


def test_while_an_own_message_is_on_its_way_an_unknown_predecessor_proves_nothing() -> None:
    store = at_cursor(4)
    session = ready(store)
    session.send(CHAT, uuid(1), "hello", 0)
    actions = session.received(push(6, None), 1)
    assert delivered(actions) == [], "5 may be our own, and its ack not here yet"
    (request,) = syncs(actions)
    page = batch(request, item(5, sender=ME, key=1), item(6))
    assert delivered(session.received(page, 1)) == [5, 6]


def test_a_missed_push_makes_the_client_sync_from_its_cursor_and_deliver_in_order() -> None:
    store = at_cursor(4)
    session = ready(store)
    actions = session.received(push(7, 6), 1)
    (request,) = syncs(actions)
    assert request.last_acked_sequence == 4
    assert delivered(actions) == []
    assert store.cursor(CHAT) == 4
    assert delivered(session.received(batch(request, item(6), item(7)), 2)) == [6, 7]


def test_while_a_gap_is_open_an_unknown_predecessor_proves_nothing() -> None:
    store = at_cursor(4)
    session = ready(store)
    (request,) = syncs(session.received(push(7, 6), 1))
    assert delivered(session.received(push(8, None), 1)) == []
    assert store.cursor(CHAT) == 4
    (again,) = syncs(session.received(batch(request, item(6), item(7)), 2))
    assert again.last_acked_sequence == 7
    assert delivered(session.received(batch(again, item(8)), 2)) == [8]


def test_a_gap_that_waits_for_a_free_sync_still_closes_the_chat_to_unproven_pushes() -> None:
    chats = [f"chat_{number}" for number in range(6)]
    store = MemoryClientStore()
    session = ready(store, *chats)
    running = [syncs(session.received(push(7, 6, chat=chat), 1)) for chat in chats]
    assert [len(requests) for requests in running] == [1, 1, 1, 1, 1, 0]
    assert delivered(session.received(push(8, None, chat=chats[5]), 1)) == []
    assert store.cursor(chats[5]) == 0


def test_a_push_that_no_sync_ever_shows_does_not_make_the_client_ask_for_ever() -> None:
    session = ready(at_cursor(4))
    (request,) = syncs(session.received(push(7, 6), 1))
    assert syncs(session.received(batch(request), 1)) == []


def test_a_page_out_of_order_is_delivered_in_order() -> None:
    session = ready(at_cursor(4))
    (request,) = syncs(session.received(push(7, 6), 1))
    assert delivered(session.received(batch(request, item(7), item(6)), 1)) == [6, 7]


def test_pushes_during_a_sync_are_merged_without_loss_or_repetition() -> None:
    session = session_over(MemoryClientStore())
    greet(session)
    (request,) = syncs(session.chats_listed([CHAT], 0))
    assert delivered(session.received(push(3, 2), 0)) == []
    actions = session.received(batch(request, item(1), item(2)), 0)
    assert delivered(actions) == [1, 2]
    (again,) = syncs(actions)
    assert delivered(session.received(batch(again, item(3)), 0)) == [3]


def test_a_push_that_the_page_brings_too_needs_no_second_sync() -> None:
    session = session_over(MemoryClientStore())
    greet(session)
    (request,) = syncs(session.chats_listed([CHAT], 0))
    session.received(push(3, 2), 0)
    actions = session.received(batch(request, item(1), item(2), item(3)), 0)
    assert delivered(actions) == [1, 2, 3]
    assert syncs(actions) == []


def test_an_own_ack_never_moves_the_cursor_over_a_message_not_received() -> None:
    store = at_cursor(40)
    session = ready(store)
    session.send(CHAT, uuid(1), "hello", 0)
    actions = session.received(own_ack(1, 42), 1)
    assert Sent(chat_id=CHAT, client_message_id=uuid(1), sequence=42) in actions
    assert store.cursor(CHAT) == 40, "41 is not here: after a crash the sync must bring it"
    assert store.messages(CHAT)[-1].sequence == 42
    assert delivered(actions) == []


def test_the_push_an_own_ack_overtook_releases_both_in_order() -> None:
    store = at_cursor(40)
    session = ready(store)
    session.send(CHAT, uuid(1), "hello", 0)
    session.received(own_ack(1, 42), 1)
    assert delivered(session.received(push(41, 40), 1)) == [41, 42]
    assert store.cursor(CHAT) == 42
    assert delivered(session.received(push(43, 42), 1)) == [43], "the own message counts as received"


def test_an_own_message_right_after_the_cursor_is_delivered_at_once() -> None:
    session = ready(at_cursor(40))
    session.send(CHAT, uuid(1), "hello", 0)
    assert delivered(session.received(own_ack(1, 41), 1)) == [41]


def test_a_push_whose_predecessor_is_an_own_message_above_a_hole_is_settled_by_a_sync() -> None:
    store = at_cursor(40)
    session = ready(store)
    session.send(CHAT, uuid(1), "hello", 0)
    session.received(own_ack(1, 42), 1)
    (request,) = syncs(session.received(push(43, 42), 1))
    assert request.last_acked_sequence == 40
    page = batch(request, item(41), item(42, sender=ME, key=1), item(43))
    assert delivered(session.received(page, 1)) == [41, 42, 43]


def test_an_own_message_above_a_hole_that_no_push_fills_is_settled_by_a_sync_soon() -> None:
    session = ready(at_cursor(40))
    session.send(CHAT, uuid(1), "hello", 0)
    session.received(own_ack(1, 42), 1)
    assert session.next_timer() == 4
    (request,) = syncs(session.timer(4))
    assert delivered(session.received(batch(request, item(42, sender=ME, key=1)), 4)) == [42]


def test_no_sync_is_spent_on_an_own_message_whose_hole_was_filled() -> None:
    session = ready(at_cursor(40))
    session.send(CHAT, uuid(1), "hello", 0)
    session.received(own_ack(1, 42), 1)
    session.received(push(41, 40), 2)
    assert syncs(session.timer(4)) == []


def test_an_own_ack_that_comes_after_the_page_was_read_is_not_forgotten() -> None:
    session = ready(at_cursor(40))
    (request,) = syncs(session.received(push(45, 44), 0))
    session.send(CHAT, uuid(1), "hello", 0)
    session.received(own_ack(1, 47), 0)
    session.received(batch(request, item(44), item(45)), 0)
    (again,) = syncs(session.timer(3))
    assert again.last_acked_sequence == 45


def test_a_push_for_an_unknown_chat_lists_the_chats_and_syncs_it_from_the_beginning() -> None:
    session = ready(MemoryClientStore())
    actions = session.received(push(7, 6, chat="chat_new"), 1)
    assert ListChats() in actions
    assert [(request.chat_id, request.last_acked_sequence) for request in syncs(actions)] == [("chat_new", 0)]
    assert ListChats() not in session.received(push(8, 7, chat="chat_other"), 1), "one listing at a time"


# --- obligation 6: acks ---------------------------------------------------------------------------------------------


def test_ten_messages_are_acknowledged_at_once_with_the_cursor() -> None:
    session = ready(MemoryClientStore())
    seen: list[tuple[str, int]] = []
    for sequence in range(1, 21):
        seen += acks(session.received(push(sequence, sequence - 1), 1))
    assert seen == [(CHAT, 10), (CHAT, 20)]


def test_fewer_messages_are_acknowledged_five_seconds_after_the_first() -> None:
    session = ready(MemoryClientStore())
    session.received(push(1, None), 1)
    session.received(push(2, 1), 5)
    assert acks(session.timer(5.9)) == []
    assert acks(session.timer(6)) == [(CHAT, 2)]
    assert acks(session.timer(60)) == [], "what is acknowledged is not owed"


def test_an_ack_never_covers_an_own_message_above_a_hole() -> None:
    session = ready(at_cursor(40))
    session.timer(5)
    session.send(CHAT, uuid(1), "hello", 6)
    session.received(own_ack(1, 42), 6)
    assert acks(session.stop(7)) == []


def test_a_chat_is_acknowledged_only_once_it_is_synced_on_this_connection() -> None:
    session = ready(MemoryClientStore())
    session.received(push(1, None), 0)
    session.disconnected(1)
    session.timer(2)
    greet(session, 2)
    session.received(push(2, 1), 2)
    assert acks(session.stop(2)) == []


def test_a_clean_stop_flushes_the_acks_before_it_closes() -> None:
    session = ready(MemoryClientStore())
    session.received(push(1, None), 1)
    assert session.stop(2) == [Transmit(frame=Ack(chat_id=CHAT, last_acked_sequence=1)), Disconnect()]
    assert session.state is ClientState.CLOSING
    assert session.disconnected(2) == [Stopped(reason="stopped")]


def test_a_closing_server_gets_the_acks_and_nothing_after_them() -> None:
    session = ready(MemoryClientStore())
    session.received(push(1, None), 1)
    actions = session.received(ConnectionClosing(reason="server_shutdown", reconnect_allowed=True), 2)
    assert actions == [Transmit(frame=Ack(chat_id=CHAT, last_acked_sequence=1))]
    assert session.state is ClientState.CLOSING
    assert session.send(CHAT, uuid(1), "late", 2) == []
    assert frames(session.timer(20)) == []


def test_an_answer_that_follows_the_closing_frame_still_counts() -> None:
    store = MemoryClientStore()
    session = ready(store)
    session.send(CHAT, uuid(1), "hello", 0)
    session.received(ConnectionClosing(reason="server_shutdown", reconnect_allowed=True), 1)
    assert Sent(chat_id=CHAT, client_message_id=uuid(1), sequence=1) in session.received(own_ack(1, 1), 2)
    assert store.outbox() == []


def test_a_page_that_follows_the_closing_frame_asks_for_no_other() -> None:
    session = session_over(MemoryClientStore())
    greet(session)
    (request,) = syncs(session.chats_listed([CHAT], 0))
    session.received(ConnectionClosing(reason="server_shutdown", reconnect_allowed=True), 1)
    actions = session.received(batch(request, item(1), next_sequence=2), 1)
    assert delivered(actions) == [1]
    assert frames(actions) == []


def test_an_ack_that_may_have_died_with_its_connection_is_repeated_after_the_next_sync() -> None:
    session = ready(MemoryClientStore())
    session.received(push(1, None), 0)
    assert acks(session.timer(5)) == [(CHAT, 1)]
    session.disconnected(6)
    session.timer(10)
    make_ready(session, now=10)
    assert acks(session.timer(15)) == [(CHAT, 1)]


def test_an_ack_on_a_connection_that_lived_on_is_not_repeated() -> None:
    session = ready(MemoryClientStore())
    session.received(push(1, None), 0)
    session.timer(5)
    session.disconnected(66)
    session.timer(70)
    make_ready(session, now=70)
    assert acks(session.timer(80)) == []


def test_acks_for_many_chats_are_spread_so_that_the_server_can_take_them() -> None:
    chats = [f"chat_{number}" for number in range(120)]
    session = ready(MemoryClientStore(), *chats)
    for chat in chats:
        session.received(push(1, None, chat=chat), 0)
    assert [len(acks(session.timer(at))) for at in (5, 6, 7)] == [50, 50, 20]

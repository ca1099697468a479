"""The client's obligations 1, 7, 8 and 9: connecting, syncing, tolerance. Time is a number the test chooses."""

import pytest

from seriatim.client.actions import ChatLeft, Connect, Disconnect, Failed, ListChats, Ready, Stopped
from seriatim.client.session import ClientSession, ClientState
from seriatim.client.store import MemoryClientStore
from seriatim.protocol.codec import UnknownType
from seriatim.protocol.frames import (
    ConnectionClosing,
)
from tests.unit.client.session_steps import (
    CHAT,
    acks,
    at_cursor,
    batch,
    delivered,
    error,
    greet,
    item,
    make_ready,
    push,
    ready,
    sends,
    session_over,
    syncs,
    uuid,
)

# --- obligation 1: backoff ------------------------------------------------------------------------------------------


def pauses(session: ClientSession, count: int) -> list[float]:
    now, waited = 0.0, []
    session.start(now)
    for _ in range(count):
        session.disconnected(now)
        at = session.next_timer()
        assert at is not None
        waited.append(at - now)
        now = at
        assert session.timer(now) == [Connect()]
    return waited


def test_reconnecting_waits_1_2_4_8_16_and_then_16_seconds() -> None:
    assert pauses(session_over(MemoryClientStore()), 7) == [1, 2, 4, 8, 16, 16, 16]


@pytest.mark.parametrize(("chance", "factor"), [(0.0, 0.8), (0.25, 0.9), (0.75, 1.1)])
def test_every_pause_is_spread_by_twenty_percent(chance: float, factor: float) -> None:
    waited = pauses(session_over(MemoryClientStore(), chance), 3)
    assert waited == pytest.approx([factor, 2 * factor, 4 * factor])


def test_no_attempt_is_made_before_the_pause_is_over() -> None:
    session = session_over(MemoryClientStore())
    session.start(0)
    session.disconnected(0)
    assert session.timer(0.99) == []
    assert session.state is ClientState.BACKOFF


def test_the_backoff_starts_again_only_after_ready() -> None:
    session = session_over(MemoryClientStore())
    pauses(session, 4)
    greet(session, 100)
    session.disconnected(100)
    assert session.next_timer() == 116
    session.timer(116)
    make_ready(session, now=116)
    session.disconnected(200)
    assert session.next_timer() == 201


def test_a_larger_hint_of_the_server_wins_over_the_backoff_and_a_smaller_does_not() -> None:
    session = ready(MemoryClientStore())
    session.received(ConnectionClosing(reason="server_shutdown", reconnect_allowed=True, reconnect_delay_ms=4000), 10)
    session.disconnected(10)
    assert session.next_timer() == 14
    session.timer(14)
    session.disconnected(14, retry_after_s=0.5)
    assert session.next_timer() == 16, "the hint of the earlier close is spent, the small one loses to 2 s"


def test_a_close_that_forbids_reconnecting_stops_the_client_and_tells_why() -> None:
    session = ready(MemoryClientStore())
    session.received(ConnectionClosing(reason="session_revoked", reconnect_allowed=False), 1)
    assert session.disconnected(2) == [Stopped(reason="session_revoked")]
    assert session.state is ClientState.DISCONNECTED
    assert session.next_timer() is None


def test_a_handshake_refused_for_good_stops_the_client() -> None:
    session = session_over(MemoryClientStore())
    session.start(0)
    assert session.disconnected(0, fatal="token_revoked") == [Stopped(reason="token_revoked")]


def test_a_socket_that_does_not_greet_is_closed_and_tried_again() -> None:
    session = session_over(MemoryClientStore())
    session.start(0)
    session.connected(0)
    assert session.next_timer() == 10
    assert session.timer(10) == [Disconnect()]
    session.disconnected(11)
    assert session.state is ClientState.BACKOFF


def test_nothing_is_sent_before_the_greeting() -> None:
    session = session_over(MemoryClientStore())
    session.start(0)
    assert session.connected(0) == []
    assert session.send(CHAT, uuid(1), "hello", 0) == []
    assert session.received(push(1, None), 0) == []


# --- obligations 7 and 8: sync --------------------------------------------------------------------------------------


def test_a_greeting_is_answered_by_listing_the_chats_and_nothing_else() -> None:
    assert greet(session_over(at_cursor(3))) == [ListChats()]


def test_every_listed_chat_is_synced_from_its_own_cursor_five_at_a_time() -> None:
    session = session_over(at_cursor(3))
    greet(session)
    first = syncs(session.chats_listed([CHAT, "b", "c", "d", "e", "f", "g"], 0))
    assert [(request.chat_id, request.last_acked_sequence) for request in first] == [
        (CHAT, 3),
        ("b", 0),
        ("c", 0),
        ("d", 0),
        ("e", 0),
    ]
    assert [request.chat_id for request in syncs(session.received(batch(first[2]), 0))] == ["f"]


def test_pages_are_followed_to_the_end_even_if_they_hold_no_message() -> None:
    store = MemoryClientStore()
    session = session_over(store)
    greet(session)
    (one,) = syncs(session.chats_listed([CHAT], 0))
    (two,) = syncs(session.received(batch(one, item(1), next_sequence=5), 0))
    assert two.last_acked_sequence == 4
    (three,) = syncs(session.received(batch(two, next_sequence=10), 0))
    assert three.last_acked_sequence == 9
    assert session.state is ClientState.SYNCING
    actions = session.received(batch(three, item(12)), 0)
    assert Ready() in actions
    assert store.cursor(CHAT) == 12


def test_a_page_that_claims_more_without_advancing_does_not_loop() -> None:
    session = session_over(at_cursor(4))
    greet(session)
    (request,) = syncs(session.chats_listed([CHAT], 0))
    assert syncs(session.received(batch(request, next_sequence=5), 0)) == []


def test_a_user_without_chats_is_ready_at_once() -> None:
    session = session_over(MemoryClientStore())
    greet(session)
    assert session.chats_listed([], 0) == [Ready()]


def test_an_unanswered_sync_is_asked_again_and_the_late_answer_is_ignored() -> None:
    store = MemoryClientStore()
    session = session_over(store)
    greet(session)
    (first,) = syncs(session.chats_listed([CHAT], 0))
    (second,) = syncs(session.timer(15))
    assert second.request_id != first.request_id
    assert session.received(batch(first, item(1)), 15) == []
    assert delivered(session.received(batch(second, item(1), item(2)), 15)) == [1, 2]


def test_a_failed_sync_is_repeated_after_a_pause_and_holds_only_its_own_chat() -> None:
    session = session_over(MemoryClientStore())
    greet(session)
    first, other = syncs(session.chats_listed([CHAT, "chat_2"], 0))
    session.received(error("SERVICE_UNAVAILABLE", retryable=True, request_id=first.request_id), 0)
    session.received(batch(other), 0)
    assert session.state is ClientState.SYNCING
    assert syncs(session.timer(0.9)) == []
    (again,) = syncs(session.timer(1))
    assert Ready() in session.received(batch(again), 1)


def test_a_sync_that_keeps_failing_is_asked_ever_more_slowly() -> None:
    session = session_over(MemoryClientStore())
    greet(session)
    (request,) = syncs(session.chats_listed([CHAT], 0))
    now = 0.0
    for pause in (1, 2, 4, 8, 16, 16):
        session.received(error("SERVER_BUSY", retryable=True, request_id=request.request_id), now)
        assert syncs(session.timer(now + pause - 0.01)) == []
        now += pause
        (request,) = syncs(session.timer(now))


def test_a_chat_the_user_is_no_longer_in_is_dropped_but_its_messages_stay() -> None:
    store = at_cursor(3)
    session = session_over(store)
    greet(session)
    (request,) = syncs(session.chats_listed([CHAT], 0))
    actions = session.received(error("NOT_A_MEMBER", retryable=False, request_id=request.request_id), 0)
    assert actions == [ChatLeft(chat_id=CHAT, code="NOT_A_MEMBER"), Ready()]
    assert len(store.messages(CHAT)) == 3
    assert syncs(session.timer(300)) == []


def test_what_waits_for_a_chat_that_was_left_is_offered_once_and_then_marked_failed() -> None:
    store = MemoryClientStore()
    session_over(store).send(CHAT, uuid(1), "a", 0)
    session = session_over(store)
    greet(session)
    (request,) = syncs(session.chats_listed([], 0))
    actions = session.received(error("NOT_A_MEMBER", retryable=False, request_id=request.request_id), 0)
    assert sends(actions) == [uuid(1)]
    actions = session.received(error("NOT_A_MEMBER", retryable=False, key=1), 0)
    assert Failed(chat_id=CHAT, client_message_id=uuid(1), code="NOT_A_MEMBER") in actions


def test_when_the_list_cannot_be_had_the_known_chats_are_synced_and_the_list_is_asked_for_again() -> None:
    session = session_over(at_cursor(3))
    greet(session)
    assert [request.chat_id for request in syncs(session.listing_failed(0))] == [CHAT]
    assert ListChats() in session.timer(1)
    assert [request.chat_id for request in syncs(session.chats_listed([CHAT, "chat_2"], 1))] == ["chat_2"]


def test_the_next_sync_starts_no_higher_than_the_closing_server_says() -> None:
    session = ready(at_cursor(9))
    session.received(
        ConnectionClosing(
            reason="slow_consumer", reconnect_allowed=True, sync_from_sequence={CHAT: 6, "chat_unknown": 1}
        ),
        0,
    )
    session.disconnected(0)
    session.timer(2)
    greet(session, 2)
    (request,) = syncs(session.chats_listed([CHAT], 2))
    assert request.last_acked_sequence == 6
    assert delivered(session.received(batch(request, item(7), item(8), item(9), item(10)), 2)) == [10]


def test_every_chat_is_synced_again_within_five_minutes_while_connected() -> None:
    store = MemoryClientStore()
    session = session_over(store, chance=0.0)
    make_ready(session, CHAT, now=0)
    assert syncs(session.timer(299)) == []
    (request,) = syncs(session.timer(300))
    actions = session.received(batch(request, item(1)), 300)
    assert delivered(actions) == [1], "a lost last push leaves no gap, only this finds it"
    assert len(syncs(session.timer(600))) == 1


def test_new_chats_are_looked_for_within_five_minutes_while_connected() -> None:
    """No frame announces a membership, and the push that would tell may be lost."""
    session = session_over(MemoryClientStore(), chance=0.0)
    make_ready(session, CHAT, now=0)
    assert ListChats() in session.timer(300)
    (request,) = syncs(session.chats_listed([CHAT, "chat_new"], 300))
    assert (request.chat_id, request.last_acked_sequence) == ("chat_new", 0)


def test_the_periodic_sync_acknowledges_once_more() -> None:
    """An ack may have been refused while the user was no member, and nothing else would repeat it."""
    session = session_over(MemoryClientStore(), chance=0.0)
    make_ready(session, CHAT, now=0)
    session.received(push(1, 0), 1)
    assert acks(session.timer(6)) == [(CHAT, 1)]
    (request,) = syncs(session.timer(300))
    session.received(batch(request), 300)
    assert acks(session.timer(306)) == [(CHAT, 1)]


def test_an_ack_the_server_had_no_room_for_is_sent_again() -> None:
    session = session_over(MemoryClientStore(), chance=0.0)
    make_ready(session, CHAT, now=0)
    session.received(push(1, 0), 1)
    assert acks(session.timer(6)) == [(CHAT, 1)]
    session.received(error("SERVER_BUSY", retryable=True), 6)
    assert acks(session.timer(11)) == [(CHAT, 1)]


def test_a_chat_that_syncs_again_does_not_stop_sending() -> None:
    session = session_over(MemoryClientStore(), chance=0.0)
    make_ready(session, CHAT, now=0)
    session.timer(300)
    assert sends(session.send(CHAT, uuid(1), "hello", 300)) == [uuid(1)]


# --- obligation 9: tolerance ----------------------------------------------------------------------------------------


def test_unknown_frames_and_stray_errors_are_ignored() -> None:
    store = MemoryClientStore()
    session = ready(store)
    session.send(CHAT, uuid(1), "a", 0)
    assert session.received(UnknownType("typing_started"), 0) == []
    assert session.received(error("SLOW_CONSUMER", retryable=False), 0) == []
    assert session.received(error("NOT_A_MEMBER", retryable=False, key=77), 0) == []
    assert session.state is ClientState.READY
    assert len(store.outbox()) == 1


def test_an_error_about_an_ack_does_not_disturb_the_sync_of_its_chat() -> None:
    session = ready(at_cursor(4))
    (request,) = syncs(session.received(push(7, 6), 0))
    session.received(error("SERVER_BUSY", retryable=True), 0)
    assert delivered(session.received(batch(request, item(6), item(7)), 0)) == [6, 7]


def test_frames_after_the_disconnect_change_nothing() -> None:
    store = at_cursor(4)
    session = ready(store)
    session.disconnected(1)
    assert session.received(push(5, 4), 1) == []
    assert store.cursor(CHAT) == 4


def test_stopping_during_the_backoff_ends_at_once_and_start_begins_again() -> None:
    session = session_over(MemoryClientStore())
    session.start(0)
    session.disconnected(0)
    assert session.stop(0.5) == [Stopped(reason="stopped")]
    assert session.next_timer() is None
    assert session.start(9) == [Connect()]

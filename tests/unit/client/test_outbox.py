"""The client's obligations 2 and 3: nothing the user wrote is lost, sent twice, or sent out of order."""

import pytest

from seriatim.client.actions import ConsentNeeded, Failed, Sent
from seriatim.client.session import ClientState
from seriatim.client.store import MemoryClientStore, OutboxEntry
from seriatim.domain import limits
from seriatim.domain.errors import InvalidMessage, MessageTooLarge
from tests.unit.client.session_steps import (
    CHAT,
    DAY_S,
    ME,
    YOU,
    batch,
    delivered,
    error,
    greet,
    item,
    make_ready,
    own_ack,
    push,
    ready,
    sends,
    session_over,
    syncs,
    uuid,
)

# --- obligations 2 and 3: the outbox --------------------------------------------------------------------------------


def test_a_message_is_in_the_store_before_it_is_transmitted() -> None:
    store = MemoryClientStore()
    session = ready(store)
    actions = session.send(CHAT, uuid(1), "hello", 5)
    assert sends(actions) == [uuid(1)]
    assert store.outbox() == [OutboxEntry(chat_id=CHAT, client_message_id=uuid(1), content="hello", created_at=5)]


def test_an_ack_settles_the_message_and_stores_it_at_its_place() -> None:
    store = MemoryClientStore()
    session = ready(store)
    session.send(CHAT, uuid(1), "hello", 0)
    actions = session.received(own_ack(1, 1), 1)
    assert Sent(chat_id=CHAT, client_message_id=uuid(1), sequence=1) in actions
    assert store.outbox() == []
    assert [(m.sequence, m.sender_id, m.content) for m in store.messages(CHAT)] == [(1, ME, "hello")]


def test_a_sync_that_shows_the_message_settles_it() -> None:
    store = MemoryClientStore()
    session = session_over(store)
    session.send(CHAT, uuid(1), "hello", 0)
    greet(session)
    (request,) = syncs(session.chats_listed([CHAT], 0))
    actions = session.received(batch(request, item(1, sender=ME, key=1)), 0)
    assert Sent(chat_id=CHAT, client_message_id=uuid(1), sequence=1) in actions
    assert sends(actions) == []
    assert store.outbox() == []


def test_a_push_that_shows_the_message_settles_it_and_lets_the_next_go() -> None:
    session = ready(MemoryClientStore())
    session.send(CHAT, uuid(1), "hello", 0)
    session.send(CHAT, uuid(2), "again", 0)
    actions = session.received(push(1, None, sender=ME, key=1), 1)
    assert Sent(chat_id=CHAT, client_message_id=uuid(1), sequence=1) in actions
    assert sends(actions) == [uuid(2)]
    assert delivered(session.received(own_ack(1, 1), 1)) == [], "the late ack shows nothing twice"


def test_the_same_id_from_another_user_settles_nothing() -> None:
    store = MemoryClientStore()
    session = ready(store)
    session.send(CHAT, uuid(1), "hello", 0)
    session.received(push(1, None, sender=YOU, key=1), 1)
    assert len(store.outbox()) == 1


def test_one_send_per_chat_is_in_flight_and_the_order_is_kept() -> None:
    session = ready(MemoryClientStore(), CHAT, "chat_2")
    assert sends(session.send(CHAT, uuid(1), "a", 0)) == [uuid(1)]
    assert sends(session.send(CHAT, uuid(2), "b", 0)) == []
    assert sends(session.send("chat_2", uuid(3), "c", 0)) == [uuid(3)]
    assert sends(session.received(own_ack(1, 1), 0)) == [uuid(2)]


def test_a_send_unanswered_for_ten_seconds_is_repeated_with_the_same_id() -> None:
    session = ready(MemoryClientStore())
    session.send(CHAT, uuid(1), "hello", 3)
    assert sends(session.timer(12.9)) == []
    assert sends(session.timer(13)) == [uuid(1)]
    assert sends(session.timer(23)) == [uuid(1)]


def test_a_queued_message_waits_for_the_sync_of_its_own_chat_only() -> None:
    session = session_over(MemoryClientStore())
    session.send(CHAT, uuid(1), "a", 0)
    session.send("chat_2", uuid(2), "b", 0)
    greet(session)
    first, second = syncs(session.chats_listed([CHAT, "chat_2"], 0))
    assert sends(session.received(batch(second), 0)) == [uuid(2)]
    assert session.state is ClientState.SYNCING
    assert sends(session.received(batch(first, item(5), next_sequence=6), 0)) == [], "more pages are to come"


def test_after_a_reconnect_everything_unacknowledged_is_sent_again_in_order() -> None:
    store = MemoryClientStore()
    session = ready(store)
    session.send(CHAT, uuid(1), "a", 0)
    session.send(CHAT, uuid(2), "b", 0)
    session.disconnected(1)
    session.timer(2)
    assert sends(make_ready(session, now=2)) == [uuid(1)]
    assert sends(session.received(own_ack(1, 1), 3)) == [uuid(2)]


def test_a_new_session_over_the_same_store_sends_what_the_crashed_one_did_not_settle() -> None:
    store = MemoryClientStore()
    ready(store).send(CHAT, uuid(1), "a", 0)
    assert sends(make_ready(session_over(store), now=1)) == [uuid(1)]


def test_a_retryable_error_is_retried_after_the_wait_the_server_asks_for() -> None:
    session = ready(MemoryClientStore())
    session.send(CHAT, uuid(1), "hello", 0)
    session.received(error("SERVICE_UNAVAILABLE", retryable=True, key=1, retry_after_seconds=30), 1)
    assert sends(session.timer(30.9)) == []
    assert sends(session.timer(31)) == [uuid(1)]


def test_repeated_errors_slow_the_retries_down_and_hold_the_chat_back() -> None:
    session = ready(MemoryClientStore())
    session.send(CHAT, uuid(1), "a", 0)
    now = 0.0
    for pause in (1, 2, 4, 8, 16, 16):
        session.received(error("INTERNAL_ERROR", retryable=True, key=1), now)
        assert sends(session.send(CHAT, uuid(2), "b", now)) == []
        assert sends(session.timer(now + pause - 0.01)) == []
        now += pause
        assert sends(session.timer(now)) == [uuid(1)]


def test_an_error_about_a_message_that_is_not_in_flight_changes_no_plan() -> None:
    session = ready(MemoryClientStore())
    session.send(CHAT, uuid(1), "a", 0)
    session.send(CHAT, uuid(2), "b", 0)
    session.received(error("SERVER_BUSY", retryable=True, key=2), 0)
    assert sends(session.timer(9.9)) == []
    assert sends(session.timer(10)) == [uuid(1)]


def test_a_message_refused_for_good_is_kept_as_failed_and_the_next_one_goes() -> None:
    store = MemoryClientStore()
    session = ready(store)
    session.send(CHAT, uuid(1), "a", 0)
    session.send(CHAT, uuid(2), "b", 0)
    actions = session.received(error("FORBIDDEN", retryable=False, key=1), 1)
    assert Failed(chat_id=CHAT, client_message_id=uuid(1), code="FORBIDDEN") in actions
    assert sends(actions) == [uuid(2)]
    assert [(entry.client_message_id, entry.failed_code) for entry in store.outbox()] == [
        (uuid(1), "FORBIDDEN"),
        (uuid(2), None),
    ]
    assert sends(make_ready(session_over(store), now=2)) == [uuid(2)], "also after a restart"


def test_an_unknown_code_is_judged_by_its_retryable_field() -> None:
    session = ready(MemoryClientStore())
    session.send(CHAT, uuid(1), "a", 0)
    assert session.received(error("MOON_PHASE", retryable=True, key=1), 0) == []
    assert sends(session.timer(1)) == [uuid(1)]
    assert Failed(chat_id=CHAT, client_message_id=uuid(1), code="MARS_PHASE") in session.received(
        error("MARS_PHASE", retryable=False, key=1), 1
    )


def test_a_token_that_ran_out_fails_no_message() -> None:
    store = MemoryClientStore()
    session = ready(store)
    session.send(CHAT, uuid(1), "a", 0)
    assert session.received(error("UNAUTHORIZED", retryable=False, key=1), 0) == []
    assert store.outbox()[0].failed_code is None


def test_a_failed_message_that_turns_up_in_the_chat_was_sent_after_all() -> None:
    store = MemoryClientStore()
    session = ready(store)
    session.send(CHAT, uuid(1), "a", 0)
    session.received(error("NOT_A_MEMBER", retryable=False, key=1), 0)
    actions = session.received(push(1, None, sender=ME, key=1), 1)
    assert Sent(chat_id=CHAT, client_message_id=uuid(1), sequence=1) in actions
    assert store.outbox() == []


def test_a_failed_message_is_sent_again_with_its_id_only_when_the_user_says_so() -> None:
    session = ready(MemoryClientStore())
    session.send(CHAT, uuid(1), "a", 0)
    session.received(error("FORBIDDEN", retryable=False, key=1), 0)
    assert sends(session.timer(100)) == []
    assert sends(session.resend(CHAT, uuid(1), 100)) == [uuid(1)]


def test_r3_client_an_entry_an_hour_younger_than_the_servers_memory_of_ids_is_sent_only_with_consent() -> None:
    """Clocks differ, and a try is on its way for a while: at 604,800 s the server may have forgotten the id."""
    store = MemoryClientStore()
    session_over(store).send(CHAT, uuid(1), "old", 0)
    session_over(store).send(CHAT, uuid(2), "fresh", 2 * DAY_S)
    session = session_over(store)
    at = limits.KEY_LIFETIME_S - 3600.0
    actions = make_ready(session, now=at)
    assert ConsentNeeded(chat_id=CHAT, client_message_id=uuid(1)) in actions
    assert sends(actions) == [uuid(2)], "held back, it does not hold up the others"
    session.received(own_ack(2, 1), at)
    assert sends(session.resend(CHAT, uuid(1), at)) == [uuid(1)]


def test_r3_client_an_entry_one_second_younger_is_sent_again_without_consent() -> None:
    store = MemoryClientStore()
    session_over(store).send(CHAT, uuid(1), "old", 0)
    actions = make_ready(session_over(store), now=limits.KEY_LIFETIME_S - 3601.0)
    assert sends(actions) == [uuid(1)]
    assert not any(isinstance(action, ConsentNeeded) for action in actions)


def test_r3_client_an_entry_that_grows_too_old_between_two_tries_is_not_sent_again() -> None:
    session = ready(MemoryClientStore(), now=0.0)
    session.send(CHAT, uuid(1), "hello", 0)
    session.received(
        error("SERVICE_UNAVAILABLE", retryable=True, key=1, retry_after_seconds=limits.KEY_LIFETIME_S - 3600.0), 0
    )
    actions = session.timer(2.0 * limits.KEY_LIFETIME_S)
    assert sends(actions) == []
    assert ConsentNeeded(chat_id=CHAT, client_message_id=uuid(1)) in actions


def test_a_discarded_entry_is_gone_for_good() -> None:
    store = MemoryClientStore()
    session = ready(store)
    session.send(CHAT, uuid(1), "a", 0)
    session.received(error("FORBIDDEN", retryable=False, key=1), 0)
    session.discard(CHAT, uuid(1), 1)
    assert store.outbox() == []


def test_an_id_is_never_used_for_another_text() -> None:
    store = MemoryClientStore()
    session = ready(store)
    session.send(CHAT, uuid(1), "a", 0)
    assert session.send(CHAT, uuid(1), "a", 0) == []
    with pytest.raises(InvalidMessage):
        session.send(CHAT, uuid(1), "b", 0)
    assert len(store.outbox()) == 1


def test_a_text_no_server_takes_never_reaches_the_outbox() -> None:
    store = MemoryClientStore()
    session = ready(store)
    with pytest.raises(MessageTooLarge):
        session.send(CHAT, uuid(1), "x" * 4097, 0)
    assert store.outbox() == []


def test_a_full_outbox_refuses_and_queues_nothing() -> None:
    store = MemoryClientStore()
    session = session_over(store)
    for number in range(limits.CLIENT_OUTBOX_ENTRIES_MAX):
        session.send(CHAT, uuid(number), "a", 0)
    refused = uuid(limits.CLIENT_OUTBOX_ENTRIES_MAX)
    assert session.send(CHAT, refused, "a", 0) == [Failed(chat_id=CHAT, client_message_id=refused, code="OUTBOX_FULL")]
    assert len(store.outbox()) == limits.CLIENT_OUTBOX_ENTRIES_MAX


def test_failed_entries_take_room_and_a_resent_one_takes_it_once() -> None:
    store = MemoryClientStore()
    session = ready(store)
    for number in range(limits.CLIENT_OUTBOX_ENTRIES_MAX - 1):
        session.send(CHAT, uuid(number), "a", 0)
    session.received(error("FORBIDDEN", retryable=False, key=0), 0)
    session.received(error("FORBIDDEN", retryable=False, key=1), 0)
    session.resend(CHAT, uuid(0), 0)
    for number in range(limits.CLIENT_OUTBOX_ENTRIES_MAX - 1, limits.CLIENT_OUTBOX_ENTRIES_MAX + 5):
        session.send(CHAT, uuid(number), "a", 0)
    assert len(store.outbox()) == limits.CLIENT_OUTBOX_ENTRIES_MAX


def test_an_ack_for_another_text_does_not_place_the_own_one_but_fetches_what_the_server_holds() -> None:
    store = MemoryClientStore()
    session = ready(store)
    session.send(CHAT, uuid(1), "new words", 0)
    actions = session.received(own_ack(1, 1, differs=True), 0)
    assert store.messages(CHAT) == []
    assert store.outbox() == []
    (request,) = syncs(actions)
    assert delivered(session.received(batch(request, item(1, sender=ME, key=1)), 0)) == [1]


def test_the_client_limits_itself_to_ten_sends_a_second() -> None:
    chats = [f"chat_{number}" for number in range(40)]
    session = ready(MemoryClientStore(), *chats)
    times: list[float] = []
    for number, chat in enumerate(chats):
        times += [0.0] * len(sends(session.send(chat, uuid(number), "hi", 0)))
    while len(times) < len(chats):
        now = session.next_timer()
        assert now is not None
        times += [now] * len(sends(session.timer(now)))
    assert len([at for at in times if at == 0]) == 10
    assert all(later - earlier >= 1 - 1e-9 for earlier, later in zip(times[10:], times[20:], strict=False))
    assert times[-1] == pytest.approx(3.0)

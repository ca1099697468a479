"""What the server counts as shown and the device does not hold, and the other way round."""

from seriatim.client.actions import Action
from seriatim.client.session import ClientSession
from seriatim.client.store import OutboxEntry
from tests.unit.client.session_steps import (
    CHAT,
    ME,
    at_cursor,
    batch,
    delivered,
    error,
    item,
    own_ack,
    push,
    ready,
    sends,
    syncs,
    uuid,
)


def given_up_and_stored_after_all(session: ClientSession) -> list[Action]:
    """A send unanswered for 10 s is sent again; the first try is refused and given up, the second is stored as 41."""
    session.send(CHAT, uuid(1), "hello", 0)
    assert sends(session.timer(10)) == [uuid(1)]
    session.received(error("NOT_A_MEMBER", retryable=False, key=1), 11)
    session.discard(CHAT, uuid(1), 12)
    return session.received(own_ack(1, 41), 13)


def test_r2_the_ack_of_a_send_that_was_given_up_makes_the_client_fetch_the_message() -> None:
    store = at_cursor(40)
    session = ready(store)
    (request,) = syncs(given_up_and_stored_after_all(session))
    assert request.last_acked_sequence == 40
    assert delivered(session.received(batch(request, item(41, sender=ME, key=1)), 14)) == [41]
    assert delivered(session.received(push(42, None), 15)) == [42]


def test_r2_a_cursor_does_not_pass_a_message_that_was_acknowledged_but_is_not_stored_here() -> None:
    """The server counts 41 as delivered; a push of 42 that it read back names no predecessor."""
    store = at_cursor(40)
    session = ready(store)
    given_up_and_stored_after_all(session)
    assert delivered(session.received(push(42, None), 14)) == []
    assert store.cursor(CHAT) == 40


def test_r2_a_second_ack_of_a_message_that_is_here_asks_for_nothing() -> None:
    for sequence in (41, 42):  # right after the cursor, or above a hole
        session = ready(at_cursor(40))
        session.send(CHAT, uuid(1), "hello", 0)
        session.timer(10)
        session.received(own_ack(1, sequence), 11)
        assert syncs(session.received(own_ack(1, sequence), 12)) == []


def test_r2_the_ack_of_a_send_that_was_given_up_in_a_chat_since_left_syncs_that_chat() -> None:
    session = ready(at_cursor(40))
    session.send(CHAT, uuid(1), "hello", 0)
    session.timer(10)
    session.received(error("NOT_A_MEMBER", retryable=False, key=1), 11)
    session.discard(CHAT, uuid(1), 12)
    (request,) = syncs(session.received(push(45, 44), 12))
    session.received(error("NOT_A_MEMBER", retryable=False, request_id=request.request_id), 12)
    (again,) = syncs(session.received(own_ack(1, 41), 13))
    assert again.last_acked_sequence == 40


def test_w1_a_push_that_no_page_has_shown_yet_is_not_passed_by_one_without_a_predecessor() -> None:
    """The server counts what it sent as delivered, even if the store ends below it for a while."""
    store = at_cursor(4)
    session = ready(store)
    (request,) = syncs(session.received(push(7, 6), 1))
    session.received(batch(request), 1)  # the store has lost 5, so 6 and 7 are not shown until the hole is sealed
    (again,) = syncs(session.received(push(8, None), 2))
    assert (store.cursor(CHAT), again.last_acked_sequence) == (4, 4)
    assert delivered(session.received(batch(again, item(6), item(7), item(8)), 3)) == [6, 7, 8]
    assert delivered(session.received(push(10, None), 4)) == [10]


def test_an_own_message_that_an_ack_places_at_the_cursor_is_not_handed_out_again() -> None:
    """A crash after the cursor had moved and before the entry left the outbox: it is sent again, and acked as 41."""
    store = at_cursor(41)
    store.outbox_add(OutboxEntry(chat_id=CHAT, client_message_id=uuid(1), content="text 41", created_at=0.0))
    session = ready(store)
    assert delivered(session.received(own_ack(1, 41), 1)) == []
    assert store.outbox() == []
    assert delivered(session.received(push(42, 41), 2)) == [42]

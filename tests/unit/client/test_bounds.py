"""What a client does not wait for without end, and what it does not collect without end."""

import pytest

from seriatim.client.actions import Disconnect
from seriatim.client.session import ClientState
from seriatim.client.store import MemoryClientStore
from seriatim.domain import limits
from seriatim.protocol.frames import ConnectionClosing
from tests.unit.client.session_steps import CHAT, error, ready, uuid


def test_a_socket_that_the_server_announced_to_close_and_did_not_is_closed_by_the_client() -> None:
    session = ready(MemoryClientStore())
    session.received(ConnectionClosing(reason="server_shutdown", reconnect_allowed=True), 10)
    assert (session.state, session.next_timer()) == (ClientState.CLOSING, 10 + limits.DRAIN_S)
    assert session.timer(10 + limits.DRAIN_S) == [Disconnect()]


@pytest.mark.parametrize("how", ["discard", "resend"])
def test_an_entry_that_failed_and_was_given_up_or_sent_again_leaves_its_room_to_others(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(limits, "CLIENT_OUTBOX_ENTRIES_MAX", 2)
    store = MemoryClientStore()
    session = ready(store)
    for number in range(5):
        assert session.send(CHAT, uuid(number), "a", 0) != [], "it is transmitted, and not refused"
        session.received(error("FORBIDDEN", retryable=False, key=number), 0)
        if how == "resend":
            session.resend(CHAT, uuid(number), 0)
            session.received(error("FORBIDDEN", retryable=False, key=number), 0)
        session.discard(CHAT, uuid(number), 0)
    assert store.outbox() == []
    accepted = [session.send(CHAT, uuid(number), "a", 0) for number in range(10, 13)]
    assert len(store.outbox()) == 2, accepted

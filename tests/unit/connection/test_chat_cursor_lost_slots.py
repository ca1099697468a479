"""What a connection was sent stays counted: after a store has lost slots, no message leaves a second time."""

import asyncio

from hypothesis import example, given, settings
from hypothesis import strategies as st

from seriatim.connection.session.chat_cursor import ChatCursor, CursorPhase
from tests.unit.connection.fakes import CHAT, a_receipt
from tests.unit.connection.gateway_harness import GatewayHarness, a_delivery, a_send, a_sync, ask, turns


async def test_w1_a_connection_is_not_pushed_a_message_again_after_the_store_has_lost_it(
    harness: GatewayHarness,
) -> None:
    connection, socket = await harness.synced([1, 2])
    await ask(connection, a_send())
    harness.durability.answer(0, a_receipt(4, prev=3))  # its own, above 3, so the client asks what lies between
    harness.deliver(connection, 3, 2)
    harness.deliver(connection, 5, 4)
    await turns()
    harness.durability.chats[CHAT] = [1, 2, 3]  # 4 and 5 are lost with the counter
    await ask(connection, a_sync(2))
    assert [item.sequence for item in socket.batches[0].messages] == [3]
    for sequence in (4, 5):
        harness.gateway.received([a_delivery(connection, sequence, sequence - 1)])  # the event log still has them
    harness.durability.chats[CHAT] = [1, 2, 3, 6]  # 4 and 5 are sealed, and the chat goes on
    harness.gateway.received([a_delivery(connection, 6, 3)])
    await asyncio.sleep(10)
    assert socket.messages == [3, 5, 6]


async def test_w1_a_page_that_ends_below_what_was_sent_asks_the_store_for_nothing(harness: GatewayHarness) -> None:
    """What was lost is not read back again and again until an operator has repaired the counter."""
    connection, _ = await harness.synced([1, 2])
    harness.deliver(connection, 3, 2)
    await turns()
    harness.durability.chats[CHAT] = [1, 2]
    await ask(connection, a_sync(1))
    harness.durability.reads.clear()
    await asyncio.sleep(30)
    assert harness.durability.reads == []


def test_w1_a_cursor_that_the_client_made_up_is_corrected_down_to_what_was_sent_and_no_further() -> None:
    cursor = ChatCursor("chat_a")
    cursor.page_sent(cursor.sync_started(0), 40, has_more=False)
    cursor.page_sent(cursor.sync_started(900), 30, has_more=False)
    assert cursor.delivered == 40


def test_w1_what_was_pushed_to_a_chat_never_synced_does_not_count_as_sent() -> None:
    cursor = ChatCursor("chat_a")
    cursor.lag_unsynced(50)
    cursor.page_sent(cursor.sync_started(0), 40, has_more=False)
    assert cursor.delivered == 40


# --- any order whatever ----------------------------------------------------------------------------------------------


class _Model:
    """A store that loses its newest slots at times and seals them later, and a connection with what it was sent."""

    def __init__(self) -> None:
        self.messages: list[int] = []
        self.lost: list[int] = []
        self.end = 0  # the highest slot that is filled
        self.cursor = ChatCursor("chat_a")
        self.pushed: list[int] = []
        self.mark = 0  # the highest `delivered` there was
        self.epoch, self.after = 0, 0

    def step(self, kind: str, number: int) -> None:
        cursor = self.cursor
        match kind:
            case "post" if not self.lost:
                self.end += 1 + number % 2
                self.messages.append(self.end)
                cursor.pushed(self.end, self._before(self.end) if number % 3 else None, b"%d" % self.end)
            case "own" if not self.lost:
                self.end += 1
                self.messages.append(self.end)
                cursor.own_stored(self.end, self._before(self.end) if number % 3 else None)
            case "again" if self.messages or self.lost:
                every = [*self.messages, *self.lost]
                sequence = every[-1 - number % len(every)]
                cursor.pushed(sequence, self._before(sequence) if number % 3 else None, b"%d" % sequence)
            case "lose" if self.messages and not self.lost:
                keep = max(0, len(self.messages) - 1 - number % 3)
                self.messages, self.lost = self.messages[:keep], self.messages[keep:]
                self.end = max(self.messages, default=0)
            case "seal" if self.lost:
                self.end, self.lost = max(self.lost), []
            case "sync":
                self.step("ask", number)
                self.step("page", 100)
            case "ask":
                self.after = max([0, *[each for each in self.messages if each <= cursor.delivered][: -1 - number % 3]])
                self.epoch = cursor.sync_started(self.after)
            case "page":
                found = [each for each in self.messages if each > self.after][: 1 + number]
                more = bool(found) and found[-1] != self.messages[-1]
                cursor.page_sent(self.epoch, found[-1] if more else self.end, has_more=more)
            case "fail":
                cursor.sync_failed(self.epoch)
            case "fill" if cursor.behind:
                cursor.filled([(each, b"%d" % each) for each in self.messages if each > cursor.delivered], self.end)
            case "lag" if cursor.phase is CursorPhase.LIVE:
                cursor.lag()
            case "drain":
                cursor.drained()

    def _before(self, sequence: int) -> int:
        return max([0, *[each for each in [*self.messages, *self.lost] if each < sequence]])

    def send(self) -> None:
        while (held := self.cursor.take_next()) is not None:
            if held.frame is not None:
                self.pushed.append(int(held.frame))

    def check(self) -> None:
        cursor = self.cursor
        assert len(self.pushed) == len(dict.fromkeys(self.pushed)), f"pushed again: {self.pushed}"
        if cursor.synced and cursor.phase in (CursorPhase.LIVE, CursorPhase.LAGGING):
            assert cursor.delivered >= self.mark, f"the cursor went back from {self.mark} to {cursor.delivered}"
            self.mark = cursor.delivered


_KINDS = [
    "post",
    "own",
    "again",
    "again",
    "lose",
    "seal",
    "ask",
    "page",
    "fail",
    "sync",
    "sync",
    "fill",
    "lag",
    "drain",
]


@settings(max_examples=500, deadline=None)
@example([("post", 1), ("lose", 0), ("sync", 0), ("again", 1)])
@given(st.lists(st.tuples(st.sampled_from(_KINDS), st.integers(0, 5)), max_size=60))
def test_w1_within_a_connections_life_its_cursor_never_goes_back_and_nothing_is_pushed_twice(
    steps: list[tuple[str, int]],
) -> None:
    model = _Model()
    for kind, number in [("ask", 0), ("page", 0), *steps]:
        model.step(kind, number)
        model.send()
        model.check()

"""What may be sent of one chat to one connection: every message, once, in order (H2, H15, H16, H17, H18)."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.connection.session.chat_cursor import ChatCursor, CursorPhase
from seriatim.domain import limits


def live(delivered: int = 0) -> ChatCursor:
    cursor = ChatCursor("chat_a")
    cursor.page_sent(cursor.sync_started(delivered), delivered, has_more=False)
    return cursor


def frame(sequence: int) -> bytes:
    return b"%d" % sequence


def push(cursor: ChatCursor, sequence: int, prev: int | None) -> None:
    cursor.pushed(sequence, prev, frame(sequence))


def fill(cursor: ChatCursor, sequences: Sequence[int], through: int) -> None:
    cursor.filled([(sequence, frame(sequence)) for sequence in sequences], through)


def sent(cursor: ChatCursor) -> list[int]:
    found = []
    while (held := cursor.take_next()) is not None:
        if held.frame is not None:
            found.append(int(held.frame))
    return found


# --- live ----------------------------------------------------------------------------------------------------------


def test_a_message_whose_predecessor_was_delivered_is_sent() -> None:
    cursor = live(41)
    push(cursor, 45, 41)
    assert sent(cursor) == [45]
    assert cursor.delivered == 45


def test_a_message_is_sent_once_however_often_it_is_pushed() -> None:
    cursor = live(41)
    push(cursor, 42, 41)
    assert sent(cursor) == [42]
    push(cursor, 42, 41)
    assert sent(cursor) == []


def test_h2_a_message_behind_a_lost_push_waits() -> None:
    cursor = live(40)
    push(cursor, 42, 41)
    assert sent(cursor) == []
    assert cursor.behind
    assert cursor.clamp_to_delivered(42) == 40


def test_h2_a_message_with_an_unknown_predecessor_waits() -> None:
    cursor = live(40)
    push(cursor, 42, None)
    assert sent(cursor) == []
    assert cursor.behind


def test_messages_that_waited_leave_in_order_once_the_gap_closes() -> None:
    cursor = live(40)
    push(cursor, 43, 42)
    push(cursor, 42, 41)
    push(cursor, 41, 40)
    assert sent(cursor) == [41, 42, 43]
    assert not cursor.behind


def test_h2_a_fill_brings_what_was_lost_and_releases_what_waited() -> None:
    cursor = live(40)
    push(cursor, 43, 42)
    fill(cursor, [41, 42], through=42)
    assert sent(cursor) == [41, 42, 43]


def test_a_fill_of_only_tombstones_advances_the_cursor() -> None:
    cursor = live(40)
    push(cursor, 44, None)
    fill(cursor, [], through=43)
    assert sent(cursor) == []
    assert cursor.delivered == 43
    fill(cursor, [44], through=44)
    assert sent(cursor) == [44]


def test_a_fill_does_not_repeat_what_arrived_by_push_meanwhile() -> None:
    cursor = live(40)
    push(cursor, 42, 41)
    push(cursor, 41, 40)
    assert sent(cursor) == [41, 42]
    fill(cursor, [41, 42], through=42)
    assert sent(cursor) == []


def test_held_messages_are_bounded_and_the_rest_is_still_known_to_be_missing() -> None:
    cursor = live(0)
    for sequence in range(2, limits.HELD_MESSAGES_MAX + 100):
        push(cursor, sequence, sequence - 1)
    fill(cursor, [1], through=1)
    assert sent(cursor) == list(range(1, limits.HELD_MESSAGES_MAX + 2))
    assert cursor.behind


def test_h9_a_head_beyond_what_was_delivered_is_something_missing() -> None:
    cursor = live(40)
    cursor.exists(41)
    assert cursor.behind


def test_h9_a_head_that_was_delivered_is_nothing_missing() -> None:
    cursor = live(40)
    cursor.exists(40)
    assert not cursor.behind


# --- the connection's own messages ---------------------------------------------------------------------------------


def test_h18_an_own_message_advances_the_cursor_without_being_sent() -> None:
    cursor = live(41)
    cursor.own_stored(42, 41)
    assert sent(cursor) == []
    assert cursor.delivered == 42


def test_h18_an_own_message_does_not_advance_over_one_that_was_not_sent() -> None:
    cursor = live(40)
    cursor.own_stored(42, 41)
    assert sent(cursor) == []
    assert cursor.delivered == 40
    assert cursor.behind


def test_h18_a_fill_does_not_echo_an_own_message() -> None:
    cursor = live(40)
    cursor.own_stored(42, 41)
    fill(cursor, [41, 42, 43], through=43)
    assert sent(cursor) == [41, 43]


def test_h18_an_own_message_is_not_echoed_even_if_it_was_stored_while_lagging() -> None:
    cursor = live(40)
    cursor.lag()
    cursor.own_stored(42, 41)
    assert cursor.drained()
    fill(cursor, [41, 42, 43], through=43)
    assert sent(cursor) == [41, 43]


# --- syncing -------------------------------------------------------------------------------------------------------


def test_h16_a_live_message_waits_for_the_pages() -> None:
    cursor = ChatCursor("chat_a")
    epoch = cursor.sync_started(42)
    push(cursor, 45, 42)
    assert sent(cursor) == []
    cursor.page_sent(epoch, 44, has_more=False)
    assert sent(cursor) == []
    assert cursor.behind, "45 must be read back"


def test_h16_a_live_message_covered_by_the_page_is_not_sent_again() -> None:
    cursor = ChatCursor("chat_a")
    epoch = cursor.sync_started(42)
    push(cursor, 45, 44)
    cursor.page_sent(epoch, 45, has_more=False)
    assert sent(cursor) == []
    assert not cursor.behind


def test_a_chat_is_live_only_after_its_last_page() -> None:
    cursor = ChatCursor("chat_a")
    cursor.page_sent(cursor.sync_started(0), 100, has_more=True)
    phases = [cursor.phase]
    cursor.page_sent(cursor.sync_started(100), 130, has_more=False)
    assert [*phases, cursor.phase] == [CursorPhase.SYNCING, CursorPhase.LIVE]


def test_a_cursor_beyond_the_end_is_corrected_and_later_messages_are_not_lost() -> None:
    cursor = ChatCursor("chat_a")
    epoch = cursor.sync_started(10**15)
    push(cursor, 46, 45)
    cursor.page_sent(epoch, 45, has_more=False)
    assert cursor.clamp_to_delivered(10**15) == 45
    assert cursor.behind


def test_a_repeated_cursor_beyond_the_end_does_not_pretend_that_messages_exist() -> None:
    cursor = ChatCursor("chat_a")
    cursor.sync_started(10**15)
    cursor.page_sent(cursor.sync_started(10**15), 45, has_more=False)
    assert not cursor.behind


def test_a_failed_sync_leaves_a_live_chat_live_and_nothing_forgotten() -> None:
    cursor = live(40)
    epoch = cursor.sync_started(10)
    push(cursor, 41, 40)
    assert cursor.sync_failed(epoch)
    assert (cursor.phase, cursor.delivered) == (CursorPhase.LIVE, 40)
    assert cursor.behind


def test_a_failed_first_sync_leaves_the_chat_unsynced() -> None:
    cursor = ChatCursor("chat_a")
    cursor.sync_failed(cursor.sync_started(7))
    assert cursor.phase is CursorPhase.UNSYNCED
    assert cursor.clamp_to_delivered(7) == 0


def test_of_two_syncs_at_once_the_later_one_decides() -> None:
    cursor = ChatCursor("chat_a")
    first, second = cursor.sync_started(0), cursor.sync_started(50)
    cursor.page_sent(first, 40, has_more=False)
    assert (cursor.phase, cursor.delivered) == (CursorPhase.SYNCING, 50)
    assert not cursor.sync_failed(first)
    cursor.page_sent(second, 60, has_more=False)
    assert (cursor.phase, cursor.delivered) == (CursorPhase.LIVE, 60)


def test_a_client_that_syncs_from_earlier_is_owed_every_page_up_to_what_it_was_sent_before() -> None:
    cursor = live(40)
    cursor.page_sent(cursor.sync_started(10), 20, has_more=True)
    assert (cursor.phase, cursor.delivered) == (CursorPhase.SYNCING, 20)
    assert cursor.sync_failed(cursor.sync_started(20))
    assert (cursor.phase, cursor.delivered) == (CursorPhase.SYNCING, 20)


# --- lagging -------------------------------------------------------------------------------------------------------


def test_h17_a_lagging_chat_stands_still_and_remembers_that_something_is_missing() -> None:
    cursor = live(40)
    cursor.lag()
    push(cursor, 41, 40)
    assert sent(cursor) == []
    assert cursor.delivered == 40
    assert cursor.owes
    assert cursor.drained()
    assert cursor.behind


def test_h17_what_was_read_but_found_no_room_is_read_again() -> None:
    cursor = live(40)
    push(cursor, 43, None)
    fill(cursor, [41, 42, 43], through=43)
    assert cursor.take_next() is not None
    cursor.lag()
    cursor.drained()
    assert sent(cursor) == []
    fill(cursor, [42, 43], through=43)
    assert sent(cursor) == [42, 43]


def test_a_chat_never_synced_is_owed_from_the_lowest_push_that_found_no_room() -> None:
    cursor = ChatCursor("chat_a")
    cursor.lag_unsynced(50)
    push(cursor, 52, 51)
    push(cursor, 48, 47)
    assert (cursor.delivered, cursor.highest) == (47, 52)
    assert cursor.clamp_to_delivered(52) == 0


# --- acknowledging -------------------------------------------------------------------------------------------------


def test_h15_an_ack_counts_only_up_to_what_was_delivered() -> None:
    cursor = live(41)
    assert cursor.clamp_to_delivered(10**15) == 41
    assert cursor.clamp_to_delivered(40) == 40


def test_h15_the_clients_own_cursor_counts_as_received() -> None:
    cursor = ChatCursor("chat_a")
    cursor.sync_started(42)
    assert cursor.clamp_to_delivered(42) == 42


def test_h15_acks_of_an_unsynced_chat_count_for_nothing() -> None:
    assert ChatCursor("chat_a").clamp_to_delivered(42) == 0


# --- any order whatever --------------------------------------------------------------------------------------------


class _Model:
    """A chat with gaps, a connection, and what the connection was sent since its last sync."""

    def __init__(self, chat: list[int]) -> None:
        self.chat = chat
        self.cursor = ChatCursor("chat_a")
        self.sent: list[int] = []
        self.known = 0  # the client's cursor at its last sync
        self.own: dict[int, None] = {}

    def prev(self, sequence: int) -> int:
        return max([each for each in self.chat if each < sequence], default=0)

    def above(self, after: int, limit: int) -> tuple[list[int], int, bool]:
        found = [sequence for sequence in self.chat if sequence > after]
        more = len(found) > limit
        return found[:limit], found[limit - 1] if more else max(self.chat), more

    def step(self, kind: str, pick: int, limit: int, known: bool) -> None:
        sequence = self.chat[pick % len(self.chat)]
        match kind:
            case "push":
                self.cursor.pushed(sequence, self.prev(sequence) if known else None, frame(sequence))
            case "own":
                self.own[sequence] = None
                self.cursor.own_stored(sequence, self.prev(sequence) if known else None)
            case "head":
                self.cursor.exists(sequence)
            case "fill" if self.cursor.phase is CursorPhase.LIVE:
                found, through, _ = self.above(self.cursor.delivered, limit)
                self.cursor.filled([(each, frame(each)) for each in found], through)
            case "sync":
                self.sync(sequence if known else 0, limit)
            case "lag" if self.cursor.phase is CursorPhase.LIVE:
                self.cursor.lag()
            case "drain":
                self.cursor.drained()

    def sync(self, after: int, limit: int) -> None:
        found, through, more = self.above(after, limit)
        epoch = self.cursor.sync_started(after)
        self.cursor.page_sent(epoch, through, has_more=more)
        self.known, self.sent = after, list(found)

    def drain(self, count: int) -> None:
        for _ in range(count):
            held = self.cursor.take_next()
            if held is None:
                return
            if held.frame is not None:
                self.sent.append(int(held.frame))

    def check(self) -> None:
        assert all(one < other for one, other in zip(self.sent, self.sent[1:], strict=False)), "not ascending"
        if self.cursor.synced:
            owed = [each for each in self.chat if self.known < each <= self.cursor.delivered]
            assert [each for each in owed if each not in self.sent and each not in self.own] == [], "a hole"


_steps = st.tuples(
    st.sampled_from(["push", "push", "push", "own", "head", "fill", "sync", "lag", "drain"]),
    st.integers(0, 30),
    st.integers(1, 5),
    st.booleans(),
    st.integers(0, 4),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=20, unique=True).map(sorted), st.lists(_steps, max_size=60))
def test_whatever_happens_what_is_sent_ascends_and_is_complete_up_to_delivered(
    chat: list[int], steps: list[tuple[str, int, int, bool, int]]
) -> None:
    model = _Model(chat)
    for kind, pick, limit, known, room in steps:
        model.step(kind, pick, limit, known)
        model.drain(room)
        model.check()
    model.sync(0, 100)
    model.drain(100)
    model.check()
    assert model.cursor.delivered == chat[-1], "quiet, and yet not complete"

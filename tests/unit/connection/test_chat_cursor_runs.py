"""The parts of a cursor that only save work: when nothing is owed, and how much of a run is next in line."""

from collections.abc import Callable, Sequence

import pytest

from seriatim.connection.session.chat_cursor import ChatCursor, PushedMessage, QueuedPush

CHAT = "chat_a"


def live(delivered: int) -> ChatCursor:
    cursor = ChatCursor(CHAT)
    cursor.page_sent(cursor.sync_started(delivered), delivered, has_more=False)
    return cursor


def run(*places: tuple[int, int | None]) -> Sequence[PushedMessage]:
    return [(CHAT, sequence, prev, b"%d" % sequence) for sequence, prev in places]


@pytest.mark.parametrize(
    ("happens", "settled"),
    [
        (lambda cursor: None, True),
        (lambda cursor: cursor.exists(6), False),  # 6 is missing
        (lambda cursor: cursor.pushed(7, 6, b"7"), False),  # 7 waits
        (lambda cursor: cursor.lag(), False),
        (lambda cursor: cursor.sync_started(5), False),
    ],
)
def test_a_chat_is_settled_when_it_is_live_and_nothing_is_missing_or_waits(
    happens: Callable[[ChatCursor], object], settled: bool
) -> None:
    cursor = live(5)
    happens(cursor)
    assert cursor.settled is settled


def test_a_chat_that_was_never_synced_is_not_settled() -> None:
    assert not ChatCursor(CHAT).settled


def test_a_run_is_taken_to_its_end_with_own_messages_passing_between() -> None:
    cursor, queue = live(1), list[QueuedPush]()
    assert not cursor.own_stored(3, 2)  # its ack came before the push of 2
    assert not cursor.own_stored(5, 4)
    assert cursor.deliver_run(run((2, 1), (4, 3), (6, 5)), 0, queue) == 3
    assert queue == [(b"2", CHAT, 1), (b"4", CHAT, 3), (b"6", CHAT, 5)]
    assert (cursor.delivered, cursor.highest, cursor.settled) == (6, 6, True)


def test_a_run_ends_at_another_chat_at_a_gap_and_at_what_waits() -> None:
    other: PushedMessage = ("chat_b", 1, 0, b"1")
    for pushes, taken in (
        ([*run((2, 1)), other], 1),
        (run((2, 1), (4, 3)), 1),
        (run((2, 1), (3, None)), 1),
        (run((2, 1), (2, 1)), 1),
        ([other], 0),
    ):
        cursor = live(1)
        assert cursor.deliver_run(pushes, 0, []) == taken
        assert cursor.delivered == 1 + taken
    cursor = live(1)
    cursor.pushed(3, 2, b"3")  # waits for 2
    queue: list[QueuedPush] = []
    assert cursor.deliver_run(run((2, 1), (4, 3)), 0, queue) == 1
    assert [frame for frame, _, _ in queue] == [b"2"], "4 does not pass 3"


def test_a_run_is_taken_from_where_it_is_asked_for() -> None:
    cursor, queue = live(1), list[QueuedPush]()
    assert cursor.deliver_run(run((9, 8), (2, 1), (3, 2)), 1, queue) == 3
    assert cursor.delivered == 3


def test_nothing_of_a_run_is_taken_unless_the_chat_is_live() -> None:
    lagging, syncing, unknown = live(1), live(1), ChatCursor(CHAT)
    lagging.lag()
    syncing.sync_started(1)
    for cursor in (lagging, syncing, unknown):
        assert cursor.deliver_run(run((2, 1)), 0, []) == 0

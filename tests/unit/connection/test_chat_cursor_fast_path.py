"""The fast path for pushes comes to the same end as holding and taking each of them."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.connection.session.chat_cursor import ChatCursor, QueuedPush, ReorderBuffer

steps = st.lists(
    st.tuples(st.sampled_from(["push", "own", "exists"]), st.integers(1, 9), st.sampled_from([None, 0, 1, 2])),
    max_size=25,
)


@given(steps=steps, start=st.integers(0, 3))
@settings(max_examples=500, deadline=None)
def test_a_push_that_is_next_in_line_comes_to_what_holding_and_taking_it_would(
    steps: Sequence[tuple[str, int, int | None]], start: int
) -> None:
    """`gap`: how far before it the message before it is; None: unknown."""
    short, long = synced(start), synced(start)
    sent_short: list[bytes] = []
    sent_long: list[bytes] = []
    for step, sequence, gap in steps:
        prev = None if gap is None else max(0, sequence - 1 - gap)
        frame = b"%d" % sequence
        match step:
            case "push":
                short.skip_own(sequence)
                if short.deliver_next(sequence, prev):
                    sent_short.append(frame)
                else:
                    short.pushed(sequence, prev, frame)
                long.pushed(sequence, prev, frame)
            case "own":
                short.own_stored(sequence, prev)
                long.own_stored(sequence, prev)
            case _:
                short.exists(sequence)
                long.exists(sequence)
        take_all(short, sent_short)
        take_all(long, sent_long)
        assert (sent_short, short.delivered, short.highest) == (sent_long, long.delivered, long.highest)


runs = st.lists(
    st.tuples(st.sampled_from(["a", "a", "a", "b"]), st.integers(1, 12), st.sampled_from([None, 0, 0, 0, 1, 2])),
    min_size=1,
    max_size=8,
)
happenings = st.lists(
    st.tuples(
        st.sampled_from(["own", "own", "filled", "lag", "drain"]), st.integers(1, 12), st.sampled_from([None, 0, 1])
    ),
    max_size=6,
)


@given(
    story=st.lists(st.tuples(happenings, runs), min_size=1, max_size=4), start=st.integers(0, 3), known=st.booleans()
)
@settings(max_examples=600, deadline=None)
def test_of_a_run_as_many_leave_together_as_would_one_by_one(
    story: Sequence[tuple[Sequence[tuple[str, int, int | None]], Sequence[tuple[str, int, int | None]]]],
    start: int,
    known: bool,
) -> None:
    """Whatever state a chat is in, and whatever waits in it."""
    together, singly = (synced(start), synced(start)) if known else (owed(start), owed(start))
    for events, sequences in story:
        for cursor in (together, singly):
            for event, sequence, gap in events:
                happen(cursor, event, sequence, before(sequence, gap))
        run = [(chat_id, each, before(each, gap), b"%d" % each) for chat_id, each, gap in sequences]
        left: list[QueuedPush] = []
        expected: list[QueuedPush] = []
        for chat_id, sequence, prev, frame in run:
            floor = singly.delivered
            if chat_id != "a":
                break
            singly.skip_own(sequence)
            floor = singly.delivered
            if not singly.deliver_next(sequence, prev):
                break
            expected.append((frame, chat_id, floor))
        assert together.deliver_run(run, 0, left) == len(expected)
        together.skip_own(99)
        singly.skip_own(99)
        assert left == expected
        assert state(together) == state(singly)


def state(cursor: ChatCursor) -> tuple[int, int, ReorderBuffer]:
    return cursor.delivered, cursor.clamp_to_known(99), cursor.held


def happen(cursor: ChatCursor, event: str, sequence: int, prev: int | None) -> None:
    match event:
        case "own":
            cursor.own_stored(sequence, prev)
        case "filled":
            cursor.filled([(sequence, b"filled")], sequence)
        case "lag":
            cursor.lag()
        case _:
            cursor.drained()


def before(sequence: int, gap: int | None) -> int | None:
    return None if gap is None else max(0, sequence - 1 - gap)


def owed(sequence: int) -> ChatCursor:
    """A chat that was never synced, and was owed a push that found no room."""
    cursor = ChatCursor("a")
    cursor.lag_unsynced(sequence + 1)
    cursor.drained()
    return cursor


def synced(after: int) -> ChatCursor:
    cursor = ChatCursor("a")
    cursor.page_sent(cursor.sync_started(after), after, has_more=False)
    return cursor


def take_all(cursor: ChatCursor, sent: list[bytes]) -> None:
    while (held := cursor.take_next()) is not None:
        if held.frame is not None:
            sent.append(held.frame)

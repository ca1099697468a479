"""The short ways that nearly every frame takes lead to the same place as the long ones."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seriatim.connection.listener.state import ListenerState
from seriatim.connection.listener.ws_frames import frame_size
from seriatim.connection.listener.ws_socket import WebSocket
from seriatim.connection.session.chat_cursor import ChatCursor, QueuedPush, ReorderBuffer
from seriatim.connection.session.connection import Connection
from seriatim.connection.task_group import FlushScheduler
from tests.unit.connection.gateway_harness import turns

# --- WebSocket frames -------------------------------------------------------------------------------------------------


def client_frame(first: int, payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    head = bytes((first, 0x80 | size)) if size < 126 else bytes((first, 0xFE)) + size.to_bytes(2, "big")
    return head + mask + bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))


masks = st.binary(min_size=4, max_size=4)
texts = st.text(max_size=80).map(str.encode) | st.integers(100, 300).map(lambda count: b"x" * count)
plain = st.builds(client_frame, st.just(0x81), texts, masks)
others = st.builds(client_frame, st.sampled_from([0x89, 0x8A, 0x01, 0x00, 0x80, 0x82, 0x83, 0xC1]), texts, masks)
closing = st.builds(client_frame, st.just(0x88), st.just(b"\x03\xe8"), masks)
not_masked = st.just(b"\x81\x02hi")
streams = st.lists(st.one_of(plain, plain, plain, others, closing, not_masked, st.binary(max_size=4)), max_size=8)


@given(frames=streams, cuts=st.lists(st.integers(1, 400), max_size=12))
@example(frames=[b"\x81", client_frame(0x81, b"x" * 100, bytes(4))], cuts=[])  # no text, and then no frame
@settings(max_examples=400, deadline=None)
def test_whatever_comes_in_whatever_pieces_is_read_as_the_codec_alone_would(
    frames: Sequence[bytes], cuts: Sequence[int]
) -> None:
    stream = b"".join(frames)
    pieces = []
    for cut in cuts:
        pieces.append(stream[:cut])
        stream = stream[cut:]
    pieces.append(stream)
    # Byte by byte for the codec: of two frames that come together it obeys the second though the first is at fault.
    single = [bytes((each,)) for each in b"".join(frames)]
    short, long = asyncio.run(heard(pieces, strange=False)), asyncio.run(heard(single, strange=True))
    assert short.texts == long.texts
    assert short.pongs == long.pongs
    assert short.losses == long.losses == 1
    assert b"".join(short.written) == b"".join(long.written)


def eight_bytes_of_size(payload: bytes) -> bytes:
    """As no client should write a frame this short."""
    return b"\x81\xff" + len(payload).to_bytes(8, "big") + bytes(4) + payload


@pytest.mark.parametrize(
    "frame",
    [
        client_frame(0x81, b"x" * 10, b"abcd"),
        client_frame(0x81, b"x" * 125, b"abcd"),
        client_frame(0x81, b"x" * 126, b"abcd"),
        client_frame(0x81, b"x" * 512, b"abcd"),
        eight_bytes_of_size(b"x" * 20),
        eight_bytes_of_size(b"x" * 300),
    ],
    ids=len,
)
def test_a_frame_is_read_as_the_codec_alone_would_wherever_it_is_cut(frame: bytes) -> None:
    alone = asyncio.run(heard([frame], strange=True))
    for cut in range(1, len(frame)):
        cut_once = asyncio.run(heard([frame[:cut], frame[cut:]], strange=False))
        assert (cut, cut_once.texts, b"".join(cut_once.written)) == (cut, alone.texts, b"".join(alone.written))


def test_a_frame_that_comes_byte_by_byte_is_copied_a_few_times_and_not_each_time() -> None:
    whole = client_frame(0x81, b"x" * 300, b"abcd")
    asked = [frame_size(whole[:count], 0) for count in range(1, len(whole))]
    assert asked[0] == 2
    assert asked[1:3] == [4, 4]
    assert set(asked[3:]) == {len(whole)}


@pytest.mark.parametrize("head", [b"\x81\x05", b"\x81\xff", b"\xc1\x85", b"\x83\x85"])
def test_what_only_the_codec_may_judge_is_left_to_it(head: bytes) -> None:
    assert frame_size(head + bytes(8), 0) is None


class Heard:
    """A connection, its transport and its door, as far as a WebSocket knows them."""

    def __init__(self) -> None:
        self.texts: list[str | bytes] = []
        self.written: list[bytes] = []
        self.pongs = self.losses = 0
        self.closed = self.closing = False

    def received(self, text: str | bytes) -> None:
        self.texts.append(text)

    def pong_received(self) -> None:
        self.pongs += 1

    def lost(self) -> None:
        self.losses += 1

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None: ...

    def add(self, socket: object) -> None: ...

    def remove(self, socket: object) -> None: ...


async def heard(pieces: Sequence[bytes], *, strange: bool) -> Heard:
    found = Heard()
    socket = WebSocket(cast(asyncio.Transport, found), cast(ListenerState, found))
    socket._use_codec = strange
    socket.attach(cast(Connection, found), b"")
    for piece in pieces:
        if piece:
            socket.data_received(piece)
    socket.connection_lost(None)
    return found


# --- pushes -----------------------------------------------------------------------------------------------------------

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


# --- writing together -------------------------------------------------------------------------------------------------


async def test_all_who_ask_within_the_given_turns_are_called_together_in_their_order() -> None:
    called: list[str] = []
    end = FlushScheduler(turns=2)
    end.schedule(lambda: called.append("first"))
    await turns(1)
    end.schedule(lambda: called.append("second"))
    await turns(1)
    assert called == []
    await turns(1)
    assert called == ["first", "second"]


async def test_a_few_are_called_at_once_and_who_joins_a_crowd_waits_with_it() -> None:
    called: list[int] = []
    end = FlushScheduler(turns=2, few=2)
    for each in (1, 2):
        end.schedule(partial(called.append, each))
    await turns(1)
    assert called == [1, 2], "nobody waits for a crowd that is none"
    for each in (3, 4, 5):
        end.schedule(partial(called.append, each))
    await turns(2)
    assert called == [1, 2]
    await turns(1)
    assert called == [1, 2, 3, 4, 5]


def test_a_call_that_fails_hurts_no_other() -> None:
    failures: list[dict[str, object]] = []
    called: list[str] = []

    def fail() -> None:
        raise ZeroDivisionError

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        end = FlushScheduler()
        calls: list[Callable[[], None]] = [fail, lambda: called.append("second")]
        for call in calls:
            end.schedule(call)
        await asyncio.sleep(0)

    asyncio.run(run())
    assert called == ["second"]
    assert isinstance(failures[0]["exception"], ZeroDivisionError)

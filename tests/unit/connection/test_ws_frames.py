"""The fast path of WebSocket frames reads every stream of bytes exactly as the codec alone would."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seriatim.connection.listener.state import ListenerState
from seriatim.connection.listener.ws_frames import HEADERS_KEPT_MAX, encode_texts, frame_size, payload, single_text
from seriatim.connection.listener.ws_socket import WebSocket
from seriatim.connection.session.connection import Connection


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
    short, long = asyncio.run(heard(pieces, use_codec=False)), asyncio.run(heard(single, use_codec=True))
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
    alone = asyncio.run(heard([frame], use_codec=True))
    for cut in range(1, len(frame)):
        cut_once = asyncio.run(heard([frame[:cut], frame[cut:]], use_codec=False))
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
    """A connection, its transport and its listener, as far as a WebSocket knows them."""

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


async def heard(pieces: Sequence[bytes], *, use_codec: bool) -> Heard:
    found = Heard()
    socket = WebSocket(cast(asyncio.Transport, found), cast(ListenerState, found), full=False)
    socket._use_codec = use_codec
    socket.attach(cast(Connection, found), b"")
    for piece in pieces:
        if piece:
            socket.data_received(piece)
    socket.connection_lost(None)
    return found


# --- the functions by themselves --------------------------------------------------------------------------------------


@given(text=st.binary(max_size=70_000), mask=masks)
@settings(max_examples=200, deadline=None)
def test_one_whole_text_is_unmasked_and_its_size_is_known(text: bytes, mask: bytes) -> None:
    frame = client_frame(0x81, text, mask) if len(text) < 65_536 else eight_bytes_of_size(text)
    size = frame_size(frame, 0)
    if len(text) < 65_536:
        assert size == len(frame)
        assert payload(frame) == text
        assert single_text(frame) == (text if len(frame) > 7 else None)
    else:
        assert size is None
        assert single_text(frame) is None


@given(data=st.binary(max_size=300), at=st.integers(0, 5))
@settings(max_examples=500, deadline=None)
def test_whatever_the_bytes_are_they_are_judged_and_nothing_raises(data: bytes, at: int) -> None:
    size = frame_size(data, at)
    assert size is None or size >= 2
    text = single_text(data)
    assert text is None or (frame_size(data, 0) == len(data) and text == payload(data))


@given(lengths=st.lists(st.sampled_from([0, 1, 125, 126, 300, 65_535, 65_536]), max_size=4))
def test_texts_are_framed_one_by_one_whatever_their_length(lengths: Sequence[int]) -> None:
    written = encode_texts([b"x" * length for length in lengths])
    for length in lengths:
        head = bytes((0x81, length)) if length < 126 else b""
        if 126 <= length < 65_536:
            head = b"\x81\x7e" + length.to_bytes(2, "big")
        elif length >= 65_536:
            head = b"\x81\x7f" + length.to_bytes(8, "big")
        assert written.startswith(head + b"x" * length)
        written = written[len(head) + length :]
    assert written == b""


def test_more_lengths_than_are_kept_are_framed_as_well() -> None:
    for length in (HEADERS_KEPT_MAX + 200, 200):
        assert encode_texts([b"x" * length]) == b"\x81\x7e" + length.to_bytes(2, "big") + b"x" * length

"""Whatever bytes arrive, in whatever pieces: nothing raises, nothing is left running, and the socket ends or lives."""

import asyncio

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seriatim.connection.listener.state import Receive, Scope, Send
from tests.unit.connection.fakes import FakeClock
from tests.unit.connection.gateway_harness import VirtualTimeLoop, run_on_loop
from tests.unit.connection.listener_harness import ListenerHarness, handshake, hello
from tests.unit.connection.test_listener_websocket import frame

GET = b"GET /hi HTTP/1.1\r\nHost: here\r\n\r\n"
POST = b"POST /hi HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"POST /hi HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"

wholes = st.sampled_from(
    [GET, POST, CHUNKED, handshake(), handshake("/v9/ws"), handshake("/x"), b"\r\n", b"PRI * HTTP/2"]
)
frames = st.builds(frame, st.integers(0, 15), st.binary(max_size=130), fin=st.booleans())
pieces = st.one_of(wholes, frames, st.binary(max_size=60))


class Memory(asyncio.Transport):
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: asyncio.BaseProtocol
        self.reading, self.closed, self.ended = True, False, False
        self.written = 0

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: object) -> None:
        assert not self.ended, "a write after the end"
        self.written += 1

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def is_reading(self) -> bool:
        return self.reading and not self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(lambda: self.protocol.connection_lost(None))


async def sloppy(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the body or does not, depending on the request."""
    if scope["method"] == "GET":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})
    else:
        await hello(scope, receive, send)


async def feed(data: list[bytes], *, end: bool) -> None:
    harness = ListenerHarness(sloppy, clock=FakeClock())
    await harness.gateway.start()
    transport = Memory()
    transport.protocol = harness.listener.protocol_factory()
    transport.protocol.connection_made(transport)
    for piece in data:
        for _ in range(100):
            if transport.reading or transport.closed:
                break
            await asyncio.sleep(0)
        if transport.closed:
            break
        assert transport.reading, "it neither reads nor ends"
        assert isinstance(transport.protocol, asyncio.Protocol)
        transport.protocol.data_received(piece)
        await asyncio.sleep(0)
    assert isinstance(transport.protocol, asyncio.Protocol)
    if end and not transport.closed and not transport.protocol.eof_received():
        transport.close()
    await harness.listener.close()
    await harness.gateway.stop()
    await harness.ingest.drain()
    assert transport.closed
    assert harness.seen.failures == []
    assert len(asyncio.all_tasks()) == 1


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.lists(pieces, max_size=8), end=st.booleans())
def test_no_bytes_make_the_front_raise_or_hang(data: list[bytes], end: bool) -> None:
    _run(data, end=end)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.lists(frames | st.binary(max_size=40), max_size=10), end=st.booleans())
def test_no_frames_make_a_websocket_raise_or_hang(data: list[bytes], end: bool) -> None:
    _run([handshake(), *data], end=end)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(whole=st.lists(wholes, min_size=1, max_size=3).map(b"".join), step=st.integers(1, 40))
def test_the_pieces_in_which_bytes_arrive_change_nothing(whole: bytes, step: int) -> None:
    _run([whole[at : at + step] for at in range(0, len(whole), step)], end=True)


def _run(data: list[bytes], *, end: bool) -> None:
    run_on_loop(feed(data, end=end), VirtualTimeLoop)

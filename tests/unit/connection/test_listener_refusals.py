"""HTTP that is refused without the application, peers that are given up, and how the front ends."""

import asyncio

import msgspec
import pytest

from seriatim.connection.listener.state import Receive, Scope, Send
from seriatim.domain import limits
from tests.unit.connection.listener_harness import answer, hello, listener_harness, on_real_loops, until

GET = b"GET /hi HTTP/1.1\r\nHost: here\r\n\r\n"


# --- what is refused without the application -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS hello on a plain port
        b"GET /hi\r\n\r\n",
        b"GET /hi HTTP/1.1\r\n\r\n",  # no host
        b"GET /hi HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET hi HTTP/1.1\r\nHost: here\r\n\r\n",
        b"POST /hi HTTP/1.1\r\nHost: here\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /hi HTTP/1.1\r\nHost: here\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /hi HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
@on_real_loops
async def test_what_is_not_http_is_400_and_the_end(request_: bytes) -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(request_)
        got = await peer.answer()
        assert got.status == 400
        assert msgspec.convert(got.json["error"], dict[str, str])["code"] == "BAD_REQUEST"
        assert await peer.rest() == b""
        await peer.close()


@on_real_loops
async def test_a_refusal_waits_for_the_answers_before_it() -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(GET + b"\x00\x00\x00")
        assert (await peer.answer()).status == 200
        assert (await peer.answer()).status == 400
        await peer.close()


@pytest.mark.parametrize("pieces", [1, 50])
@on_real_loops
async def test_a_head_beyond_16_kib_is_431_and_one_below_is_not(pieces: int) -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        fine = b"GET /hi HTTP/1.1\r\nHost: here\r\nX-Long: " + b"x" * 15_000 + b"\r\n\r\n"
        step = len(fine) // pieces
        for at in range(0, len(fine), step):
            peer.send(fine[at : at + step])
            await asyncio.sleep(0)
        assert (await peer.answer()).status == 200
        peer.send(b"GET /hi HTTP/1.1\r\nHost: here\r\n")
        for _ in range(pieces):
            peer.send(b"X-Long: " + b"x" * (17_000 // pieces) + b"\r\n")
            await asyncio.sleep(0)
        peer.send(b"\r\n")
        assert (await peer.answer()).status == 431
        await peer.close()


@pytest.mark.parametrize(("more", "status"), [(0, 200), (1, 431)])
@on_real_loops
async def test_a_head_of_exactly_16_kib_is_served_and_one_byte_more_is_not(more: int, status: int) -> None:
    """The target and the headers count, each header with its colon, space and line break."""
    counted = len("/hi") + len("Host: here\r\n") + len("X-Long: \r\n")
    long = b"x" * (limits.HEAD_BYTES_MAX - counted + more)
    async with listener_harness() as harness:
        assert (await harness.ask(b"GET /hi HTTP/1.1\r\nHost: here\r\nX-Long: " + long + b"\r\n\r\n")).status == status


@on_real_loops
async def test_a_head_beyond_16_kib_that_came_in_one_read_and_has_no_end_is_431_at_once() -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(b"GET /hi HTTP/1.1\r\nHost: here\r\nX-Endless: " + b"x" * 17_000)
        async with asyncio.timeout(limits.HANDSHAKE_S / 2):
            assert (await peer.answer()).status == 431
        await peer.close()


@on_real_loops
async def test_a_long_body_and_the_beginning_of_the_next_head_in_one_read_are_no_long_head() -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        body = b"x" * 20_000
        first = b"POST /hi HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        peer.send(first + b"GET /hi HTTP/1.1\r\nHos")
        await peer.answer()
        peer.send(b"t: here\r\n\r\n")
        assert (await peer.answer()).status == 200
        await peer.close()


@on_real_loops
async def test_a_header_without_an_end_is_431_before_it_fills_the_memory() -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(b"GET /hi HTTP/1.1\r\nHost: here\r\nX-Endless: ")
        for _ in range(5):
            peer.send(b"x" * 10_000)
            await asyncio.sleep(0.01)
        assert (await peer.answer()).status == 431
        await peer.close()


@pytest.mark.parametrize("begun", [b"", b"GET /hi HTTP/1.1\r\nHost"])
@on_real_loops
async def test_a_head_that_does_not_come_is_408(monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr(limits, "HANDSHAKE_S", 0.05)
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(begun)
        assert (await peer.answer()).status == 408
        assert await peer.rest() == b""
        assert harness.seen.timeouts == ["head"]
        await peer.close()


@on_real_loops
async def test_a_head_that_dribbles_gets_no_more_time_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HANDSHAKE_S", 0.5)
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(GET)
        await peer.answer()
        peer.send(b"GET /hi HTTP/1.1\r\n")
        for number in range(100):
            peer.send(b"X-%d: y\r\n" % number)
            await asyncio.sleep(0.01)
            if harness.seen.timeouts:
                break
        assert harness.seen.timeouts == ["head"]
        assert (await peer.answer()).status == 408
        await peer.close()


@pytest.mark.parametrize(("begun", "timeouts"), [(b"", []), (b"GET /hi HTTP/1.1\r\nHost", ["head"])])
@on_real_loops
async def test_a_request_may_take_longer_than_its_head_and_what_comes_after_it_is_timed_as_ever(
    monkeypatch: pytest.MonkeyPatch, begun: bytes, timeouts: list[str]
) -> None:
    monkeypatch.setattr(limits, "HANDSHAKE_S", 0.4)
    monkeypatch.setattr(limits, "KEEP_ALIVE_S", 0.1)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(limits.HANDSHAKE_S)  # the timer of the head began earlier, so it fires earlier
        await hello(scope, receive, send)

    async with listener_harness(app) as harness:
        peer = await harness.dial()
        peer.send(GET + begun)
        assert (await peer.answer()).status == 200
        assert harness.seen.timeouts == []
        await asyncio.wait_for(peer.rest(), 10)
        assert harness.seen.timeouts == timeouts
        await peer.close()


@on_real_loops
async def test_a_body_that_does_not_come_is_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_STALL_S", 0.05)
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(b"POST /hi HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\n\r\nabc")
        assert (await peer.answer()).status == 408
        assert harness.seen.timeouts == ["body"]
        await peer.close()


@on_real_loops
async def test_a_client_that_does_not_read_its_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_STALL_S", 0.1)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 200, b"x" * 20_000_000)

    async with listener_harness(app) as harness:
        peer = await harness.dial()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.send(GET)
        await until(lambda: harness.seen.timeouts == ["answer"])
        peer.writer.transport.abort()
        await peer.close()


@on_real_loops
async def test_an_idle_connection_is_closed_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEEP_ALIVE_S", 0.05)
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(GET)
        await peer.answer()
        assert await peer.rest() == b""
        assert harness.seen.timeouts == []
        await peer.close()


@on_real_loops
async def test_one_connection_too_many_is_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_CONNECTIONS_MAX", 2)
    async with listener_harness() as harness:
        first, second = await harness.dial(), await harness.dial()
        third = await harness.dial()
        assert (await third.answer()).status == 503
        await third.close()
        await first.close()
        await until(lambda: harness.listener._state.places.taken == 1)
        second.send(GET)
        assert (await second.answer()).status == 200
        assert (await harness.ask(GET)).status == 200
        await second.close()


# --- the end ---------------------------------------------------------------------------------------------------------


@on_real_loops
async def test_while_draining_http_is_served_with_connection_close() -> None:
    async with listener_harness() as harness:
        await harness.listener.drain()
        got = await harness.ask(GET)
        assert (got.status, got.headers["connection"]) == (200, "close")
        assert (await harness.upgrade()).status == 503


@on_real_loops
async def test_closing_answers_what_is_in_flight_and_ends_what_is_idle() -> None:
    go = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await go.wait()
        await hello(scope, receive, send)

    async with listener_harness(app) as harness:
        busy, idle = await harness.dial(), await harness.dial()
        busy.send(GET)
        await until(lambda: bool(harness.listener._state.tasks._tasks))
        closing = asyncio.create_task(harness.listener.close())
        assert await idle.rest() == b""
        await idle.close()
        go.set()
        got = await busy.answer()
        assert (got.body, got.headers["connection"]) == (b"GET /hi ", "close")
        await busy.close()
        await closing
        with pytest.raises(ConnectionRefusedError):
            await harness.dial()


@on_real_loops
async def test_closing_does_not_wait_for_an_application_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LISTENER_CLOSE_S", 0.05)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    async with listener_harness(app) as harness:
        peer = await harness.dial()
        peer.send(GET)
        await until(lambda: bool(harness.listener._state.tasks._tasks))
        async with asyncio.timeout(2):
            await harness.listener.close()
        await peer.close()

"""HTTP over real sockets: what the application is given, how its answers are framed, and when it fails."""

import asyncio

import msgspec
import pytest

from seriatim.connection.listener.state import Receive, Scope, Send
from tests.unit.connection.fakes import UUID
from tests.unit.connection.listener_harness import answer, hello, listener_harness, on_real_loops, read_all, until

GET = b"GET /hi HTTP/1.1\r\nHost: here\r\n\r\n"


def post(body: bytes, *, path: str = "/hi", extra: bytes = b"") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n".encode() + extra + b"\r\n" + body


# --- requests and answers --------------------------------------------------------------------------------------------


@on_real_loops
async def test_one_connection_serves_request_after_request() -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        for number in range(3):
            peer.send(post(b"%d" % number))
            assert (await peer.answer()).body == b"POST /hi %d" % number
        assert harness.seen.finished == [("POST", 200)] * 3
        await peer.close()


@on_real_loops
async def test_pipelined_requests_are_served_one_at_a_time_and_in_order() -> None:
    running = most = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02 if scope["path"] == "/0" else 0)
        await hello(scope, receive, send)
        running -= 1

    async with listener_harness(app) as harness:
        peer = await harness.dial()
        peer.send(b"".join(post(b"x", path=f"/{number}") for number in range(5)))
        assert [(await peer.answer()).body for _ in range(5)] == [b"POST /%d x" % number for number in range(5)]
        assert most == 1
        await peer.close()


@on_real_loops
async def test_the_scope_has_everything_about_the_request() -> None:
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await answer(send, 200, b"")

    async with listener_harness(app) as harness:
        await harness.ask(b"GET /a%20b/%C3%BC?q=1&q=%20 HTTP/1.1\r\nHost: here\r\nX-Odd: Value \r\n\r\n")
        (scope,) = scopes
        assert (scope["type"], scope["method"], scope["http_version"]) == ("http", "GET", "1.1")
        assert (scope["path"], scope["raw_path"]) == ("/a b/ü", b"/a%20b/%C3%BC")
        assert scope["query_string"] == b"q=1&q=%20"
        assert dict(scope["headers"])[b"x-odd"].strip() == b"Value"
        assert scope["client"][0] == "127.0.0.1"
        assert scope["server"] == ("127.0.0.1", harness.port)
        assert scope["scheme"] == "http"


@on_real_loops
async def test_a_chunked_body_arrives_whole() -> None:
    async with listener_harness() as harness:
        top = b"POST /hi HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
        got = await harness.ask(top + b"3\r\nabc\r\n2\r\nde\r\n0\r\nX-Trailer: y\r\n\r\n")
        assert got.body == b"POST /hi abcde"


@on_real_loops
async def test_a_head_gets_the_head_and_nothing_else() -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(b"HEAD /hi HTTP/1.1\r\nHost: here\r\n\r\n")
        head = await peer.answer(only_head=True)
        assert (head.status, head.headers["content-length"]) == (200, "9")
        peer.send(GET)
        assert (await peer.answer()).body == b"GET /hi "
        await peer.close()


@on_real_loops
async def test_an_answer_of_unknown_length_is_chunked_and_the_connection_goes_on() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (b"one", b"", b"two"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})

    async with listener_harness(app) as harness:
        peer = await harness.dial()
        for _ in range(2):
            peer.send(GET)
            assert (await peer.answer()).body == b"onetwo"
        await peer.close()


@on_real_loops
async def test_to_http_10_the_end_of_the_connection_is_the_end_of_such_an_answer() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await send({"type": "http.response.body", "body": b"two"})

    async with listener_harness(app) as harness:
        peer = await harness.dial()
        peer.send(b"GET /hi HTTP/1.0\r\n\r\n")
        assert (await peer.rest()).endswith(b"\r\n\r\nonetwo")
        await peer.close()


@on_real_loops
async def test_204_has_no_body_and_no_length() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 204, b"")

    async with listener_harness(app) as harness:
        got = await harness.ask(GET)
        assert "content-length" not in got.headers
        assert "transfer-encoding" not in got.headers


@on_real_loops
async def test_a_client_that_asks_to_close_gets_connection_close_and_is_closed() -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(b"GET /hi HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n" + GET)
        whole = await peer.rest()
        assert whole.lower().count(b"connection: close") == 1
        assert whole.count(b"HTTP/1.1") == 1
        await peer.close()


@on_real_loops
async def test_a_client_that_has_no_more_to_say_still_gets_its_answer_and_then_the_end() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        await answer(send, 200, b"GET /hi ")

    async with listener_harness(app) as harness:
        peer = await harness.dial()
        peer.send(GET)
        peer.writer.write_eof()
        assert (await peer.rest()).endswith(b"GET /hi ")
        await peer.close()


@on_real_loops
async def test_a_body_is_invited_only_when_the_application_wants_to_read_it() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/no":
            await answer(send, 403, b"no")
        else:
            await hello(scope, receive, send)

    async with listener_harness(app) as harness:
        peer = await harness.dial()
        peer.send(b"POST /hi HTTP/1.1\r\nHost: here\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert await peer.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        peer.send(b"abc")
        assert (await peer.answer()).body == b"POST /hi abc"
        peer.send(b"POST /no HTTP/1.1\r\nHost: here\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert (await peer.answer()).status == 403
        assert await peer.rest() == b""
        await peer.close()


@on_real_loops
async def test_an_answer_given_before_the_body_was_read_reaches_a_client_that_still_sends() -> None:
    """And is the last on this connection: it is unknown where the next request would begin."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 413, b"too much")

    async with listener_harness(app) as harness:
        peer = await harness.dial()
        peer.send(b"POST /hi HTTP/1.1\r\nHost: here\r\nContent-Length: 3000000\r\n\r\n")
        for _ in range(30):
            peer.send(b"x" * 100_000)
            await peer.writer.drain()
        got = await peer.answer()
        assert (got.status, got.headers["connection"]) == (413, "close")
        assert await peer.rest() == b""
        await peer.close()


@on_real_loops
async def test_a_body_is_read_no_faster_than_the_application_does() -> None:
    go = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await go.wait()
        await answer(send, 200, b"%d" % len(await read_all(receive)))

    async with listener_harness(app) as harness:
        peer = await harness.dial()
        size = 20_000_000
        peer.send(post(b"x" * size))
        await asyncio.sleep(0.2)
        assert peer.writer.transport.get_write_buffer_size() > size / 2
        go.set()
        assert (await peer.answer()).body == b"%d" % size
        await peer.close()


@on_real_loops
async def test_an_application_that_writes_faster_than_the_peer_reads_waits() -> None:
    written = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal written
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(200):
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
            written += 1
        await send({"type": "http.response.body"})

    async with listener_harness(app) as harness:
        peer = await harness.dial()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.send(GET)
        await until(lambda: written > 0)
        await asyncio.sleep(0.2)
        assert written < 150
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert len((await peer.answer()).body) == 20_000_000
        await peer.close()


@on_real_loops
async def test_the_application_hears_of_a_client_that_went_away() -> None:
    heard: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (event := await receive())["type"] != "http.disconnect":
            pass
        heard.append(event["type"])
        await answer(send, 200, b"to no peer")

    async with listener_harness(app) as harness:
        peer = await harness.dial()
        peer.send(GET)
        await until(lambda: bool(harness.listener._state.tasks._tasks))
        peer.writer.transport.abort()
        await until(lambda: heard == ["http.disconnect"])
        await peer.close()


# --- failures of the application -------------------------------------------------------------------------------------


@on_real_loops
async def test_a_bug_of_the_application_is_500_in_the_shape_of_rest_and_reported_once() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise KeyError("secret")

    async with listener_harness(app) as harness:
        peer = await harness.dial()
        peer.send(b"GET /hi HTTP/1.1\r\nHost: here\r\nX-Request-ID: " + UUID.encode() + b"\r\n\r\n")
        got = await peer.answer()
        error = msgspec.convert(got.json["error"], dict[str, str])
        assert (got.status, error["code"], error["request_id"]) == (500, "INTERNAL_ERROR", UUID)
        assert got.headers["x-request-id"] == UUID
        assert b"secret" not in got.body
        assert [type(each) for each in harness.seen.failures] == [KeyError]
        assert harness.seen.finished == [("GET", 500)]
        peer.send(GET)
        assert len((await peer.answer()).headers["x-request-id"]) == 36
        await peer.close()


@on_real_loops
async def test_half_an_answer_is_not_taken_for_a_whole_one() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise RuntimeError("a bug")

    async with listener_harness(app) as harness:
        peer = await harness.dial()
        peer.send(GET)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await peer.answer()
        await peer.close()


@on_real_loops
async def test_an_answer_longer_than_announced_never_leaves_whole() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 200, b"12345", (b"content-length", b"3"))

    async with listener_harness(app) as harness:
        got = await harness.ask(GET)
        assert got.status == 500


@on_real_loops
async def test_a_header_with_a_line_break_splits_no_answer() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 200, b"x", (b"x-name", b"a\r\nset-cookie: b"))

    async with listener_harness(app) as harness:
        got = await harness.ask(GET)
        assert got.status == 500
        assert "set-cookie" not in got.headers

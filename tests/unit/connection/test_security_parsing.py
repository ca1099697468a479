"""What strangers can make the listener parse and keep: trailers, pipelined requests, fragments."""

import asyncio

import pytest

from seriatim.connection.listener.http1 import HttpConnection
from seriatim.connection.listener.state import Receive, Scope, Send
from seriatim.connection.listener.upgrade import UpgradeRequest
from seriatim.domain import limits
from seriatim.domain.tokens import Claims
from tests.unit.connection.listener_harness import (
    ListenerHarness,
    handshake,
    hello,
    listener_harness,
    on_real_loops,
    until,
)
from tests.unit.connection.test_listener_websocket import SEND, close_of, frame

GET = b"GET /hi HTTP/1.1\r\nHost: here\r\n\r\n"
CHUNKED = b"POST /hi HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
PATIENCE_S = 20.0  # below HTTP_STALL_S: an answer that comes later has another reason


# --- bytes that nobody reads -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "begun",
    [
        CHUNKED + b"2\r\n{}\r\n0\r\nX-Endless: ",  # the value of a trailer
        CHUNKED + b"2\r\n{}\r\n0\r\nX-",  # the name of a trailer
        CHUNKED + b"2;endless=",  # the extension of a chunk
    ],
)
@on_real_loops
async def test_security_h2_what_surrounds_a_body_is_refused_beyond_16_kib(begun: bytes) -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(begun)
        async with asyncio.timeout(PATIENCE_S):
            sent = 0
            while not harness.seen.http_refusals and sent < 1_000_000:
                peer.send(b"x" * 5000)
                await peer.writer.drain()
                await asyncio.sleep(0)
                sent += 5000
            assert (await peer.answer()).status == 431
            assert await peer.rest() == b""


@on_real_loops
async def test_security_h2_many_short_trailers_are_refused_beyond_16_kib() -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(CHUNKED + b"0\r\n")
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(40):
                peer.send(b"X-Short: y\r\n" * 100)
                await asyncio.sleep(0)
            assert (await peer.answer()).status == 431


@on_real_loops
async def test_security_h2_empty_lines_between_requests_are_refused_beyond_16_kib() -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(GET)
        assert (await peer.answer()).status == 200
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(10):
                peer.send(b"\r\n" * 2500)
                await asyncio.sleep(0)
            assert (await peer.answer()).status == 431


@on_real_loops
async def test_security_h2_a_chunked_body_with_short_extensions_and_trailers_is_served() -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(CHUNKED)
        for _ in range(100):  # in all far more than 16 KiB, between two chunks far less
            peer.send(b"1;note=" + b"y" * 300 + b"\r\nx\r\n")
            await asyncio.sleep(0)
        peer.send(b"0\r\nX-Sum: " + b"z" * 1000 + b"\r\n\r\n")
        assert (await peer.answer()).body == b"POST /hi " + b"x" * 100


# --- pipelined requests ------------------------------------------------------------------------------------------


@on_real_loops
async def test_security_m4_no_more_than_8_pipelined_requests_are_parsed_ahead() -> None:
    go = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await go.wait()
        await hello(scope, receive, send)

    async with listener_harness(app) as harness:
        peer = await harness.dial()
        peer.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" * 1000)
        await until(lambda: bool(harness.listener._state.tasks._tasks))
        for _ in range(100):
            await asyncio.sleep(0)
            assert len(http_connection(harness)._waiting) <= limits.REQUESTS_WAITING_MAX
        go.set()
        for _ in range(1000):
            assert (await peer.answer()).status == 200


@on_real_loops
async def test_security_m4_pipelined_requests_are_all_answered_in_their_order() -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        body = b"\r\n\r\n" * 3  # what ends a head may stand in a body
        for number in range(100):
            peer.send(b"POST /%d HTTP/1.1\r\nHost: here\r\nContent-Length: 12\r\n\r\n" % number + body)
            peer.send(b"GET /%d HTTP/1.1\r\nHost: here\r\n\r\n" % number)
        for number in range(100):
            assert (await peer.answer()).body == b"POST /%d " % number + body
            assert (await peer.answer()).body == b"GET /%d " % number


@on_real_loops
async def test_security_m4_a_client_that_half_closes_after_many_requests_gets_all_answers() -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(GET * 50)
        peer.writer.write_eof()
        for _ in range(50):
            assert (await peer.answer()).status == 200
        assert await peer.rest() == b""


@on_real_loops
async def test_security_m4_a_handshake_behind_many_requests_is_answered_in_its_turn() -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(GET * 30 + handshake() + frame(0x9, b"early"))
        for _ in range(30):
            assert (await peer.answer()).status == 200
        assert (await peer.answer(only_head=True)).status == 101
        await peer.reader.readuntil(b"\x8a\x05early")


@on_real_loops
async def test_security_m4_what_comes_during_a_handshake_is_not_read_before_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go = asyncio.Event()
    async with listener_harness() as harness:
        check = harness.authenticator.check_revoked

        async def slow(claims: Claims, *, timeout_s: float) -> None:
            await go.wait()
            await check(claims, timeout_s=timeout_s)

        monkeypatch.setattr(harness.authenticator, "check_revoked", slow)
        peer = await harness.dial()
        peer.send(handshake())
        await until(lambda: isinstance(http_connection(harness)._current, UpgradeRequest))
        connection = http_connection(harness)
        assert not connection._transport.is_reading()
        for _ in range(10):
            peer.send(frame(0x9, b"early") * 1000)
            await asyncio.sleep(0.01)  # on loopback they would be here by now
        assert connection._after_upgrade == b""
        go.set()
        assert (await peer.answer(only_head=True)).status == 101
        await peer.reader.readuntil(b"\x8a\x05early")


def http_connection(harness: ListenerHarness) -> HttpConnection:
    (connection,) = harness.listener._state._sockets
    assert isinstance(connection, HttpConnection)
    return connection


# --- fragments ---------------------------------------------------------------------------------------------------


@on_real_loops
async def test_security_m6_a_message_of_more_than_64_fragments_closes_1008() -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(handshake())
        await peer.reader.readuntil(b"connection_established")
        peer.send(frame(0x1, b"", fin=False) + frame(0x0, b"", fin=False) * 64)
        async with asyncio.timeout(PATIENCE_S):
            assert await close_of(peer) == 1008


@on_real_loops
async def test_security_m6_a_message_of_64_fragments_is_read() -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(handshake())
        await peer.reader.readuntil(b"connection_established")
        for _ in range(2):  # the count begins again with each message
            fragments = [frame(0x1, b"", fin=False), *[frame(0x0, b"", fin=False)] * 62, frame(0x0, SEND.encode())]
            peer.send(b"".join(fragments))
            await peer.reader.readuntil(b"message_ack")


@on_real_loops
async def test_security_m6_a_fragmented_message_that_does_not_end_in_time_closes_1008(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "FRAGMENTED_MESSAGE_S", 0.05, raising=False)
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(handshake())
        await peer.reader.readuntil(b"connection_established")
        peer.send(frame(0x1, b"{", fin=False))
        async with asyncio.timeout(PATIENCE_S):
            assert await close_of(peer) == 1008
        assert harness.seen.timeouts == ["message"]

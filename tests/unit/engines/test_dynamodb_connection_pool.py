"""Connections to DynamoDB: few, used again, never for two at once, and no request is ever sent twice."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown, Throttled
from seriatim.engines.dynamodb.transport.connection_pool import ConnectionPool, HttpResponse
from tests.unit.engines.scripted_http_server import Respond, Server, echo, http, serving

SOON_S = 0.15
LONG_S = 10.0


@asynccontextmanager
async def pool_to(
    respond: Respond, *, connections_max: int = limits.DYNAMODB_CONNECTIONS_MAX
) -> AsyncIterator[tuple[ConnectionPool, Server]]:
    async with serving(respond) as server:
        pool = ConnectionPool("127.0.0.1", server.port, None, connections_max=connections_max)
        try:
            yield pool, server
        finally:
            await pool.close()


async def ask(pool: ConnectionPool, body: bytes, timeout_s: float = LONG_S) -> HttpResponse:
    request = f"POST / HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    return await pool.exchange(request, until=asyncio.get_running_loop().time() + timeout_s)


async def until_all_are_closed(pool: ConnectionPool) -> None:
    async with asyncio.timeout(LONG_S):
        while pool._all:  # noqa: ASYNC110 - the pool has no event for it
            await asyncio.sleep(0.002)


async def silent(server: Server, number: int, writer: asyncio.StreamWriter) -> None:
    return


async def test_one_connection_serves_one_caller_after_the_other() -> None:
    async with pool_to(echo) as (pool, server):
        answers = [await ask(pool, b"%d" % number) for number in range(5)]
    assert answers == [HttpResponse(200, b"%d" % number) for number in range(5)]
    assert server.connections == 1


async def test_callers_at_once_have_a_connection_each_up_to_the_limit() -> None:
    async with pool_to(echo, connections_max=3) as (pool, server):
        answers = await asyncio.gather(*(ask(pool, b"%d" % number) for number in range(50)))
        assert answers == [HttpResponse(200, b"%d" % number) for number in range(50)]
        assert server.connections == 3


async def test_an_answer_in_pieces_is_put_together() -> None:
    async def dribble(server: Server, number: int, writer: asyncio.StreamWriter) -> None:
        for byte in http(b"x" * 50, "400 Bad Request"):
            writer.write(bytes([byte]))
            await asyncio.sleep(0)

    async with pool_to(dribble) as (pool, _):
        assert await ask(pool, b"a") == HttpResponse(400, b"x" * 50)
        assert await ask(pool, b"b") == HttpResponse(400, b"x" * 50)


async def test_a_caller_that_waits_too_long_gets_outcome_unknown_and_its_answer_reaches_no_other_caller() -> None:
    given_up = asyncio.Event()

    async def late(server: Server, number: int, writer: asyncio.StreamWriter) -> None:
        if number == 0:
            await given_up.wait()
        await echo(server, number, writer)

    async with pool_to(late) as (pool, server):
        with pytest.raises(OutcomeUnknown):
            await ask(pool, b"first", timeout_s=SOON_S)
        given_up.set()
        assert await ask(pool, b"second") == HttpResponse(200, b"second")
        assert await ask(pool, b"third") == HttpResponse(200, b"third")
        assert server.connections == 2
        assert server.requests == [b"first", b"second", b"third"], "nothing was sent twice"


async def test_a_caller_that_goes_away_leaves_no_answer_behind() -> None:
    async def late(server: Server, number: int, writer: asyncio.StreamWriter) -> None:
        if number == 0:
            await asyncio.sleep(SOON_S)
        await echo(server, number, writer)

    async with pool_to(late) as (pool, server):
        going = asyncio.create_task(ask(pool, b"first"))
        await server.asked.wait()
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        assert await ask(pool, b"second") == HttpResponse(200, b"second")


@pytest.mark.parametrize("words", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", b"what?\r\n\r\n"])
async def test_a_connection_lost_on_the_way_leaves_the_outcome_unknown_and_nothing_is_repeated(words: bytes) -> None:
    async def break_off(server: Server, number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(words)
        writer.close()

    async with pool_to(break_off) as (pool, server):
        with pytest.raises(OutcomeUnknown):
            await ask(pool, b"once")
        assert server.requests == [b"once"]


async def test_a_connection_that_the_server_ends_is_not_used_again() -> None:
    async def farewell(server: Server, number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(http(b"bye", headers="Connection: close\r\n"))

    async with pool_to(farewell) as (pool, server):
        for _ in range(3):
            assert await ask(pool, b"") == HttpResponse(200, b"bye")
        assert server.connections == 3


async def test_a_connection_closed_while_idle_is_not_used_again() -> None:
    async def close_a_little_later(server: Server, number: int, writer: asyncio.StreamWriter) -> None:
        await echo(server, number, writer)
        asyncio.get_running_loop().call_later(0.01, writer.close)

    async with pool_to(close_a_little_later) as (pool, server):
        for number in range(3):
            assert await ask(pool, b"%d" % number) == HttpResponse(200, b"%d" % number)
            await until_all_are_closed(pool)
        assert server.connections == 3


async def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pool_to(echo) as (pool, server):
        await ask(pool, b"a")
        await ask(pool, b"b")
        assert server.connections == 1
        monkeypatch.setattr(limits, "DYNAMODB_IDLE_S", 0.0)
        await ask(pool, b"c")
        assert server.connections == 2


async def test_a_caller_that_finds_no_free_connection_waits_no_longer_than_its_time() -> None:
    async with pool_to(silent, connections_max=1) as (pool, server):
        holding = asyncio.create_task(ask(pool, b"first"))
        await server.asked.wait()
        with pytest.raises(OutcomeUnknown):
            await ask(pool, b"second", timeout_s=SOON_S)
        assert server.requests == [b"first"]
        holding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holding


async def test_a_caller_that_waits_for_a_connection_gets_the_next_one_even_if_it_must_be_opened() -> None:
    async def fail_first(server: Server, number: int, writer: asyncio.StreamWriter) -> None:
        if number == 0:
            await asyncio.sleep(0.02)
            writer.close()
        else:
            await echo(server, number, writer)

    async with pool_to(fail_first, connections_max=1) as (pool, server):
        first, second, third = await asyncio.gather(
            *(ask(pool, body) for body in (b"1", b"2", b"3")), return_exceptions=True
        )
        assert isinstance(first, OutcomeUnknown)
        assert (second, third) == (HttpResponse(200, b"2"), HttpResponse(200, b"3"))
        assert server.connections == 2


async def test_too_many_that_wait_are_refused_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DYNAMODB_WAITING_MAX", 2)
    async with pool_to(silent, connections_max=1) as (pool, server):
        waiting = [asyncio.create_task(ask(pool, b"%d" % number)) for number in range(3)]
        await server.asked.wait()
        with pytest.raises(Throttled):
            await ask(pool, b"too many")
        assert server.requests == [b"0"]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_port_without_a_listener_is_an_unknown_outcome() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and no process listens
        pool = ConnectionPool("127.0.0.1", taken.getsockname()[1], None)
        with pytest.raises(OutcomeUnknown):
            await ask(pool, b"hello")
        await pool.close()


async def test_without_time_left_nothing_is_sent() -> None:
    async with pool_to(echo) as (pool, server):
        await ask(pool, b"a")
        with pytest.raises(OutcomeUnknown):
            await ask(pool, b"b", timeout_s=0)
        assert server.requests == [b"a"]


async def test_an_answer_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.DYNAMODB_ANSWER_BYTES_MAX > 16 * 2**20
    monkeypatch.setattr(limits, "DYNAMODB_ANSWER_BYTES_MAX", 1000)

    async def flood(server: Server, number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(http(b"x" * 2000))

    async with pool_to(flood) as (pool, _):
        with pytest.raises(OutcomeUnknown):
            await ask(pool, b"a")


async def test_a_server_that_speaks_unasked_loses_its_connection() -> None:
    async def twice(server: Server, number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(http(b"one"))
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.write(http(b"unasked for"))

    async with pool_to(twice) as (pool, server):
        assert await ask(pool, b"a") == HttpResponse(200, b"one")
        await until_all_are_closed(pool)
        assert await ask(pool, b"b") == HttpResponse(200, b"one")
        assert server.connections == 2


async def test_words_in_the_same_breath_as_an_answer_are_no_answer_to_the_next_request() -> None:
    unasked = http(b"unasked for")

    async def overhasty(server: Server, number: int, writer: asyncio.StreamWriter) -> None:
        if number == 0:
            writer.write(http(b"one") + unasked[:-5])
        else:
            writer.write((unasked[-5:] if server.connections == 1 else b"") + http(b"two"))

    async with pool_to(overhasty) as (pool, server):
        assert await ask(pool, b"a") == HttpResponse(200, b"one")
        assert await ask(pool, b"b") == HttpResponse(200, b"two")
        assert server.connections == 2


async def test_closing_ends_those_who_wait() -> None:
    async with pool_to(silent, connections_max=1) as (pool, server):
        waiting = [asyncio.create_task(ask(pool, b"%d" % number)) for number in range(3)]
        await server.asked.wait()
        await pool.close()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in outcomes] == [OutcomeUnknown] * 3
        with pytest.raises(OutcomeUnknown):
            await ask(pool, b"late")

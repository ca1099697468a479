"""The TCP proxy of the tests: what was cut stays cut, and no connection outlives the proxy."""

import asyncio
from contextlib import suppress

import pytest

from tests.support import listeners
from tests.support.tcp_proxy import TcpProxy


class Dialling:
    """In place of `asyncio.open_connection` for the far end: it has begun, and ends when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self._dial = asyncio.open_connection
        monkeypatch.setattr("tests.support.tcp_proxy.asyncio.open_connection", self._slowly)

    async def near(self, proxy: TcpProxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ends = await self._dial("127.0.0.1", proxy.port)
        await self.begun.wait()
        return ends

    async def _slowly(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.begun.set()
        await self.may_end.wait()
        return await self._dial(host, port)


@pytest.fixture
async def dialling(monkeypatch: pytest.MonkeyPatch) -> Dialling:
    return Dialling(monkeypatch)


async def ends(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(), 10) == b""
    except ConnectionResetError:
        return True


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def test_the_end_of_a_proxy_is_the_end_of_a_connection_whose_far_end_is_still_dialled(dialling: Dialling) -> None:
    async with TcpProxy(0) as proxy:
        reader, writer = await dialling.near(proxy)
    try:
        assert await ends(reader)
    finally:
        await closed(writer)


async def test_a_cut_breaks_a_connection_whose_far_end_is_still_dialled(dialling: Dialling) -> None:
    accepted: list[asyncio.StreamWriter] = []
    far = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
    try:
        async with TcpProxy(far.sockets[0].getsockname()[1]) as proxy:
            reader, writer = await dialling.near(proxy)
            try:
                proxy.cut()
                dialling.may_end.set()
                assert await ends(reader)
            finally:
                await closed(writer)
    finally:
        await listeners.end(far, accepted)

"""A server of HTTP/1.1 that does what a test tells it, and remembers what it was asked."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tests.support import listeners

Respond = Callable[["Server", int, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """`requests` are the bodies in the order of their arrival, `asked` whether there was one.

    `bodies_of[n]` are those of the n-th connection.
    """

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[bytes] = []
        self.bodies_of: list[list[bytes]] = []
        self.heads: list[bytes] = []
        self.asked = asyncio.Event()

    @property
    def connections(self) -> int:
        return len(self.bodies_of)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def serving(respond: Respond, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """`respond` is called for each request, with its number. A connection ends when it returns after closing."""
    server, tasks, accepted = Server(), list[asyncio.Task[None]](), list[asyncio.StreamWriter]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bodies: list[bytes] = []
        server.bodies_of.append(bodies)
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(length)
                server.heads.append(head)
                server.requests.append(body)
                bodies.append(body)
                server.asked.set()
                await respond(server, len(server.requests) - 1, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        tasks.append(asyncio.create_task(serve(reader, writer)))

    listener = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        await listeners.end(listener, accepted)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def http(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


async def echo(server: Server, number: int, writer: asyncio.StreamWriter) -> None:
    """Answers with what was asked."""
    writer.write(http(server.requests[number]))

"""A TCP proxy on 127.0.0.1 before a real server, that a test can cut, restore, slow down, or stall."""

import asyncio
from collections.abc import Coroutine

from tests.support import listeners

CHUNKS_LATE_MAX = 1024  # on their way in one direction of a slow connection; then its sender has to wait


class TcpProxy:
    """Cut, every connection breaks. Stalled, connections stay open and nothing passes, as after a cable was pulled.

    `delay_s`: how much later everything arrives, in both directions. `target_port` may be set after the start.
    `slow_at`: what is sent together with these bytes arrives `slow_s` later than the rest.
    `reset_at`: the next connection on which all of these are sent at once breaks then, and they are forgotten.
    """

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.delay_s = 0.0
        self.slow_at = b""
        self.slow_s = 0.0
        self.reset_at: tuple[bytes, ...] = ()
        self._server: asyncio.Server | None = None
        self._cut = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()
        self._ends: set[asyncio.StreamWriter] = set()
        self._handlers: set[asyncio.Task[None]] = set()
        self.attempts = 0  # to connect, cut or not
        self.chunks_sent = 0  # by the connected clients: one per write, unless it is large

    async def __aenter__(self) -> "TcpProxy":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """Every connection breaks, and new ones break at once."""
        self._cut.set()
        for end in self._ends:
            end.transport.abort()

    def restore(self) -> None:
        self._cut.clear()

    def stall(self) -> None:
        self._open.clear()

    def resume(self) -> None:
        self._open.set()

    async def close(self) -> None:
        assert self._server is not None
        self.cut()
        await listeners.end(self._server, self._ends)
        for handler in self._handlers:
            handler.cancel()
        if self._handlers:
            await asyncio.wait(self._handlers)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.attempts += 1
        if self._cut.is_set():
            writer.transport.abort()
            return
        handling = asyncio.current_task()
        assert handling is not None
        self._handlers.add(handling)
        handling.add_done_callback(self._handlers.discard)
        ends = [writer]
        self._ends.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
            ends.append(far_writer)
            self._ends.add(far_writer)
            if self._cut.is_set():  # meanwhile
                return
            there = self._start(self._pass(reader, far_writer, counted=True))
            back = self._start(self._pass(far_reader, writer))
            await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
        except OSError:  # the target does not listen: the client hears the same
            return
        finally:
            for end in ends:
                end.transport.abort()
            self._ends.difference_update(ends)

    def _start(self, handler: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(handler)
        self._handlers.add(task)
        task.add_done_callback(self._handlers.discard)
        return task

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counted: bool = False) -> None:
        """What is late is still on its way while more is read: a delay is no narrow pipe."""
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_LATE_MAX)
        loop = asyncio.get_running_loop()
        writing = self._start(self._write(late, writer))
        try:
            while data := await reader.read(65_536):
                self.chunks_sent += counted
                if counted and self.reset_at and all(each in data for each in self.reset_at):
                    self.reset_at = ()
                    return
                slow_s = self.slow_s if counted and self.slow_at and self.slow_at in data else 0.0
                await late.put((loop.time() + self.delay_s + slow_s, data))
            await late.put((loop.time() + self.delay_s, b""))
            await asyncio.wait((writing,))
        except OSError:
            pass
        finally:
            writing.cancel()

    async def _write(self, late: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter) -> None:
        """Until an empty chunk, which is the end."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                due, data = await late.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                await self._open.wait()
                if not data:
                    return
                writer.write(data)
                await writer.drain()
        except OSError:
            pass

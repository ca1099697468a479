"""The listener: one port for HTTP and WebSocket. WebSockets go to the gateway, all else to an ASGI application.

How a process ends: `drain` while the port stays open, so that health checks and new clients get a 503; then `close`;
then the owner of the gateway stops it.
"""

import asyncio
import socket
import ssl

from seriatim.connection.listener.http1 import HttpConnection
from seriatim.connection.listener.request import SocketAddress, address_of
from seriatim.connection.listener.state import ASGIApp, ListenerState, WebSocketEndpoint
from seriatim.connection.observer import ListenerObserver
from seriatim.connection.task_group import TaskGroup
from seriatim.domain import limits
from seriatim.ports.clock import Clock


class Listener:
    """`websocket`: None for a listener that serves the application alone. Its gateway is started before `serve`."""

    def __init__(
        self,
        app: ASGIApp,
        clock: Clock,
        *,
        websocket: WebSocketEndpoint | None,
        observe: ListenerObserver | None = None,
    ) -> None:
        self._websocket = websocket
        self._state = ListenerState(app, clock, observe or ListenerObserver(), websocket)
        self._loops = TaskGroup()
        self._servers: list[asyncio.Server] = []

    def protocol_factory(self) -> asyncio.Protocol:
        """For a server that the caller creates itself."""
        return HttpConnection(self._state)

    async def serve(self, host: str, port: int, *, ssl: ssl.SSLContext | None = None) -> list[SocketAddress]:
        """Once per address. Returns the bound addresses once connections are accepted; port 0 takes a free port."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self.protocol_factory, host, port, ssl=ssl, backlog=limits.LISTEN_BACKLOG_MAX)
        _limit_kernel_send_buffers(server)
        if self._websocket is not None and not self._servers:
            self._loops.start(self._websocket.recheck.run())
        self._servers.append(server)
        addresses = [address_of(each.getsockname()) for each in server.sockets]
        return [address for address in addresses if address is not None]

    async def drain(self) -> None:
        """Answers and closes every WebSocket. New handshakes get 503; HTTP is still served, without keep-alive."""
        self._state.draining = True
        if self._websocket is not None:
            await self._websocket.gateway.drain()

    async def close(self) -> None:
        """Stops listening, finishes requests in progress within LISTENER_CLOSE_S, then closes every socket."""
        for server in self._servers:
            server.close()
        self._loops.cancel()
        self._state.close_all()
        try:
            async with asyncio.timeout(limits.LISTENER_CLOSE_S):
                await self._state.empty.wait()
        except TimeoutError:
            self._state.abort_all()
            self._state.tasks.cancel()
        await self._state.tasks.join()
        await self._loops.join()
        await self._state.empty.wait()
        for server in self._servers:
            await server.wait_closed()


def _limit_kernel_send_buffers(server: asyncio.Server) -> None:
    """Accepted sockets inherit it: what a slow reader does not take waits in our buffers, bounded and counted."""
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # Linux and macOS
        for each in server.sockets:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, limits.UNSENT_BYTES_MAX)

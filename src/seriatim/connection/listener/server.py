"""The front door: one port for HTTP and WebSocket. WebSockets go to the gateway, all else to an ASGI application.

How a process ends: `drain` while the listeners stay open, so that health checks and newcomers are told 503; then
`close`; then whoever made the gateway stops it.
"""

import asyncio
import socket
import ssl

from seriatim.connection.gateway import Gateway
from seriatim.connection.listener.admission import Admission
from seriatim.connection.listener.http1 import HttpConnection
from seriatim.connection.listener.request import SocketAddress, address_of
from seriatim.connection.listener.state import ASGIApp, ListenerState
from seriatim.connection.observer import ListenerObserver
from seriatim.connection.session_recheck import RevocationRecheck
from seriatim.connection.task_group import TaskGroup
from seriatim.domain import limits
from seriatim.ports.clock import Clock


class Listener:
    """Made before the gateway starts or after; `serve` once per address, with a started gateway.

    Without `sockets` it serves the application alone: listeners for operators take no clients.
    """

    def __init__(
        self,
        gateway: Gateway,
        app: ASGIApp,
        admission: Admission,
        clock: Clock,
        *,
        observe: ListenerObserver | None = None,
        sockets: bool = True,
    ) -> None:
        observe = observe or ListenerObserver()
        self._gateway = gateway
        self._recheck = RevocationRecheck(gateway.connections, admission.authenticator, clock, observe)
        self._door = ListenerState(gateway, app, admission, clock, self._recheck, observe, sockets=sockets)
        self._loops = TaskGroup()
        self._servers: list[asyncio.Server] = []

    def protocol_factory(self) -> asyncio.Protocol:
        """For servers that somebody else makes."""
        return HttpConnection(self._door)

    async def serve(self, host: str, port: int, *, ssl: ssl.SSLContext | None = None) -> list[SocketAddress]:
        """Returns once connections are accepted: where. Port 0 takes one that is free."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self.protocol_factory, host, port, ssl=ssl, backlog=limits.LISTEN_BACKLOG_MAX)
        _keep_backlogs_here(server)
        if self._door.sockets and not self._servers:
            self._loops.start(self._recheck.run())
        self._servers.append(server)
        places = [address_of(each.getsockname()) for each in server.sockets]
        return [place for place in places if place is not None]

    async def drain(self) -> None:
        """Everybody on a WebSocket is answered, told, and sent elsewhere. Newcomers get 503; HTTP is still served."""
        await self._gateway.drain()

    async def close(self) -> None:
        """Stops listening, finishes what is in flight within FRONT_CLOSE_S, and ends every socket that is left."""
        for server in self._servers:
            server.close()
        self._loops.cancel()
        self._door.shut()
        try:
            async with asyncio.timeout(limits.FRONT_CLOSE_S):
                await self._door.empty.wait()
        except TimeoutError:
            self._door.cut()
            self._door.tasks.cancel()
        await self._door.tasks.join()
        await self._loops.join()
        await self._door.empty.wait()
        for server in self._servers:
            await server.wait_closed()


def _keep_backlogs_here(server: asyncio.Server) -> None:
    """Accepted sockets inherit it: what a slow reader does not take waits in our buffers, bounded and seen."""
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # Linux and macOS
        for each in server.sockets:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, limits.UNSENT_BYTES_MAX)

"""The listener: one port for HTTP and WebSocket. WebSockets go to the gateway, all else to an ASGI application.

How a process ends: `drain` while the port stays open, so that health checks and new clients get a 503; then `close`;
then the owner of the gateway stops it.
"""

import asyncio
import ssl
from collections.abc import Sequence

from seriatim.connection.listener.acceptor import Acceptor
from seriatim.connection.listener.http1 import HttpConnection
from seriatim.connection.listener.places import Places
from seriatim.connection.listener.request import SocketAddress
from seriatim.connection.listener.state import ASGIApp, ListenerState, WebSocketEndpoint
from seriatim.connection.observer import ListenerObserver
from seriatim.connection.task_group import TaskGroup
from seriatim.domain import limits
from seriatim.domain.addresses import Network
from seriatim.ports.clock import Clock


class Listener:
    """`websocket`: None for a listener that serves the application alone. Its gateway is started before `serve`.

    `connections_per_address_max`: sockets of one client address that are no WebSockets (yet); None: no such limit. It
    does not hold for `trusted_proxies`.
    """

    def __init__(
        self,
        app: ASGIApp,
        clock: Clock,
        *,
        websocket: WebSocketEndpoint | None,
        observe: ListenerObserver | None = None,
        connections_per_address_max: int | None = None,
        trusted_proxies: Sequence[Network] = (),
    ) -> None:
        self._websocket = websocket
        observe = observe or ListenerObserver()
        places = Places(observe, per_address_max=connections_per_address_max, exempt=trusted_proxies)
        self._state = ListenerState(app, clock, observe, websocket, places)
        self._loops = TaskGroup()
        self._acceptors: list[Acceptor] = []

    def protocol_factory(self) -> asyncio.Protocol:
        """For a server that the caller creates itself, on a socket that strangers cannot reach."""
        return HttpConnection(self._state)

    async def serve(self, host: str, port: int, *, ssl: ssl.SSLContext | None = None) -> list[SocketAddress]:
        """Once per address. Returns the bound addresses once connections are accepted; port 0 takes a free port."""
        acceptor = Acceptor(self._state, ssl)
        addresses = await acceptor.listen(host, port)
        if self._websocket is not None and not self._acceptors:
            self._loops.start(self._websocket.recheck.run())
        self._acceptors.append(acceptor)
        return addresses

    async def drain(self) -> None:
        """Answers and closes every WebSocket. New handshakes get 503; HTTP is still served, without keep-alive."""
        self._state.draining = True
        if self._websocket is not None:
            await self._websocket.gateway.drain()

    async def close(self) -> None:
        """Stops listening, finishes requests in progress within LISTENER_CLOSE_S, then closes every socket."""
        for acceptor in self._acceptors:
            await acceptor.close()
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

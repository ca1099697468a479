"""What all sockets of a listener share, and the set of those that are open."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from seriatim.connection.gateway import Gateway
from seriatim.connection.listener.admission import Admission
from seriatim.connection.listener.places import Places
from seriatim.connection.observer import ListenerObserver
from seriatim.connection.session_recheck import RevocationRecheck
from seriatim.connection.task_group import TaskGroup
from seriatim.ports.clock import Clock

Scope = MutableMapping[str, Any]  # ASGI's own types; only `asgi` reads their values
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class WebSocketEndpoint:
    """Who may open a WebSocket, which gateway serves it, and how long its session stays valid."""

    def __init__(
        self, gateway: Gateway, admission: Admission, clock: Clock, *, observe: ListenerObserver | None = None
    ) -> None:
        self.gateway = gateway
        self.admission = admission
        self.recheck = RevocationRecheck(
            gateway.connections, admission.authenticator, clock, observe or ListenerObserver()
        )


class ListenerSocket(Protocol):
    """One open socket, in HTTP or in WebSocket."""

    def close_gracefully(self) -> None:
        """Finish the request in progress, then close."""
        ...

    def abort(self) -> None:
        """Close now. Unsent bytes are lost."""
        ...


class ListenerState:
    """`draining`: responses ask clients to reconnect elsewhere. `closing`: no request is started any more."""

    def __init__(
        self,
        app: ASGIApp,
        clock: Clock,
        observe: ListenerObserver,
        websocket: WebSocketEndpoint | None,
        places: Places | None = None,
    ) -> None:
        self.app = app
        self.clock = clock
        self.observe = observe
        self.websocket = websocket
        self.tasks = TaskGroup()
        self.draining = False
        self.closing = False
        self.empty = asyncio.Event()
        self.empty.set()
        self.places = places or Places(observe)
        self._sockets: dict[ListenerSocket, None] = {}

    def add(self, socket: ListenerSocket) -> None:
        self._sockets[socket] = None
        self.empty.clear()

    def remove(self, socket: ListenerSocket) -> None:
        self._sockets.pop(socket, None)
        if not self._sockets:
            self.empty.set()

    def close_all(self) -> None:
        self.closing = True
        for socket in list(self._sockets):
            socket.close_gracefully()

    def abort_all(self) -> None:
        for socket in list(self._sockets):
            socket.abort()

    @property
    def keeps_alive(self) -> bool:
        """A client may send its next request on the same connection."""
        return not (self.draining or self.closing)

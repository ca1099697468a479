"""What all sockets of a front share, and the count of those that are open."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from seriatim.connection.gateway import Gateway
from seriatim.connection.listener.admission import Admission
from seriatim.connection.observer import ListenerObserver
from seriatim.connection.session_recheck import RevocationRecheck
from seriatim.connection.task_group import TaskGroup
from seriatim.ports.clock import Clock

Scope = MutableMapping[str, Any]  # ASGI's own types; its values are looked at nowhere but in `exchange`
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class ListenerSocket(Protocol):
    """One open socket, whatever is spoken on it."""

    def shut(self) -> None:
        """The server goes: end as soon as what is under way is done."""
        ...

    def cut(self) -> None:
        """End now, whatever is lost."""
        ...


class ListenerState:
    """`closing`: nothing that could wait for another server is begun any more."""

    def __init__(
        self,
        gateway: Gateway,
        app: ASGIApp,
        admission: Admission,
        clock: Clock,
        recheck: RevocationRecheck,
        observe: ListenerObserver,
        *,
        sockets: bool,
    ) -> None:
        self.gateway = gateway
        self.app = app
        self.admission = admission
        self.clock = clock
        self.recheck = recheck
        self.observe = observe
        self.sockets = sockets
        self.tasks = TaskGroup()
        self.closing = False
        self.empty = asyncio.Event()
        self.empty.set()
        self.http_connections = 0
        self._links: dict[ListenerSocket, None] = {}

    def enter(self, link: ListenerSocket) -> None:
        self._links[link] = None
        self.empty.clear()

    def leave(self, link: ListenerSocket) -> None:
        self._links.pop(link, None)
        if not self._links:
            self.empty.set()

    def shut(self) -> None:
        self.closing = True
        for link in list(self._links):
            link.shut()

    def cut(self) -> None:
        for link in list(self._links):
            link.cut()

    @property
    def leaving(self) -> bool:
        """Clients had better ask another server next time."""
        return self.closing or self.gateway.draining

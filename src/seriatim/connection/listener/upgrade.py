"""A request that wants to become a WebSocket: admitted, answered with 101, handed to the gateway. Or refused."""

import asyncio
from typing import Protocol

from seriatim.connection.listener import response
from seriatim.connection.listener.admission import Admitted
from seriatim.connection.listener.handshake import HandshakeRefused, refusal_of
from seriatim.connection.listener.request import Request
from seriatim.connection.listener.state import ListenerState
from seriatim.connection.listener.ws_socket import WebSocket
from seriatim.connection.session.connection import Connection
from seriatim.connection.task_group import report
from seriatim.domain.errors import SeriatimError
from seriatim.protocol.frames import CloseReason


class UpgradeTransport(Protocol):
    """The socket, as a handshake sees it."""

    def write(self, data: bytes) -> None: ...

    def turn_over(self, turn: object, *, keep_alive: bool) -> None: ...

    def socket(self) -> WebSocket:
        """What the socket would become."""
        ...

    def switch(self, socket: WebSocket) -> bytes:
        """Everything from here on goes to `socket`. Returns what came after the request already."""
        ...


class UpgradeRequest:
    """A turn on the line, and the last one if it succeeds."""

    def __init__(self, request: Request, wire: UpgradeTransport, door: ListenerState) -> None:
        self.whole = False
        self.answered = False
        self.hungry = False  # until it is decided who reads the bytes that follow, nobody does
        self._request = request
        self._wire = wire
        self._door = door
        self._gone = False

    def begin(self) -> None:
        self._door.tasks.start(self._run())

    def feed(self, data: bytes) -> None:
        """A handshake with a body is refused; what it was does not matter."""

    def complete(self) -> None:
        self.whole = True

    def gone(self) -> None:
        self._gone = True

    def hushed(self) -> None: ...

    async def _run(self) -> None:
        try:
            admitted = await self._door.admission.admit(self._request)
        except HandshakeRefused as refusal:
            self._refuse(refusal)
        except Exception as failure:
            report(failure)
            self._refuse(HandshakeRefused(500, "internal_error", "something went wrong on our side; try again later"))
        except asyncio.CancelledError:
            self._refuse(HandshakeRefused(503, "service_unavailable", "this server is shutting down", retry_after_s=1))
            raise
        else:
            try:
                await self._join(admitted)
            finally:
                self._door.admission.settled(admitted.identity)

    async def _join(self, admitted: Admitted) -> None:
        """From the check to the switch nothing awaits: the socket cannot vanish in between."""
        if self._gone:
            return
        socket = self._wire.socket()
        try:
            connection = self._door.gateway.accept(socket, admitted.identity)
        except SeriatimError as error:
            self._refuse(refusal_of(error))
            return
        self._wire.write(response.switching(admitted.answer))
        socket.attach(connection, self._wire.switch(socket))
        self._door.recheck.watch(connection)
        await self._establish(connection)

    async def _establish(self, connection: Connection) -> None:
        try:
            await self._door.gateway.establish(connection)
        except Exception as failure:
            report(failure)
            connection.close(CloseReason.UPSTREAM_FAILURE)  # nobody would ever greet it

    def _refuse(self, refusal: HandshakeRefused) -> None:
        self._door.observe.handshake_refused(refusal.code)
        if self._gone:
            return
        self.answered = True
        self._wire.write(
            response.handshake_error(
                refusal.status,
                refusal.code,
                refusal.message,
                clock=self._door.clock,
                details=refusal.details,
                retry_after_s=refusal.retry_after_s,
                headers=refusal.headers,
            )
        )
        self._wire.turn_over(self, keep_alive=False)

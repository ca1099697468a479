"""A request that asks for a WebSocket: admitted, answered with 101 and handed to the gateway; or refused."""

import asyncio
from typing import Protocol

from seriatim.connection.listener import response
from seriatim.connection.listener.admission import Admitted
from seriatim.connection.listener.handshake import HandshakeRefused, refusal_of
from seriatim.connection.listener.request import Request
from seriatim.connection.listener.state import ListenerState, WebSocketEndpoint
from seriatim.connection.listener.ws_socket import WebSocket
from seriatim.connection.session.connection import Connection
from seriatim.connection.task_group import report
from seriatim.domain.errors import SeriatimError
from seriatim.protocol.frames import CloseReason


class UpgradeTransport(Protocol):
    """The HTTP connection, as a handshake sees it."""

    def write(self, data: bytes) -> None: ...

    def request_done(self, request: object, *, keep_alive: bool) -> None: ...

    def make_websocket(self) -> WebSocket:
        """A WebSocket on this transport, not in use yet."""
        ...

    def switch_protocol(self, socket: WebSocket) -> bytes:
        """Later bytes go to `socket`. Returns those that have arrived after the request already."""
        ...


class UpgradeRequest:
    """A `QueuedRequest`; the last one of its HTTP connection, accepted or not."""

    def __init__(
        self, request: Request, transport: UpgradeTransport, listener: ListenerState, websocket: WebSocketEndpoint
    ) -> None:
        self.body_complete = False
        self.response_started = False
        self.wants_body = False  # bytes after the request are HTTP or WebSocket: not read until that is decided
        self._request = request
        self._transport = transport
        self._listener = listener
        self._websocket = websocket
        self._disconnected = False

    def start(self) -> None:
        self._listener.tasks.start(self._run())

    def feed_body(self, data: bytes) -> None:
        """Ignored: a handshake with a body is refused."""

    def end_body(self) -> None:
        self.body_complete = True

    def disconnected(self) -> None:
        self._disconnected = True

    def peer_half_closed(self) -> None: ...

    async def _run(self) -> None:
        admission = self._websocket.admission
        try:
            admitted = await admission.admit(self._request)
        except HandshakeRefused as refused:
            self._refuse(refused)
        except Exception as failure:
            report(failure)
            self._refuse(HandshakeRefused(500, "internal_error", "something went wrong on our side; try again later"))
        except asyncio.CancelledError:
            self._refuse(HandshakeRefused(503, "service_unavailable", "this server is shutting down", retry_after_s=1))
            raise
        else:
            try:
                await self._upgrade(admitted)
            finally:
                admission.release(admitted.identity)

    async def _upgrade(self, admitted: Admitted) -> None:
        """From the check to the switch nothing awaits: the socket cannot close in between."""
        if self._disconnected:
            return
        socket = self._transport.make_websocket()
        try:
            connection = self._websocket.gateway.accept(socket, admitted.identity)
        except SeriatimError as error:
            self._refuse(refusal_of(error))
            return
        self._transport.write(response.switching(admitted.response_headers))
        socket.attach(connection, self._transport.switch_protocol(socket))
        self._websocket.recheck.watch(connection)
        await self._establish(connection)

    async def _establish(self, connection: Connection) -> None:
        try:
            await self._websocket.gateway.establish(connection)
        except Exception as failure:
            report(failure)
            connection.close(CloseReason.UPSTREAM_FAILURE)  # it was never greeted, and never would be

    def _refuse(self, refused: HandshakeRefused) -> None:
        self._listener.observe.handshake_refused(refused.code)
        if self._disconnected:
            return
        self.response_started = True
        self._transport.write(
            response.handshake_error(
                refused.status,
                refused.code,
                refused.message,
                clock=self._listener.clock,
                details=refused.details,
                retry_after_s=refused.retry_after_s,
                headers=refused.headers,
            )
        )
        self._transport.request_done(self, keep_alive=False)

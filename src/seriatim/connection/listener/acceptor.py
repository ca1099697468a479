"""Accepts sockets: each one takes a place before anything is read, then TLS, if any, then HTTP.

Event loops' own servers report a socket only after its TLS handshake, and not at all when file descriptors run out
(docs/decisions/0066).
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence

from seriatim.connection.listener.http1 import HttpConnection
from seriatim.connection.listener.places import Place
from seriatim.connection.listener.request import SocketAddress, address_of
from seriatim.connection.listener.state import ListenerState
from seriatim.connection.task_group import TaskGroup
from seriatim.domain import limits


class Acceptor:
    """The listening sockets of one host and port. `listen`, then `close`, which may be repeated."""

    def __init__(self, state: ListenerState, tls: ssl.SSLContext | None) -> None:
        self._state = state
        self._tls = tls
        self._sockets: list[socket.socket] = []
        self._accepting = False
        self._retry: asyncio.TimerHandle | None = None
        self._opening = TaskGroup()
        self._handshakes = 0

    async def listen(self, host: str, port: int) -> list[SocketAddress]:
        """Returns the bound addresses once connections are accepted. Raises `OSError`."""
        self._sockets = await _bind(host, port)
        self._resume()
        addresses = [address_of(each.getsockname()) for each in self._sockets]
        return [address for address in addresses if address is not None]

    async def close(self) -> None:
        self._pause()
        if self._retry is not None:
            self._retry.cancel()
        for each in self._sockets:
            each.close()
        self._sockets = []
        self._opening.cancel()
        await self._opening.join()

    # --- accepting ----------------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        self._retry = None
        if not self._accepting and self._sockets:
            self._accepting = True
            for each in self._sockets:
                asyncio.get_running_loop().add_reader(each, self._accept, each)

    def _pause(self) -> None:
        """New sockets wait in the backlog of the kernel."""
        if self._accepting:
            self._accepting = False
            for each in self._sockets:
                asyncio.get_running_loop().remove_reader(each)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(limits.ACCEPTS_AT_ONCE_MAX):
            if not self._accepting:
                return
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._accept_failed(error)
                return
            self._admit(accepted, peer)

    def _accept_failed(self, error: OSError) -> None:
        """Mostly no file descriptor is left. The socket stays readable: without a pause the loop would spin."""
        self._state.observe.accept_failed(error)
        self._pause()
        self._retry = asyncio.get_running_loop().call_later(limits.ACCEPT_RETRY_S, self._resume)

    def _admit(self, accepted: socket.socket, peer: object) -> None:
        address = address_of(peer)
        place = self._state.places.take(None if address is None else address[0])
        if place is None or (place.refused and self._tls is not None):  # a handshake costs more than what is refused
            accepted.close()
            if place is not None:
                place.release()
            return
        accepted.setblocking(False)
        if self._tls is not None:
            self._count_handshakes(+1)
        self._opening.start(self._open(accepted, place))

    async def _open(self, accepted: socket.socket, place: Place) -> None:
        """Until the transport is connected, by TLS if it is configured."""
        tls = self._tls
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: HttpConnection(self._state, place),
                accepted,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else limits.HANDSHAKE_S,
                ssl_shutdown_timeout=None if tls is None else limits.CLOSE_WAIT_S,
            )
        except OSError as error:  # the peer has left, is too slow with TLS, or speaks something else
            place.release()
            if isinstance(error, ConnectionAbortedError):
                self._state.observe.timed_out("tls")
        except asyncio.CancelledError:
            place.release()
            raise
        finally:
            if tls is not None:
                self._count_handshakes(-1)

    def _count_handshakes(self, change: int) -> None:
        self._handshakes += change
        self._state.observe.tls_handshakes(self._handshakes)
        if self._handshakes >= limits.TLS_HANDSHAKES_MAX:
            self._pause()
        elif self._retry is None:
            self._resume()


async def _bind(host: str, port: int) -> list[socket.socket]:
    """A listening socket for each address of `host`."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    bound: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            each = socket.socket(family, kind, protocol)
            bound.append(each)
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has a socket of its own
            each.bind(address)
            _limit_kernel_send_buffer(each)
            each.listen(limits.LISTEN_BACKLOG_MAX)
    except OSError:
        _close_all(bound)
        raise
    return bound


def _limit_kernel_send_buffer(listening: socket.socket) -> None:
    """Accepted sockets inherit it: what a slow reader does not take waits in our buffers, bounded and counted."""
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # Linux and macOS
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, limits.UNSENT_BYTES_MAX)


def _close_all(sockets: Sequence[socket.socket]) -> None:
    for each in sockets:
        each.close()

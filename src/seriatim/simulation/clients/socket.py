"""A client's connection to a gateway: ordered both ways, late, cut at any moment, no faster than its reader."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from seriatim.simulation.checks.slow_consumers import SlowConsumerCheck
from seriatim.simulation.faults.plan import Faults
from seriatim.simulation.faults.profiles import WireKind
from seriatim.simulation.process import Process

SOCKET_FRAMES_MAX = 2  # what the network takes in before a socket is no longer writable; small, to be met often


class GatewaySide(Protocol):
    """What the socket calls on the gateway's connection."""

    def received(self, text: str | bytes) -> None: ...

    def pong_received(self) -> None: ...

    def writable(self) -> None: ...

    def lost(self) -> None: ...


class ClientSide(Protocol):
    """What the socket calls on the client."""

    def frame_arrived(self, socket: "SimulatedSocket", frame: bytes) -> None: ...

    def socket_closed(self, socket: "SimulatedSocket") -> None: ...


class SimulatedSocket:
    """One connection. Implements `connection.socket.Socket` for the gateway's side."""

    def __init__(self, gateway: Process, device: Process, client: ClientSide, faults: Faults) -> None:
        self._gateway = gateway
        self._device = device
        self._client = client
        self._faults = faults
        self._loop = gateway.loop
        self._server: GatewaySide | None = None
        self._before_accept: list[bytes] = []  # sent before the gateway had accepted
        self._downstream: deque[bytes] = deque()
        self._scheduled = 0
        self._upstream: deque[Callable[[], None]] = deque()
        self._upstream_last = self._downstream_last = 0.0
        self.reading = True
        self.frames_read = 0
        self.slow_consumer_check: SlowConsumerCheck | None = None
        self.dead = False  # nothing passes any more
        self._closing = False  # the server closed: what is in flight still arrives
        self._server_notified = self._client_notified = False

    # --- the gateway's side -----------------------------------------------------------------------------------------

    def accepted(self, server: GatewaySide) -> None:
        self._server = server
        early, self._before_accept = self._before_accept, []
        for frame in early:
            server.received(frame)
        if self.dead:
            self._notify_server()

    @property
    def writable(self) -> bool:
        return len(self._downstream) < SOCKET_FRAMES_MAX

    @property
    def open_for_gateway(self) -> bool:
        """As far as the gateway knows, this is a connection."""
        return not (self._closing or self._server_notified)

    @property
    def gone(self) -> bool:
        """The client was notified that the connection is closed."""
        return self._client_notified

    def write(self, frames: Sequence[bytes]) -> None:
        if self.dead or self._closing or self._server_notified:
            return
        if self.slow_consumer_check is not None:
            for frame in frames:
                self.slow_consumer_check.wrote(frame)
        self._downstream.extend(frames)
        self._pump()

    def ping(self) -> None:
        """The device's network stack answers, as long as the client reads."""
        if not self.dead and self.reading and self._device.alive:
            self._to_server(self._pong)

    def close(self, code: int, reason: str) -> None:
        if not self._closing:
            if self.slow_consumer_check is not None:
                self.slow_consumer_check.closed(reason)
            self._closing = True
            if not self._downstream or not self.reading:
                self._loop.call_later(self._delay(), self._notify_client, context=self._device.context)
            self._to_server(self._notify_server)

    # --- the device's side ------------------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        if not self.dead:
            self._to_server(lambda: self._arrived_at_server(frame))

    def close_by_client(self) -> None:
        """The device closes: the gateway learns it after what was sent before."""
        if not self.dead:
            self._to_server(self._notify_server)
            self._loop.call_later(self._delay(), self._notify_client, context=self._device.context)

    def resume_reading(self) -> None:
        self.reading = True
        self._pump()

    # --- the network ------------------------------------------------------------------------------------------------

    def cut(self, *, gateway_after_s: float, device_after_s: float) -> None:
        """Frames in flight are lost; each side notices after its own delay."""
        self.dead = True
        self._downstream.clear()
        self._upstream.clear()
        self._loop.call_later(gateway_after_s, self._notify_server, context=self._gateway.context)
        self._loop.call_later(device_after_s, self._notify_client, context=self._device.context)

    def _pump(self) -> None:
        while self.reading and self._scheduled < len(self._downstream):
            self._scheduled += 1
            self._downstream_last = max(self._downstream_last, self._loop.time() + self._delay())
            self._loop.call_at(self._downstream_last, self._arrive_at_device, context=self._device.context)

    def _arrive_at_device(self) -> None:
        self._scheduled -= 1
        if self.dead or not self._downstream:
            return
        if not self.reading:
            return  # it stays in the network until the client reads again
        was_full = not self.writable
        frame = self._downstream.popleft()
        self.frames_read += 1
        self._client.frame_arrived(self, frame)
        if was_full and self.writable and self._server is not None:
            self._loop.call_soon(self._server.writable, context=self._gateway.context)
        if self._closing and not self._downstream:
            self._notify_client()

    def _to_server(self, arrive: Callable[[], None]) -> None:
        self._upstream_last = max(self._upstream_last, self._loop.time() + self._delay())
        self._upstream.append(arrive)
        self._loop.call_at(self._upstream_last, self._arrive_at_server, context=self._gateway.context)

    def _arrive_at_server(self) -> None:
        if self._upstream:
            self._upstream.popleft()()

    def _arrived_at_server(self, frame: bytes) -> None:
        if self._server is None:
            self._before_accept.append(frame)
        elif not self._server_notified:
            self._server.received(frame)

    def _pong(self) -> None:
        if self._server is not None and not self._server_notified:
            self._server.pong_received()

    def _notify_server(self) -> None:
        if self._server is not None and not self._server_notified:
            self._server_notified = True
            self._server.lost()

    def _notify_client(self) -> None:
        self.dead = True
        if not self._client_notified:
            self._client_notified = True
            self._client.socket_closed(self)

    def _delay(self) -> float:
        return self._faults.delay(WireKind.PUSH)

"""Checks how one slow client is treated: warned first, closed after the grace period, and not before."""

from typing import TYPE_CHECKING

from seriatim.domain import limits
from seriatim.protocol.frames import CloseReason
from seriatim.simulation.checks.history import WorldHistory
from seriatim.simulation.process import Process

if TYPE_CHECKING:
    from seriatim.simulation.clients.socket import SimulatedSocket

ROUNDING_S = 0.001
CLOSED_WITHIN_S = 1.0  # of the end of the grace period
_ERROR = b'{"type":"error","code":"SLOW_CONSUMER"'


class SlowConsumerCheck:
    """The socket calls it with what the gateway writes, and when it closes."""

    def __init__(self, socket: "SimulatedSocket", gateway: Process, name: str, history: WorldHistory) -> None:
        self._socket = socket
        self._gateway = gateway
        self._name = name
        self._history = history
        self._warned_at: float | None = None

    def wrote(self, frame: bytes) -> None:
        """A warning begins the grace period. A client that reads nothing until after its end must be disconnected."""
        if not frame.startswith(_ERROR):
            return
        self._warned_at = now = self._history.now
        loop = self._gateway.loop
        loop.call_at(
            now + limits.SLOW_CONSUMER_GRACE_S + CLOSED_WITHIN_S,
            self._overdue,
            now,
            self._socket.frames_read,
            context=loop.world.context,
        )

    def closed(self, reason: str) -> None:
        if reason != CloseReason.SLOW_CONSUMER:
            return
        waited = 0.0 if self._warned_at is None else self._history.now - self._warned_at
        if waited < limits.SLOW_CONSUMER_GRACE_S - ROUNDING_S:
            self._history.violate(
                "slow_consumer_grace", f"{self._name} was closed as too slow {waited:.2f} s after it was warned"
            )

    def _overdue(self, warned_at: float, frames_read: int) -> None:
        if self._socket.open_for_gateway and self._socket.frames_read == frames_read and self._was_awake(warned_at):
            self._history.violate(
                "slow_consumer_closed",
                f"{self._name} has read nothing since it was warned at {warned_at:.3f}, and is still connected",
            )

    def _was_awake(self, since: float) -> bool:
        """A gateway that leaves has announced the end already, and waits for its own deadline."""
        gateway = self._gateway
        return gateway.alive and not gateway.paused and not gateway.leaving and gateway.resumed_at < since

"""What the plane needs of a socket, and who is at its other end. The shell or the simulator provides both."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from seriatim.domain.tokens import Claims


class Socket(Protocol):
    @property
    def writable(self) -> bool:
        """There is room. When it was not, the owner of the socket calls `Connection.writable` once there is again."""
        ...

    def write(self, frames: Sequence[bytes]) -> None:
        """Sends each as one text frame, in order. Never blocks, never raises; what is too much shows in `writable`."""
        ...

    def ping(self) -> None: ...

    def close(self, code: int, reason: str) -> None:
        """Closes after what was written. The owner calls `Connection.lost` when it is over, however it ends."""
        ...


class ClientIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Who connected, proved by a token before the socket was handed over."""

    user_id: str
    device_id: str
    session_id: str
    token_expires_at_ms: int
    claims: Claims | None = None  # what to ask again whether it was revoked; None: nobody is asked

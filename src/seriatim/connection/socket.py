"""What the plane needs of a socket, and the identity of its client. The listener or the simulator provides both."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from seriatim.domain.tokens import Claims


class Socket(Protocol):
    @property
    def writable(self) -> bool:
        """The write buffer has room. When it has room again, the socket's owner calls `Connection.writable`."""
        ...

    def write(self, frames: Sequence[bytes]) -> None:
        """Sends each as one text frame, in order. Never blocks, never raises; a full buffer shows in `writable`."""
        ...

    def ping(self) -> None: ...

    def close(self, code: int, reason: str) -> None:
        """Closes after what was written. The owner calls `Connection.lost` when it is over, however it ends."""
        ...


class ClientIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Who connected, as proved by the token of the handshake."""

    user_id: str
    device_id: str
    session_id: str
    token_expires_at_ms: int
    claims: Claims | None = None  # for the revocation recheck; None: not checked

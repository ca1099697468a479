"""What the gateway and the listener report about themselves; the runtime turns it into metrics and logs."""

from seriatim.domain.errors import SeriatimError
from seriatim.protocol.frames import CloseReason


class GatewayObserver:
    """Does nothing; override what you want to see."""

    def connection_opened(self) -> None:
        """A connection was accepted."""

    def connection_closed(self, reason: CloseReason | None) -> None:
        """None: the client or the network ended it."""

    def rejected(self, code: str) -> None:
        """An error frame with this code is sent."""

    def unknown_frame(self, frame_type: str) -> None:
        """A client sent a frame of a type that this version does not know; it was ignored."""

    def unknown_connection(self, messages: int) -> None:
        """Pushes with so many messages named a connection that is not here (any more)."""

    def buffer_high(self, frames: int) -> None:
        """An outbound buffer passed its warning mark."""

    def slow_consumer(self) -> None:
        """A client was warned; whether it is disconnected shows in `connection_closed`."""

    def directory_failed(self, operation: str, error: SeriatimError) -> None:
        """The directory did not answer; the next heartbeat repeats the operation."""

    def fill_failed(self, error: SeriatimError) -> None:
        """Missing messages could not be read back; the read is repeated after a growing pause."""

    def filled(self, messages: int) -> None:
        """So many messages were read back because their pushes did not arrive or found no room."""

    def repeated(self) -> None:
        """A push of a message that the connection has already was recognised and dropped."""

    def subscription(self, active: bool) -> None:
        """The subscription to pushes was established, or lost."""


class ListenerObserver:
    """Does nothing; override what you want to see. No method is ever given a token, a query or content."""

    def handshake_refused(self, code: str) -> None:
        """A WebSocket handshake was answered with this error code."""

    def http_finished(self, method: str, status: int, seconds: float) -> None:
        """The application answered; a HEAD counts as itself."""

    def http_refused(self, status: int) -> None:
        """Answered without the application: not HTTP, too large, too slow, too many."""

    def http_failed(self, failure: Exception) -> None:
        """The application raised; this is the only report of it."""

    def timed_out(self, what: str) -> None:
        """A peer was given up: "tls", "head", "body", "answer", "message" or "close" says for what."""

    def socket_refused(self, reason: str) -> None:
        """A new socket found no place: all are taken ("places"), or the share of its address is ("address")."""

    def idle_evicted(self) -> None:
        """The longest idle keep-alive connection was closed for a new socket."""

    def accept_failed(self, error: OSError) -> None:
        """A new socket could not be accepted, mostly for want of a file descriptor. The listener pauses."""

    def tls_handshakes(self, under_way: int) -> None:
        """So many TLS handshakes are under way now."""

    def revocation_unknown(self, error: SeriatimError) -> None:
        """The revocation store did not answer; the session is checked again next time."""

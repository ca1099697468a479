"""What an HTTP connection asks of the requests in its queue, and the one that it answers itself: a refusal."""

from typing import Protocol


class QueuedRequest(Protocol):
    """One request. `body_complete`: all of its body has arrived. `response_started`: some of the response has left."""

    body_complete: bool
    response_started: bool

    @property
    def wants_body(self) -> bool:
        """More of the body may be read."""
        ...

    def start(self) -> None:
        """The requests before it are answered: answer this one."""
        ...

    def feed_body(self, data: bytes) -> None: ...

    def end_body(self) -> None: ...

    def disconnected(self) -> None:
        """The response can reach the peer no more, or was replaced by a refusal."""
        ...

    def peer_half_closed(self) -> None:
        """The peer sends no more bytes, and may still read."""
        ...


class RefusalTransport(Protocol):
    """The HTTP connection, as a refusal sees it."""

    def refused(self, request: object, status: int, code: str, message: str) -> None:
        """Answer with this, and close."""
        ...


class RefusedRequest:
    """A `QueuedRequest` that is refused without the application, and is the last one."""

    body_complete = True
    wants_body = False

    def __init__(self, transport: RefusalTransport, answer: tuple[int, str, str]) -> None:
        self.response_started = False
        self._transport = transport
        self._answer = answer

    def start(self) -> None:
        self.response_started = True
        self._transport.refused(self, *self._answer)

    def feed_body(self, data: bytes) -> None: ...

    def end_body(self) -> None: ...

    def disconnected(self) -> None: ...

    def peer_half_closed(self) -> None: ...

"""The unanswered requests of one connection. Full: SERVER_BUSY; full for INBOUND_FULL_S: the connection closes."""

from seriatim.domain import limits


class InboundQueue:
    """A request is in progress until its answer is written to the socket, so unread answers count too."""

    __slots__ = ("full_since", "in_progress")

    def __init__(self) -> None:
        self.in_progress = 0
        self.full_since: float | None = None

    def admit(self, now: float) -> bool:
        if self.in_progress >= limits.INBOUND_REQUESTS_MAX:
            return False
        self.in_progress += 1
        if self.in_progress == limits.INBOUND_REQUESTS_MAX:
            self.full_since = now
        return True

    def release(self, count: int = 1) -> None:
        self.in_progress -= count
        if self.in_progress < limits.INBOUND_REQUESTS_MAX:
            self.full_since = None

    def shed_at(self) -> float | None:
        """When the queue will have been full for INBOUND_FULL_S; None while it is not full."""
        return None if self.full_since is None else self.full_since + limits.INBOUND_FULL_S

"""The requests of one connection that are not answered yet. Full: SERVER_BUSY; full for long: the connection goes."""

from seriatim.domain import limits


class InboundQueue:
    """A request is in progress until its answer was handed to the socket, so that unread answers count too."""

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
        """When the queue will have been full for too long to be a burst."""
        return None if self.full_since is None else self.full_since + limits.INBOUND_FULL_S

"""How fast a connection may send: a token bucket, and the point at which a flood is no accident any more."""

import math

from seriatim.domain import limits
from seriatim.domain.errors import RateLimited
from seriatim.protocol.rate_window import RateWindow


class SendRate:
    """Full at first; each send takes one token, SEND_RATE_PER_S tokens come back per second."""

    __slots__ = ("_at", "_rejections", "_tokens")

    def __init__(self, now: float) -> None:
        self._tokens = float(limits.SEND_BURST_MAX)
        self._at = now
        self._rejections: RateWindow | None = None  # most clients never need one

    def take(self, now: float) -> RateLimited | None:
        """None: go ahead. Otherwise the error to answer with."""
        tokens = self._tokens + (now - self._at) * limits.SEND_RATE_PER_S
        self._at = now
        if tokens >= 1:
            self._tokens = (tokens if tokens < limits.SEND_BURST_MAX else limits.SEND_BURST_MAX) - 1
            return None
        self._tokens = tokens
        wait = math.ceil((1 - tokens) / limits.SEND_RATE_PER_S)
        return RateLimited("too many messages on this connection", retry_after_seconds=max(1, wait))

    def flooding(self, now: float) -> bool:
        """Counts a rejection. True: more than RATE_REJECTIONS_MAX in the window, so the client does not listen."""
        if self._rejections is None:
            self._rejections = RateWindow(limits.RATE_REJECTIONS_MAX + 1, limits.RATE_REJECTIONS_WINDOW_S)
        return self._rejections.add(now)

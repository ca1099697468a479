"""How long to wait before another try: each pause twice the one before it, up to a limit, and spread at random."""

from collections.abc import Callable

from seriatim.domain import limits
from seriatim.domain.errors import ServiceUnavailable, Throttled

RandomSource = Callable[[], float]  # a number in [0, 1)

_DOUBLINGS_MAX = 30  # keeps the power small, however long an outage lasts


def doubled_s(doublings: int, *, first_s: float, max_s: float) -> float:
    """`first_s`, doubled that many times, at most `max_s`."""
    return min(first_s * (1 << min(doublings, _DOUBLINGS_MAX)), max_s)


def backoff_s(doublings: int, *, first_s: float, max_s: float, random: RandomSource) -> float:
    """As `doubled_s`, and up to a half shorter at random: callers that failed together do not retry together."""
    return doubled_s(doublings, first_s=first_s, max_s=max_s) * (0.5 + random() / 2)


def client_backoff_s(attempts: int, hint_s: float, random: RandomSource) -> float:
    """The pause of a client: 1, 2, 4, 8, 16, 16 ... seconds, each spread by 20 %, and at least what the server asks."""
    step_s = doubled_s(attempts, first_s=limits.CLIENT_BACKOFF_S, max_s=limits.CLIENT_BACKOFF_MAX_S)
    return max(step_s * (1 + limits.CLIENT_BACKOFF_SPREAD_RATIO * (2 * random() - 1)), hint_s)


class RefusalBackoff:
    """ADR-009's pauses after refusals of a store: throttles and conflicts are counted apart."""

    def __init__(self, random: RandomSource) -> None:
        self._random = random
        self._throttles = 0
        self._conflicts = 0

    def pause_s(self, refusal: ServiceUnavailable) -> float | None:
        """The pause after a `Throttled` or a `Conflict`, None if it was the last attempt."""
        if isinstance(refusal, Throttled):
            if self._throttles == limits.THROTTLE_RETRIES_MAX:
                return None
            self._throttles += 1
            doublings, first_s, max_s = self._throttles - 1, limits.THROTTLE_BACKOFF_S, limits.THROTTLE_BACKOFF_MAX_S
        else:
            if self._conflicts == limits.CONFLICT_RETRIES_MAX:
                return None
            self._conflicts += 1
            doublings, first_s, max_s = self._conflicts - 1, limits.CONFLICT_BACKOFF_S, limits.CONFLICT_BACKOFF_MAX_S
        return backoff_s(doublings, first_s=first_s, max_s=max_s, random=self._random)

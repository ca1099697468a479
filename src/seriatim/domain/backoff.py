"""How long a client waits before it tries again: 1, 2, 4, 8, 16, 16 ... seconds, each spread by 20 %."""

from collections.abc import Callable

from seriatim.domain import limits

Chance = Callable[[], float]  # a number in [0, 1)

_DOUBLINGS_MAX = 16  # far beyond the longest pause; keeps the power small however long an outage lasts


def backoff_s(attempts: int, hint_s: float, chance: Chance) -> float:
    """The pause after that many failed attempts in a row; a longer one asked for by the server wins."""
    step = min(limits.CLIENT_BACKOFF_S * (1 << min(attempts, _DOUBLINGS_MAX)), limits.CLIENT_BACKOFF_MAX_S)
    spread = 1 + limits.CLIENT_BACKOFF_SPREAD_RATIO * (2 * chance() - 1)
    return max(step * spread, hint_s)

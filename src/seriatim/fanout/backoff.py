"""How long to wait before the next try: twice as long each time, and never in step with the others."""

from seriatim.ports.clock import Clock

_DOUBLINGS_MAX = 30  # a partition may fail for days; its exponent must not


def backoff_s(failures: int, *, first_s: float, most_s: float, clock: Clock) -> float:
    """After the first failure about `first_s`, at last about `most_s`; never less than half of either."""
    full_s = min(most_s, first_s * (1 << min(failures - 1, _DOUBLINGS_MAX)))
    return full_s * (0.5 + clock.random() / 2)

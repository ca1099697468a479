"""Time and random numbers. The planes get both from here alone, so that a simulator can control them."""

from typing import Protocol


class Clock(Protocol):
    """One process's clock. Timers run on the event loop, whose time is `monotonic`."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970, UTC. May be wrong: it decides speed, never safety."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow; the event loop's own time."""
        ...

    def random(self) -> float:
        """A number in [0, 1)."""
        ...

    def random_bits(self, bits: int) -> int:
        """An integer of that many random bits, fit for identifiers."""
        ...

"""`Clock` of a real process: the operating system's time and chance."""

import secrets
import time

from seriatim.ports.clock import Clock

_CHANCE = secrets.SystemRandom()


class SystemClock(Clock):
    """Asyncio's own loops measure with the same monotonic clock, so its times can be compared with `loop.time()`."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def random(self) -> float:
        return _CHANCE.random()

    def random_bits(self, bits: int) -> int:
        return secrets.randbits(bits)

"""`Clock` of a real process: the operating system's time and random numbers."""

import os
import secrets
import time

from seriatim.ports.clock import Clock

_POOL_BYTES = 4096  # a system call costs microseconds, for ten bytes or for these
_ID_BITS_MAX = 128  # more bits are for secrets, which are never taken from the pool


class SystemClock(Clock):
    """Asyncio's own loops measure with the same monotonic clock, so its times can be compared with `loop.time()`.

    For one event loop: two threads could get the same bytes.
    """

    _pool = b""  # random bytes; each is used once
    _used = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # called several times per message

    def random(self) -> float:
        return self.random_bits(53) / (1 << 53)

    def random_bits(self, bits: int) -> int:
        if bits > _ID_BITS_MAX:
            return secrets.randbits(bits)
        count = (bits + 7) // 8
        first = self._used
        if first + count > len(self._pool):
            self._pool, first = os.urandom(_POOL_BYTES), 0
        self._used = first + count
        return int.from_bytes(self._pool[first : self._used], "big") >> (8 * count - bits)

"""`Clock` of a real process: the operating system's time and chance."""

import os
import secrets
import time

from seriatim.ports.clock import Clock

_POOL_BYTES = 4096  # asking the system costs microseconds, be it for ten bytes or for these
_ID_BITS_MAX = 128  # more is asked for by those who make secrets: these do not lie about beforehand


class SystemClock(Clock):
    """Asyncio's own loops measure with the same monotonic clock, so its times can be compared with `loop.time()`.

    For one event loop: two threads might be given the same chance.
    """

    _pool = b""  # random bytes; each is given once
    _given = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # asked for several times on the way of every message

    def random(self) -> float:
        return self.random_bits(53) / (1 << 53)

    def random_bits(self, bits: int) -> int:
        if bits > _ID_BITS_MAX:
            return secrets.randbits(bits)
        count = (bits + 7) // 8
        first = self._given
        if first + count > len(self._pool):
            self._pool, first = os.urandom(_POOL_BYTES), 0
        self._given = first + count
        return int.from_bytes(self._pool[first : self._given], "big") >> (8 * count - bits)

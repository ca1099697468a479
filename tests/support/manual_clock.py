"""A clock that moves only when a test advances it, wall clock and monotonic clock together. Random numbers are real."""

from seriatim.engines.inprocess.clock import SystemClock

NOON_MS = 1_769_774_400_000  # 2026-01-30T12:00:00Z


class ManualClock(SystemClock):
    def __init__(self, now_ms: int = NOON_MS) -> None:
        self.passed_s = 0.0
        self._began_ms = now_ms

    def now_ms(self) -> int:
        return self._began_ms + round(self.passed_s * 1000)

    def now_s(self) -> int:
        """As tokens count: whole seconds."""
        return self.now_ms() // 1000

    def monotonic(self) -> float:
        return 1000.0 + self.passed_s

    def advance(self, seconds: float) -> None:
        self.passed_s += seconds

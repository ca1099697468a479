"""How late a batch is: how much longer it was on its way than others of its stream, though no two clocks agree.

A process that stood still finds drafts in its socket whose senders gave up long ago. It must not store them now.
"""

from seriatim.domain import limits


class Lateness:
    """Of one stream. Both times are monotonic, each of its own clock; only their difference is compared."""

    def __init__(self) -> None:
        self._fastest: float | None = None  # smallest difference so far, which also holds what the clocks differ by
        self._fastest_at = 0.0
        self._late_since: float | None = None

    def of(self, sent_at: float, read_at: float) -> float:
        """Seconds, 0 for a batch that is as fast as any before it."""
        difference = read_at - sent_at
        if self._fastest is not None:
            # One clock may run faster than the other: an old comparison is believed less and less.
            expected = self._fastest + limits.RPC_CLOCK_DRIFT_RATIO * (sent_at - self._fastest_at)
            late = difference - expected
            if late > 0 and not self._always_late(late, sent_at):
                return late
        self._fastest, self._fastest_at = difference, sent_at
        self._late_since = None
        return 0.0

    def _always_late(self, late: float, sent_at: float) -> bool:
        """True when nothing has been on time for long: a machine that slept has moved its clock, not its batches.

        By the time of sending: what waited for us was all sent within seconds, however long it waited.
        """
        if late < limits.RPC_LATE_S:
            self._late_since = None
        elif self._late_since is None:
            self._late_since = sent_at
        return self._late_since is not None and sent_at - self._late_since > limits.RPC_LATE_RESET_S

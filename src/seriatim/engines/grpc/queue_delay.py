"""How much longer a batch was on its way than others of its stream, although no two clocks agree.

A process that was stopped finds drafts in its socket whose senders gave up long ago. It must not store them now.
"""

from seriatim.domain import limits


class QueueDelay:
    """Of one stream. Both times are monotonic, each of its own clock; only their difference is compared."""

    def __init__(self) -> None:
        self._fastest: float | None = None  # smallest difference so far, which includes the offset between the clocks
        self._fastest_at = 0.0
        self._delayed_since: float | None = None

    def measure(self, sent_at: float, read_at: float) -> float:
        """Seconds, 0 for a batch that is as fast as any before it."""
        difference = read_at - sent_at
        if self._fastest is not None:
            # One clock may run faster than the other, so an old minimum grows by their greatest drift.
            expected = self._fastest + limits.GRPC_CLOCK_DRIFT_RATIO * (sent_at - self._fastest_at)
            delay = difference - expected
            if delay > 0 and not self._is_permanent(delay, sent_at):
                return delay
        self._fastest, self._fastest_at = difference, sent_at
        self._delayed_since = None
        return 0.0

    def _is_permanent(self, delay: float, sent_at: float) -> bool:
        """True when no batch was on time for long: a machine that slept has moved its clock, and delays no batch.

        Counted by the time of sending: batches that wait in a socket were all sent within seconds.
        """
        if delay < limits.GRPC_LATE_S:
            self._delayed_since = None
        elif self._delayed_since is None:
            self._delayed_since = sent_at
        return self._delayed_since is not None and sent_at - self._delayed_since > limits.GRPC_LATE_RESET_S

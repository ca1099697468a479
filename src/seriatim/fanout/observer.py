"""What fanout reports about itself: counters, and one failure that pages. The runtime turns it into metrics."""

from collections.abc import Sequence
from enum import StrEnum

from seriatim.ports.event_log import DeadLetter, Partition, Record


class SkipReason(StrEnum):
    """Why a message was not pushed. Never a reason for a dead letter: the gateway's probe finds the message."""

    ROSTER = "roster"
    DIRECTORY = "directory"
    PUSH = "push"
    GATEWAY_GONE = "gateway_gone"


class FanoutObserver:
    """Does nothing; override what you want to see. Calls come from the hot path: they return at once, never raise."""

    traces = False

    def traced(self, step: str, chat_id: str, sequence: int, message_id: str, connections: int) -> None:
        """A message was pushed to so many connections of a gateway. Called only while `traces`."""

    def handled(self, run: Sequence[Record]) -> None:
        """These records need nothing more: delivery was attempted, or the dead letter of the only one is written."""

    def delivered(self, envelopes: int, connections: int) -> None:
        """This many envelopes were published to subscribed gateways, for this many connections in all."""

    def skipped(self, reason: SkipReason, error: Exception | None = None) -> None:
        """A message was not pushed, because of this error if there was one."""

    def retried(self) -> None:
        """A step of a delivery failed and is repeated."""

    def cache_failed(self) -> None:
        """The member cache was not written or not cleared, which is safe: its version is compared."""

    def unknown_version(self, event_version: int) -> None:
        """An event newer than this code, handled as version 1."""

    def dead_letter_written(self, dead_letter: DeadLetter) -> None:
        """A dead letter was written."""

    def dead_letter_failed(self, partition: Partition, error: Exception) -> None:
        """The partition is stalled until its dead letter can be written: page an operator."""

    def commit_failed(self, partition: Partition, error: Exception) -> None:
        """An offset was not committed; the next commit covers it."""

    def restarted(self, error: Exception) -> None:
        """Joining the group or a poll failed and is tried again."""

    def rebalanced(self) -> None:
        """Partitions were assigned or revoked."""

"""What fanout tells whoever watches: counters, and the one thing that pages. The runtime turns it into metrics."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from seriatim.ports.event_log import Partition, Record


class Skip(StrEnum):
    """Why nothing was sent. Never a reason for a dead letter: the gateway's probe heals it."""

    ROSTER = "roster"
    DIRECTORY = "directory"
    PUSH = "push"
    GATEWAY_GONE = "gateway_gone"


class FanoutObserver(Protocol):
    """Calls come from the hot path: they return at once and never raise."""

    def handled(self, run: Sequence[Record]) -> None:
        """These records need nothing more: delivery was attempted, or the letter of the only one is safe."""
        ...

    def delivered(self, parcels: int, connections: int) -> None:
        """So many were handed to gateways that listen, for so many connections together."""
        ...

    def skipped(self, reason: Skip) -> None: ...

    def retried(self) -> None: ...

    def cache_failed(self) -> None:
        """The member cache was not written or not cleared; its version keeps that harmless."""
        ...

    def unknown_version(self, event_version: int) -> None:
        """An event newer than this code, handled as version 1."""
        ...

    def buried(self) -> None: ...

    def letter_failed(self, partition: Partition) -> None:
        """The partition stands still until its letter can be written: page someone."""
        ...

    def commit_failed(self) -> None: ...

    def restarted(self) -> None:
        """Joining the group or a poll failed and is tried again."""
        ...

    def rebalanced(self) -> None: ...


class Unobserved:
    """Nobody watches."""

    def handled(self, run: Sequence[Record]) -> None: ...

    def delivered(self, parcels: int, connections: int) -> None: ...

    def skipped(self, reason: Skip) -> None: ...

    def retried(self) -> None: ...

    def cache_failed(self) -> None: ...

    def unknown_version(self, event_version: int) -> None: ...

    def buried(self) -> None: ...

    def letter_failed(self, partition: Partition) -> None: ...

    def commit_failed(self) -> None: ...

    def restarted(self) -> None: ...

    def rebalanced(self) -> None: ...

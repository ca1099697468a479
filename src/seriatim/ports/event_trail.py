"""What the event log holds of one message, for operators: read beside all other readers, and never written."""

from collections.abc import AsyncIterator
from typing import Protocol

from seriatim.ports.event_log import Partition, Record


class EventTrail(Protocol):
    """Raises `ServiceUnavailable` when the log does not answer."""

    async def partitions(self, topic: str) -> int:
        """How many partitions the topic has."""
        ...

    def events(self, partition: Partition, *, since_ms: int) -> AsyncIterator[Record]:
        """In offset order, up to the end as of the call; none that was written at `since_ms` or later is left out."""
        ...

    async def next_offset(self, group: str, partition: Partition) -> int | None:
        """The offset at which the group goes on; None if it has committed nothing there."""
        ...

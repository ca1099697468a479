"""The partitions assigned to a reader of an event log: how far each has been read, and which are paused."""

from seriatim.engines.shared.consumer_group import Grant
from seriatim.ports.event_log import Fenced, Partition


class PartitionPosition:
    """`position` is the offset of the next record to read."""

    __slots__ = ("grant", "paused", "position")

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self.position = grant.start
        self.paused = False


class AssignedPartitions:
    """The part of an `EventReader` that every engine with a coordinator does alike. `_wake` ends a waiting poll."""

    _assigned: dict[Partition, PartitionPosition]

    def seek(self, partition: Partition, offset: int) -> None:
        """No effect on a partition that is not assigned, like `pause` and `resume`: its loss will be reported."""
        assigned = self._assigned.get(partition)
        if assigned is not None:
            assigned.position = offset
            self._wake()

    def pause(self, partition: Partition) -> None:
        assigned = self._assigned.get(partition)
        if assigned is not None:
            assigned.paused = True

    def resume(self, partition: Partition) -> None:
        assigned = self._assigned.get(partition)
        if assigned is not None:
            assigned.paused = False
            self._wake()

    def _require_assigned(self, partition: Partition) -> PartitionPosition:
        assigned = self._assigned.get(partition)
        if assigned is None:
            raise Fenced(f"{partition.topic}/{partition.number} is not assigned to this reader")
        return assigned

    def _wake(self) -> None:
        raise AssertionError("a reader knows how its own poll waits")

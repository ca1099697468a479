"""What a reader of an event log holds: its partitions, how far it has read each, and which of them rest."""

from seriatim.engines.shared.consumer_group import Grant
from seriatim.ports.event_log import Fenced, Partition


class Holding:
    __slots__ = ("grant", "paused", "position")

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self.position = grant.start
        self.paused = False


class Holder:
    """The part of an `EventReader` that every engine with a coordinator does alike. `_wake` ends a waiting poll."""

    _holdings: dict[Partition, Holding]

    def seek(self, partition: Partition, offset: int) -> None:
        """Like `pause` and `resume` without effect on a partition that is not ours: who asks will soon be told."""
        holding = self._holdings.get(partition)
        if holding is not None:
            holding.position = offset
            self._wake()

    def pause(self, partition: Partition) -> None:
        holding = self._holdings.get(partition)
        if holding is not None:
            holding.paused = True

    def resume(self, partition: Partition) -> None:
        holding = self._holdings.get(partition)
        if holding is not None:
            holding.paused = False
            self._wake()

    def _held(self, partition: Partition) -> Holding:
        holding = self._holdings.get(partition)
        if holding is None:
            raise Fenced(f"{partition.topic}/{partition.number} is not ours")
        return holding

    def _wake(self) -> None:
        raise AssertionError("a reader knows how its own poll waits")

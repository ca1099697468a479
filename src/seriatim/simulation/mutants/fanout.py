"""Mutants of fanout: recipients, offsets, assignments and dead letters."""

from collections.abc import Sequence

from seriatim.domain.events import MessagePersisted
from seriatim.engines.shared.consumer_group import Assignment
from seriatim.fanout import recipients
from seriatim.fanout.partition_worker import PartitionWorker
from seriatim.ports.directory import Registration
from seriatim.ports.event_log import Partition, RebalanceListener, Record
from seriatim.simulation.mutants.mutant import Patch, removes
from seriatim.simulation.stores.event_reader import MemoryEventReader


@removes("a member list older than the event is not used", hole="H11", profile="members")
def cache_without_version() -> Sequence[Patch]:
    return [(recipients, "is_new_enough", lambda cached, event_version: bool(cached.user_ids))]


@removes("the sender's other devices get the message too", hole="H18")
def skip_senders_devices() -> Sequence[Patch]:
    def without_the_sender(
        event: MessagePersisted, online: Sequence[Registration], everyone: tuple[str, ...]
    ) -> tuple[str, ...]:
        return tuple([each.connection_id for each in online if each.user_id != event.message.sender_id])

    return [(recipients, "connections_reached", without_the_sender)]


@removes("the connection that sent a message gets its ack, not its echo", hole="H18", profile="calm")
def echo_to_origin() -> Sequence[Patch]:
    return [(recipients, "connections_reached", lambda event, online, everyone: everyone)]


@removes("an offset is committed after its record was handled", hole="H12", profile="crashes")
def commit_before_processing() -> Sequence[Patch]:
    async def process(self: PartitionWorker, run: Sequence[Record]) -> None:
        self._next_offset = run[-1].offset + 1
        await self.commit()
        if await self.settle(run):
            self.advance(run)

    return [(PartitionWorker, "process", process)]


@removes("a partition that is assigned is not paused, whatever was paused before", hole="H12", profile="events")
def pause_outlives_assignment() -> Sequence[Patch]:
    """As librdkafka does by itself: what was paused when it left us is paused when it is given to us again."""
    apply, lose = MemoryEventReader._apply_assignment, MemoryEventReader._lose
    paused: dict[MemoryEventReader, set[Partition]] = {}

    def note(self: MemoryEventReader) -> set[Partition]:
        kept = paused.setdefault(self, set())
        kept.update([partition for partition, assigned in self._assigned.items() if assigned.paused])
        return kept

    async def apply_and_keep(self: MemoryEventReader, assignment: Assignment, listener: RebalanceListener) -> None:
        kept, before = note(self), dict(self._assigned)
        await apply(self, assignment, listener)
        for partition, assigned in self._assigned.items():
            if before.get(partition) is not assigned:
                assigned.paused = partition in kept

    def lose_and_keep(self: MemoryEventReader, listener: RebalanceListener) -> None:
        note(self)
        lose(self, listener)

    return [(MemoryEventReader, "_apply_assignment", apply_and_keep), (MemoryEventReader, "_lose", lose_and_keep)]


@removes("a record that cannot be read becomes a dead letter before it is passed", hole="H13")
def poison_skipped() -> Sequence[Patch]:
    async def recover(self: PartitionWorker, record: Record, error: Exception, attempts: int) -> bool:
        return True

    return [(PartitionWorker, "recover", recover)]

"""Observers of the planes that record what was reported to them, for tests to read."""

from collections.abc import Mapping, Sequence

from seriatim.connection.observer import GatewayObserver
from seriatim.domain.errors import SeriatimError
from seriatim.durability.observer import DurabilityObserver
from seriatim.fanout.observer import FanoutObserver, SkipReason
from seriatim.ports.event_log import DeadLetter, Partition, Record
from seriatim.protocol.frames import CloseReason


class DurabilityRecorder(DurabilityObserver):
    def __init__(self) -> None:
        self.hits = 0
        self.counted = {"allocated": 0, "persisted": 0, "published": 0, "answered": 0}
        self.refusals: list[str] = []
        self.republications = 0
        self.seals: list[int] = []
        self.collisions: list[int] = []
        self.missing_counters: list[str] = []
        self.unreadable: list[tuple[str, str]] = []
        self.beyond_end: list[tuple[str, int, int]] = []
        self.settled: list[str] = []
        self.failures: list[BaseException] = []

    def allocated(self, count: int, seconds: float) -> None:
        self.counted["allocated"] += count

    def persisted(self, stored: Mapping[str, int]) -> None:
        self.counted["persisted"] += sum(stored.values())

    def published(self, count: int, seconds: float) -> None:
        self.counted["published"] += count

    def answered(self, seconds: Sequence[float]) -> None:
        self.counted["answered"] += len(seconds)

    def hit(self) -> None:
        self.hits += 1

    def refused_by_store(self, kind: str) -> None:
        self.refusals.append(kind)

    def republished(self, count: int) -> None:
        self.republications += count

    def sealed(self, chat_id: str, sequence: int) -> None:
        self.seals.append(sequence)

    def duplicate_sequence(self, chat_id: str, sequence: int) -> None:
        self.collisions.append(sequence)

    def counter_missing(self, chat_id: str) -> None:
        self.missing_counters.append(chat_id)

    def row_unreadable(self, chat_id: str, error: SeriatimError) -> None:
        self.unreadable.append((chat_id, error.message))

    def cursor_beyond_end(self, chat_id: str, cursor: int, end: int) -> None:
        self.beyond_end.append((chat_id, cursor, end))

    def reconciled(self, chat_id: str) -> None:
        self.settled.append(chat_id)

    def failed(self, where: str, error: BaseException) -> None:
        self.failures.append(error)


class GatewayRecorder(GatewayObserver):
    def __init__(self) -> None:
        self.high: list[int] = []
        self.slow = 0
        self.filled_messages = 0
        self.ends: list[CloseReason | None] = []

    def connection_closed(self, reason: CloseReason | None) -> None:
        self.ends.append(reason)

    def buffer_high(self, frames: int) -> None:
        self.high.append(frames)

    def slow_consumer(self) -> None:
        self.slow += 1

    def filled(self, messages: int) -> None:
        self.filled_messages += messages


class FanoutRecorder(FanoutObserver):
    def __init__(self) -> None:
        self.handled_offsets: dict[Partition, list[int]] = {}
        self.skips: list[SkipReason] = []
        self.retries = 0
        self.versions: list[int] = []
        self.dead_letters = 0
        self.pages: list[Partition] = []

    def handled(self, run: Sequence[Record]) -> None:
        for record in run:
            self.handled_offsets.setdefault(record.partition, []).append(record.offset)

    def skipped(self, reason: SkipReason, error: Exception | None = None) -> None:
        self.skips.append(reason)

    def retried(self) -> None:
        self.retries += 1

    def unknown_version(self, event_version: int) -> None:
        self.versions.append(event_version)

    def dead_letter_written(self, dead_letter: DeadLetter) -> None:
        self.dead_letters += 1

    def dead_letter_failed(self, partition: Partition, error: Exception) -> None:
        self.pages.append(partition)

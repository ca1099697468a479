"""What gateways and fanout workers told whoever watches them, for stories to look at."""

from collections.abc import Sequence

from seriatim.connection.observer import GatewayObserver
from seriatim.fanout.observer import FanoutObserver, Skip
from seriatim.ports.event_log import Partition, Record
from seriatim.protocol.frames import CloseReason


class GatewayNotes(GatewayObserver):
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


class FanoutNotes(FanoutObserver):
    def __init__(self) -> None:
        self.handled_offsets: dict[Partition, list[int]] = {}
        self.skips: list[Skip] = []
        self.retries = 0
        self.versions: list[int] = []
        self.dead_letters = 0
        self.pages: list[Partition] = []

    def handled(self, run: Sequence[Record]) -> None:
        for record in run:
            self.handled_offsets.setdefault(record.partition, []).append(record.offset)

    def skipped(self, reason: Skip) -> None:
        self.skips.append(reason)

    def retried(self) -> None:
        self.retries += 1

    def unknown_version(self, event_version: int) -> None:
        self.versions.append(event_version)

    def dead_letter_written(self) -> None:
        self.dead_letters += 1

    def dead_letter_failed(self, partition: Partition) -> None:
        self.pages.append(partition)

"""Partitions of this process that stand still while events arrive in them: no error shows it, only their offsets do."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from seriatim.domain import limits
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import Partition
from seriatim.runtime.telemetry.logs import log_event
from seriatim.runtime.wiring.engine_set import Backlog

_log = logging.getLogger("seriatim")


class Consumer(Protocol):
    @property
    def positions(self) -> Mapping[Partition, int | None]:
        """Of each partition that is assigned to this process: the first unhandled offset; None: none handled yet."""
        ...


class EventLog(Protocol):
    async def backlog(self) -> Backlog: ...


class PartitionStallMonitor:
    """`run` it until cancelled. `partitions` are those that have not moved for `STALL_S` while their end did.

    Slow is not stalled: every handled record is a move. Nor is idle: the end must have moved after the last move.
    """

    def __init__(self, log: EventLog, consumer: Consumer, clock: Clock) -> None:
        self.partitions: Sequence[Partition] = ()
        self._log = log
        self._consumer = consumer
        self._clock = clock
        self._progress: dict[Partition, _PartitionProgress] = {}

    async def run(self) -> None:
        while True:
            await self.check()
            await asyncio.sleep(limits.STALL_CHECK_S)

    async def check(self) -> None:
        backlog, now_s = await self._log.backlog(), self._clock.monotonic()
        progress = {
            partition: self._mark(partition, position, backlog, now_s)
            for partition, position in self._consumer.positions.items()
            if partition in backlog.ends  # else the log does not answer, and the end is unknown
        }
        stalled = [partition for partition, mark in progress.items() if mark.is_stalled(now_s)]
        for partition in stalled:
            if partition not in self.partitions:
                _report_stall(partition, progress[partition], backlog.ends[partition], now_s)
        for partition in self.partitions:
            if partition not in stalled:
                log_event(_log, logging.INFO, "partition_resumed", topic=partition.topic, partition=partition.number)
        self._progress, self.partitions = progress, stalled

    def _mark(self, partition: Partition, handled: int | None, backlog: Backlog, now_s: float) -> "_PartitionProgress":
        end = backlog.ends[partition]
        position = end - backlog.lag_records[partition] if handled is None else handled
        before = self._progress.get(partition)
        if before is None or before.position != position or position >= end:
            return _PartitionProgress(position, end)
        if before.waiting_since_s is None and end > before.end:
            return _PartitionProgress(position, before.end, now_s)
        return before


class _PartitionProgress(msgspec.Struct, frozen=True):
    """Where a partition was at its last move, and since when events wait that arrived after it."""

    position: int
    end: int
    waiting_since_s: float | None = None

    def is_stalled(self, now_s: float) -> bool:
        return self.waiting_since_s is not None and now_s - self.waiting_since_s >= limits.STALL_S


def _report_stall(partition: Partition, mark: _PartitionProgress, end: int, now_s: float) -> None:
    log_event(
        _log,
        logging.CRITICAL,
        "partition_stalled",
        severity="SEV-2",
        topic=partition.topic,
        partition=partition.number,
        position=mark.position,
        end=end,
        seconds=round(now_s - (mark.waiting_since_s or now_s)),
        next_step="its pushes wait, and probes of gateways deliver within a minute: if no dead_letter_failed says why, "
        "restart this process, so that another takes the partition",
    )

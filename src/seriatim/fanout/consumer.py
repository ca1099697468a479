"""The consumer of the event log: polls, hands each record to its partition's worker, follows rebalances.

Partitions progress independently. Records that were not finished are read again from the committed offset.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter

from seriatim.domain import limits
from seriatim.domain.backoff import backoff_s
from seriatim.domain.errors import ServiceUnavailable
from seriatim.fanout.delivery import Deliverer
from seriatim.fanout.observer import FanoutObserver
from seriatim.fanout.partition_worker import DeadLetters, PartitionWorker
from seriatim.fanout.recipients import Recipients
from seriatim.ports.catalog import Roster
from seriatim.ports.clock import Clock
from seriatim.ports.directory import Directory
from seriatim.ports.event_log import MEMBERSHIPS, MESSAGES, DeadLetterWriter, EventReader, Partition
from seriatim.ports.push import Push

TOPICS = (MESSAGES, MEMBERSHIPS)


class FanoutConsumer:
    """One consumer of the group. `run` it once; `stop` it, or cancel it and let the next owner repeat some records."""

    def __init__(
        self,
        reader: EventReader,
        dead_letters: DeadLetterWriter,
        roster: Roster,
        directory: Directory,
        push: Push,
        clock: Clock,
        *,
        consumer_group: str = "fanout-workers",
        consumer_id: str,
        observe: FanoutObserver | None = None,
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._observe = observe or FanoutObserver()
        self._deliverer = Deliverer(Recipients(roster, directory, clock, self._observe), push, self._observe)
        self._dead_letters = DeadLetters(
            dead_letters, clock, consumer_group=consumer_group, consumer_id=consumer_id, observe=self._observe
        )
        self._workers: dict[Partition, PartitionWorker] = {}
        self._tasks: dict[PartitionWorker, asyncio.Task[None]] = {}  # also those that are being stopped
        self._polling: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._stopping = False
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Until stopped or cancelled. Raises what a bug raised: a supervisor restarts it from the commits."""
        if self._stopping:
            return
        self._polling = asyncio.create_task(self._poll_repeatedly())
        try:
            await asyncio.wait((self._polling,))
            if not self._polling.cancelled():
                self._failure = self._polling.exception()
            await self._stop_workers(tuple(self._workers))
            for task in tuple(self._tasks.values()):  # a revocation that was cancelled may have left some running
                await asyncio.wait((task,))
        finally:
            try:
                await self._cancel_tasks()
            finally:
                self._ended.set()
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """Finishes the current run of each partition, commits, leaves the group. `run` has ended then."""
        self._stopping = True
        if self._polling is not None:
            self._polling.cancel()
            await self._ended.wait()

    @property
    def positions(self) -> Mapping[Partition, int | None]:
        """Of each assigned partition: the first unhandled offset; None: no record was handled here yet."""
        return {partition: worker.position for partition, worker in self._workers.items()}

    # --- callbacks of the reader, inside a poll -----------------------------------------------------------------------

    def assigned(self, partitions: Sequence[Partition]) -> None:
        self._observe.rebalanced()
        self.lost([partition for partition in partitions if partition in self._workers])
        for partition in partitions:
            worker = PartitionWorker(
                partition, self._reader, self._deliverer, self._dead_letters, self._clock, self._observe
            )
            self._workers[partition] = worker
            self._tasks[worker] = asyncio.create_task(worker.run())
            self._tasks[worker].add_done_callback(partial(self._worker_ended, worker))

    async def revoked(self, partitions: Sequence[Partition]) -> None:
        await self._stop_workers(partitions)

    def lost(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            worker = self._workers.pop(partition, None)
            if worker is not None:
                worker.abandon()

    # --- helpers, in call order --------------------------------------------------------------------------------------

    async def _poll_repeatedly(self) -> None:
        await self._join()
        failures = 0
        while True:
            try:
                records = await self._reader.poll(limit=limits.POLL_RECORDS_MAX)
            except Exception as error:
                failures += 1
                await self._back_off(failures, error)
                continue
            failures = 0
            for partition, run in groupby(records, attrgetter("partition")):
                # No worker: the partition was revoked inside this poll, and its next owner reads the records.
                worker = self._workers.get(partition)
                if worker is not None:
                    worker.enqueue(run)

    async def _join(self) -> None:
        failures = 0
        while True:
            try:
                return await self._reader.open(TOPICS, self)
            except ServiceUnavailable as error:
                failures += 1
                await self._back_off(failures, error)

    async def _back_off(self, failures: int, error: Exception) -> None:
        self._observe.restarted(error)
        first_s, max_s = limits.POLL_RETRY_S, limits.POLL_RETRY_MAX_S
        await asyncio.sleep(backoff_s(failures - 1, first_s=first_s, max_s=max_s, random=self._clock.random))

    async def _stop_workers(self, partitions: Iterable[Partition]) -> None:
        """All are stopped first, so that they finish concurrently. Records they had not begun are not committed."""
        stopping = [worker for partition in partitions if (worker := self._workers.pop(partition, None)) is not None]
        for worker in stopping:
            worker.stop()
        for worker in stopping:
            task = self._tasks.get(worker)
            if task is not None:
                # `wait` and not `await`: if this task is cancelled meanwhile, the worker still finishes.
                await asyncio.wait((task,))

    def _worker_ended(self, worker: PartitionWorker, task: asyncio.Task[None]) -> None:
        del self._tasks[worker]
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            # A partition without a worker would stall unseen: the whole consumer fails instead, and is restarted.
            self._failure = error
            if self._polling is not None:
                self._polling.cancel()

    async def _cancel_tasks(self) -> None:
        tasks = [task for task in (self._polling, *self._tasks.values()) if task is not None]
        for task in tasks:
            task.cancel()
        for task in tasks:
            await asyncio.wait((task,))
        await self._reader.close()

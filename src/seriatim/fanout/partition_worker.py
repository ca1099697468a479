"""One partition's records, in strict order: handle a run of them, move on, commit what lies behind.

A record leaves the backlog only when it is handled or its dead letter is written, so a commit never passes an unhandled
record. A run that fails is split: its records are tried one by one, and only the one that fails is retried or becomes
a dead letter.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Protocol

from seriatim.domain import limits
from seriatim.domain.backoff import backoff_s
from seriatim.domain.events import BadEvent
from seriatim.fanout.observer import FanoutObserver
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import DeadLetter, DeadLetterWriter, EventReader, Fenced, Partition, Record


class RecordHandler(Protocol):
    async def handle(self, run: Sequence[Record]) -> None:
        """Returns when these records need nothing more. What it raises is a failed attempt at all of them."""
        ...


class PartitionWorker:
    """Runs from assignment to revocation or loss. After `stop` it finishes the current run and commits."""

    def __init__(
        self,
        partition: Partition,
        reader: EventReader,
        handler: RecordHandler,
        dead_letters: "DeadLetters",
        clock: Clock,
        observe: FanoutObserver,
    ) -> None:
        self._partition = partition
        self._reader = reader
        self._handler = handler
        self._dead_letters = dead_letters
        self._clock = clock
        self._observe = observe
        self._backlog: deque[Record] = deque()
        self._next_offset: int | None = None  # the first unhandled one; None until a record was handled here
        self._committed: int | None = None
        self._uncommitted = 0
        self._one_by_one = 0  # records of a failed run, to be tried one by one
        self._commit_unconfirmed = False  # a commit without an answer may still arrive, and lower a later one
        self._paused = False
        self._lost = False
        self._wake = asyncio.Event()
        self._stopped = asyncio.Event()

    @property
    def position(self) -> int | None:
        """The first unhandled offset; None until a record was handled here."""
        return self._next_offset

    def enqueue(self, records: Iterable[Record]) -> None:
        """Appends records. A long backlog pauses this partition in the reader, and no other."""
        if self._stopped.is_set():
            return
        self._backlog.extend(records)
        self._wake.set()
        if len(self._backlog) >= limits.BACKLOG_PAUSE_RECORDS:
            self._pause()

    def stop(self) -> None:
        """No record is begun any more; the current run is finished, and handled records are committed."""
        self._stopped.set()
        self._wake.set()

    def abandon(self) -> None:
        """The partition has another owner: it is not committed, paused or resumed any more."""
        self._lost = True
        self.stop()

    async def run(self) -> None:
        while not self._stopped.is_set():
            await self._drain()
            await self.commit()
            if not self._backlog and not self._stopped.is_set():
                self._resume()
                await self._wait_for_records()
        await self.commit()  # again if the last one failed: it saves the next owner the repetition
        self._resume()

    async def process(self, run: Sequence[Record]) -> None:
        """Settles the records, and only then advances past them."""
        if await self.settle(run):
            self.advance(run)

    async def settle(self, run: Sequence[Record]) -> bool:
        """True: all are handled, or the only one is a dead letter. False: `stop` was called, or try them one by one."""
        attempts = 0
        while True:
            attempts += 1
            try:
                await self._handler.handle(run)
                return True
            except Exception as error:
                if len(run) > 1:
                    self._one_by_one = len(run)
                    return False
                if await self.recover(run[0], error, attempts):
                    return True
            if self._stopped.is_set():
                return False

    async def recover(self, record: Record, error: Exception, attempts: int) -> bool:
        """After a failed attempt: True once it is a dead letter, False to try the record again. It stays first."""
        if attempts_exhausted(error, attempts):
            return await self._write_dead_letter(record, error, attempts)
        self._observe.retried()
        await self._sleep_unless_stopped(limits.RECORD_RETRY_S)
        return False

    def advance(self, run: Sequence[Record]) -> None:
        for _ in run:
            self._backlog.popleft()
        self._observe.handled(run)
        self._next_offset = run[-1].offset + 1
        self._uncommitted += len(run)
        self._one_by_one = max(0, self._one_by_one - len(run))

    async def commit(self) -> None:
        """Stores the first unhandled offset. A failure is harmless: the next commit covers this one."""
        if self._lost or self._next_offset is None or self._next_offset == self._committed:
            return
        offset = self._next_offset
        self._uncommitted = 0  # also when it fails: a failing log is not called again for every record
        try:
            await self._reader.commit(self._partition, offset, timeout_s=limits.COMMIT_TIMEOUT_S)
        except Fenced:
            self.abandon()
        except Exception as error:
            self._commit_unconfirmed = True
            self._observe.commit_failed(self._partition, error)
        else:
            self._committed = offset

    async def _drain(self) -> None:
        while self._backlog and not self._stopped.is_set():
            await self.process(self._next_run())
            if self._uncommitted >= limits.COMMIT_RECORDS_MAX:
                await self.commit()

    def _next_run(self) -> Sequence[Record]:
        """Never more than `COMMIT_RECORDS_MAX` without a commit."""
        most = min(limits.RUN_RECORDS_MAX, limits.COMMIT_RECORDS_MAX - self._uncommitted)
        return tuple(islice(self._backlog, 1 if self._one_by_one else most))

    async def _write_dead_letter(self, record: Record, error: Exception, attempts: int) -> bool:
        """Committing without the dead letter would lose the record, so this partition waits; the others go on."""
        dead_letter = self._dead_letters.dead_letter(record, error, attempts)
        failures = 0
        while not await self._dead_letters.write(dead_letter):
            failures += 1
            self._pause()
            await self._sleep_unless_stopped(
                backoff_s(
                    failures - 1,
                    first_s=limits.DEAD_LETTER_RETRY_S,
                    max_s=limits.DEAD_LETTER_RETRY_MAX_S,
                    random=self._clock.random,
                )
            )
            if self._stopped.is_set():
                return False
        return True

    async def _sleep_unless_stopped(self, seconds: float) -> None:
        """Sleeps, or returns early after `stop`: a rebalance does not wait for a retry."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()

    async def _wait_for_records(self) -> None:
        self._wake.clear()
        behind = self._committed != self._next_offset
        if not behind and not self._commit_unconfirmed:
            await self._wake.wait()
            return
        try:
            async with asyncio.timeout(limits.COMMIT_RETRY_S if behind else limits.COMMIT_UNCONFIRMED_S):
                await self._wake.wait()
        except TimeoutError:
            if not behind:
                self._commit_unconfirmed = False
                self._committed = None

    def _pause(self) -> None:
        if not self._paused and not self._lost:
            self._paused = True
            self._reader.pause(self._partition)

    def _resume(self) -> None:
        if self._paused and not self._lost:
            self._paused = False
            self._reader.resume(self._partition)


class DeadLetters:
    """Writes the dead letters of one consumer."""

    def __init__(
        self,
        writer: DeadLetterWriter,
        clock: Clock,
        *,
        consumer_group: str,
        consumer_id: str,
        observe: FanoutObserver,
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._consumer_group = consumer_group
        self._consumer_id = consumer_id
        self._observe = observe

    def dead_letter(self, record: Record, error: Exception, attempts: int) -> DeadLetter:
        return DeadLetter(
            record=record,
            reason=_reason(error),
            attempts=attempts,
            consumer_group=self._consumer_group,
            consumer_id=self._consumer_id,
            failed_at_ms=self._clock.now_ms(),
        )

    async def write(self, dead_letter: DeadLetter) -> bool:
        """One try. True once it is written; until then its record must not be passed."""
        try:
            await self._writer.write(dead_letter, timeout_s=limits.PUBLISH_TIMEOUT_S)
        except Exception as error:
            # After any failure the record may be stored nowhere else, so all failures are treated alike.
            self._observe.dead_letter_failed(dead_letter.record.partition, error)
            return False
        self._observe.dead_letter_written(dead_letter)
        return True


def attempts_exhausted(error: Exception, attempts: int) -> bool:
    """A malformed event stays malformed. Every other exception is a bug, and a retry may not meet it again."""
    return isinstance(error, BadEvent) or attempts >= limits.RECORD_TRIES_MAX


def _reason(error: Exception) -> str:
    """`Class: text`. The text may quote a record that no encoder accepts; this one can be written."""
    text = f"{type(error).__name__}: {error}"[: limits.DEAD_LETTER_REASON_CHARS_MAX]
    return text.encode(errors="replace").decode()

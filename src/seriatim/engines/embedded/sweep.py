"""What is kept for a time only: keys, codes and sessions that expired, and events past their retention.

A sweep reads a bounded number of rows and remembers where it stopped; call it again and again. A row that cannot be
read stays: what it says of its end is not known.
"""

from collections.abc import Callable

import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import RowUnreadable
from seriatim.engines.embedded.accounts import drop_session
from seriatim.engines.embedded.event_log import EmbeddedEventLog
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.storage.snapshot import WriteTransaction
from seriatim.engines.shared.account_rules import code_kept_until_ms
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import DEAD_LETTERS, Partition


class Swept(msgspec.Struct, frozen=True):
    """How many rows were removed. An index row goes with its session and is not counted."""

    keys: int
    events: int
    codes: int = 0
    sessions: int = 0
    requests: int = 0
    held_back_s: float = 0.0  # by so much the wall clock is ahead of the time that was believed


class Sweeper:
    """One for each open folder."""

    def __init__(self, folder: Folder, log: EmbeddedEventLog) -> None:
        self._disk = folder.disk
        self._writer = folder.writer
        self._events = log
        self._partitions = log.all_partitions()
        self._keys = _Table("idempotency_keys", lambda value: 1000 * rows.KEY.decode(value).expires_at_s)
        self._codes = _Table("otp_requests", lambda value: code_kept_until_ms(rows.CODE.decode(value)))
        self._sessions = _Table("sessions", lambda value: rows.SESSION.decode(value).expires_at_ms, _remove_session)
        self._requests = _Table("api_idempotency", lambda value: rows.REQUEST.decode(value).expires_at_ms)
        self._next_partition = 0
        self._starts: dict[Partition, int] = {}

    async def sweep(self, now_ms: int) -> Swept:
        """Raises `ServiceUnavailable` when the folder is not writable; the next sweep takes up the rest."""
        return Swept(
            keys=await self._sweep_table(self._keys, now_ms),
            events=await self._sweep_events(now_ms),
            codes=await self._sweep_table(self._codes, now_ms),
            sessions=await self._sweep_table(self._sessions, now_ms),
            requests=await self._sweep_table(self._requests, now_ms),
        )

    async def _sweep_table(self, table: "_Table", now_ms: int) -> int:
        """Walks through all rows, round after round: an index by expiry would cost every send one more row."""
        start, table.next_key = table.next_key, table.prefix
        expired: list[bytes] = []
        for looked_at, (key, value) in enumerate(self._disk.scan(start, rows.after(table.prefix))):
            if looked_at == limits.SWEEP_ROWS_MAX:
                table.next_key = key
                break
            if table.ended(value, now_ms):
                expired.append(key)
        if not expired:
            return 0

        def decide(transaction: WriteTransaction) -> int:
            removed = 0
            for key in expired:
                value = transaction.get(key)
                # Since it was read, a new row may have replaced the expired one.
                if value is not None and table.ended(value, now_ms):
                    table.remove(transaction, key, value)
                    removed += 1
            return removed

        return await self._writer.commit("sweep", decide, timeout_s=limits.STORE_TIMEOUT_S)

    async def _sweep_events(self, now_ms: int) -> int:
        """From the oldest on, until one is young enough: the log stays without holes. Its end is kept elsewhere."""
        old: list[bytes] = []
        reached: dict[Partition, int] = {}
        for _ in range(len(self._partitions)):
            partition = self._partitions[self._next_partition]
            before_ms = now_ms - 1000 * (
                limits.DEAD_LETTER_RETENTION_S if partition.topic == DEAD_LETTERS else limits.EVENT_RETENTION_S
            )
            # Not from 0: what was removed is passed over slowly until the store has tidied up.
            start = rows.event_key(partition, self._starts.get(partition, 0))
            for key, value in self._disk.scan(start, rows.after(rows.events_prefix(partition))):
                if len(old) == limits.SWEEP_ROWS_MAX or not _is_older(value, before_ms):
                    break
                old.append(key)
                reached[partition] = rows.last_number(key)
            if len(old) == limits.SWEEP_ROWS_MAX:
                break
            self._next_partition = (self._next_partition + 1) % len(self._partitions)
        if not old:
            return 0

        def decide(transaction: WriteTransaction) -> int:
            for key in old:
                transaction.delete(key)
            return len(old)

        removed = await self._writer.commit("sweep", decide, timeout_s=limits.STORE_TIMEOUT_S)
        self._starts.update(reached)  # not before: what was refused is still there, and is found again
        for partition, newest in reached.items():
            self._events.let_go(partition, newest)
        return removed


class CautiousSweeper:
    """A sweeper that does not believe a wall clock that runs ahead: what it removes is gone for good.

    The believed time follows the wall clock, but at most SWEEP_PACE_MAX_RATIO times as fast as the monotonic clock. The
    folder keeps it, so a restart does not make it jump either. After a long downtime old rows stay a little longer.
    """

    def __init__(self, folder: Folder, log: EmbeddedEventLog, clock: Clock) -> None:
        self._disk = folder.disk
        self._writer = folder.writer
        self._clock = clock
        self._sweeper = Sweeper(folder, log)
        self._believed_ms: int | None = None  # None before the first sweep
        self._looked_at = 0.0
        self._noted_ms = 0

    async def sweep(self, now_ms: int) -> Swept:
        believed_ms = self._believe(now_ms)
        swept = await self._sweeper.sweep(believed_ms)
        return msgspec.structs.replace(swept, held_back_s=(now_ms - believed_ms) / 1000)

    def _believe(self, now_ms: int) -> int:
        looked_at, self._looked_at = self._looked_at, self._clock.monotonic()
        if self._believed_ms is None:
            noted = rows.NUMBER.found(self._disk.get(rows.SWEEP_TIME))
            self._believed_ms = now_ms if noted is None else min(now_ms, noted)
        else:
            passed_ms = int(1000 * limits.SWEEP_PACE_MAX_RATIO * (self._looked_at - looked_at))
            self._believed_ms = min(now_ms, self._believed_ms + passed_ms)
        if abs(self._believed_ms - self._noted_ms) >= 1000 * limits.SWEEP_SAVED_EVERY_S:
            self._writer.write_lazily({rows.SWEEP_TIME: rows.NUMBER.encode(self._believed_ms)})
            self._noted_ms = self._believed_ms
        return self._believed_ms


def _is_older(event: bytes, before_ms: int) -> bool:
    """An event that cannot be read is taken for a young one: the sweep of its partition stops there."""
    try:
        return rows.EVENT.decode(event).timestamp_ms <= before_ms
    except RowUnreadable:
        return False


def _remove(transaction: WriteTransaction, key: bytes, _: bytes) -> None:
    transaction.delete(key)


def _remove_session(transaction: WriteTransaction, _: bytes, value: bytes) -> None:
    drop_session(transaction, rows.SESSION.decode(value))


class _Table:
    """A table of rows that end, how far the sweep has come in it, and how one of them goes."""

    def __init__(
        self,
        name: str,
        ends_at_ms: Callable[[bytes], int],
        remove: Callable[[WriteTransaction, bytes, bytes], None] = _remove,
    ) -> None:
        self.prefix = self.next_key = rows.TABLES[name]
        self.remove = remove
        self._ends_at_ms = ends_at_ms

    def ended(self, value: bytes, now_ms: int) -> bool:
        try:
            return self._ends_at_ms(value) <= now_ms
        except RowUnreadable:
            return False

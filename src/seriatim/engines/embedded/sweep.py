"""What is kept for a time only: idempotency keys that expired and events past their retention.

A sweep looks at a bounded number of rows and remembers where it stopped; call it again and again.
"""

import msgspec

from seriatim.domain.limits import EVENT_RETENTION_S, LETTER_RETENTION_S, STORE_TIMEOUT_S, SWEEP_ROWS_MAX
from seriatim.engines.embedded import rows
from seriatim.engines.embedded.event_log import EmbeddedEventLog
from seriatim.engines.embedded.folder import Folder
from seriatim.engines.embedded.writer import View
from seriatim.ports.event_log import DEAD_LETTERS, Partition


class Swept(msgspec.Struct, frozen=True):
    """How many rows were removed."""

    keys: int
    events: int


class Sweeper:
    """One for each open folder."""

    def __init__(self, folder: Folder, log: EmbeddedEventLog) -> None:
        self._disk = folder.disk
        self._writer = folder.writer
        self._partitions = log.all_partitions()
        self._next_key = _KEYS
        self._next_partition = 0
        self._starts: dict[Partition, int] = {}

    async def sweep(self, now_ms: int) -> Swept:
        """Raises `ServiceUnavailable` when the folder is not writable; the next sweep takes up the rest."""
        return Swept(keys=await self._sweep_keys(now_ms // 1000), events=await self._sweep_events(now_ms))

    async def _sweep_keys(self, now_s: int) -> int:
        """Walks through all keys, round after round: an index by expiry would cost every send one more row."""
        start, self._next_key = self._next_key, _KEYS
        expired: list[bytes] = []
        for looked_at, (key, value) in enumerate(self._disk.scan(start, rows.after(_KEYS))):
            if looked_at == SWEEP_ROWS_MAX:
                self._next_key = key
                break
            if rows.KEY.decode(value).expires_at_s <= now_s:
                expired.append(key)
        if not expired:
            return 0

        def decide(view: View) -> int:
            removed = 0
            for key in expired:
                row = rows.KEY.found(view.get(key))
                # A send may have taken the expired key for a new message since we looked.
                if row is not None and row.expires_at_s <= now_s:
                    view.delete(key)
                    removed += 1
            return removed

        return await self._writer.call("sweep", decide, timeout_s=STORE_TIMEOUT_S)

    async def _sweep_events(self, now_ms: int) -> int:
        """From the oldest on, until one is young enough: the log stays without holes. Its end is kept elsewhere."""
        old: list[bytes] = []
        for _ in range(len(self._partitions)):
            partition = self._partitions[self._next_partition]
            before_ms = now_ms - 1000 * (LETTER_RETENTION_S if partition.topic == DEAD_LETTERS else EVENT_RETENTION_S)
            # Not from 0: what was removed is passed over slowly until the store has tidied up.
            start = rows.event_key(partition, self._starts.get(partition, 0))
            for key, value in self._disk.scan(start, rows.after(rows.events_prefix(partition))):
                if len(old) == SWEEP_ROWS_MAX or rows.EVENT.decode(value).timestamp_ms > before_ms:
                    break
                old.append(key)
                self._starts[partition] = rows.last_number(key)
            if len(old) == SWEEP_ROWS_MAX:
                break
            self._next_partition = (self._next_partition + 1) % len(self._partitions)
        if not old:
            return 0

        def decide(view: View) -> int:
            for key in old:
                view.delete(key)
            return len(old)

        return await self._writer.call("sweep", decide, timeout_s=STORE_TIMEOUT_S)


_KEYS = rows.TABLES["idempotency_keys"]

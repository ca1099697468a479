"""`EventTrail` in a data folder: through a secondary store beside the server, or through the open folder itself."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from seriatim.domain import limits
from seriatim.engines.embedded.event_log import EmbeddedEventLog, record_of
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.secondary import SecondaryStore
from seriatim.ports.event_log import Partition, Record
from seriatim.ports.event_trail import EventTrail
from seriatim.ports.message_log import Watermark


class SecondaryEventTrail(EventTrail):
    def __init__(self, secondary: SecondaryStore) -> None:
        self._secondary = secondary

    async def partitions(self, topic: str) -> int:
        return rows.NUMBER.decode(self._secondary.get(rows.topic_key(topic)) or b"")

    async def events(self, partition: Partition, *, since_ms: int) -> AsyncIterator[Record]:
        prefix = rows.events_prefix(partition)
        for number, (key, value) in enumerate(self._secondary.scan(prefix, rows.after(prefix)), 1):
            record = record_of(partition, key, value)
            if record.timestamp_ms >= since_ms:
                yield record
            if number % limits.INSPECTED_AT_ONCE_ROWS == 0:
                await asyncio.sleep(0)

    async def next_offset(self, group: str, partition: Partition) -> int | None:
        return rows.NUMBER.found(self._secondary.get(rows.offset_key(group, partition)))

    async def watermarks(self, pairs: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Watermark]:
        found = {pair: rows.WATERMARK.found(self._secondary.get(rows.watermark_key(*pair))) for pair in pairs}
        return {pair: Watermark(row.sequence, row.updated_at_ms) for pair, row in found.items() if row is not None}


class EmbeddedEventTrail(EventTrail):
    """For a process that has the folder open."""

    def __init__(self, log: EmbeddedEventLog) -> None:
        self._log = log

    async def partitions(self, topic: str) -> int:
        return self._log.partition_count(topic)

    async def events(self, partition: Partition, *, since_ms: int) -> AsyncIterator[Record]:
        offset, end = 0, self._log.end_offsets(partition.topic)[partition]
        while records := self._log.fetch(partition, offset, limits.INSPECTED_AT_ONCE_ROWS):
            for record in records:
                if record.timestamp_ms >= since_ms and record.offset < end:
                    yield record
            offset = records[-1].offset + 1
            if offset >= end:
                return
            await asyncio.sleep(0)

    async def next_offset(self, group: str, partition: Partition) -> int | None:
        return self._log.group(group).committed.get(partition)

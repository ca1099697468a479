"""Statistics of a data folder: rows and bytes by table, the largest chats, the offsets of the event log."""

import heapq
from collections.abc import Callable
from pathlib import Path

import msgspec

from seriatim.domain import limits
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.disk import ReadableDisk
from seriatim.engines.embedded.storage.folder import FORMAT, TableStats, disk_bytes
from seriatim.ports.event_log import Partition


class ChatStats(msgspec.Struct, frozen=True):
    chat_id: str
    slots: int
    bytes: int


class TopicStats(msgspec.Struct, frozen=True, kw_only=True):
    """`written` since the beginning, `kept` of them by retention, `lag`: not yet handled, by consumer group."""

    topic: str
    partitions: int
    written: int
    kept: int
    lag: dict[str, int]


class FolderStats(msgspec.Struct, frozen=True, kw_only=True):
    """`bytes` of a table are those of its keys and values; on the disk they are compressed, and the log is added."""

    format: int
    disk_bytes: int
    tables: dict[str, TableStats]
    largest_chats: tuple[ChatStats, ...]
    topics: tuple[TopicStats, ...]


def measure(disk: ReadableDisk, path: Path, progress: Callable[[int], None] = lambda rows: None) -> FolderStats:
    """Reads every row: about a second for a million."""
    count = _Count(progress)
    tables: dict[str, TableStats] = {}
    largest: list[tuple[int, int, str]] = []
    for table in rows.TABLES:
        tables[table] = _messages(disk, count, largest) if table == "messages" else _table(disk, table, count)
    return FolderStats(
        format=FORMAT,
        disk_bytes=disk_bytes(path),
        tables=tables,
        largest_chats=tuple([ChatStats(chat_id, slots, size) for size, slots, chat_id in sorted(largest)[::-1]]),
        topics=tuple(_topics(disk)),
    )


class _Count:
    def __init__(self, progress: Callable[[int], None]) -> None:
        self._progress = progress
        self._rows = 0

    def row(self) -> None:
        self._rows += 1
        if self._rows % limits.CHECK_PROGRESS_ROWS == 0:
            self._progress(self._rows)


def _table(disk: ReadableDisk, table: str, counted: _Count) -> TableStats:
    count = size = 0
    for key, value in disk.scan(rows.TABLES[table], rows.after(rows.TABLES[table])):
        counted.row()
        count += 1
        size += len(key) + len(value)
    return TableStats(count, size)


def _messages(disk: ReadableDisk, counted: _Count, largest: list[tuple[int, int, str]]) -> TableStats:
    """Chat after chat, in key order: of each only its sums are kept, and of these only the largest."""
    count = size = 0
    prefix, slots, chat_bytes = b"", 0, 0

    def close() -> None:
        if slots:
            heapq.heappush(largest, (chat_bytes, slots, rows.first_text(prefix)))
            if len(largest) > limits.STATS_CHATS_MAX:
                heapq.heappop(largest)

    for key, value in disk.scan(rows.TABLES["messages"], rows.after(rows.TABLES["messages"])):
        counted.row()
        if key[:-8] != prefix:
            close()
            prefix, slots, chat_bytes = key[:-8], 0, 0
        slots += 1
        chat_bytes += len(key) + len(value)
        count += 1
        size += len(key) + len(value)
    close()
    return TableStats(count, size)


def _topics(disk: ReadableDisk) -> list[TopicStats]:
    committed: dict[tuple[str, Partition], int] = {}
    for key, value in disk.scan(rows.TABLES["group_offsets"], rows.after(rows.TABLES["group_offsets"])):
        group, topic = rows.texts(key[:-4])
        committed[group, Partition(topic, int.from_bytes(key[-4:], "big"))] = rows.NUMBER.decode(value)
    groups = sorted({group for group, _ in committed})
    found: list[TopicStats] = []
    for key, value in list(disk.scan(rows.TABLES["topics"], rows.after(rows.TABLES["topics"]))):
        topic, count = rows.first_text(key), rows.NUMBER.decode(value)
        partitions = [Partition(topic, number) for number in range(count)]
        ends = {each: rows.NUMBER.found(disk.get(rows.end_key(each))) or 0 for each in partitions}
        read = {group: [each for each in partitions if (group, each) in committed] for group in groups}
        found.append(
            TopicStats(
                topic=topic,
                partitions=count,
                written=sum(ends.values()),
                kept=sum(end - _start(disk, each, end) for each, end in ends.items()),
                lag={
                    # A partition of which nothing was committed yet is read from its beginning.
                    group: sum(end - committed.get((group, each), 0) for each, end in ends.items())
                    for group in groups
                    if read[group]
                },
            )
        )
    return found


def _start(disk: ReadableDisk, partition: Partition, end: int) -> int:
    """The offset of the first record that retention left."""
    prefix = rows.events_prefix(partition)
    first = next(disk.scan(prefix, rows.after(prefix)), None)
    return end if first is None else rows.last_number(first[0])

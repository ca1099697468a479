"""What the embedded event log keeps over restarts, and what a sweep removes from the folder."""

import asyncio
import threading
from pathlib import Path

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import InternalError, OutcomeUnknown
from seriatim.domain.message import TEXT, Message
from seriatim.engines.embedded.catalog import EmbeddedCatalog
from seriatim.engines.embedded.event_log import EmbeddedEventLog, EmbeddedEventWriter
from seriatim.engines.embedded.event_reader import EmbeddedEventReader
from seriatim.engines.embedded.message_log import EmbeddedMessageLog
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.disk import Disk, DiskError
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.sweep import Sweeper, Swept
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.shared.consumer_group import MemberKey
from seriatim.ports.event_log import DEAD_LETTERS, MESSAGES, Event, Partition, Record
from seriatim.ports.message_log import DirtyChat, Entry
from tests.contract.store_data import CHAT, group
from tests.support.log_reasons import because
from tests.unit.engines.slow_disk import SlowDisk, until

SOON_S = 5.0
SIZES = {MESSAGES: 2, DEAD_LETTERS: 1}
DAY_MS = 86_400_000
NOON_MS = 1_769_774_400_000


class StoppedClock(SystemClock):
    def __init__(self) -> None:
        self.at_ms = NOON_MS

    def now_ms(self) -> int:
        return self.at_ms


class Silent:
    def assigned(self, partitions: object) -> None:
        return

    async def revoked(self, partitions: object) -> None:
        return

    def lost(self, partitions: object) -> None:
        return


async def append(log: EmbeddedEventLog, *values: bytes, clock: StoppedClock | None = None, key: str = "c") -> None:
    writer = EmbeddedEventWriter(log, clock or StoppedClock())
    await writer.append(MESSAGES, [Event(key=key, value=value) for value in values], timeout_s=SOON_S)


async def reading(log: EmbeddedEventLog) -> EmbeddedEventReader:
    reader = EmbeddedEventReader(log, "group", "one")
    await reader.open([MESSAGES], Silent())
    return reader


async def poll(reader: EmbeddedEventReader) -> list[Record]:
    return list(await asyncio.wait_for(reader.poll(limit=10), SOON_S))


# --- restarts ---------------------------------------------------------------------------------------------------------


async def test_events_ends_and_committed_offsets_outlive_the_process(tmp_path: Path) -> None:
    folder = Folder.open(tmp_path / "data")
    log = await EmbeddedEventLog.open(folder, SIZES)
    await append(log, b"0", b"1", b"2")
    reader = await reading(log)
    home = (await poll(reader))[0].partition
    await reader.commit(home, 2, timeout_s=SOON_S)
    await folder.close()

    folder = Folder.open(tmp_path / "data")
    log = await EmbeddedEventLog.open(folder, SIZES)
    await append(log, b"3")
    assert [record.offset for record in log.records(MESSAGES)] == [0, 1, 2, 3]
    assert [record.value for record in await poll(await reading(log))] == [b"2", b"3"]
    assert log.lag("group")[home] == 2
    await folder.close()


async def test_a_topic_keeps_its_number_of_partitions(folder: Folder) -> None:
    await EmbeddedEventLog.open(folder, SIZES)
    log = await EmbeddedEventLog.open(folder, {"another": 1, MESSAGES: SIZES[MESSAGES] + 2})
    assert log.partition_count(MESSAGES) == SIZES[MESSAGES], "a later release asks for more, and its chats lie in these"
    assert log.partition_count("another") == 1
    assert folder.stats().tables["topics"].rows == len(SIZES) + 1


async def test_after_a_broken_disk_is_mended_readers_see_what_the_log_holds(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync failed, but the events are in the log: their writer got no success, and yet none may be left out."""
    log = await EmbeddedEventLog.open(folder, SIZES)
    await append(log, b"0")
    reader = await reading(log)
    await poll(reader)
    polled = asyncio.create_task(poll(reader))
    await asyncio.sleep(0)

    def fail() -> None:
        monkeypatch.setattr(folder.disk, "sync", lambda: Disk.sync(folder.disk))
        raise DiskError("IO error")

    monkeypatch.setattr(folder.disk, "sync", fail)
    with pytest.raises(OutcomeUnknown, check=because("IO error")):
        await append(log, b"1")
    assert [(record.offset, record.value) for record in await polled] == [(1, b"1")]


# --- readers ----------------------------------------------------------------------------------------------------------


async def test_a_poll_that_fails_half_way_passes_over_nothing(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await EmbeddedEventLog.open(folder, SIZES)
    for key in ("a", "b", "c", "d", "e"):
        await append(log, b"0", key=key)
    assert all(log.end_offsets(MESSAGES).values()), "the keys reach both partitions"
    reader = await reading(log)
    fetched: list[Partition] = []

    def failing(partition: Partition, offset: int, limit: int) -> list[Record]:
        fetched.append(partition)
        if len(fetched) == 2:
            raise InternalError("unreadable")
        return EmbeddedEventLog.fetch(log, partition, offset, limit)

    monkeypatch.setattr(log, "fetch", failing)
    with pytest.raises(InternalError):
        await reader.poll(limit=10)
    assert len(await poll(reader)) == 5


async def test_a_reader_gets_no_event_that_a_loss_of_power_could_undo(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await EmbeddedEventLog.open(folder, SIZES)
    await append(log, b"0")
    reader, may_end = await reading(log), threading.Event()

    def sync() -> None:
        assert may_end.wait(SOON_S)
        Disk.sync(folder.disk)

    monkeypatch.setattr(folder.disk, "sync", sync)
    appended = asyncio.create_task(append(log, b"1"))
    await asyncio.sleep(0.02)
    assert [record.value for record in await poll(reader)] == [b"0"]
    polled = asyncio.create_task(poll(reader))
    await asyncio.sleep(0.02)
    assert not polled.done()
    may_end.set()
    assert [record.value for record in await polled] == [b"1"]
    await appended


async def test_a_reader_polls_once_at_a_time_and_only_while_open(folder: Folder) -> None:
    log = await EmbeddedEventLog.open(folder, SIZES)
    reader = EmbeddedEventReader(log, "group", "one")
    with pytest.raises(InternalError):
        await reader.poll(limit=1)
    await reader.open([MESSAGES], Silent())
    waiting = asyncio.create_task(poll(reader))
    await asyncio.sleep(0.01)
    with pytest.raises(InternalError):
        await reader.poll(limit=1)
    await reader.close()
    assert await waiting == []
    assert log.group("group").holders() == {}
    assert not log.group("group").knows(MemberKey("one", 1, 1))


# --- sweeping ---------------------------------------------------------------------------------------------------------


async def test_old_events_go_from_the_oldest_on_and_offsets_go_on(folder: Folder) -> None:
    log, clock = await EmbeddedEventLog.open(folder, SIZES), StoppedClock()
    sweeper = Sweeper(folder, log)
    await append(log, b"0", b"1", clock=clock)
    clock.at_ms += DAY_MS
    await append(log, b"2", clock=clock)
    assert await sweeper.sweep(NOON_MS + limits.EVENT_RETENTION_S * 1000 - 1) == Swept(0, 0)
    assert await sweeper.sweep(NOON_MS + limits.EVENT_RETENTION_S * 1000) == Swept(0, 2)
    assert [(record.offset, record.value) for record in await poll(await reading(log))] == [(2, b"2")]
    assert await sweeper.sweep(NOON_MS + limits.EVENT_RETENTION_S * 1000 + DAY_MS) == Swept(0, 1)
    await append(log, b"3", clock=clock)
    assert [record.offset for record in log.records(MESSAGES)] == [3]


async def test_dead_letters_are_kept_longer_than_events(folder: Folder) -> None:
    log = await EmbeddedEventLog.open(folder, SIZES)
    writer, sweeper = EmbeddedEventWriter(log, StoppedClock()), Sweeper(folder, log)
    await writer.append(DEAD_LETTERS, [Event(key="c", value=b"letter")], timeout_s=SOON_S)
    assert await sweeper.sweep(NOON_MS + limits.EVENT_RETENTION_S * 1000 + DAY_MS) == Swept(0, 0)
    assert await sweeper.sweep(NOON_MS + limits.DEAD_LETTER_RETENTION_S * 1000) == Swept(0, 1)


async def test_a_sweep_is_bounded_and_the_next_one_takes_up_the_rest(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS_MAX", 3)
    log = await EmbeddedEventLog.open(folder, SIZES)
    for key in ("a", "b"):
        await append(log, b"0", b"1", b"2", b"3", key=key)
    await keys(folder, *[(f"key-{number}", 100) for number in range(8)])
    sweeper = Sweeper(folder, log)
    swept = [await sweeper.sweep(NOON_MS * 2) for _ in range(4)]
    assert ([each.keys for each in swept], [each.events for each in swept]) == ([3, 3, 2, 0], [3, 3, 2, 0])


async def test_only_expired_keys_go_and_their_messages_stay(folder: Folder) -> None:
    await keys(folder, ("key-a", 100), ("key-b", 101))
    sweeper = Sweeper(folder, await EmbeddedEventLog.open(folder, SIZES))
    assert await sweeper.sweep(100_999) == Swept(1, 0)
    log = EmbeddedMessageLog(folder)
    found = await log.lookup(CHAT, ["key-a", "key-b"], [], timeout_s=SOON_S)
    assert list(found.keys) == ["key-b"]
    assert len((await log.read(CHAT, after=0, limit=10, timeout_s=SOON_S)).slots) == 2


async def test_a_key_taken_again_while_the_sweep_reads_is_kept(folder: Folder) -> None:
    await keys(folder, ("key-a", 100))
    log = EmbeddedMessageLog(folder)
    sweeper = Sweeper(folder, await EmbeddedEventLog.open(folder, SIZES))
    taken = log.persist(CHAT, [entry(7, "key-a", 500)], ["user_ann"], token="t", now_s=200, timeout_s=SOON_S)
    again = asyncio.ensure_future(taken)
    await asyncio.sleep(0)  # decided, and not yet to be seen by who reads
    assert await sweeper.sweep(200_000) == Swept(0, 0)
    assert await again is None
    assert (await log.lookup(CHAT, ["key-a"], [], timeout_s=SOON_S)).keys["key-a"].sequence == 7


async def test_a_commit_repeated_word_for_word_succeeds_again(folder: Folder) -> None:
    await keys(folder, ("key-a", 100), ("key-b", 100))
    log = EmbeddedMessageLog(folder)
    same, other = entry(1, "key-a", 100), entry(2, "key-c", 100)
    assert await log.persist(CHAT, [same], ["user_ann"], token="t", now_s=0, timeout_s=SOON_S) is None
    assert await log.persist(CHAT, [same, other], ["user_ann"], token="t", now_s=0, timeout_s=SOON_S) is not None
    assert await log.persist(CHAT, [other], ["user_ann"], token="t", now_s=0, timeout_s=SOON_S) is not None


async def test_a_chat_that_lost_its_counter_does_not_stay_in_the_way_of_dirty_ones(folder: Folder) -> None:
    log = EmbeddedMessageLog(folder)
    for number, chat_id in enumerate(("chat_1", "chat_2")):
        await EmbeddedCatalog(folder).create_group(group(chat_id), [], now_ms=0, timeout_s=SOON_S)
        await log.allocate(chat_id, 1, published_through=0, published_message=0, now_ms=number, timeout_s=SOON_S)
    await folder.writer.commit(
        "lose", lambda transaction: transaction.delete(rows.counter_key("chat_1")), timeout_s=SOON_S
    )
    assert await log.dirty(before_ms=10, limit=1, timeout_s=SOON_S) == [DirtyChat("chat_2", 1)]


async def keys(folder: Folder, *given: tuple[str, int]) -> None:
    await EmbeddedCatalog(folder).create_group(group(), [], now_ms=0, timeout_s=SOON_S)
    entries = [entry(number, key, expires_at_s) for number, (key, expires_at_s) in enumerate(given, start=1)]
    log = EmbeddedMessageLog(folder)
    assert await log.persist(CHAT, entries, ["user_ann"], token="t", now_s=0, timeout_s=SOON_S) is None
    await folder.writer.idle()  # a sweep looks at what is written


def entry(sequence: int, key: str, expires_at_s: int) -> Entry:
    message = Message(
        message_id=f"msg_{sequence}",
        chat_id=CHAT,
        sequence=sequence,
        sender_id="user_ann",
        client_message_id=key,
        content="hello",
        content_type=TEXT,
        created_at="",
    )
    return Entry(message=message, content_sha256="", expires_at_s=expires_at_s)


# --- the tail that is kept --------------------------------------------------------------------------------------------


async def test_what_is_read_from_the_tail_is_what_the_folder_holds(folder: Folder) -> None:
    log = await EmbeddedEventLog.open(folder, SIZES)
    for number in range(limits.EVENT_TAIL_RECORDS_MAX + 10):
        await append(log, b"%d" % number)
    partition = next(record.partition for record in log.records(MESSAGES))
    fresh = EmbeddedEventLog(folder, SIZES)  # it was not there when they were appended
    for offset in (
        0,
        5,
        9,
        10,
        11,
        limits.EVENT_TAIL_RECORDS_MAX,
        limits.EVENT_TAIL_RECORDS_MAX + 9,
        limits.EVENT_TAIL_RECORDS_MAX + 10,
    ):
        for limit in (1, 7, 500):
            assert log.fetch(partition, offset, limit) == fresh.fetch(partition, offset, limit)


async def test_what_was_read_is_let_go_and_read_again_from_the_folder(folder: Folder) -> None:
    log = await EmbeddedEventLog.open(folder, SIZES)
    for number in range(5):
        await append(log, b"%d" % number)
    reader = await reading(log)
    records = await poll(reader)
    assert [record.value for record in records] == [b"%d" % number for number in range(5)]
    partition = records[0].partition
    assert not log._tails[partition]
    assert log.fetch(partition, 0, 9) == list(records)
    await append(log, b"5")
    assert [record.value for record in await poll(reader)] == [b"5"]
    await reader.close()


async def test_a_commit_costs_no_sync_of_its_own(folder: Folder, slow: SlowDisk) -> None:
    slow.may_end.set()
    log = await EmbeddedEventLog.open(folder, SIZES)
    await append(log, b"0")
    reader = await reading(log)
    [record] = await poll(reader)
    before = slow.syncs
    await reader.commit(record.partition, 1, timeout_s=SOON_S)
    assert slow.syncs == before
    await append(log, b"1")
    assert slow.syncs == before + 1, "it went with the next group"
    assert folder.disk.get(rows.offset_key("group", record.partition)) == rows.NUMBER.encode(1)
    await reader.close()


async def test_a_commit_is_written_soon_if_nothing_else_is(
    folder: Folder, slow: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LAZY_WRITE_S", 0.01)
    slow.may_end.set()
    log = await EmbeddedEventLog.open(folder, SIZES)
    await append(log, b"0")
    reader = await reading(log)
    [record] = await poll(reader)
    before = slow.syncs
    await reader.commit(record.partition, 1, timeout_s=SOON_S)
    await until(lambda: slow.syncs > before)
    assert folder.disk.get(rows.offset_key("group", record.partition)) == rows.NUMBER.encode(1)
    await reader.close()


async def test_a_folder_that_closes_keeps_the_last_commits(tmp_path: Path) -> None:
    folder = Folder.open(tmp_path / "data")
    log = await EmbeddedEventLog.open(folder, SIZES)
    await append(log, b"0", b"1")
    reader = await reading(log)
    record, _ = await poll(reader)
    await reader.commit(record.partition, 1, timeout_s=SOON_S)
    await folder.close()
    again = Folder.open(tmp_path / "data")
    assert [each.offset for each in await poll(await reading(await EmbeddedEventLog.open(again, SIZES)))] == [1]
    await again.close()

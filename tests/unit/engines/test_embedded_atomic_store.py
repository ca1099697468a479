"""Atomic commits of the embedded engine: what a transaction reads, what it keeps for the next one, what it leaves."""

import asyncio
from collections.abc import Callable

import pytest

from seriatim.domain import limits
from seriatim.domain.chat import Chat, ChatType
from seriatim.domain.errors import OutcomeUnknown, SeriatimError
from seriatim.domain.message import TEXT, Message
from seriatim.engines.embedded.atomic_store import EmbeddedAtomicStore
from seriatim.engines.embedded.catalog import EmbeddedCatalog
from seriatim.engines.embedded.event_log import EmbeddedEventLog
from seriatim.engines.embedded.message_log import EmbeddedMessageLog
from seriatim.engines.embedded.storage.disk import Disk, DiskError
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.ports.atomic_store import AtomicTransaction
from seriatim.ports.event_log import MESSAGES, Event
from seriatim.ports.message_log import ChatCounter, Entry
from tests.contract.atomic_store_engines import committing
from tests.unit.engines.slow_disk import SOON_S, SlowDisk, begun, until

CHAT = "chat_1"


async def test_an_event_is_not_read_before_its_transaction_is_synced_and_is_read_after_a_mend(
    folder: Folder, slow: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow.may_end.set()
    events, store = await sending(folder)
    slow.may_end.clear()
    slow.begun.clear()
    answers: list[SeriatimError | None] = []
    store.when_ready(
        committing(lambda transaction: send(transaction, 1), answers.append),
        deadline=asyncio.get_running_loop().time() + SOON_S,
    )
    await begun(slow)
    await asyncio.sleep(0.02)
    assert (answers, events.records(MESSAGES)) == ([], [])
    monkeypatch.setattr(Disk, "sync", failing_once(Disk.sync))
    slow.may_end.set()
    await until(lambda: bool(answers))
    assert isinstance(answers[0], OutcomeUnknown)
    await until(lambda: bool(events.records(MESSAGES)))
    slots = await EmbeddedMessageLog(folder).read(CHAT, after=0, limit=9, timeout_s=SOON_S)
    assert [each.sequence for each in slots.slots] == [1]
    store.when_ready(
        committing(lambda transaction: send(transaction, 2), answers.append),
        deadline=asyncio.get_running_loop().time() + SOON_S,
    )
    await until(lambda: len(answers) == 2)
    assert answers[1] is None
    assert [record.offset for record in events.records(MESSAGES)] == [0, 1]


async def test_a_transaction_that_changes_nothing_costs_no_sync(folder: Folder, slow: SlowDisk) -> None:
    slow.may_end.set()
    _, store = await sending(folder)
    await folder.writer.idle()
    before = slow.syncs
    answers: list[SeriatimError | None] = []

    def read(transaction: AtomicTransaction) -> None:
        transaction.expect([(CHAT, "key")])
        assert transaction.key(CHAT, "key") is None
        assert transaction.counter(CHAT) is not None

    store.when_ready(committing(read, answers.append), deadline=asyncio.get_running_loop().time() + SOON_S)
    await until(lambda: bool(answers))
    assert (answers, slow.syncs) == ([None], before)


async def test_the_number_of_verified_chats_is_bounded_and_none_is_verified_after_a_mend(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STORE_VERIFIED_CHATS_MAX", 2)
    _, store = await sending(folder)
    chats = [CHAT, "chat_2", "chat_3"]
    for chat_id in chats[1:]:
        await found(folder, chat_id)
    answers: list[SeriatimError | None] = []

    def read(transaction: AtomicTransaction) -> None:
        assert all(transaction.counter(each) is not None for each in chats)

    store.when_ready(committing(read, answers.append), deadline=asyncio.get_running_loop().time() + SOON_S)
    await until(lambda: bool(answers))
    assert (answers, list(store._verified)) == ([None], chats[1:])
    for listener in folder.writer.mended:
        listener()
    assert list(store._verified) == []


async def test_a_counter_that_others_have_written_since_is_read_again(folder: Folder) -> None:
    """The store caches the counter that it wrote; the pipeline, or a repair, may have written another."""
    _, store = await sending(folder)
    assert await committed(store, lambda transaction: send(transaction, 1)) is None
    assert await EmbeddedMessageLog(folder).raise_counter(CHAT, allocated=7, now_ms=5, timeout_s=SOON_S)
    seen: list[ChatCounter | None] = []
    assert await committed(store, lambda transaction: seen.append(transaction.counter(CHAT))) is None
    assert [each and (each.allocated, each.published_through) for each in seen] == [(7, 1)]


async def test_a_transaction_without_a_commit_leaves_no_counter_behind(folder: Folder) -> None:
    _, store = await sending(folder)
    assert await committed(store, lambda transaction: send(transaction, 1)) is None

    def drop(opened: AtomicTransaction | SeriatimError) -> None:
        assert not isinstance(opened, SeriatimError)
        send(opened, 2)

    store.when_ready(drop, deadline=asyncio.get_running_loop().time() + SOON_S)
    seen: list[ChatCounter | None] = []
    assert await committed(store, lambda transaction: seen.append(transaction.counter(CHAT))) is None
    assert [each and each.allocated for each in seen] == [1]
    assert await committed(store, lambda transaction: send(transaction, 2)) is None


async def test_a_chat_that_was_left_dirty_is_clean_in_the_index_too_once_a_transaction_wrote_its_counter(
    folder: Folder,
) -> None:
    _, store = await sending(folder)
    log = EmbeddedMessageLog(folder)
    await log.allocate(CHAT, 1, published_through=0, published_message=0, now_ms=1, timeout_s=SOON_S)
    assert [each.chat_id for each in await log.dirty(before_ms=10, limit=9, timeout_s=SOON_S)] == [CHAT]
    assert await committed(store, lambda transaction: send(transaction, 2)) is None
    assert list(folder.disk.scan(b"D", b"E")) == []


async def test_the_number_of_cached_chats_is_bounded(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STORE_CACHED_CHATS_MAX", 2)
    _, store = await sending(folder)
    chats = [CHAT, "chat_2", "chat_3"]
    for chat_id in chats[1:]:
        await found(folder, chat_id)
    for _ in range(2):
        assert await committed(store, lambda transaction: [transaction.counter(each) for each in chats].clear()) is None
        assert list(store._chats) == chats[1:]
    assert await committed(store, lambda transaction: send(transaction, 1)) is None


async def committed(store: EmbeddedAtomicStore, work: Callable[[AtomicTransaction], None]) -> SeriatimError | None:
    answer: asyncio.Future[SeriatimError | None] = asyncio.get_running_loop().create_future()
    store.when_ready(committing(work, answer.set_result), deadline=asyncio.get_running_loop().time() + SOON_S)
    return await answer


async def sending(folder: Folder) -> tuple[EmbeddedEventLog, EmbeddedAtomicStore]:
    events = await EmbeddedEventLog.open(folder, {MESSAGES: 1})
    await found(folder, CHAT)
    return events, EmbeddedAtomicStore(folder, events, SystemClock())


async def found(folder: Folder, chat_id: str) -> None:
    chat = Chat(
        chat_id=chat_id,
        chat_type=ChatType.GROUP,
        name=None,
        created_by="ann",
        created_at="",
        updated_at="",
        member_count=0,
    )
    await EmbeddedCatalog(folder).create_group(chat, [], now_ms=1, timeout_s=SOON_S)


def send(transaction: AtomicTransaction, sequence: int) -> None:
    message = Message(
        message_id=f"msg_{sequence}",
        chat_id=CHAT,
        sequence=sequence,
        sender_id="ann",
        client_message_id=f"key-{sequence}",
        content="hello",
        content_type=TEXT,
        created_at="",
    )
    assert transaction.counter(CHAT) is not None
    transaction.add(Entry(message=message, content_sha256="", expires_at_s=2**40), Event(key=CHAT, value=b"event"))
    transaction.put_counter(
        CHAT,
        ChatCounter(
            allocated=sequence,
            published_through=sequence,
            published_message=sequence,
            members_version=1,
            dirty_at_ms=None,
        ),
    )


def failing_once(sync: Callable[[Disk], None]) -> Callable[[Disk], None]:
    failed: list[bool] = []

    def syncing(disk: Disk) -> None:
        if not failed:
            failed.append(True)
            raise DiskError("IO error")
        sync(disk)

    return syncing

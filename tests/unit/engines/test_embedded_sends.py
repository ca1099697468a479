"""Whole sends on the embedded engine share one sync each, and lose nothing by it: whatever fails, wherever it fails.

By the pipeline, one store call after another, and by atomic commit, where a chat that is not clean uses the pipeline.
"""

import asyncio
import itertools
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from seriatim.domain import events, limits
from seriatim.domain.chat import Chat, ChatType
from seriatim.domain.errors import OutcomeUnknown, SeriatimError
from seriatim.domain.message import TEXT, Draft, Message, Receipt
from seriatim.durability.ingest import Ingest
from seriatim.engines.embedded.atomic_store import EmbeddedAtomicStore
from seriatim.engines.embedded.catalog import EmbeddedCatalog
from seriatim.engines.embedded.event_log import EmbeddedEventLog, EmbeddedEventWriter
from seriatim.engines.embedded.message_log import EmbeddedMessageLog
from seriatim.engines.embedded.storage.disk import Disk, DiskError
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.ports.event_log import MESSAGES
from seriatim.ports.message_log import Entry

CHATS = [f"chat_{number}" for number in range(3)]
WRITERS, EACH = 3, 5  # in every chat, and how many messages each of them sends, one after another
T_S = 5.0

both_ways = pytest.mark.parametrize("atomic", [False, True], ids=["pipeline", "atomic commit"])


class Power:
    """Copies the files at each sync, as the disk has them from then on. One sync may fail: then the rest is lost."""

    def __init__(self, folder: Folder, root: Path, monkeypatch: pytest.MonkeyPatch, *, fails_at: int = 0) -> None:
        self.copies: list[Path] = []
        self.known: list[int] = []  # messages that were acknowledged before each copy
        self.acked: list[tuple[Draft, Receipt]] = []
        self._folder = folder
        self._root = root
        self._fails_at = fails_at
        self._syncs = itertools.count(1)
        monkeypatch.setattr(folder.disk, "sync", self._sync)
        monkeypatch.setattr(folder.disk, "reopen", self._reopen)
        self._copy()

    def _sync(self) -> None:
        if next(self._syncs) == self._fails_at:
            raise DiskError("IO error: no space left on device")
        Disk.sync(self._folder.disk)
        self._copy()

    def _copy(self) -> None:
        copy = self._root / f"copy-{len(self.copies)}"
        shutil.copytree(self._folder.path, copy)
        self.copies.append(copy)
        self.known.append(len(self.acked))

    def _reopen(self) -> None:
        disk, store = self._folder.disk, self._folder.path / "store"
        with suppress(DiskError):
            disk.close()
        shutil.rmtree(store)
        shutil.copytree(self.copies[-1] / "store", store)
        Disk.reopen(disk)


class Node(msgspec.Struct):
    """A process on a folder."""

    folder: Folder
    events: EmbeddedEventLog
    ingest: Ingest

    @classmethod
    async def on(cls, folder: Folder, *, atomic: bool) -> "Node":
        log, clock = await EmbeddedEventLog.open(folder, {MESSAGES: 2}), SystemClock()
        ingest = Ingest(
            log=EmbeddedMessageLog(folder),
            events=EmbeddedEventWriter(log, clock),
            clock=clock,
            producer_id="node",
            atomic_store=EmbeddedAtomicStore(folder, log, clock) if atomic else None,
        )
        return cls(folder, log, ingest)

    async def send(self, draft: Draft) -> Receipt:
        """As a client does: again and again with the same id, until it is acknowledged."""
        loop = asyncio.get_running_loop()
        while True:
            answer: asyncio.Future[Receipt | SeriatimError] = loop.create_future()
            self.ingest.submit(draft, deadline=loop.time() + T_S, answer=answer.set_result)
            outcome = await answer
            if isinstance(outcome, Receipt):
                return outcome
            assert outcome.retryable, outcome
            await asyncio.sleep(0.005)

    async def end(self) -> None:
        await self.ingest.drain()
        await self.folder.close()


async def found_chats(folder: Folder) -> None:
    catalog = EmbeddedCatalog(folder)
    for chat_id in CHATS:
        group = Chat(
            chat_id=chat_id,
            chat_type=ChatType.GROUP,
            name=None,
            created_by="user_0",
            created_at="",
            updated_at="",
            member_count=0,
        )
        await catalog.create_group(group, [f"user_{each}" for each in range(1, WRITERS)], now_ms=1, timeout_s=T_S)


async def leave_unpublished(folder: Folder, chat_id: str) -> None:
    """As a process that died before it had published: until the message is published, the chat uses the pipeline."""
    log = EmbeddedMessageLog(folder)
    await log.allocate(chat_id, 1, published_through=0, published_message=0, now_ms=1, timeout_s=T_S)
    left = Message(
        message_id="msg_left",
        chat_id=chat_id,
        sequence=1,
        sender_id="user_0",
        client_message_id="left",
        content="left behind",
        content_type=TEXT,
        created_at="2026-01-30T14:30:00.000Z",
    )
    entry = Entry(message=left, content_sha256="", expires_at_s=2**40)
    assert await log.persist(chat_id, [entry], ["user_0"], token="t", now_s=1, timeout_s=T_S) is None


def drafts(chat: int, writer: int) -> list[Draft]:
    return [
        Draft(
            chat_id=CHATS[chat],
            sender_id=f"user_{writer}",
            client_message_id=f"00000000-0000-4000-8000-{chat:04d}{writer:04d}{number:04d}",
            content=f"{number} of {writer}",
        )
        for number in range(EACH)
    ]


async def send_all(node: Node, acked: list[tuple[Draft, Receipt]]) -> None:
    async def write(chat: int, writer: int) -> None:
        for draft in drafts(chat, writer):
            for _ in range(chat + 4 * writer):  # so that not all of them share every sync
                await asyncio.sleep(0)
            receipt = await node.send(draft)
            acked.append((draft, receipt))

    await asyncio.gather(*(write(chat, writer) for chat in range(len(CHATS)) for writer in range(WRITERS)))


async def check(node: Node, acked: Sequence[tuple[Draft, Receipt]]) -> None:
    """Nothing acknowledged is lost, nothing is published without its row, no sequence was answered twice."""
    log = EmbeddedMessageLog(node.folder)
    stored: dict[tuple[str, int], Message] = {}
    for chat_id in CHATS:
        page = await log.read(chat_id, after=0, limit=100, timeout_s=T_S)
        stored |= {(chat_id, each.sequence): each for each in page.slots if isinstance(each, Message)}
        counter = (await log.counters([chat_id], timeout_s=T_S))[chat_id]
        assert max([0, *[each.sequence for each in page.slots]]) <= counter.allocated
    published: dict[tuple[str, int], str] = {}
    for record in node.events.records(MESSAGES):
        event = events.decode(record.key, record.value)
        assert isinstance(event, events.MessagePersisted)
        message = event.message
        assert stored[message.chat_id, message.sequence] == message
        earlier = [sequence for chat_id, sequence in published if chat_id == message.chat_id]
        assert (message.chat_id, message.sequence) in published or message.sequence > max([0, *earlier])
        published[message.chat_id, message.sequence] = message.message_id
    places = [(draft.chat_id, receipt.sequence) for draft, receipt in acked]
    assert len(set(places)) == len(places)
    for place, (draft, receipt) in zip(places, acked, strict=True):
        assert stored[place].client_message_id == draft.client_message_id
        assert stored[place].message_id == published[place] == receipt.message_id
    keys = [(each.chat_id, each.client_message_id) for each in stored.values()]
    assert len(set(keys)) == len(keys)


@both_ways
async def test_a_send_costs_one_sync(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, atomic: bool
) -> None:
    await found_chats(folder)
    node = await Node.on(folder, atomic=atomic)
    await node.send(drafts(0, 0)[0])
    power = Power(folder, tmp_path, monkeypatch)
    await node.send(drafts(0, 0)[1])
    assert len(power.copies) == 2
    await node.ingest.drain()


@both_ways
async def test_a_hundred_messages_of_one_chat_share_one_sync(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, atomic: bool
) -> None:
    """A transaction of another store takes fewer: this one says how many it takes."""
    await found_chats(folder)
    node = await Node.on(folder, atomic=atomic)
    power = Power(folder, tmp_path, monkeypatch)
    crowd = [
        msgspec.structs.replace(
            drafts(0, number % WRITERS)[0], client_message_id=f"{number:08d}-0000-4000-8000-{0:012d}"
        )
        for number in range(100)
    ]
    receipts = await asyncio.gather(*(node.send(draft) for draft in crowd))
    assert [each.sequence for each in receipts] == list(range(1, 101))
    assert len(power.copies) == 2
    await node.ingest.drain()


@both_ways
async def test_a_loss_of_power_at_any_sync_loses_nothing_and_gives_no_sequence_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, atomic: bool
) -> None:
    folder = Folder.open(tmp_path / "data")
    await found_chats(folder)
    await leave_unpublished(folder, CHATS[-1])
    node = await Node.on(folder, atomic=atomic)
    power = Power(folder, tmp_path, monkeypatch)
    await send_all(node, power.acked)
    await node.end()
    # Between two syncs the power may fail at any time: then the earlier copy is what is left.
    for copy, known in zip(power.copies, [*power.known[1:], len(power.acked)], strict=True):
        left = await Node.on(Folder.open(copy, create=False), atomic=atomic)
        promised = power.acked[:known]
        await check(left, promised)
        again: list[tuple[Draft, Receipt]] = []
        await send_all(left, again)
        receipts = {draft.client_message_id: receipt.sequence for draft, receipt in again}
        assert [receipts[draft.client_message_id] for draft, _ in promised] == [each.sequence for _, each in promised]
        await check(left, again)
        await left.end()
    assert len(power.copies) > EACH


@both_ways
@pytest.mark.parametrize("fails_at", range(1, 9))
async def test_a_failed_sync_that_loses_all_that_was_not_synced_is_survived_by_who_was_sending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int, atomic: bool
) -> None:
    """What was answered early is done again: no pipeline holds a slot, or publishes a message, that is not there."""
    monkeypatch.setattr(limits, "BREAKER_OPEN_S", 0.2)  # the failed calls open the breaker; its 30 s prove nothing here
    folder = Folder.open(tmp_path / "data")
    await found_chats(folder)
    await leave_unpublished(folder, CHATS[-1])
    node = await Node.on(folder, atomic=atomic)
    power = Power(folder, tmp_path, monkeypatch, fails_at=fails_at)
    copies: list[int] = []
    folder.writer.mended.append(lambda: copies.append(len(power.copies)))
    await send_all(node, power.acked)
    await check(node, power.acked)
    await node.end()
    assert len(power.acked) == len(CHATS) * WRITERS * EACH
    assert copies == [fails_at + 1], "one for each sync before, and one for the sync of what was done again"


@both_ways
async def test_a_sender_that_gives_up_after_a_failed_sync_leaves_nothing_that_is_published_without_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, atomic: bool
) -> None:
    """The pipeline still knows the others' messages as stored. They must be, before it publishes them with the next."""
    folder = Folder.open(tmp_path / "data")
    await found_chats(folder)
    node = await Node.on(folder, atomic=atomic)
    Power(folder, tmp_path, monkeypatch, fails_at=1)
    mended = asyncio.Event()
    folder.writer.mended.append(mended.set)
    outcomes: list[Receipt | SeriatimError] = []
    for writer in range(WRITERS):
        deadline = asyncio.get_running_loop().time() + T_S
        node.ingest.submit(drafts(0, writer)[0], deadline=deadline, answer=outcomes.append)
    await asyncio.wait_for(mended.wait(), T_S)
    assert [type(each) for each in outcomes] == [OutcomeUnknown] * WRITERS
    first, other = drafts(0, 0)[0], drafts(0, 1)[1]
    await check(node, [(draft, await node.send(draft)) for draft in (first, other)])
    await node.end()


@both_ways
async def test_the_events_a_writer_hands_over_decoded_equal_the_log_and_after_a_restart_only_the_log_has_them(
    tmp_path: Path, atomic: bool
) -> None:
    """Fanout in the writer's process does not decode; a process that opens the folder later must read the same."""
    folder = Folder.open(tmp_path / "data")
    await found_chats(folder)
    node = await Node.on(folder, atomic=atomic)
    await send_all(node, [])
    records = node.events.records(MESSAGES)
    assert len(records) == len(CHATS) * WRITERS * EACH
    assert [record.decoded for record in records] == [events.decode(record.key, record.value) for record in records]
    await node.end()
    again = Folder.open(tmp_path / "data")
    read = (await EmbeddedEventLog.open(again, {MESSAGES: 2})).records(MESSAGES)
    assert read == [msgspec.structs.replace(record, decoded=None) for record in records]
    await again.close()

"""Rows of one chat that cannot be read, on the real store: this chat waits for an operator, all others go on."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from seriatim.domain import limits
from seriatim.domain.chat import Chat, ChatType
from seriatim.domain.errors import SeriatimError
from seriatim.domain.message import Draft, Receipt, content_digest
from seriatim.durability.ingest import Ingest
from seriatim.engines.embedded.atomic_store import EmbeddedAtomicStore
from seriatim.engines.embedded.catalog import EmbeddedCatalog
from seriatim.engines.embedded.event_log import EmbeddedEventLog, EmbeddedEventWriter
from seriatim.engines.embedded.message_log import EmbeddedMessageLog
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.ports.event_log import MESSAGES
from seriatim.ports.message_log import DirtyChat
from tests.support.recording_observers import DurabilityRecorder

ILL, WELL, FINE = "chat_ill", "chat_well", "chat_fine"
CHATS = (ILL, WELL, FINE)
ANN = "user_ann"
T_S = 10.0
GARBAGE = b"\xc1 this release writes no such row"


class Node:
    """A process on a folder, with atomic commits of whole sends."""

    def __init__(self, folder: Folder, events: EmbeddedEventLog) -> None:
        clock = SystemClock()
        self.folder = folder
        self.notes = DurabilityRecorder()
        self.log = EmbeddedMessageLog(folder)
        self.ingest = Ingest(
            log=self.log,
            events=EmbeddedEventWriter(events, clock),
            clock=clock,
            producer_id="node",
            atomic_store=EmbeddedAtomicStore(folder, events, clock),
            observe=self.notes,
        )

    @classmethod
    async def on(cls, path: Path) -> "Node":
        folder = Folder.open(path)
        return cls(folder, await EmbeddedEventLog.open(folder, {MESSAGES: 1}))

    async def send_together(self, drafts: Sequence[Draft]) -> list[Receipt | SeriatimError]:
        """All in one turn of the loop, so that one transaction takes them."""
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[Receipt | SeriatimError]] = [loop.create_future() for _ in drafts]
        for draft, answer in zip(drafts, answers, strict=True):
            self.ingest.submit(draft, deadline=loop.time() + T_S, answer=answer.set_result)
        return list(await asyncio.gather(*answers))

    async def put(self, key: bytes, value: bytes) -> None:
        await self.folder.writer.commit("damage", lambda transaction: transaction.put(key, value), timeout_s=T_S)

    async def end(self) -> None:
        await self.ingest.drain()
        await self.folder.close()


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A folder with three chats, and one message in each."""
    path = tmp_path / "data"
    node = await Node.on(path)
    for chat_id in CHATS:
        chat = Chat(
            chat_id=chat_id,
            chat_type=ChatType.GROUP,
            name=None,
            created_by=ANN,
            created_at="",
            updated_at="",
            member_count=0,
        )
        await EmbeddedCatalog(node.folder).create_group(chat, [], now_ms=1, timeout_s=T_S)
    outcomes = await node.send_together([draft(chat_id, 0) for chat_id in CHATS])
    assert [type(each) for each in outcomes] == [Receipt] * 3
    await node.end()
    return path


@pytest.fixture
async def node(path: Path) -> AsyncIterator[Node]:
    opened = await Node.on(path)
    yield opened
    await opened.end()


def draft(chat_id: str, number: int) -> Draft:
    return Draft(
        chat_id=chat_id,
        sender_id=ANN,
        client_message_id=f"00000000-0000-4000-8000-{CHATS.index(chat_id):04d}{number:08d}",
        content=f"{number} in {chat_id}",
    )


async def sends_of_the_others_go_on(node: Node, ill: Draft) -> None:
    """More often than the breaker would bear failures of the store."""
    for number in range(1, limits.BREAKER_FAILURES_MAX + 3):
        refused, *stored = await node.send_together([ill, draft(WELL, number), draft(FINE, number)])
        assert isinstance(refused, SeriatimError)
        assert refused.retryable
        assert [each.sequence for each in stored if isinstance(each, Receipt)] == [number + 1] * 2, stored
    assert node.ingest.breaker.value == "closed"
    assert {chat_id for chat_id, _ in node.notes.unreadable} == {ILL}


@pytest.mark.parametrize("row", ["counter", "key"])
async def test_r1_a_row_that_cannot_be_decoded_stops_the_sends_of_its_own_chat_only(node: Node, row: str) -> None:
    ill = draft(ILL, 0)
    if row == "counter":
        await node.put(rows.counter_key(ILL), GARBAGE)
    else:
        await node.put(rows.idempotency_key(rows.keys_prefix(ILL), ill.client_message_id), GARBAGE)
    await sends_of_the_others_go_on(node, ill)


async def test_r1_a_damaged_table_file_stops_the_sends_of_the_chat_whose_rows_it_holds_only(path: Path) -> None:
    """The joint read of all keys fails as a whole, so each is read by itself."""
    ill = draft(ILL, 0)
    await damage_block_of_key(path, ill)
    node = await Node.on(path)
    try:
        await sends_of_the_others_go_on(node, ill)
    finally:
        await node.end()


async def test_r1_sends_of_a_chat_stay_in_order_when_the_row_of_one_of_them_cannot_be_read(node: Node) -> None:
    unreadable = draft(ILL, 2)
    await node.put(rows.idempotency_key(rows.keys_prefix(ILL), unreadable.client_message_id), GARBAGE)
    outcomes = await node.send_together([draft(ILL, 1), unreadable, draft(ILL, 3), draft(WELL, 1)])
    assert isinstance(outcomes[0], Receipt)
    assert isinstance(outcomes[3], Receipt)
    assert isinstance(outcomes[1], SeriatimError)
    again = await node.send_together([draft(ILL, 3)])
    assert [each.sequence for each in (outcomes[0], *again) if isinstance(each, Receipt)] == [2, 3]


async def test_r1_a_row_that_cannot_be_read_hides_the_head_of_its_own_chat_only(node: Node) -> None:
    await node.put(rows.counter_key(ILL), GARBAGE)
    assert await node.ingest.heads(CHATS, timeout_s=T_S) == {WELL: 1, FINE: 1}
    assert await node.ingest.heads([ILL], timeout_s=T_S) == {}
    assert [chat_id for chat_id, _ in node.notes.unreadable] == [ILL, ILL]


async def test_r1_a_chat_whose_counter_cannot_be_read_does_not_hide_the_other_dirty_ones(node: Node) -> None:
    for number, chat_id in enumerate(CHATS, start=1):
        await node.log.allocate(chat_id, 1, published_through=1, published_message=1, now_ms=number, timeout_s=T_S)
    await node.put(rows.counter_key(ILL), GARBAGE)
    others = [DirtyChat(WELL, 2), DirtyChat(FINE, 3)]
    assert await node.log.dirty(before_ms=10, limit=2, timeout_s=T_S) == others
    # Behind the others it is listed too: the reconciler learns, and says, why it cannot be settled.
    assert await node.log.dirty(before_ms=10, limit=9, timeout_s=T_S) == [*others, DirtyChat(ILL, 1)]


async def damage_block_of_key(path: Path, ill: Draft) -> None:
    """Flips one byte of the block of the table file that holds the key of this draft, and keys of its chat alone."""
    folder = Folder.open(path)
    prefix = rows.keys_prefix(ill.chat_id)
    filler = {
        prefix + b"\x00%s%04d" % (edge, number): os.urandom(200) for edge in (b"\x01", b"\x7f") for number in range(100)
    }
    folder.disk.write(filler)
    folder.disk.sync()
    folder.disk.compact()
    await folder.close()
    digest = content_digest(ill.content).encode()
    [table] = [each for each in (path / "store").glob("*.sst") if digest in each.read_bytes()]
    content = bytearray(table.read_bytes())
    content[content.index(digest)] ^= 0xFF
    table.write_bytes(content)

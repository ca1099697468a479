"""A process that writes as fast as it can and prints each message the moment it is acknowledged. To be killed."""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

from seriatim.domain.chat import Chat, ChatType
from seriatim.domain.errors import AlreadyExists
from seriatim.domain.message import TEXT, Message
from seriatim.engines.embedded.catalog import EmbeddedCatalog
from seriatim.engines.embedded.event_log import EmbeddedEventLog, EmbeddedEventWriter
from seriatim.engines.embedded.message_log import EmbeddedMessageLog
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.ports.event_log import MESSAGES, Event
from seriatim.ports.message_log import Allocation, Entry

CHATS = 8
PARTITIONS = {MESSAGES: 4}


async def load(path: Path, life: str) -> None:
    folder = Folder.open(path)
    log, clock = EmbeddedMessageLog(folder), SystemClock()
    events = EmbeddedEventWriter(await EmbeddedEventLog.open(folder, PARTITIONS), clock)
    await asyncio.gather(*(send_for_ever(folder, log, events, f"chat_{number}", life) for number in range(CHATS)))


async def send_for_ever(
    folder: Folder, log: EmbeddedMessageLog, events: EmbeddedEventWriter, chat_id: str, life: str
) -> None:
    chat = Chat(
        chat_id=chat_id,
        chat_type=ChatType.GROUP,
        name=None,
        created_by="ann",
        created_at="",
        updated_at="",
        member_count=0,
    )
    with suppress(AlreadyExists):
        await EmbeddedCatalog(folder).create_group(chat, [], now_ms=1, timeout_s=5)
    while True:
        slot = await log.allocate(chat_id, 1, published_through=0, published_message=None, now_ms=1, timeout_s=5)
        assert isinstance(slot, Allocation)
        message = Message(
            message_id=f"{life}-{chat_id}-{slot.first}",
            chat_id=chat_id,
            sequence=slot.first,
            sender_id="ann",
            client_message_id=f"{life}-{slot.first}",
            content="hello " * 20,
            content_type=TEXT,
            created_at="",
        )
        entry = Entry(message=message, content_sha256="", expires_at_s=2**40)
        refused = await log.persist(chat_id, [entry], ["ann"], token="t", now_s=1, timeout_s=5)
        assert refused is None, refused
        await events.append(MESSAGES, [Event(key=chat_id, value=message.message_id.encode())], timeout_s=5)
        os.write(1, f"{chat_id} {slot.first} {message.message_id}\n".encode())


if __name__ == "__main__":
    asyncio.run(load(Path(sys.argv[1]), sys.argv[2]))

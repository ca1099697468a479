"""Many write at once into one chat: everyone reads the same, in the same order, and nothing is missing."""

import asyncio
from pathlib import Path

from tests.system.devices import Device, faults, same, signed_in
from tests.system.server_process import serving
from tests.system.users import User

MEMBERS, READERS, WRITERS = 100, 5, 100  # a group has at most 100 members
EACH = 10  # messages, within the burst that a connection may send at once


async def test_a_hundred_concurrent_writers_and_five_readers_see_one_order_without_loss(tmp_path: Path) -> None:
    """95 of the 100 members write, five of them on a second device too; the other five only read."""
    with serving(tmp_path / "data") as server:
        users = await signed_in(lambda number: User(server, f"+4915100{number:06d}"), MEMBERS)
        again = await signed_in(lambda number: User(server, users[number + 1].phone_number), WRITERS - 95)
        chat_id = await asyncio.to_thread(users[0].create_group, *users[1:])
        readers, writers = [Device(each) for each in users[-READERS:]], [Device(each) for each in users[:-READERS]]
        writers += [Device(each) for each in again]
        devices = [*readers, *writers]
        assert len(writers) == WRITERS
        await asyncio.gather(*(device.connect() for device in devices))
        await asyncio.gather(*(device.sync(chat_id) for device in devices))
        texts = [[f"{number}: {count}" for count in range(EACH)] for number in range(WRITERS)]
        await asyncio.gather(*(_write(device, chat_id, own) for device, own in zip(writers, texts, strict=True)))
        await asyncio.gather(*(device.has(WRITERS * EACH, chat_id) for device in devices))
        history = [same(each) for each in await asyncio.to_thread(users[0].history, chat_id)]
        await asyncio.gather(*(device.close() for device in devices))
        assert server.stop() == 0
    assert sorted(each["content"] for each in history) == sorted(text for own in texts for text in own)
    assert [each["sequence"] for each in history] == sorted({each["sequence"] for each in history})
    assert faults(devices) == []
    for device in devices:
        assert device.messages(chat_id) == history
    for device, own in zip(writers, texts, strict=True):
        stored = [each["content"] for each in history if each["client_message_id"] in device.acks]
        assert stored == own, "what one connection sends keeps its order"


async def _write(device: Device, chat_id: str, texts: list[str]) -> None:
    """All at once: none waits for the ack of the one before it."""
    await asyncio.gather(*(device.send(chat_id, text) for text in texts))

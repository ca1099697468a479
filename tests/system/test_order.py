"""Many write at once into one chat: everyone reads the same, in the same order, and nothing is missing."""

import asyncio
from pathlib import Path

from tests.system.people import Person
from tests.system.phones import Phone, faults, same, signed_in
from tests.system.server import serving

MEMBERS, READERS, WRITERS = 100, 5, 100  # a group has at most 100 members
EACH = 10  # messages, within the burst that a connection may send at once


async def test_a_hundred_concurrent_writers_and_five_readers_see_one_order_without_loss(tmp_path: Path) -> None:
    """95 of the 100 members write, five of them on a second device too; the other five only read."""
    with serving(tmp_path / "data") as server:
        people = await signed_in(lambda number: Person(server, f"+4915100{number:06d}"), MEMBERS)
        again = await signed_in(lambda number: Person(server, people[number + 1].phone_number), WRITERS - 95)
        chat_id = await asyncio.to_thread(people[0].create_group, *people[1:])
        readers, writers = [Phone(each) for each in people[-READERS:]], [Phone(each) for each in people[:-READERS]]
        writers += [Phone(each) for each in again]
        phones = [*readers, *writers]
        assert len(writers) == WRITERS
        await asyncio.gather(*(phone.connect() for phone in phones))
        await asyncio.gather(*(phone.sync(chat_id) for phone in phones))
        texts = [[f"{number}: {count}" for count in range(EACH)] for number in range(WRITERS)]
        await asyncio.gather(*(_write(phone, chat_id, own) for phone, own in zip(writers, texts, strict=True)))
        await asyncio.gather(*(phone.has(WRITERS * EACH, chat_id) for phone in phones))
        history = [same(each) for each in await asyncio.to_thread(people[0].history, chat_id)]
        await asyncio.gather(*(phone.hang_up() for phone in phones))
        assert server.stop() == 0
    assert sorted(each["content"] for each in history) == sorted(text for own in texts for text in own)
    assert [each["sequence"] for each in history] == sorted({each["sequence"] for each in history})
    assert faults(phones) == []
    for phone in phones:
        assert phone.messages(chat_id) == history
    for phone, own in zip(writers, texts, strict=True):
        stored = [each["content"] for each in history if each["client_message_id"] in phone.acks]
        assert stored == own, "what one connection sends keeps its order"


async def _write(phone: Phone, chat_id: str, texts: list[str]) -> None:
    """All at once: none waits for the ack of the one before it."""
    await asyncio.gather(*(phone.send(chat_id, text) for text in texts))

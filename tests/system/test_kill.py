"""`kill -9` under load, again and again: what was acknowledged is there, once, and everyone who comes back has it."""

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.system.people import Person
from tests.system.phones import Lost, Phone, faults, same, signed_in
from tests.system.server import ServerProcess, command, serving

ROUNDS = 20
PEOPLE, CHATS = 8, 2
EACH = 18  # messages per phone and round, retries included: within the burst of one connection
SEED = 20_260_131


@pytest.mark.timeout(300)
async def test_twenty_kills_under_load_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    data, chance = tmp_path / "data", random.Random(SEED)
    with serving(data) as server:
        people = await signed_in(lambda number: Person(server, f"+4915100{number:06d}"), PEOPLE)
        chats = [await asyncio.to_thread(people[0].create_group, *people[1:]) for _ in range(CHATS)]
        phones = [Phone(each) for each in people]
        await _live_and_die(server, phones, chats, 0, chance)
    for number in range(1, ROUNDS):
        with serving(data) as server:
            _move(people, server)
            await _live_and_die(server, phones, chats, number, chance)
    with serving(data) as server:
        _move(people, server)
        await asyncio.gather(*(_come_back(phone, chats) for phone in phones))
        await asyncio.to_thread(_check, data)  # beside the running server
        histories = {chat_id: await asyncio.to_thread(people[0].history, chat_id) for chat_id in chats}
        await asyncio.gather(*(phone.hang_up() for phone in phones))
        assert server.stop() == 0
    for chat_id in chats:
        _compare(phones, chat_id, [same(each) for each in histories[chat_id]])
    assert faults(phones) == []
    _check(data)


async def _live_and_die(
    server: ServerProcess, phones: list[Phone], chats: list[str], number: int, chance: random.Random
) -> None:
    """Everyone comes back, pays what they owe and writes on, until so many acks of this round have arrived."""
    before = sum(len(phone.acks) for phone in phones)
    enough = before + chance.randrange(1, PEOPLE * EACH)
    writing = asyncio.gather(*(_write(phone, chats, number) for phone in phones))
    while sum(len(phone.acks) for phone in phones) < enough and not writing.done():  # noqa: ASYNC110 - many events
        await asyncio.sleep(0.001)
    server.kill()
    await writing
    await asyncio.gather(*(phone.gone() for phone in phones))
    assert sum(len(phone.acks) for phone in phones) > before


async def _write(phone: Phone, chats: list[str], number: int) -> None:
    try:
        owed = sum(map(len, phone.owed.values()))
        await _come_back(phone, chats)
        texts = [(chats[count % CHATS], f"round {number}, {count}") for count in range(owed, EACH)]
        sends = [phone.send(chat_id, text) for chat_id, text in texts]
        for outcome in await asyncio.gather(*sends, return_exceptions=True):
            assert isinstance(outcome, dict | Lost), outcome
    except Lost:
        pass  # killed


async def _come_back(phone: Phone, chats: list[str]) -> None:
    await phone.connect()
    for chat_id in chats:
        await phone.sync(chat_id)
    for chat_id in chats:
        await phone.pay(chat_id)


def _compare(phones: list[Phone], chat_id: str, history: list[dict[str, object]]) -> None:
    times = Counter(each["client_message_id"] for each in history)
    assert [key for key, count in times.items() if count > 1] == []
    places = {each["client_message_id"]: (each["sequence"], each["message_id"]) for each in history}
    for phone in phones:
        assert phone.messages(chat_id) == history
        assert phone.owed.get(chat_id, {}) == {}
        for key, ack in phone.acks.items():
            if ack["chat_id"] == chat_id:
                assert places[key] == (ack["sequence"], ack["message_id"])


def _move(people: list[Person], server: ServerProcess) -> None:
    for person in people:
        person.server = server


def _check(data: Path) -> None:
    done = command("check", "--data", str(data), cwd=data.parent)
    assert done.returncode == 0, done.stdout + done.stderr

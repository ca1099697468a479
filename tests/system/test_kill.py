"""`kill -9` under load, again and again: what was acknowledged is there, once, and everyone who comes back has it."""

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.support.soak import repeat
from tests.system.devices import Device, Lost, faults, same, signed_in
from tests.system.server_process import ServerProcess, command, serving
from tests.system.users import User

ROUNDS = repeat(8, soak=20)
USERS, CHATS = 8, 2
EACH = 18  # messages per device and round, retries included: within the burst of one connection
SEED = 20_260_131


@pytest.mark.timeout(300)
async def test_kills_under_load_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    data, chance = tmp_path / "data", random.Random(SEED)
    with serving(data) as server:
        users = await signed_in(lambda number: User(server, f"+4915100{number:06d}"), USERS)
        chats = [await asyncio.to_thread(users[0].create_group, *users[1:]) for _ in range(CHATS)]
        devices = [Device(each) for each in users]
        await _live_and_die(server, devices, chats, 0, chance)
    for number in range(1, ROUNDS):
        with serving(data) as server:
            _move(users, server)
            await _live_and_die(server, devices, chats, number, chance)
    with serving(data) as server:
        _move(users, server)
        await asyncio.gather(*(_come_back(device, chats) for device in devices))
        await asyncio.to_thread(_check, data)  # beside the running server
        histories = {chat_id: await asyncio.to_thread(users[0].history, chat_id) for chat_id in chats}
        await asyncio.gather(*(device.close() for device in devices))
        assert server.stop() == 0
    for chat_id in chats:
        _compare(devices, chat_id, [same(each) for each in histories[chat_id]])
    assert faults(devices) == []
    _check(data)


async def _live_and_die(
    server: ServerProcess, devices: list[Device], chats: list[str], number: int, chance: random.Random
) -> None:
    """Everyone comes back, pays what they owe and writes on, until so many acks of this round have arrived."""
    before = sum(len(device.acks) for device in devices)
    enough = before + chance.randrange(1, USERS * EACH)
    writing = asyncio.gather(*(_write(device, chats, number) for device in devices))
    while sum(len(device.acks) for device in devices) < enough and not writing.done():  # noqa: ASYNC110 - many events
        await asyncio.sleep(0.001)
    server.kill()
    await writing
    await asyncio.gather(*(device.wait_closed() for device in devices))
    assert sum(len(device.acks) for device in devices) > before


async def _write(device: Device, chats: list[str], number: int) -> None:
    try:
        unacked = sum(map(len, device.unacked.values()))
        await _come_back(device, chats)
        texts = [(chats[count % CHATS], f"round {number}, {count}") for count in range(unacked, EACH)]
        sends = [device.send(chat_id, text) for chat_id, text in texts]
        for outcome in await asyncio.gather(*sends, return_exceptions=True):
            assert isinstance(outcome, dict | Lost), outcome
    except Lost:
        pass  # killed


async def _come_back(device: Device, chats: list[str]) -> None:
    await device.connect()
    for chat_id in chats:
        await device.sync(chat_id)
    for chat_id in chats:
        await device.resend(chat_id)


def _compare(devices: list[Device], chat_id: str, history: list[dict[str, object]]) -> None:
    times = Counter(each["client_message_id"] for each in history)
    assert [key for key, count in times.items() if count > 1] == []
    places = {each["client_message_id"]: (each["sequence"], each["message_id"]) for each in history}
    for device in devices:
        assert device.messages(chat_id) == history
        assert device.unacked.get(chat_id, {}) == {}
        for key, ack in device.acks.items():
            if ack["chat_id"] == chat_id:
                assert places[key] == (ack["sequence"], ack["message_id"])


def _move(users: list[User], server: ServerProcess) -> None:
    for user in users:
        user.server = server


def _check(data: Path) -> None:
    done = command("check", "--data", str(data), cwd=data.parent)
    assert done.returncode == 0, done.stdout + done.stderr

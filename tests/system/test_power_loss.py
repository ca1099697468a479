"""The whole server in this process, on a disk that loses what was not synced: nothing acknowledged is lost."""

import asyncio
import random
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from seriatim.engines.embedded.storage.disk import Disk
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.runtime.config.settings import Settings
from seriatim.runtime.server.lifecycle import ServerProcess
from seriatim.runtime.wiring.assemble import assemble
from seriatim.runtime.wiring.embedded_store import EmbeddedStore
from tests.support.soak import repeat
from tests.system.devices import Device, Lost, faults, same, signed_in
from tests.system.users import ANSWER_S, Json, User

ROUNDS = repeat(8, soak=20)
USERS = 6
EACH = 18  # messages per device and round, retries included: within the burst of one connection
SEED = 20_260_201


@dataclass
class LocalEndpoint:
    """Where the server of this round listens."""

    host: str = "127.0.0.1"
    port: int = 0


class PowerCut:
    """Takes the place of a disk's `sync`, and knows what is left when the power fails in the middle of one.

    That is what each log file held when the last sync that has ended began: no later byte is promised. RocksDB only
    appends to its logs, and syncs its other files itself before it refers to them.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._promised = self._lengths()
        self._cut_next = threading.Event()
        self._in_the_middle = threading.Event()
        self._over = threading.Event()

    def sync(self) -> None:
        """On the thread that syncs."""
        if self._cut_next.is_set():
            self._in_the_middle.set()
            assert self._over.wait(ANSWER_S)
        lengths = self._lengths()
        Disk.sync(self._folder.disk)
        self._promised = lengths

    async def fail_in_the_middle_of_a_sync(self) -> None:
        """Returns while one is under way that will never end, as far as the server can know."""
        self._cut_next.set()
        async with asyncio.timeout(ANSWER_S):
            while not self._in_the_middle.is_set():  # noqa: ASYNC110 - a thread sets it
                await asyncio.sleep(0)

    def cut(self, left: Path, chance: random.Random | None) -> int:
        """Copies what is left to `left`; with `chance`, also some of what was not synced. Returns the bytes lost."""
        lost = 0
        shutil.copytree(self._folder.path, left, ignore=shutil.ignore_patterns("operator.sock"))
        for log in sorted((left / "store").glob("*.log")):
            length, kept = log.stat().st_size, self._promised.get(log.name, 0)
            if chance is not None:
                kept = chance.randint(kept, length)
            with log.open("r+b") as file:
                file.truncate(kept)
            lost += length - kept
        self._over.set()
        return lost

    def _lengths(self) -> dict[str, int]:
        return {log.name: log.stat().st_size for log in (self._folder.path / "store").glob("*.log")}


@pytest.mark.timeout(300)
async def test_power_cuts_under_load_lose_nothing_that_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, endpoint, data = random.Random(SEED), LocalEndpoint(), tmp_path / "data-0"
    devices: list[Device] = []
    chat_id, lost = "", list[int]()
    for number in range(ROUNDS):
        left = tmp_path / f"data-{number + 1}"
        async with _serving(data, endpoint) as server:
            store = server.engines.store
            assert isinstance(store, EmbeddedStore)
            power_cut = PowerCut(store.folder)
            monkeypatch.setattr(store.folder.disk, "sync", power_cut.sync)
            if not devices:
                users = await signed_in(lambda each: User(endpoint, f"+4915100{each:06d}"), USERS)
                chat_id = await asyncio.to_thread(users[0].create_group, *users[1:])
                devices = [Device(user) for user in users]
            writing = asyncio.gather(*(_write(device, chat_id, number) for device in devices))
            await _some_acks(devices, chance)
            await power_cut.fail_in_the_middle_of_a_sync()
            for _ in range(chance.randrange(50)):  # turns of the loop in which nothing may be promised any more
                await asyncio.sleep(0)
            # From this line to the copy nothing is awaited: whatever a device knows now must be left.
            for device in devices:
                device.ignore_incoming()
            lost.append(power_cut.cut(left, chance if number % 2 else None))
            await asyncio.gather(*(device.close() for device in devices))
            await writing
        shutil.rmtree(data)
        data = left
        async with _serving(data, endpoint):
            history = [same(each) for each in await asyncio.to_thread(devices[0].user.history, chat_id)]
        _check_known(devices, chat_id, history)
    assert all(lost[::2]), "every cut took something with it"
    async with _serving(data, endpoint):
        await asyncio.gather(*(_come_back(device, chat_id) for device in devices))
        history = [same(each) for each in await asyncio.to_thread(devices[0].user.history, chat_id)]
        await asyncio.gather(*(device.close() for device in devices))
    assert faults(devices) == []
    for device in devices:
        assert device.messages(chat_id) == history
        assert device.unacked[chat_id] == {}


@asynccontextmanager
async def _serving(data: Path, endpoint: LocalEndpoint) -> AsyncIterator[ServerProcess]:
    server = await assemble(Settings(env="test", port=0, internal="off", data=str(data)), instance="endpoint")
    try:
        public = (await server.start()).public
        assert public is not None
        endpoint.port = public.port
        yield server
    finally:
        await server.close()


async def _write(device: Device, chat_id: str, number: int) -> None:
    unacked = len(device.unacked.get(chat_id, {}))
    try:
        await _come_back(device, chat_id)
        sends = [device.send(chat_id, f"round {number}, {count}") for count in range(unacked, EACH)]
        for outcome in await asyncio.gather(*sends, return_exceptions=True):
            assert isinstance(outcome, dict | Lost), outcome
    except Lost:
        pass  # the power is off


async def _come_back(device: Device, chat_id: str) -> None:
    await device.connect()
    await device.sync(chat_id)
    await device.resend(chat_id)


async def _some_acks(devices: list[Device], chance: random.Random) -> None:
    enough = sum(len(device.acks) for device in devices) + chance.randrange(1, USERS * EACH // 2)
    async with asyncio.timeout(60):
        while sum(len(device.acks) for device in devices) < enough:  # noqa: ASYNC110 - at any turn of the loop
            await asyncio.sleep(0)


def _check_known(devices: list[Device], chat_id: str, history: list[Json]) -> None:
    """All that was acknowledged or shown to a user is there, in its place, once."""
    by_sequence = {each["sequence"]: each for each in history}
    keys = [each["client_message_id"] for each in history]
    assert len(set(keys)) == len(keys)
    for device in devices:
        for message in device.messages(chat_id):
            assert by_sequence.get(message["sequence"]) == message

"""Every role in processes of its own, on real engines: a message crosses them, and any one of them may go."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.real_redis import real_redis
from tests.system.deployment import Deployment, Process, deployed
from tests.system.people import Person
from tests.system.phones import Lost, Phone, Refused, faults, same, signed_in
from tests.system.server import until

EXAMPLE = Path(__file__).parents[2] / "examples" / "two_gateways.py"
PEOPLE = 6
PACE_S = 0.15  # below the rate limit

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("deployment")) as running:
        yield running


async def people_of(deployment: Deployment, first: int, count: int = PEOPLE) -> list[Person]:
    """Spread over the gateways."""
    gateways = deployment.gateways
    return await signed_in(
        lambda number: Person(deployment.api, f"+49151{first + number:08d}", gateway=gateways[number % len(gateways)]),
        count,
    )


async def chatting(deployment: Deployment, first: int) -> tuple[list[Phone], str]:
    people = await people_of(deployment, first)
    chat_id = await asyncio.to_thread(people[0].create_group, *people[1:])
    phones = [Phone(person) for person in people]
    await asyncio.gather(*(phone.connect() for phone in phones))
    await asyncio.gather(*(phone.sync(chat_id) for phone in phones))
    return phones, chat_id


async def test_a_message_crosses_two_gateways_and_everyone_sees_the_same(deployment: Deployment) -> None:
    phones, chat_id = await chatting(deployment, 1000)
    async with Talk(phones, chat_id) as talk:
        await talk.goes_on()
    assert talk.refusals == []
    await _agree(phones, chat_id)


def test_the_example_of_the_walkthrough_says_what_the_page_says(deployment: Deployment) -> None:
    places = [f"127.0.0.1:{each.port}" for each in (deployment.api, *deployment.gateways)]
    ended = subprocess.run(
        (sys.executable, str(EXAMPLE), *places), capture_output=True, text=True, timeout=60, check=True
    )
    ada, bob = ended.stdout.splitlines()
    assert ada.startswith(f"Ada,  at {places[1]}: acknowledged as number 1 after")
    assert bob.startswith(f"Bob,  at {places[2]}: 'Can you hear me over there?' after")


async def test_each_process_is_ready_for_its_own_reasons_and_shows_its_own_metrics(deployment: Deployment) -> None:
    parts = {each.role: each.ready() for each in deployment.all}
    assert {role: sorted(found) for role, found in parts.items()} == {
        "gateway": ["directory", "durability", "gateway"],
        "ingest": ["events", "ingest", "store"],
        "fanout": ["directory", "events", "store"],
        "api": ["directory", "durability", "store"],
    }
    shown = {each.role: {line.split("{")[0] for line in each.metrics().splitlines()} for each in deployment.all}
    own = {
        "gateway": "gateway_connections_active",
        "ingest": "durability_chats_active",
        "fanout": "fanout_rebalances_total",
        "api": "rest_request_latency_seconds_count",
    }
    for role, names in shown.items():
        assert [other for other, name in own.items() if name in names] == [role]
    assert "rpc_ingest_processes" in shown["gateway"]


async def test_an_ingest_that_is_told_to_stop_under_load_costs_nobody_an_error(deployment: Deployment) -> None:
    phones, chat_id = await chatting(deployment, 2000)
    async with Talk(phones, chat_id) as talk:
        for ingest in deployment.ingests:
            await talk.goes_on()
            lives = ingest.lives()
            ingest.signal(signal.SIGTERM)
            await talk.goes_on()
            await _back(deployment, ingest, lives)
            assert [line for line in ingest.lines() if line["event"] == "stopped"], "it drained, and was not cut"
        await talk.goes_on()
    assert talk.refusals == []
    await _agree(phones, chat_id)


async def test_an_ingest_that_is_killed_under_load_loses_nothing_that_was_acknowledged(deployment: Deployment) -> None:
    phones, chat_id = await chatting(deployment, 3000)
    async with Talk(phones, chat_id) as talk:
        for ingest in deployment.ingests:
            await talk.goes_on()
            lives = ingest.lives()
            ingest.signal(signal.SIGKILL)
            await talk.goes_on()
            await _back(deployment, ingest, lives)
    assert set(talk.refusals) <= {"SERVICE_UNAVAILABLE"}
    await _agree(phones, chat_id)


async def test_a_killed_gateway_and_a_stopped_fanout_delay_messages_and_lose_none(deployment: Deployment) -> None:
    phones, chat_id = await chatting(deployment, 4000)
    async with Talk(phones, chat_id) as talk:
        for process, how in ((deployment.gateways[0], signal.SIGKILL), (deployment.fanouts[0], signal.SIGTERM)):
            await talk.goes_on()
            lives = process.lives()
            process.signal(how)
            await _back(deployment, process, lives)
        await talk.goes_on()
    await _agree(phones, chat_id)


async def test_a_revoked_session_is_closed_on_its_gateway_and_refused_there_even_when_redis_forgot(
    deployment: Deployment,
) -> None:
    [ada] = await people_of(deployment, 5000, 1)
    with ada.connect() as line:
        assert ada.call("DELETE", f"/sessions/{ada.session_id}").status == 204
        assert line.error()["code"] == "UNAUTHORIZED"
        frame, code = line.closing()
        assert (frame["reason"], code) == ("session_revoked", 1008)
    await asyncio.to_thread(real_redis().wipe)  # now only the authority knows, by way of an ingest
    await asyncio.to_thread(until, lambda: all(each.is_ready() for each in deployment.all), "all see Redis again")
    phone = Phone(ada)
    with pytest.raises(Lost, match="401"):
        await phone.connect()


# --- helpers ----------------------------------------------------------------------------------------------------------


class Talk:
    """Everybody writes, each message until it is acknowledged, for as long as the block lasts."""

    def __init__(self, phones: Sequence[Phone], chat_id: str) -> None:
        self.refusals: list[str] = []
        self._phones = phones
        self._chat_id = chat_id
        self._over = False
        self._writing: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Talk":
        self._writing = [asyncio.create_task(self._write(phone)) for phone in self._phones]
        return self

    async def __aexit__(self, *reason: object) -> None:
        self._over = True
        await asyncio.gather(*self._writing)

    async def goes_on(self) -> None:
        """Returns once everybody has got two more messages through."""
        wanted = {phone: len(phone.acks) + 2 for phone in self._phones}
        for phone, count in wanted.items():
            await phone.until(lambda phone=phone, count=count: len(phone.acks) >= count)  # type: ignore[misc]

    async def _write(self, phone: Phone) -> None:
        number = 0
        while not self._over:
            number += 1
            try:
                await phone.send(self._chat_id, f"{phone.person.phone_number} says {number}")
            except (Refused, Lost) as trouble:
                await self._repeat(phone, trouble)
            await asyncio.sleep(PACE_S)

    async def _repeat(self, phone: Phone, trouble: Refused | Lost) -> None:
        while phone.owed[self._chat_id]:
            if isinstance(trouble, Refused):
                self.refusals.append(trouble.error["code"])
            await asyncio.sleep(2 * PACE_S)
            try:
                if isinstance(trouble, Lost):
                    await phone.connect()
                    await phone.sync(self._chat_id)
                await phone.pay(self._chat_id)
            except (Refused, Lost) as again:
                trouble = again


async def _back(deployment: Deployment, process: Process, lives: int) -> None:
    """It was started again, and everybody sees it."""
    await asyncio.to_thread(process.comes_back, lives)
    for each in deployment.all:
        await asyncio.to_thread(until, each.is_ready, f"{each.name} is ready")


async def _agree(phones: Sequence[Phone], chat_id: str) -> None:
    """Everyone has everything, once, in the same order, and so does the history."""
    history = [same(each) for each in await asyncio.to_thread(phones[0].person.history, chat_id)]
    await asyncio.gather(*(phone.has(len(history), chat_id) for phone in phones))
    await asyncio.gather(*(phone.hang_up() for phone in phones))
    assert faults(phones) == []
    assert len({each["client_message_id"] for each in history}) == len(history)
    for phone in phones:
        assert phone.owed[chat_id] == {}
        assert phone.messages(chat_id) == history

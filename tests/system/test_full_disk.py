"""A disk without room, as the process meets it: no file may grow. Sends fail for a while, and nothing is lost."""

import asyncio
import resource
from pathlib import Path

import pytest

from tests.system.people import Person, request
from tests.system.phones import Phone, Refused, faults, same, signed_in
from tests.system.server import ServerProcess, serving, until, with_limits

PEOPLE = 4


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs Linux: the limits of another process")
async def test_a_full_disk_refuses_sends_loses_nothing_and_works_again_once_there_is_room(tmp_path: Path) -> None:
    """The breaker's pause is shortened: whoever waits half a minute in production waits a second here."""
    data = tmp_path / "data"
    with serving(data, command=with_limits(tmp_path, BREAKER_OPEN_S=1.0)) as server:
        people = await signed_in(lambda number: Person(server, f"+4915100{number:06d}"), PEOPLE)
        chat_id = await asyncio.to_thread(people[0].create_group, *people[1:])
        phones = [Phone(each) for each in people]
        await asyncio.gather(*(phone.connect() for phone in phones))
        await asyncio.gather(*(phone.sync(chat_id) for phone in phones))
        await asyncio.gather(*(phone.send(chat_id, f"before {number}") for number, phone in enumerate(phones)))
        _fill(server)
        refusals = await asyncio.gather(*(_refused(phone, chat_id) for phone in phones))
        for error in [error for errors in refusals for error in errors]:
            assert (error["code"], error["retryable"]) == ("SERVICE_UNAVAILABLE", True)
        await asyncio.to_thread(_check_rest, people[0])
        _make_room(server)
        await asyncio.to_thread(
            until, lambda: request(server, "GET", "/health/ready").status == 200, "the folder is open again"
        )
        await asyncio.gather(*(_pay(phone, chat_id) for phone in phones))
        await asyncio.gather(*(phone.send(chat_id, f"after {number}") for number, phone in enumerate(phones)))
        history = [same(each) for each in await asyncio.to_thread(people[0].history, chat_id)]
        await asyncio.gather(*(phone.has(len(history), chat_id) for phone in phones))
        await asyncio.gather(*(phone.hang_up() for phone in phones))
        assert server.stop() == 0
    texts = sorted(each["content"] for each in history)
    assert texts == sorted(f"{when} {number}" for when in ("before", "during", "after") for number in range(PEOPLE))
    assert faults(phones) == []
    for phone in phones:
        assert phone.messages(chat_id) == history


def _fill(server: ServerProcess) -> None:
    """From now on no file of the server can grow, its log included."""
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (0, hard))


def _make_room(server: ServerProcess) -> None:
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))


async def _refused(phone: Phone, chat_id: str) -> list[dict[str, object]]:
    """One text, tried again as a client would: before it waits, and with the same id."""
    errors = list[dict[str, object]]()
    number = phone.person.phone_number[-1]
    for attempt in range(3):
        try:
            await (phone.pay(chat_id) if attempt else phone.send(chat_id, f"during {number}"))
            raise AssertionError("a send was acknowledged though nothing can be written")
        except Refused as refused:
            errors.append(refused.error)
    return errors


async def _pay(phone: Phone, chat_id: str) -> None:
    """Until it is acknowledged, waiting as long as the server says."""
    async with asyncio.timeout(60):
        while phone.owed[chat_id]:
            try:
                await phone.pay(chat_id)
            except Refused as refused:
                if refused.error["code"] != "SERVICE_UNAVAILABLE":
                    raise
                await asyncio.sleep(refused.error.get("retry_after_seconds", 1))


def _check_rest(person: Person) -> None:
    """F12: refused at once, with a word on when to come back."""
    other = person.user_id[:-1] + ("1" if person.user_id.endswith("0") else "0")
    for method, path, body in (
        ("PATCH", "/users/me", {"display_name": "Ada"}),
        ("POST", "/chats", {"type": "group", "member_ids": [other]}),
    ):
        reply = person.call(method, path, body)
        assert (reply.status, reply.json["error"]["code"]) == (503, "SERVICE_UNAVAILABLE"), reply.text
        assert int(reply.headers["retry-after"]) >= 1
    assert request(person.server, "GET", "/health/ready").status == 503
    assert request(person.server, "GET", "/health").status == 200

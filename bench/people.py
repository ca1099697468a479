"""The people of a bench, with their devices and chats: signed in by the operator's socket, grouped over REST.

They are made once per run. Whoever needs a fresh process starts it on the same folder: tokens outlive a restart.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.clients import Address, in_crowds
from seriatim.runtime.tools.operator import SOCKET

DEVICES = 10  # of each member of the large chat


class Person(msgspec.Struct):
    user_id: str
    tokens: list[str]


class People(msgspec.Struct, kw_only=True):
    """`pairs`, `tens`: chats of persons 0, 1, 2, ... in this order. `hundred`: of the first hundred.

    `crowds`: each of one person of the first few, and of `SILENT_EACH` others who are in no other crowd.
    """

    persons: list[Person]
    pairs: list[str]
    tens: list[str]
    hundred: str
    crowds: list[str]

    def token(self, person: int) -> str:
        return self.persons[person].tokens[0]

    def all_tokens(self) -> list[str]:
        return [token for person in self.persons for token in person.tokens]


CROWDS, SILENT_EACH, SILENT_FROM = 4, 50, 200


def silent(crowd: int) -> range:
    """The persons of a crowd who only listen."""
    return range(SILENT_FROM + crowd * SILENT_EACH, SILENT_FROM + (crowd + 1) * SILENT_EACH)


async def gather_people(data: Path, at: Address, *, persons: int) -> People:
    """At least 400 persons; a hundred of them have DEVICES devices."""
    found = [Person("", []) for _ in range(persons)]
    await in_crowds(
        _sign_in(data, number, person, DEVICES if number < 100 else 1) for number, person in enumerate(found)
    )
    people = People(persons=found, pairs=[""] * (persons // 2), tens=[""] * (persons // 10), hundred="", crowds=[])
    await asyncio.gather(
        groups(at, found, people.pairs, [range(each, each + 2) for each in range(0, persons - 1, 2)]),
        groups(at, found, people.tens, [range(each, each + 10) for each in range(0, persons - 9, 10)]),
    )
    rest = [""] * (1 + CROWDS)
    await groups(at, found, rest, [range(100), *([each, *silent(each)] for each in range(CROWDS))])
    people.hundred, *people.crowds = rest
    return people


async def _sign_in(data: Path, number: int, person: Person, devices: int) -> None:
    order = {"phone_number": f"+49151{number:08d}", "display_name": f"Person {number}", "with_token": True}
    for _ in range(devices):
        reader, writer = await asyncio.open_unix_connection(data / SOCKET)
        added = msgspec.json.decode(await post(reader, writer, "/users", order), type=_Added)
        writer.close()
        person.user_id = added.user_id
        person.tokens.append(added.access_token)


async def groups(at: Address, persons: Sequence[Person], into: list[str], members: Sequence[Sequence[int]]) -> None:
    async def one(number: int) -> None:
        first, *others = [persons[each] for each in members[number]]
        body = {"type": "group", "name": f"Chat {number}", "member_ids": [each.user_id for each in others]}
        reader, writer = await asyncio.open_connection(at.host, at.port)
        answer = await post(reader, writer, "/api/v1/chats", body, token=first.tokens[0])
        writer.close()
        into[number] = msgspec.json.decode(answer, type=_Created).data.chat_id

    await in_crowds(one(number) for number in range(len(members)))


async def post(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    path: str,
    body: object,
    *,
    token: str = "",
    device_id: str = "",
) -> bytes:
    text = msgspec.json.encode(body)
    bearer = f"Authorization: Bearer {token}\r\n" if token else ""
    device = f"X-Device-ID: {device_id}\r\n" if device_id else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n{bearer}{device}"
        f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    )
    writer.write(head.encode() + text)
    whole = await reader.read()
    top, _, answer = whole.partition(b"\r\n\r\n")
    if top.split(b" ", 2)[1] not in (b"200", b"201"):
        raise RuntimeError(f"{path}: {whole.decode(errors='replace')}")
    return answer


async def get(at: Address, path: str) -> str:
    reader, writer = await asyncio.open_connection(at.host, at.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n".encode())
    whole = await reader.read()
    writer.close()
    return whole.partition(b"\r\n\r\n")[2].decode()


class _Added(msgspec.Struct):
    user_id: str
    access_token: str


class _Chat(msgspec.Struct):
    chat_id: str


class _Created(msgspec.Struct):
    data: _Chat

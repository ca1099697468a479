"""The distributed system of a bench: real engines, two processes of each role, people who signed in over REST."""

import asyncio
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from bench.clients import Address, in_crowds
from bench.people import Person, get, groups, post
from bench.processes import Child, child, on_a_loop
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.runtime.config.roles import ProcessRole
from seriatim.runtime.config.settings import ENGINE_USERS, Settings
from seriatim.runtime.wiring.prepare import prepare
from tools.engines.dynamodb import REGION
from tools.engines.engines import Engines

SIZES = {
    ProcessRole.INGEST: 2,
    ProcessRole.FANOUT: 2,
    ProcessRole.API: 1,
    ProcessRole.GATEWAY: 2,
}  # in the order in which they are started
CHAT, CHATS = 24, 10
READY_S = 60.0


class Population(msgspec.Struct, frozen=True, kw_only=True):
    """`crowds`: chats of 24 persons each, in their order; `pairs`: of two. `spare`: of the first 24, and nobody writes
    there but the baseline.
    """

    persons: Sequence[Person]
    crowds: Sequence[str]
    pairs: Sequence[str]
    spare: str


class Deployment:
    def __init__(self, engines: Engines, settings: Settings, roles: Mapping[ProcessRole, Sequence[Child]]) -> None:
        self.engines = engines
        self.settings = settings
        self.roles = roles

    def gateway(self, number: int) -> Address:
        """Whoever comes next goes to the next one, as behind a load balancer."""
        gateways = self.roles[ProcessRole.GATEWAY]
        return _at(gateways[number % len(gateways)], "port")

    def internal(self, role: ProcessRole) -> Sequence[Address]:
        return [_at(each, "internal_port") for each in self.roles[role]]

    async def metrics(self, role: ProcessRole) -> str:
        """Of all processes of the role, one after another: their names are labels."""
        return "".join([await get(each, "/metrics") for each in self.internal(role)])

    async def until_ready(self) -> None:
        async with asyncio.timeout(READY_S):
            for role in self.roles:
                for each in self.internal(role):
                    while '"ready":true' not in (await get(each, "/health/ready")).replace(" ", ""):  # noqa: ASYNC110 - we only ask
                        await asyncio.sleep(0.1)

    async def settle_people(self) -> Population:
        """Signed in with one device each, as many as the chats need."""
        api = _at(self.roles[ProcessRole.API][0], "port")
        persons = [Person("", []) for _ in range(CHAT * CHATS)]
        await in_crowds(_sign_in(api, number, person) for number, person in enumerate(persons))
        crowds, pairs, spare = [""] * CHATS, [""] * CHAT, [""]
        await groups(api, persons, crowds, [range(first, first + CHAT) for first in range(0, len(persons), CHAT)])
        await groups(api, persons, pairs, [range(first, first + 2) for first in range(0, 2 * CHAT, 2)])
        await groups(api, persons, spare, [range(CHAT)])
        return Population(persons=persons, crowds=crowds, pairs=pairs, spare=spare[0])


@contextmanager
def deployed(engines: Engines, folder: Path) -> Iterator[Deployment]:
    """Makes tables and topics and starts all roles; kills them at the end of the block."""
    settings = Settings(
        store=f"dynamodb://?endpoint={engines.dynamodb_url}&region={REGION}",
        events=f"kafka://{engines.kafka_bootstrap}",
        directory=engines.redis_url,
    )
    on_a_loop(prepare(settings, "single", SystemClock(), lambda _line: None))
    with ExitStack() as stack:
        roles: dict[ProcessRole, list[Child]] = {role: [] for role in SIZES}
        for role, count in SIZES.items():
            for number in range(count):
                arguments = _arguments(role, number, settings, folder, roles[ProcessRole.INGEST])
                roles[role].append(stack.enter_context(child("role", *arguments, core=None)))
            for each in roles[role]:
                each.wait_for("listening")
        deployment = Deployment(engines, settings, roles)
        on_a_loop(deployment.until_ready())
        yield deployment


def _arguments(
    role: ProcessRole, number: int, settings: Settings, folder: Path, ingests: Sequence[Child]
) -> Sequence[str]:
    arguments = [role.value, "--env", "test", "--log-format", "json", "--internal", "127.0.0.1:0"]
    arguments += ["--instance", f"{role}-{number + 1}"]
    for name, users in ENGINE_USERS.items():
        if role in users:
            arguments += [f"--{name}", getattr(settings, name)]
    if role is ProcessRole.INGEST:
        arguments += ["--rpc", "127.0.0.1:0"]
    if role in (ProcessRole.GATEWAY, ProcessRole.API):
        places = ",".join(f"127.0.0.1:{each.wait_for('listening')['rpc_port']}" for each in ingests)
        arguments += ["--port", "0", "--keys", str(folder / "keys"), "--ingest", places]
    return arguments


def _at(process: Child, port: str) -> Address:
    return Address("127.0.0.1", process.wait_for("listening")[port])


async def _sign_in(api: Address, number: int, person: Person) -> None:
    """In the environment `test` every code is the same, and nobody is told to wait."""
    phone, device_id = f"+49151{number:08d}", str(uuid.uuid4())
    await _ask(api, "/api/v1/auth/request-otp", {"phone_number": phone})
    proof = {"phone_number": phone, "otp": "000000", "device_id": device_id}
    answer = await _ask(api, "/api/v1/auth/verify-otp", proof, device_id=device_id)
    signed_in = msgspec.json.decode(answer, type=_SignedIn).data
    person.user_id = signed_in.user.user_id
    person.tokens.append(signed_in.tokens.access_token)


async def _ask(api: Address, path: str, body: object, *, device_id: str = "") -> bytes:
    reader, writer = await asyncio.open_connection(api.host, api.port)
    try:
        return await post(reader, writer, path, body, device_id=device_id)
    finally:
        writer.close()


class _User(msgspec.Struct):
    user_id: str


class _Tokens(msgspec.Struct):
    access_token: str


class _Data(msgspec.Struct):
    user: _User
    tokens: _Tokens


class _SignedIn(msgspec.Struct):
    data: _Data

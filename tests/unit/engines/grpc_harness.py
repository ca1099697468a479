"""Ingest processes and a gateway's client of them, all within one test: real gRPC on loopback, planes by script."""

import asyncio
import hashlib
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from seriatim.domain.account import Session
from seriatim.domain.errors import SeriatimError
from seriatim.domain.message import Draft, Message, Receipt
from seriatim.engines.grpc.chat_router import ChooseAddress
from seriatim.engines.grpc.dial import GrpcDialer, MutualTls
from seriatim.engines.grpc.discovery import AddressSource, StaticAddresses
from seriatim.engines.grpc.durability import GrpcDurability, rendezvous
from seriatim.engines.grpc.server import DurabilityServer
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.ports.durability import Answer, BackPage, PrefixPage

SOON_S = 5.0
Outcome = Receipt | SeriatimError


class ScriptedPlane:
    """Answers every draft at once, with its place in the order of arrival; or holds it until `release`."""

    def __init__(self) -> None:
        self.taken: list[Draft] = []
        self.left_s: list[float] = []
        self.holding = False
        self.held: list[Callable[[], None]] = []
        self.sessions: dict[str, Session] = {}
        self.calls: list[tuple[str, str, float]] = []
        self.failure: Exception | None = None
        self.stuck: asyncio.Event | None = None

    def submit(self, draft: Draft, *, deadline: float, answer: Answer) -> None:
        loop = asyncio.get_running_loop()
        self.taken.append(draft)
        self.left_s.append(deadline - loop.time())
        receipt = Receipt(message_id=f"msg_{len(self.taken)}", sequence=len(self.taken), created_at="now")

        def settle() -> None:
            answer(receipt)

        if self.holding:
            self.held.append(settle)
        else:
            loop.call_soon(settle)

    def release(self) -> None:
        self.holding = False
        for settle in self.held:
            settle()
        self.held.clear()

    @property
    def texts(self) -> list[str]:
        return [draft.content for draft in self.taken]

    async def read(self, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float) -> PrefixPage:
        await self._called("read", chat_id, timeout_s)
        message = Message(
            message_id="msg_1",
            chat_id=chat_id,
            sequence=after + 1,
            sender_id=user_id,
            client_message_id="c",
            content="text",
            content_type="text/plain",
            created_at="",
        )
        return PrefixPage(messages=(message,) * limit, through=after + limit, has_more=True)

    async def read_back(
        self, user_id: str, chat_id: str, *, before: int, after: int, limit: int, timeout_s: float
    ) -> BackPage:
        await self._called("read_back", chat_id, timeout_s)
        return BackPage(messages=(), has_more=False)

    async def acknowledge(self, user_id: str, chat_id: str, *, sequence: int, timeout_s: float) -> None:
        await self._called("acknowledge", chat_id, timeout_s)

    async def heads(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, int]:
        await self._called("heads", chat_ids[0], timeout_s)
        return dict.fromkeys(chat_ids, 7)

    async def joined(self, since: Mapping[str, str], *, timeout_s: float) -> Mapping[str, Sequence[str]]:
        await self._called("joined", next(iter(since)), timeout_s)
        return {user_id: [f"chat_of_{user_id}"] for user_id in since}

    async def session(self, session_id: str, *, timeout_s: float) -> Session | None:
        await self._called("session", session_id, timeout_s)
        return self.sessions.get(session_id)

    async def _called(self, method: str, key: str, timeout_s: float) -> None:
        self.calls.append((method, key, timeout_s))
        if self.failure is not None:
            raise self.failure
        if self.stuck is not None:
            await self.stuck.wait()


class IngestProcess:
    """A server with its own plane. It can be stopped and started again at its address."""

    def __init__(self, *, token: str = "", tls: MutualTls | None = None) -> None:
        self.plane = ScriptedPlane()
        self._token = token
        self._tls = tls
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> "IngestProcess":
        self.server = DurabilityServer(self.plane, self.plane, SystemClock(), token=self._token, tls=self._tls)
        self.port = await self.server.start("127.0.0.1", self.port)
        return self

    async def stop(self) -> None:
        await self.server.stop()


@asynccontextmanager
async def ingest_processes(
    count: int, *, token: str = "", tls: MutualTls | None = None
) -> AsyncIterator[Sequence[IngestProcess]]:
    started = [await IngestProcess(token=token, tls=tls).start() for _ in range(count)]
    try:
        yield started
    finally:
        for each in started:
            await each.stop()


@asynccontextmanager
async def grpc_client(
    where: AddressSource | Sequence[IngestProcess],
    *,
    dialer: GrpcDialer | None = None,
    choose: ChooseAddress = rendezvous,
) -> AsyncIterator[GrpcDurability]:
    finder = StaticAddresses([each.address for each in where]) if isinstance(where, Sequence) else where
    client = GrpcDurability(finder, dialer or GrpcDialer(), SystemClock(), choose=choose)
    running = asyncio.create_task(client.run())
    try:
        yield client
    finally:
        running.cancel()
        await asyncio.wait((running,))


def draft_of(text: str, *, chat_id: str = "chat_1") -> Draft:
    digest = hashlib.sha256(text.encode()).digest()[:16]
    key = str(uuid.UUID(bytes=digest, version=4))
    return Draft(chat_id=chat_id, sender_id="user_ann", client_message_id=key, content=text)


class SendRecorder:
    """Sends, and their outcomes."""

    def __init__(self, client: GrpcDurability) -> None:
        self._client = client
        self.outcomes: dict[str, list[Outcome]] = {}

    def send(self, text: str, *, chat_id: str = "chat_1", within_s: float = SOON_S) -> None:
        draft = draft_of(text, chat_id=chat_id)
        deadline = asyncio.get_running_loop().time() + within_s
        self._client.submit(draft, deadline=deadline, answer=lambda outcome: self._note(text, outcome))

    def _note(self, text: str, outcome: Outcome) -> None:
        self.outcomes.setdefault(text, []).append(outcome)

    def of(self, text: str) -> Outcome:
        [outcome] = self.outcomes[text]
        return outcome

    async def all(self, count: int) -> None:
        await until(lambda: len(self.outcomes) == count)


async def until(condition: Callable[[], object]) -> None:
    deadline = asyncio.get_running_loop().time() + 2 * SOON_S
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "the condition never held"
        await asyncio.sleep(0.005)

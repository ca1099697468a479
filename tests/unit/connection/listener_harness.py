"""A listener on a real port, with a gateway and a durability on memory engines, and functions for what clients do."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from seriatim.connection.gateway import Gateway
from seriatim.connection.listener.admission import Admission
from seriatim.connection.listener.server import Listener
from seriatim.connection.listener.state import ASGIApp, Event, Receive, Scope, Send, WebSocketEndpoint
from seriatim.connection.observer import ListenerObserver
from seriatim.connection.session.connection import Connection
from seriatim.domain.addresses import Network
from seriatim.domain.chat import Membership, Role
from seriatim.domain.errors import SeriatimError, ServiceUnavailable, Unauthorized
from seriatim.domain.tokens import Claims, new_claims
from seriatim.durability.ingest import Ingest
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.inprocess.directory import InProcessDirectory, InProcessRegistry
from seriatim.engines.inprocess.push import InProcessChannels, InProcessPush, InProcessPushSubscriber
from seriatim.engines.inprocess.wire import Wire
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import CHATS, MEMBERSHIPS, MESSAGES
from seriatim.ports.message_log import ChatCounter
from seriatim.ports.push import MessageDelivery
from seriatim.simulation.stores.event_log import MemoryBroker, MemoryEventWriter
from seriatim.simulation.stores.message_log import MemoryMessageLog
from seriatim.simulation.stores.tables import MemoryStore
from tests.unit.connection.fakes import CHAT, Observed, a_message

ANN, BOB = "user_ann", "user_bob"
DEVICE = "0b0e8400-e29b-41d4-a716-446655440000"

on_real_loops = pytest.mark.usefixtures("real_loop")  # asyncio's and uvloop's


class FakeAuthenticator:
    """An `Authenticator` whose tokens are names: `ann`, or `ann/<device>`."""

    def __init__(self, clock: Clock) -> None:
        self.revoked: list[str] = []
        self.fails = False
        self.checks = 0
        self.expires_in_s = 3600
        self._clock = clock

    def verify(self, token: str, *, expired_too: bool = False) -> Claims:
        name, _, device_id = token.partition("/")
        if name not in ("ann", "bob"):
            raise Unauthorized("this token is not known", details={"reason": "token_invalid"})
        now_s = self._clock.now_ms() // 1000
        claims = new_claims(
            user_id=f"user_{name}", session_id=f"sess_{name}", device_id=device_id, token_id="jti_1", now_s=now_s
        )
        return msgspec.structs.replace(claims, device_id=device_id or None, exp=now_s + self.expires_in_s)

    async def check_revoked(self, claims: Claims, *, timeout_s: float) -> None:
        self.checks += 1
        await asyncio.sleep(0)
        if self.fails:
            raise ServiceUnavailable("the revocation store is away")
        if claims.sid in self.revoked:
            raise Unauthorized("this session was ended", details={"reason": "token_revoked"})


class RecordedListener(ListenerObserver):
    def __init__(self) -> None:
        self.refusals: list[str] = []
        self.finished: list[tuple[str, int]] = []
        self.http_refusals: list[int] = []
        self.failures: list[Exception] = []
        self.timeouts: list[str] = []
        self.unknown = 0
        self.sockets_refused: list[str] = []
        self.evictions = 0
        self.accept_failures: list[int | None] = []
        self.handshakes: list[int] = []

    def socket_refused(self, reason: str) -> None:
        self.sockets_refused.append(reason)

    def idle_evicted(self) -> None:
        self.evictions += 1

    def accept_failed(self, error: OSError) -> None:
        self.accept_failures.append(error.errno)

    def tls_handshakes(self, under_way: int) -> None:
        self.handshakes.append(under_way)

    def handshake_refused(self, code: str) -> None:
        self.refusals.append(code)

    def http_finished(self, method: str, status: int, seconds: float) -> None:
        self.finished.append((method, status))

    def http_refused(self, status: int) -> None:
        self.http_refusals.append(status)

    def http_failed(self, failure: Exception) -> None:
        self.failures.append(failure)

    def timed_out(self, what: str) -> None:
        self.timeouts.append(what)

    def revocation_unknown(self, error: SeriatimError) -> None:
        self.unknown += 1


class BreakableWire(Wire):
    """A wire that fails while `broken`."""

    broken = False

    async def call(self, operation, apply, *, timeout_s, finish=None):  # type: ignore[no-untyped-def]
        if self.broken:
            raise ServiceUnavailable("the directory is away")
        return await super().call(operation, apply, timeout_s=timeout_s, finish=finish)


class ListenerHarness:
    """Ann and Bob are members of CHAT."""

    def __init__(
        self,
        app: ASGIApp | None = None,
        *,
        rate_limits_off: bool = True,
        origins: tuple[str, ...] | None = None,
        trusted_proxies: tuple[Network, ...] = (),
        connections_per_address_max: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.authenticator = FakeAuthenticator(self.clock)
        self.seen, self.observed = RecordedListener(), Observed()
        self.store = MemoryStore()
        self.directory_wire = BreakableWire()
        self.channels = InProcessChannels()
        broker = MemoryBroker({MESSAGES: 1, MEMBERSHIPS: 1, CHATS: 1})
        self.ingest = Ingest(
            log=MemoryMessageLog(self.store, Wire()),
            events=MemoryEventWriter(broker, Wire(), self.clock.now_ms),
            clock=self.clock,
            producer_id="ingest",
        )
        self.registry = InProcessRegistry()
        directory = InProcessDirectory(self.registry, self.directory_wire, self.clock.now_ms)
        self.gateway = Gateway(
            "gw_1",
            self.ingest,
            directory,
            InProcessPush(self.channels, Wire()),
            InProcessPushSubscriber(self.channels, Wire()),
            self.clock,
            observe=self.observed,
        )
        admission = Admission(
            self.authenticator,
            directory,
            self.clock,
            rate_limits_off=rate_limits_off,
            origins=origins,
            trusted_proxies=trusted_proxies,
        )
        endpoint = WebSocketEndpoint(self.gateway, admission, self.clock, observe=self.seen)
        self.listener = Listener(
            app or hello,
            self.clock,
            websocket=endpoint,
            observe=self.seen,
            connections_per_address_max=connections_per_address_max,
            trusted_proxies=trusted_proxies,
        )
        self.port = 0
        self._peers: list[Peer] = []
        for user_id in (ANN, BOB):
            row = Membership(
                chat_id=CHAT, user_id=user_id, role=Role.MEMBER, joined_at="2026-01-30T14:30:00.000Z", added_by=ANN
            )
            self.store.put_member(row, 1)
        counter = ChatCounter(
            allocated=0, published_through=0, published_message=0, members_version=1, dirty_at_ms=None
        )
        self.store.put_counter(CHAT, counter)

    async def open(self, *, tls: ssl.SSLContext | None = None) -> None:
        await self.gateway.start()
        ((_, self.port),) = await self.listener.serve("127.0.0.1", 0, ssl=tls)

    async def close(self) -> None:
        for peer in self._peers:
            await peer.end()
        await self.listener.close()
        await self.gateway.stop()
        await self.ingest.drain()

    # --- clients ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def client(
        self, token: str = "ann", device_id: str = DEVICE, *, greeted: bool = True
    ) -> AsyncIterator[ClientConnection]:
        headers = {"Authorization": f"Bearer {token}", "X-Device-ID": device_id}
        async with connect(
            f"ws://127.0.0.1:{self.port}/v1/ws", additional_headers=headers, compression=None, ping_interval=None
        ) as socket:
            if greeted:
                assert (await read(socket))["type"] == "connection_established"
            yield socket

    async def dial(self, *, tls: ssl.SSLContext | None = None, source: str = "127.0.0.1") -> "Peer":
        """Closed with the harness at the latest. `source`: an address of this machine, as the peer's own."""
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.port, ssl=tls, local_addr=(source, 0)))
        self._peers.append(peer)
        return peer

    async def ask(self, request: bytes) -> "HttpAnswer":
        """One request on a connection of its own."""
        peer = await self.dial()
        peer.send(request)
        answer = await peer.answer()
        await peer.close()
        return answer

    async def upgrade(self, path: str = "/v1/ws", *, without: tuple[str, ...] = (), **headers: str) -> "HttpAnswer":
        """A handshake with these headers beside the usual ones; underscores stand for hyphens."""
        return await self.ask(handshake(path, without=without, **headers))

    # --- the gateway -----------------------------------------------------------------------------------------------

    @property
    def connection(self) -> Connection:
        (connection,) = self.gateway.connections.values()
        return connection

    def push(self, sequence: int, content: str = "Hi") -> None:
        """To all connections."""
        message = a_message(sequence, content=content)
        ids = tuple(self.gateway.connections)
        self.gateway.received([MessageDelivery(connection_ids=ids, message=message, prev_sequence=sequence - 1)])


@asynccontextmanager
async def listener_harness(
    app: ASGIApp | None = None,
    *,
    rate_limits_off: bool = True,
    origins: tuple[str, ...] | None = None,
    trusted_proxies: tuple[Network, ...] = (),
    connections_per_address_max: int | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[ListenerHarness]:
    built = ListenerHarness(
        app,
        rate_limits_off=rate_limits_off,
        origins=origins,
        trusted_proxies=trusted_proxies,
        connections_per_address_max=connections_per_address_max,
    )
    await built.open(tls=tls)
    try:
        yield built
    finally:
        await built.close()


# --- HTTP ------------------------------------------------------------------------------------------------------------


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with what it was sent."""
    body = await read_all(receive)
    await answer(send, 200, scope["method"].encode() + b" " + scope["path"].encode() + b" " + body)


async def read_all(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        event = await receive()
        body += event.get("body", b"")
        if not event.get("more_body"):
            return bytes(body)


async def answer(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    start: Event = {"type": "http.response.start", "status": status, "headers": list(headers)}
    await send(start)
    await send({"type": "http.response.body", "body": body})


def handshake(path: str = "/v1/ws", *, without: tuple[str, ...] = (), **headers: str) -> bytes:
    usual = {
        "Host": "here",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
        "Authorization": "Bearer ann",
        "X-Device-ID": DEVICE,
    }
    given = {name.replace("_", "-").lower(): value for name, value in headers.items()}
    kept = {name: value for name, value in usual.items() if name not in without and name.lower() not in given}
    lines = [f"{name}: {value}\r\n" for name, value in {**kept, **given}.items()]
    return f"GET {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode()


class HttpAnswer(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        return msgspec.json.decode(self.body, type=dict[str, object])

    @property
    def error(self) -> object:
        """Of a refused handshake."""
        return self.json["error"]

    @property
    def details(self) -> dict[str, object]:
        return msgspec.convert(self.json["details"], dict[str, object])


class Peer:
    """A plain socket, for bytes that no proper client would send."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, *, only_head: bool = False) -> HttpAnswer:
        top = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = top.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines) if name}
        body = b""
        if not only_head and headers.get("transfer-encoding") == "chunked":
            while size := int(await self.reader.readline(), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readline()
        elif not only_head:
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return HttpAnswer(int(first.split()[1]), headers, body)

    async def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        return await self.reader.read()

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    async def end(self) -> None:
        """At once, without what is not written yet."""
        self.writer.transport.abort()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


# --- WebSocket -------------------------------------------------------------------------------------------------------


async def read(socket: ClientConnection) -> dict[str, object]:
    return msgspec.json.decode(await socket.recv(decode=False), type=dict[str, object])


async def until(condition: Callable[[], bool], *, within_s: float = 5.0) -> None:
    deadline = asyncio.get_running_loop().time() + within_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"it did not happen within {within_s:g} s"
        await asyncio.sleep(0.002)


def bearer_subprotocols(token: str) -> list[Subprotocol]:
    return [Subprotocol("messaging.v1"), Subprotocol(f"bearer.{token}")]

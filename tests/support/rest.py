"""The REST API in one process, on memory engines and real keys, with a clock that the test moves.

`RestServer` is the server; `RestClient` that calls the ASGI application directly, without sockets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from seriatim.api.app import ApiDependencies, build_app, build_routes
from seriatim.api.core.observer import ApiObserver
from seriatim.api.core.route import Route
from seriatim.api.core.router import RestApp
from seriatim.durability.ingest import Ingest
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.inprocess.code_sender import new_code
from seriatim.engines.inprocess.directory import InProcessDirectory, InProcessRegistry
from seriatim.engines.inprocess.push import InProcessChannels, InProcessPush
from seriatim.engines.inprocess.quotas import InProcessQuotas
from seriatim.engines.inprocess.revocations import InProcessRevocations
from seriatim.engines.inprocess.wire import Wire
from seriatim.engines.keys.authenticator import KeyAuthenticator
from seriatim.engines.keys.key_folder import KeyFolder
from seriatim.engines.keys.secrets import KeySecrets
from seriatim.engines.keys.tokens import Rs256Signer
from seriatim.ports.event_log import CHATS, MEMBERSHIPS, MESSAGES
from seriatim.services.membership import MembershipService
from seriatim.services.otp import OtpService
from seriatim.services.sessions import SessionRevoker, SocketCloser
from seriatim.services.sign_in import SignInService
from seriatim.simulation.stores.accounts import MemoryAccounts
from seriatim.simulation.stores.catalog import MemoryCatalog
from seriatim.simulation.stores.event_log import MemoryBroker, MemoryEventWriter
from seriatim.simulation.stores.message_log import MemoryMessageLog
from seriatim.simulation.stores.request_keys import MemoryRequestKeys
from seriatim.simulation.stores.tables import MemoryStore
from tests.support.manual_clock import ManualClock

PHONE = "+4915112345678"
OTHER_PHONE = "+14155550123"
DEVICE = "7d9f2c1e-5b3a-4c8d-9e6f-1a2b3c4d5e6f"
OTHER_DEVICE = "11111111-2222-4333-8444-555555555555"

_MADE: list[KeyFolder] = []  # a key takes a tenth of a second to make, so all tests of a process share one


class RecordingCodeSender:
    """Implements `CodeSender`: keeps what it was given, or fails."""

    def __init__(self) -> None:
        self.codes: list[tuple[str, str]] = []
        self.failure: Exception | None = None

    async def send(self, phone_number: str, code: str) -> None:
        if self.failure is not None:
            raise self.failure
        self.codes.append((phone_number, code))


class RecordingApiObserver(ApiObserver):
    """Keeps what the REST API reported."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, int]] = []
        self.failures: list[tuple[str, BaseException]] = []
        self.audits: list[tuple[str, Mapping[str, object]]] = []

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        self.requests.append((route, method, status))

    def failed(self, request_id: str, error: BaseException) -> None:
        self.failures.append((request_id, error))

    def audit(self, event: str, fields: Mapping[str, object]) -> None:
        self.audits.append((event, fields))


class FailingWire(Wire):
    """A wire that can be cut: `broken` names the operations that fail, `"*"` all of them."""

    def __init__(self) -> None:
        self.broken: dict[str, Exception] = {}

    async def call(self, operation: str, *arguments: Any, **options: Any) -> Any:
        failure = self.broken.get(operation) or self.broken.get("*")
        if failure is not None:
            raise failure
        return await super().call(operation, *arguments, **options)


def shared_keys(folder: Path, clock: SystemClock) -> KeyFolder:
    if not _MADE:
        _MADE.append(KeyFolder.open(folder, create=True, clock=clock))
    return _MADE[0]


class RestServer:
    """The REST API on memory stores, wired by the same functions as the server. `close` ends its code deliveries."""

    def __init__(self, folder: Path, *, reuse_leeway_s: int = 0) -> None:
        self.clock = ManualClock()
        self.keys = shared_keys(folder, self.clock)
        self.secrets = KeySecrets(self.keys)
        self.signer = Rs256Signer(self.keys)
        self.wire = FailingWire()
        self.store = MemoryStore()
        self.accounts = MemoryAccounts(self.store, self.wire)
        self.quotas = InProcessQuotas(self.clock)
        self.revocations = InProcessRevocations(self.clock)
        self.registry = InProcessRegistry()
        self.directory = InProcessDirectory(self.registry, self.wire, self.clock.now_ms)
        self.channels = InProcessChannels()
        self.push = InProcessPush(self.channels, self.wire)
        self.code_sender = RecordingCodeSender()
        self.observed = RecordingApiObserver()
        self.checks: dict[str, bool] = {"store": True}
        self.authenticator = KeyAuthenticator(self.keys, self.revocations, self.accounts, self.clock)
        self.otp = OtpService(
            accounts=self.accounts,
            secrets=self.secrets,
            sender=self.code_sender,
            new_code=new_code,
            clock=self.clock,
            observe=self.observed,
        )
        self.dependencies = self._dependencies(reuse_leeway_s)

    def routes(self) -> list[Route]:
        return build_routes(self.dependencies)

    def app(self, more: Sequence[Route] = (), **options: Any) -> RestApp:
        """`options` are those of `build_app`, or `ready` and `quotas` to put in the place of this server's own."""
        replaced = {name: options.pop(name) for name in ("ready", "quotas") if name in options}
        return build_app(replace(self.dependencies, **replaced), [*self.routes(), *more], **options)

    def client(self, more: Sequence[Route] = (), **options: Any) -> "RestClient":
        return RestClient(self.app(more, **options), self)

    def _dependencies(self, reuse_leeway_s: int) -> ApiDependencies:
        log, catalog = MemoryMessageLog(self.store, self.wire), MemoryCatalog(self.store, self.wire)
        broker = MemoryBroker({MESSAGES: 1, MEMBERSHIPS: 1, CHATS: 1})
        events = MemoryEventWriter(broker, self.wire, self.clock.now_ms)
        ingest = Ingest(log=log, events=events, clock=self.clock, producer_id="one")
        revoker = SessionRevoker(self.accounts, self.revocations, SocketCloser(self.directory, self.push))

        async def ready() -> Mapping[str, bool]:
            return self.checks

        return ApiDependencies(
            accounts=self.accounts,
            catalog=catalog,
            delivery=log,
            durability=ingest,
            history=ingest,
            request_keys=MemoryRequestKeys(self.store, self.wire),
            quotas=self.quotas,
            secrets=self.secrets,
            authenticator=self.authenticator,
            memberships=MembershipService(
                catalog=catalog, events=events, directory=self.directory, clock=self.clock, producer_id="one"
            ),
            otp=self.otp,
            sign_in=SignInService(
                accounts=self.accounts,
                secrets=self.secrets,
                signer=self.signer,
                authenticator=self.authenticator,
                revoker=revoker,
                clock=self.clock,
                observe=self.observed,
                reuse_leeway_s=reuse_leeway_s,
            ),
            revoker=revoker,
            ready=ready,
            clock=self.clock,
            observe=self.observed,
        )

    async def delivered_code(self) -> str:
        """The newest code, once it is delivered."""
        await self.otp.settled()
        return self.code_sender.codes[-1][1]

    async def close(self) -> None:
        await self.otp.close()


class Reply(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def data(self) -> Any:
        assert self.status < 300, self.body
        return self.json["data"]

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])

    @property
    def details(self) -> Any:
        return self.json["error"].get("details")

    @property
    def field_error(self) -> tuple[str, str]:
        (only,) = self.details["field_errors"]
        return only["field"], only["code"]


class RestClient:
    """A client. `ip` is where its requests come from."""

    def __init__(self, app: RestApp, server: RestServer, ip: str = "192.0.2.1") -> None:
        self.app = app
        self.server = server
        self.ip = ip

    async def __call__(
        self,
        method: str,
        path: str,
        json: object = None,
        *,
        token: str | None = None,
        device: str | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | Sequence[bytes] | None = None,
        query: str = "",
    ) -> Reply:
        sent = {name.lower(): value for name, value in (headers or {}).items()}
        if token is not None:
            sent["authorization"] = f"Bearer {token}"
        if device is not None:
            sent["x-device-id"] = device
        if json is not None:
            body = msgspec.json.encode(json)
        chunks = [body or b""] if isinstance(body, bytes | None) else list(body)
        if any(chunks):
            sent.setdefault("content-type", "application/json")
        return await self._exchange(method, path if path[:1] == "/" else f"/api/v1/{path}", query, sent, chunks)

    async def sign_in(self, phone: str = PHONE, device: str = DEVICE) -> Any:
        """The whole answer's data: user, session, tokens. A second passes, so that sessions differ in age."""
        self.server.clock.advance(1)
        await self("POST", "auth/request-otp", {"phone_number": phone})
        code = await self.server.delivered_code()
        return (await self.verify(code, phone, device)).data

    async def verify(self, code: str, phone: str = PHONE, device: str = DEVICE) -> Reply:
        body = {"phone_number": phone, "otp": code, "device_id": device}
        return await self("POST", "auth/verify-otp", body, device=device)

    async def refresh(self, refresh_token: str, device: str | None = DEVICE, *, token: str | None = None) -> Reply:
        body = {"refresh_token": refresh_token}
        return await self("POST", "auth/refresh", body, device=device, token=token)

    async def _exchange(
        self, method: str, path: str, query: str, headers: Mapping[str, str], chunks: Sequence[bytes]
    ) -> Reply:
        events = [
            {"type": "http.request", "body": chunk, "more_body": index < len(chunks) - 1}
            for index, chunk in enumerate(chunks)
        ]
        sent: list[Any] = []

        async def receive() -> Any:
            return events.pop(0) if events else {"type": "http.disconnect"}

        async def send(event: Any) -> None:
            sent.append(event)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": (self.ip, 50000),
            "server": ("127.0.0.1", 8080),
        }
        await self.app(scope, receive, send)
        assert sent, "nothing was answered"
        start, *rest = sent
        names = [name.decode() for name, _ in start["headers"]]
        assert len(names) == len(dict.fromkeys(names)), f"a header was sent twice: {names}"
        return Reply(
            start["status"],
            {name.decode(): value.decode() for name, value in start["headers"]},
            b"".join(event["body"] for event in rest),
        )

"""The REST operations of chats in a test: real routes, real planes, memory engines, virtual time. HTTP is left out.

`ask` takes a request as one would write it down, and parses it as the edge does.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import msgspec

from seriatim.api.app import ApiDependencies, build_routes
from seriatim.api.core.observer import ApiObserver
from seriatim.api.core.parse import canonical_hash, read_query, to_type
from seriatim.api.core.route import NOTHING, ApiRequest, Nothing, Pagination, Route
from seriatim.domain.account import User, phone_hash
from seriatim.domain.errors import SeriatimError
from seriatim.domain.events import ChatCreated, decode
from seriatim.domain.message import Receipt
from seriatim.domain.times import iso
from seriatim.domain.tokens import new_claims
from seriatim.engines.inprocess.directory import InProcessDirectory, InProcessRegistry
from seriatim.ports.event_log import CHATS
from seriatim.ports.secrets import Secrets
from seriatim.services.membership import MembershipObserver, MembershipService
from seriatim.simulation.stores.accounts import MemoryAccounts
from seriatim.simulation.stores.request_keys import MemoryRequestKeys
from tests.support.durability_harness import ANN, BOB, CHAT, CID, EVE, DurabilityHarness, draft, key_id
from tests.support.scripted_wire import ScriptedWire

DAN = "user_dan"  # a user who exists and is in no chat

Json = Any  # answers are looked at as a client sees them


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    data: Json
    pagination: Pagination | None
    headers: Mapping[str, str]


class ChatApiHarness:
    """One process that serves REST. Ann, Bob, Cid, Dan and Eve have accounts."""

    def __init__(self, harness: DurabilityHarness, name: str = "api-1") -> None:
        self.harness = harness
        self.node = node = harness.node(name)
        self.directory_wire = ScriptedWire()
        self.directory = InProcessDirectory(InProcessRegistry(), self.directory_wire, node.clock.now_ms)
        self.unpublished = UnpublishedEvents()
        self.accounts = MemoryAccounts(harness.store, node.wire)
        service = MembershipService(
            catalog=node.catalog,
            events=node.events,
            directory=self.directory,
            clock=node.clock,
            producer_id=name,
            observe=self.unpublished,
        )
        unused: Any = None  # no request signs in here, and none goes through the request pipeline
        self.routes = build_routes(
            ApiDependencies(
                accounts=self.accounts,
                catalog=node.catalog,
                delivery=node.log,
                durability=node.ingest,
                history=node.ingest,
                request_keys=MemoryRequestKeys(harness.store, node.wire),
                quotas=unused,
                secrets=CursorSecrets(),
                authenticator=unused,
                memberships=service,
                otp=unused,
                sign_in=unused,
                revoker=unused,
                ready=unused,
                clock=node.clock,
                observe=ApiObserver(),
            )
        )
        for user_id in (ANN, BOB, CID, DAN, EVE):
            self.add_user(user_id, user_id.removeprefix("user_").title())

    def add_user(self, user_id: str, display_name: str | None = None) -> str:
        now, phone = iso(self.harness.now_ms()), f"+4915{len(self.harness.store.accounts.users):08d}"
        user = User(user_id=user_id, phone_number=phone, display_name=display_name, created_at=now, updated_at=now)
        self.harness.store.accounts.put_user(user, phone_hash(phone))
        return user_id

    async def ask(
        self, user_id: str, request: str, body: Mapping[str, object] | None = None, *, key: int | None = None
    ) -> Reply:
        """`request` is such as `GET /chats/chat_1/messages?limit=3`; `key` numbers an Idempotency-Key."""
        method, _, target = request.partition(" ")
        path, _, query = target.partition("?")
        route, names = self._route(method, path)
        query_type: type[Any] = route.query
        parameters, given = read_query(query.encode(), query_type)
        fields = dict(body or {})
        assert body is not None or route.body_optional or route.body is Nothing, "this request needs a body"
        now_s = self.harness.now_ms() // 1000
        parsed: ApiRequest[Any, Any] = ApiRequest(
            claims=new_claims(user_id=user_id, session_id="sess_1", device_id="d", token_id="t", now_s=now_s),
            path=names,
            body=NOTHING if route.body is Nothing else to_type(fields, route.body),
            query=parameters,
            headers={},
            body_hash=canonical_hash(fields),
            request_id="r",
            client_ip="127.0.0.1",
            idempotency_key=None if key is None else key_id(key),
            query_given=given,
        )
        answer = await route.handler(parsed)
        self._check(route, answer.status, answer.data)
        return Reply(
            status=answer.status,
            data=msgspec.json.decode(msgspec.json.encode(answer.data)),
            pagination=answer.pagination,
            headers=answer.headers,
        )

    async def data(self, user_id: str, request: str, body: Mapping[str, object] | None = None) -> Json:
        return (await self.ask(user_id, request, body)).data

    async def walk(self, user_id: str, request: str, *, backwards: bool = False) -> list[list[Json]]:
        """All pages, following the cursors to the end."""
        reply = await self.ask(user_id, request)
        pages = [reply.data]
        while (cursor := _cursor(reply.pagination, backwards)) is not None:
            path, _, query = request.partition("?")
            kept = [each for each in query.split("&") if each.startswith("limit=")]
            reply = await self.ask(user_id, f"{path}?{'&'.join([*kept, f'cursor={cursor}'])}")
            pages.append(reply.data)
            assert len(pages) < 1000, "this walk has no end"
        return pages

    async def group(self, owner: str, *others: str, name: str | None = None) -> str:
        body = {"type": "group", "member_ids": list(others), "name": name}
        return str((await self.data(owner, "POST /chats", body))["chat_id"])

    async def direct(self, one: str, other: str) -> str:
        return str((await self.data(one, "POST /chats", {"type": "direct", "member_ids": [other]}))["chat_id"])

    async def send(self, number: int, *, chat_id: str = CHAT, sender_id: str = ANN, content: str = "") -> Receipt:
        return await self.node.stored(draft(number, content, sender_id=sender_id, chat_id=chat_id))

    def creations(self) -> list[ChatCreated]:
        decoded = [decode(record.key, record.value) for record in self.harness.broker.records(CHATS)]
        return [event for event in decoded if isinstance(event, ChatCreated)]

    def _route(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        for route in self.routes:
            names = _match(route.path, path)
            if route.method == method and names is not None:
                return route, names
        raise AssertionError(f"no route for {method} {path}")

    @staticmethod
    def _check(route: Route, status: int, data: object) -> None:
        """What is answered is what the OpenAPI document will say."""
        assert status in route.answers, f"{status} is not documented"
        if status != 204:
            msgspec.json.decode(msgspec.json.encode(data), type=route.answers[status])


class UnpublishedEvents(MembershipObserver):
    def __init__(self) -> None:
        self.chats: list[str] = []

    def event_not_published(self, chat_id: str, error: SeriatimError) -> None:
        self.chats.append(chat_id)


class CursorSecrets(Secrets):
    """Only cursors are made here."""

    def code_mac(self, code: str, phone_hash: str, expires_at_ms: int) -> str:
        raise AssertionError("no test signs in here")

    def seal(self, text: str, context: str) -> bytes | None:
        return None

    def unseal(self, sealed: bytes, context: str) -> str | None:
        return None

    def cursor_tag(self, payload: bytes) -> bytes:
        return hmac.digest(b"a key of the tests", payload, hashlib.sha256)


def field_of(error: SeriatimError) -> tuple[object, object]:
    """Which field was refused, and with which code."""
    [first] = msgspec.convert(error.details["field_errors"], list[dict[str, object]])
    return first["field"], first["code"]


def _match(template: str, path: str) -> dict[str, str] | None:
    wanted, parts = template.split("/"), path.split("/")
    if len(wanted) != len(parts):
        return None
    names: dict[str, str] = {}
    for name, part in zip(wanted, parts, strict=True):
        if name.startswith("{"):
            names[name.strip("{}")] = part
        elif name != part:
            return None
    return names


def _cursor(pagination: Pagination | None, backwards: bool) -> str | None:
    assert pagination is not None
    return pagination.prev_cursor if backwards else pagination.next_cursor

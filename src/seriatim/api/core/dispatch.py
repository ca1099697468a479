"""What every request passes: authentication, rate limit, parsing, its handler, one shape of response.

The order is docs/spec/rest.md#order-of-checks: authenticate, rate limit, validate, handle. Every request gets a
response.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

import msgspec

from seriatim.api.core.errors import error_body, error_headers, error_status
from seriatim.api.core.observer import ApiObserver
from seriatim.api.core.parse import (
    Disconnected,
    Receive,
    canonical_hash,
    check_path,
    headers_of,
    read_body,
    read_object,
    read_query,
    to_type,
    uuid_header,
)
from seriatim.api.core.rate_limit import Meter, RateLimiter, anonymous_bucket, user_bucket
from seriatim.api.core.route import NOTHING, Access, ApiRequest, ApiResponse, Nothing, Pagination, Route
from seriatim.domain import limits
from seriatim.domain.addresses import Network, client_address
from seriatim.domain.errors import MethodNotAllowed, NotFound, SeriatimError, Unauthorized
from seriatim.domain.ids import new_uuid4
from seriatim.domain.tokens import Claims
from seriatim.ports.clock import Clock
from seriatim.ports.tokens import Authenticator

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
SessionUsed = Callable[[str], Awaitable[None]]  # with the id of the session

_JSON = "application/json; charset=utf-8"
_EXPOSED = "X-Request-ID, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After, X-Idempotent-Replay"
_ACCEPTED = "Authorization, Content-Type, Idempotency-Key, X-Device-ID, X-Request-ID"


class RequestPipeline:
    def __init__(
        self,
        *,
        authenticator: Authenticator,
        rate_limiter: RateLimiter,
        session_used: SessionUsed,
        clock: Clock,
        observe: ApiObserver,
        trusted_proxies: Sequence[Network] = (),
        cors_origins: Sequence[str] = (),
    ) -> None:
        self._authenticator = authenticator
        self._rate_limiter = rate_limiter
        self._session_used = session_used
        self._clock = clock
        self._observe = observe
        self._trusted = tuple(trusted_proxies)
        self._origins = tuple(cors_origins)

    async def serve(
        self, scope: Scope, receive: Receive, send: Send, template: str, operations: Mapping[str, Route]
    ) -> None:
        """Answers one request to a path. `operations` are the path's routes by method; none: there is no such path."""
        started = self._clock.monotonic()
        context = self._context(scope)
        try:
            reply = await self._reply(context, scope, receive, template, operations)
        except Disconnected:
            return
        headers = {
            "content-type": _JSON,
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            "x-request-id": context.request_id,
            **context.meter.headers(),
            **self._cors(context),
            **reply.headers,
        }
        if reply.status == 204:
            headers.pop("content-type")
        else:
            headers["content-length"] = str(len(reply.body))
        await send(
            {
                "type": "http.response.start",
                "status": reply.status,
                "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
            }
        )
        await send({"type": "http.response.body", "body": b"" if context.method == "HEAD" else reply.body})
        self._observe.request(template, context.method, reply.status, self._clock.monotonic() - started)

    def _context(self, scope: Scope) -> "_RequestContext":
        headers = headers_of(scope["headers"])
        peer = scope.get("client") or ("", 0)
        return _RequestContext(
            method=scope["method"],
            headers=headers,
            request_id=uuid_header(headers, "x-request-id") or new_uuid4(self._clock.random_bits),
            client_ip=client_address(peer[0], [headers.get("x-forwarded-for", "")], self._trusted),
            meter=self._rate_limiter.meter(),
        )

    async def _reply(
        self,
        context: "_RequestContext",
        scope: Scope,
        receive: Receive,
        template: str,
        operations: Mapping[str, Route],
    ) -> "_Reply":
        """No exception but `Disconnected` leaves: each becomes an answer."""
        try:
            if self._is_preflight(context, operations):
                return _Reply(204, self._preflight(operations), b"")
            route = await self._find(context, operations)
            claims = await self._admit(context, route)
            request = await self._parse(context, scope, receive, route, claims)
            return _success(await route.handler(request), bare=route.bare)
        except Disconnected:
            raise
        except Exception as failure:
            status = error_status(failure)
            if status == 500:
                self._observe.failed(context.request_id, failure)
            elif status > 500 and isinstance(failure, SeriatimError):
                self._observe.unavailable(context.request_id, template, failure)
            body = msgspec.json.encode(error_body(failure, context.request_id))
            return _Reply(status, error_headers(failure), body)

    async def _find(self, context: "_RequestContext", operations: Mapping[str, Route]) -> Route:
        route = operations.get("GET" if context.method == "HEAD" else context.method)
        if route is not None:
            return route
        await context.meter.spend(anonymous_bucket(context.client_ip))
        if not operations:
            raise NotFound("there is nothing here; the documentation is at /docs")
        allowed = allowed_methods(operations)
        raise MethodNotAllowed(f"this path takes {allowed}", details={"allowed": allowed})

    async def _admit(self, context: "_RequestContext", route: Route) -> Claims | None:
        """A request without a valid token is counted by its address, also when that is why it is refused."""
        if route.access is Access.UNMETERED:
            return None
        if route.access is Access.PUBLIC:
            await context.meter.spend(anonymous_bucket(context.client_ip))
            return None
        try:
            claims = self._authenticator.verify(bearer_token(context.headers))
            await self._authenticator.check_revoked(claims, timeout_s=limits.API_TIMEOUT_S)
        except Unauthorized:
            await context.meter.spend(anonymous_bucket(context.client_ip))
            raise
        await context.meter.spend(user_bucket(claims.sub, context.method))
        await self._session_used(claims.sid)
        return claims

    async def _parse(
        self, context: "_RequestContext", scope: Scope, receive: Receive, route: Route, claims: Claims | None
    ) -> ApiRequest[Any, Any]:
        path: Mapping[str, str] = scope.get("path_params", {})
        check_path(path)
        query: object
        query, query_given = read_query(scope["query_string"], route.query)
        fields: dict[str, object] = {}
        if route.method != "GET":
            body = await read_body(receive, context.headers)
            fields = read_object(body, context.headers, optional=route.body_optional or route.body is Nothing)
        return ApiRequest(
            claims=claims,
            path=path,
            body=NOTHING if route.body is Nothing else to_type(fields, route.body),
            query=query,
            headers=context.headers,
            body_hash=canonical_hash(fields),
            request_id=context.request_id,
            client_ip=context.client_ip,
            device_id=uuid_header(context.headers, "x-device-id"),
            idempotency_key=uuid_header(context.headers, "idempotency-key"),
            query_given=query_given,
            spend=context.meter.spend,
        )

    # --- CORS: only the origins that are listed ---------------------------------------------------------------------

    def _allowed_origin(self, context: "_RequestContext") -> str | None:
        origin = context.headers.get("origin")
        return origin if origin is not None and (origin in self._origins or "*" in self._origins) else None

    def _is_preflight(self, context: "_RequestContext", operations: Mapping[str, Route]) -> bool:
        asks = context.method == "OPTIONS" and "access-control-request-method" in context.headers
        return asks and bool(operations) and self._allowed_origin(context) is not None

    def _preflight(self, operations: Mapping[str, Route]) -> dict[str, str]:
        return {
            "access-control-allow-methods": allowed_methods(operations),
            "access-control-allow-headers": _ACCEPTED,
            "access-control-max-age": str(limits.CORS_AGE_S),
        }

    def _cors(self, context: "_RequestContext") -> dict[str, str]:
        if not self._origins:
            return {}
        origin = self._allowed_origin(context)
        allowed = {"access-control-allow-origin": origin, "access-control-expose-headers": _EXPOSED} if origin else {}
        return {"vary": "Origin", **allowed}


class _RequestContext(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a request before anything is checked."""

    method: str
    headers: Mapping[str, str]
    request_id: str
    client_ip: str
    meter: Meter


class _Reply(msgspec.Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: bytes


def bearer_token(headers: Mapping[str, str]) -> str:
    """Raises `Unauthorized` with the reason when there is none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if not scheme:
        raise Unauthorized("sign in first: Authorization: Bearer <token>", details={"reason": "token_missing"})
    if scheme.lower() != "bearer" or not token:
        raise Unauthorized("use Authorization: Bearer <token>", details={"reason": "token_invalid"})
    return token


def allowed_methods(operations: Mapping[str, Route]) -> str:
    names = [*operations, *(["HEAD"] if "GET" in operations else [])]
    return ", ".join(sorted(names))


class _ResponseEnvelope(msgspec.Struct, frozen=True, omit_defaults=True):
    data: object
    pagination: Pagination | None = None


def _success(answer: ApiResponse, *, bare: bool) -> _Reply:
    if answer.status == 204:
        return _Reply(204, answer.headers, b"")
    if isinstance(answer.data, bytes):
        return _Reply(answer.status, answer.headers, answer.data)
    body = msgspec.json.encode(answer.data if bare else _ResponseEnvelope(answer.data, answer.pagination))
    return _Reply(answer.status, answer.headers, body)

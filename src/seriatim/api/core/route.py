"""What one REST operation is: its place, what it takes, what it answers, and the function that does it.

The table of routes is the single source: requests are parsed by it, and the OpenAPI document is written from it.
"""

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Any, Generic, TypeVar

import msgspec

from seriatim.api.core.rate_limit import Bucket
from seriatim.domain.errors import SeriatimError
from seriatim.domain.tokens import Claims

B = TypeVar("B")
Q = TypeVar("Q")


class Nothing(msgspec.Struct, frozen=True):
    """No body, no query parameters, or no answer."""


NOTHING = Nothing()


class Access(Enum):
    PUBLIC = "public"  # no token; a token that is sent is ignored
    SIGNED_IN = "signed_in"
    UNMETERED = "unmetered"  # public, and never refused for being asked too often


async def _count_nothing(bucket: Bucket) -> None:
    """Counts nothing: for handlers that are called without the request pipeline."""


class ApiRequest(msgspec.Struct, Generic[B, Q], frozen=True, kw_only=True):
    """One request, parsed and checked. `path` holds the values of the parameters in the route's path.

    `claims` is None exactly on public routes; handlers of the others ask for `caller_id`. `idempotency_key` and
    `device_id` are lower-case UUIDv4 or None; `query_given` names the parameters that were really sent. `spend` counts
    the request in one more bucket of the route's own, and raises `RateLimited`.
    """

    claims: Claims | None
    path: Mapping[str, str]
    body: B
    query: Q
    headers: Mapping[str, str]
    body_hash: str
    request_id: str
    client_ip: str
    device_id: str | None = None
    idempotency_key: str | None = None
    query_given: frozenset[str] = frozenset()
    spend: Callable[[Bucket], Awaitable[None]] = _count_nothing

    @property
    def caller_id(self) -> str:
        assert self.claims is not None, "a public route has no caller"
        return self.claims.sub


class Pagination(msgspec.Struct, frozen=True, kw_only=True):
    has_more: bool
    next_cursor: str | None = None
    prev_cursor: str | None = None


class ApiResponse(msgspec.Struct, frozen=True, kw_only=True):
    """`data` goes into `{"data": ...}`; with `pagination` beside it for lists. A status of 204 has no body.

    Bytes are sent as they are, as the media type that `headers` name.
    """

    data: object = None
    status: int = 200
    pagination: Pagination | None = None
    headers: Mapping[str, str] = {}


Handler = Callable[[ApiRequest[Any, Any]], Awaitable[ApiResponse]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """`path` lies below /api/v1; ids stand in braces: `/chats/{chat_id}`.

    `answers` maps each success status to the type of its `data` (`Nothing` for 204) and `errors` lists all that the
    handler may raise beyond what every route may (bad request, unauthorized, rate limited, unavailable, internal).
    """

    method: str
    path: str
    handler: Handler
    summary: str
    tag: str
    answers: Mapping[int, Any]
    body: Any = Nothing  # a struct, or one with more to say in the OpenAPI document
    query: type = Nothing
    errors: tuple[type[SeriatimError], ...] = ()
    access: Access = Access.SIGNED_IN
    paged: bool = False
    body_optional: bool = False
    bare: bool = False  # the answer's `data` is the whole body
    description: str = ""

"""Liveness, readiness and capabilities, for load balancers and new clients. These routes take no token."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from seriatim import __version__
from seriatim.api.core.fields import Time
from seriatim.api.core.route import Access, ApiRequest, ApiResponse, Route
from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError
from seriatim.domain.times import iso
from seriatim.ports.clock import Clock

Ready = Callable[[], Awaitable[Mapping[str, bool]]]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    timestamp: Time


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """`ready` when every part that is needed answers."""

    status: str
    checks: Mapping[str, bool]


class ServerCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    max_message_size_bytes: int = limits.CONTENT_BYTES_MAX
    max_chat_members: int = limits.GROUP_MEMBERS_MAX
    max_chats_per_user: int = limits.CHATS_PER_USER_MAX
    supported_content_types: tuple[str, ...] = ("text/plain",)
    auth_methods: tuple[str, ...] = ("phone_otp",)
    websocket_protocol_version: int = 1


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    version: str = __version__
    api_version: str = "v1"
    capabilities: ServerCapabilities = ServerCapabilities()
    documentation_url: str = "/docs"


def capability_routes(service: "HealthResource") -> Sequence[Route]:
    """Below /api/v1."""
    return [
        Route(
            method="GET",
            path="/",
            handler=service.capabilities,
            summary="What this server can do",
            tag="service",
            access=Access.PUBLIC,
            answers={200: Capabilities},
        )
    ]


def health_routes(service: "HealthResource") -> Sequence[Route]:
    """Below /api/v1 and at the root. The answers are bare objects."""
    return [
        Route(
            method="GET",
            path="/health",
            handler=service.health,
            summary="Is the process alive",
            tag="service",
            access=Access.UNMETERED,
            answers={200: Health},
            bare=True,
        ),
        Route(
            method="GET",
            path="/health/ready",
            handler=service.readiness,
            summary="Can it serve",
            tag="service",
            access=Access.UNMETERED,
            answers={200: Readiness, 503: Readiness},
            bare=True,
        ),
    ]


class HealthResource:
    def __init__(self, ready: Ready, clock: Clock) -> None:
        self._ready = ready
        self._clock = clock

    async def health(self, request: ApiRequest[Any, Any]) -> ApiResponse:
        return ApiResponse(data=Health(status="healthy", timestamp=iso(self._clock.now_ms())), headers=_CLOSE)

    async def readiness(self, request: ApiRequest[Any, Any]) -> ApiResponse:
        try:
            checks = await self._ready()
        except SeriatimError:
            checks = {"service": False}
        if all(checks.values()):
            return ApiResponse(data=Readiness(status="ready", checks=checks), headers=_CLOSE)
        retry = {**_CLOSE, "retry-after": str(limits.UNAVAILABLE_RETRY_S)}
        return ApiResponse(status=503, data=Readiness(status="unready", checks=checks), headers=retry)

    async def capabilities(self, request: ApiRequest[Any, Any]) -> ApiResponse:
        return ApiResponse(data=Capabilities())


# Health checks are never refused for being asked too often, so they must not hold an idle connection each.
_CLOSE = {"connection": "close"}

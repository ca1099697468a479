"""Sessions over REST: which devices are signed in, and signing them out."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from seriatim.api.core.fields import Time
from seriatim.api.core.route import ApiRequest, ApiResponse, Nothing, Route
from seriatim.domain import limits
from seriatim.domain.account import Session
from seriatim.domain.errors import NotFound
from seriatim.domain.times import iso
from seriatim.ports.accounts import Accounts
from seriatim.ports.clock import Clock
from seriatim.services.sessions import SessionRevoker, is_active


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    device_id: str
    created_at: Time
    last_active_at: Time
    expires_at: Time
    is_current: Annotated[bool, Meta(description="Whether this is the session that asks.")]


class RevokedCount(msgspec.Struct, frozen=True):
    revoked_count: int


class RevokeAll(msgspec.Struct, frozen=True, kw_only=True):
    include_current: Annotated[bool, Meta(description="Whether the session that asks ends too.")] = False


def routes(service: "SessionResource") -> Sequence[Route]:
    return [
        Route(
            method="GET",
            path="/sessions",
            handler=service.list,
            summary="List my sessions",
            tag="sessions",
            answers={200: list[SessionView]},
        ),
        Route(
            method="DELETE",
            path="/sessions/{session_id}",
            handler=service.revoke,
            summary="Sign one of my devices out",
            tag="sessions",
            answers={204: Nothing},
            errors=(NotFound,),
        ),
        Route(
            method="DELETE",
            path="/sessions",
            handler=service.revoke_all,
            summary="Sign my other devices out",
            tag="sessions",
            query=RevokeAll,
            answers={200: RevokedCount},
        ),
    ]


class SessionResource:
    def __init__(self, accounts: Accounts, revoker: SessionRevoker, clock: Clock) -> None:
        self._accounts = accounts
        self._revoker = revoker
        self._clock = clock

    async def list(self, request: ApiRequest[Any, Any]) -> ApiResponse:
        current = request.claims.sid if request.claims else None
        return ApiResponse(data=[_view(each, current) for each in await self._active(request.caller_id)])

    async def revoke(self, request: ApiRequest[Any, Any]) -> ApiResponse:
        session = await self._accounts.session(request.path["session_id"], timeout_s=limits.API_TIMEOUT_S)
        if session is None or session.user_id != request.caller_id or not is_active(session, self._clock.now_ms()):
            raise NotFound("you have no such session")
        await self._revoker.revoke(session.session_id, session.user_id)
        return ApiResponse(status=204)

    async def revoke_all(self, request: ApiRequest[Any, RevokeAll]) -> ApiResponse:
        """The session that asks goes last: should something fail on the way, the caller can ask again."""
        current = request.claims.sid if request.claims else None
        sessions = sorted(await self._active(request.caller_id), key=lambda session: session.session_id == current)
        ended = [each for each in sessions if request.query.include_current or each.session_id != current]
        for session in ended:
            await self._revoker.revoke(session.session_id, session.user_id)
        return ApiResponse(data=RevokedCount(len(ended)))

    async def _active(self, user_id: str) -> Sequence[Session]:
        now_ms = self._clock.now_ms()
        sessions = await self._accounts.sessions_of(user_id, timeout_s=limits.API_TIMEOUT_S)
        return [each for each in sessions if is_active(each, now_ms)]


def _view(session: Session, current: str | None) -> SessionView:
    return SessionView(
        session_id=session.session_id,
        device_id=session.device_id,
        created_at=iso(session.created_at_ms),
        last_active_at=iso(session.last_active_at_ms),
        expires_at=iso(session.expires_at_ms),
        is_current=session.session_id == current,
    )

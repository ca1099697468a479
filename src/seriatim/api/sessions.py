"""Sessions over REST: which devices are signed in, and signing them out.

Revoked means: no token of the session works any more, and its sockets are told to close.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from seriatim.api.core.fields import Time
from seriatim.api.core.route import ApiRequest, ApiResponse, Nothing, Route
from seriatim.domain import limits
from seriatim.domain.account import Session
from seriatim.domain.errors import NotFound, SeriatimError
from seriatim.domain.times import iso
from seriatim.ports.accounts import Accounts
from seriatim.ports.clock import Clock
from seriatim.ports.directory import Directory
from seriatim.ports.push import CloseOrder, Push
from seriatim.ports.revocations import Revocations


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
    def __init__(self, accounts: Accounts, revoker: "SessionRevoker", clock: Clock) -> None:
        self._accounts = accounts
        self._revoker = revoker
        self._clock = clock

    async def list(self, request: ApiRequest[Any, Any]) -> ApiResponse:
        current = request.claims.sid if request.claims else None
        return ApiResponse(data=[_view(each, current) for each in await self._living(request.caller_id)])

    async def revoke(self, request: ApiRequest[Any, Any]) -> ApiResponse:
        session = await self._accounts.session(request.path["session_id"], timeout_s=limits.API_TIMEOUT_S)
        if session is None or session.user_id != request.caller_id or not is_active(session, self._clock.now_ms()):
            raise NotFound("you have no such session")
        await self._revoker.revoke(session.session_id, session.user_id)
        return ApiResponse(status=204)

    async def revoke_all(self, request: ApiRequest[Any, RevokeAll]) -> ApiResponse:
        """The session that asks goes last: should something fail on the way, the caller can ask again."""
        current = request.claims.sid if request.claims else None
        sessions = sorted(await self._living(request.caller_id), key=lambda session: session.session_id == current)
        doomed = [each for each in sessions if request.query.include_current or each.session_id != current]
        for session in doomed:
            await self._revoker.revoke(session.session_id, session.user_id)
        return ApiResponse(data=RevokedCount(len(doomed)))

    async def _living(self, user_id: str) -> Sequence[Session]:
        now_ms = self._clock.now_ms()
        sessions = await self._accounts.sessions_of(user_id, timeout_s=limits.API_TIMEOUT_S)
        return [each for each in sessions if is_active(each, now_ms)]


class SessionRevoker:
    def __init__(self, accounts: Accounts, revocations: Revocations, sockets: "SocketCloser") -> None:
        self._accounts = accounts
        self._revocations = revocations
        self._sockets = sockets

    async def revoke(self, session_id: str, user_id: str, token_id: str | None = None) -> None:
        """Once it returns no token of the session is accepted anywhere. If it raises, calling it again is safe.

        The row goes last: as long as it is there, whoever got an error can find the session and try again.
        """
        await self._revocations.revoke(session_id, token_id, timeout_s=limits.API_TIMEOUT_S)
        await self._accounts.revoke(session_id, timeout_s=limits.API_TIMEOUT_S)
        await self._sockets.close(session_id, user_id)

    async def replace(self, doomed: Sequence[Session], opening: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        """Ends these sessions in the very step that opens another, which is given their ids. Order as in `revoke`."""
        for each in doomed:
            await self._revocations.revoke(each.session_id, None, timeout_s=limits.API_TIMEOUT_S)
        await opening([each.session_id for each in doomed])
        for each in doomed:
            await self._sockets.close(each.session_id, each.user_id)


def sessions_to_replace(sessions: Sequence[Session], device_id: str, now_ms: int) -> Sequence[Session]:
    """Which of a user's sessions, oldest first, go when this device signs in: its own, and the oldest beyond five."""
    living = [each for each in sessions if is_active(each, now_ms)]
    kept = [each for each in living if each.device_id != device_id]
    oldest = kept[: max(0, len(kept) - (limits.SESSIONS_PER_USER_MAX - 1))]
    return [*(each for each in living if each.device_id == device_id), *oldest][: limits.SESSIONS_REPLACED_MAX]


class SocketCloser:
    """Best effort: a gateway that does not hear of it finds out at its next look at the revocations."""

    def __init__(self, directory: Directory, push: Push) -> None:
        self._directory = directory
        self._push = push

    async def close(self, session_id: str, user_id: str) -> None:
        try:
            connections = await self._directory.connections([user_id], timeout_s=limits.DOWNSTREAM_TIMEOUT_S)
            orders = [
                (each.gateway_id, CloseOrder(connection_id=each.connection_id, reason="session_revoked"))
                for each in connections.get(user_id, ())
                if each.session_id == session_id
            ]
            if orders:
                await self._push.publish(orders, timeout_s=limits.DOWNSTREAM_TIMEOUT_S)
        except SeriatimError:
            return


class SessionActivity:
    """Writes down that a session was used, at most every `SESSION_TOUCH_S`. Nobody is refused when that fails."""

    def __init__(self, accounts: Accounts, clock: Clock) -> None:
        self._accounts = accounts
        self._clock = clock
        self._touched: dict[str, float] = {}  # by session, the one touched longest ago first

    async def used(self, session_id: str) -> None:
        now = self._clock.monotonic()
        if now < self._touched.get(session_id, now) + limits.SESSION_TOUCH_S and session_id in self._touched:
            return
        self._touched.pop(session_id, None)
        self._touched[session_id] = now
        if len(self._touched) > limits.SESSIONS_TOUCHED_MAX:
            del self._touched[next(iter(self._touched))]
        try:
            await self._accounts.touch(session_id, now_ms=self._clock.now_ms(), timeout_s=limits.DOWNSTREAM_TIMEOUT_S)
        except SeriatimError:
            return


def is_active(session: Session, now_ms: int) -> bool:
    return now_ms < session.expires_at_ms


def _view(session: Session, current: str | None) -> SessionView:
    return SessionView(
        session_id=session.session_id,
        device_id=session.device_id,
        created_at=iso(session.created_at_ms),
        last_active_at=iso(session.last_active_at_ms),
        expires_at=iso(session.expires_at_ms),
        is_current=session.session_id == current,
    )

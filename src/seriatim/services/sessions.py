"""Sessions: which are active, which give way to a new one, and how one is revoked everywhere.

Revoked means: no token of the session is accepted any more, and its sockets are asked to close.
"""

from collections.abc import Awaitable, Callable, Sequence

from seriatim.domain import limits
from seriatim.domain.account import Session
from seriatim.domain.errors import SeriatimError
from seriatim.ports.accounts import Accounts
from seriatim.ports.clock import Clock
from seriatim.ports.directory import Directory
from seriatim.ports.push import CloseOrder, Push
from seriatim.ports.revocations import Revocations


def is_active(session: Session, now_ms: int) -> bool:
    return now_ms < session.expires_at_ms


def sessions_to_replace(sessions: Sequence[Session], device_id: str, now_ms: int) -> Sequence[Session]:
    """Which of a user's sessions, oldest first, end when this device signs in: its own, and the oldest beyond five."""
    active = [each for each in sessions if is_active(each, now_ms)]
    kept = [each for each in active if each.device_id != device_id]
    oldest = kept[: max(0, len(kept) - (limits.SESSIONS_PER_USER_MAX - 1))]
    return [*(each for each in active if each.device_id == device_id), *oldest][: limits.SESSIONS_REPLACED_MAX]


class SessionRevoker:
    def __init__(self, accounts: Accounts, revocations: Revocations, sockets: "SocketCloser") -> None:
        self._accounts = accounts
        self._revocations = revocations
        self._sockets = sockets

    async def revoke(self, session_id: str, user_id: str, token_id: str | None = None) -> None:
        """Once it returns no token of the session is accepted anywhere. If it raises, calling it again is safe.

        The row goes last: as long as it is there, a caller that got an error finds the session and tries again.
        """
        await self._revocations.revoke(session_id, token_id, timeout_s=limits.API_TIMEOUT_S)
        await self._accounts.revoke(session_id, timeout_s=limits.API_TIMEOUT_S)
        await self._sockets.close(session_id, user_id)

    async def replace(self, replaced: Sequence[Session], opening: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        """Ends these sessions in the same transaction that opens another: `opening` gets their ids. Order as in
        `revoke`.
        """
        for each in replaced:
            await self._revocations.revoke(each.session_id, None, timeout_s=limits.API_TIMEOUT_S)
        await opening([each.session_id for each in replaced])
        for each in replaced:
            await self._sockets.close(each.session_id, each.user_id)


class SocketCloser:
    """Best effort: a gateway that misses the order closes the socket at its next check of the revocations."""

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
    """Stores when a session was last used, at most every `SESSION_TOUCH_S`. A failure refuses no request."""

    def __init__(self, accounts: Accounts, clock: Clock) -> None:
        self._accounts = accounts
        self._clock = clock
        self._touched: dict[str, float] = {}  # by session, the one touched longest ago first

    async def touch(self, session_id: str) -> None:
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

"""`Authenticator` with the key folder, fast revocations and, when those are not sure, the authority for sessions."""

from collections.abc import Callable

from seriatim.domain.errors import ServiceUnavailable, Unauthorized
from seriatim.domain.tokens import Claims, check_claims
from seriatim.engines.keys.key_folder import KeyFolder, KeyFolderError
from seriatim.engines.keys.tokens import Rs256Verifier
from seriatim.ports.accounts import Sessions
from seriatim.ports.clock import Clock
from seriatim.ports.revocations import Revocations, Verdict
from seriatim.ports.tokens import Authenticator


class KeyAuthenticator(Authenticator):
    """`reload_failed` is called when the keys could not be read again: an operator must act before they change."""

    def __init__(
        self,
        keys: KeyFolder,
        revocations: Revocations,
        sessions: Sessions,
        clock: Clock,
        *,
        reload_failed: Callable[[KeyFolderError], None] = lambda error: None,
    ) -> None:
        self._verifier = Rs256Verifier(keys, clock, reload_failed)
        self._revocations = revocations
        self._sessions = sessions
        self._clock = clock

    def verify(self, token: str, *, expired_too: bool = False) -> Claims:
        claims = self._verifier.verify(token)
        try:
            check_claims(claims, self._clock.now_ms() / 1000)
        except Unauthorized as error:
            # Expiry is checked last, so this token has passed every other check.
            if not expired_too or error.details["reason"] != "token_expired":
                raise
        return claims

    async def check_revoked(self, claims: Claims, *, timeout_s: float) -> None:
        deadline = self._clock.monotonic() + timeout_s
        # Half of the time, so that the authority can still be called when the fast answer does not come.
        verdict = await self._fast_verdict(claims, timeout_s / 2)
        if verdict is Verdict.UNSURE:
            verdict = await self._authoritative_verdict(claims, deadline - self._clock.monotonic())
        if verdict is Verdict.REVOKED:
            raise Unauthorized("this token was revoked; sign in again", details={"reason": "token_revoked"})

    async def _fast_verdict(self, claims: Claims, timeout_s: float) -> Verdict:
        try:
            return await self._revocations.check(claims.sid, claims.jti, claims.iat, timeout_s=timeout_s)
        except ServiceUnavailable:
            return Verdict.UNSURE

    async def _authoritative_verdict(self, claims: Claims, timeout_s: float) -> Verdict:
        session = await self._sessions.session(claims.sid, timeout_s=timeout_s)
        if session is None or session.user_id != claims.sub or session.expires_at_ms <= self._clock.now_ms():
            return Verdict.REVOKED
        return Verdict.CLEAR

"""Signing in, refreshing and signing out (docs/spec/rest.md#signing-in), for REST and for the operator's commands.

A code is spent exactly when a session is made (R17). An attempt is counted before the code is compared, so that
guessing costs tries whatever else goes wrong.
"""

from collections.abc import Sequence

import msgspec

from seriatim.domain import limits
from seriatim.domain.account import Code, Session, User, phone_hash
from seriatim.domain.errors import DeviceMismatch, InvalidOtp, InvalidRefreshToken, OutcomeUnknown
from seriatim.domain.ids import SESSION, USER, new_ulid
from seriatim.domain.times import iso
from seriatim.domain.tokens import (
    Claims,
    digests_equal,
    new_claims,
    new_refresh_token,
    refresh_digest,
    split_refresh_token,
)
from seriatim.ports.accounts import Accounts
from seriatim.ports.clock import Clock
from seriatim.ports.secrets import Secrets
from seriatim.ports.tokens import Authenticator, TokenSigner
from seriatim.services.audit import AuditObserver
from seriatim.services.sessions import SessionRevoker, is_active, sessions_to_replace


class SignIn(msgspec.Struct, frozen=True, kw_only=True):
    user: User
    session: Session
    refresh_token: str
    is_new_user: bool


class SignInService:
    """`reuse_leeway_s`: for so long a device may repeat a refresh whose answer it lost. 0: never."""

    def __init__(
        self,
        *,
        accounts: Accounts,
        secrets: Secrets,
        signer: TokenSigner,
        authenticator: Authenticator,
        revoker: SessionRevoker,
        clock: Clock,
        observe: AuditObserver,
        reuse_leeway_s: int = 0,
    ) -> None:
        self._accounts = accounts
        self._secrets = secrets
        self._signer = signer
        self._authenticator = authenticator
        self._revoker = revoker
        self._clock = clock
        self._observe = observe
        self._reuse_leeway_s = reuse_leeway_s

    # --- signing in ----------------------------------------------------------------------------------------------

    async def verify(self, phone_number: str, otp: str, device_id: str) -> SignIn:
        """Exchanges a one-time code for a session. Raises `InvalidOtp`."""
        phone = phone_hash(phone_number)
        code = await self._accounts.code(phone, timeout_s=limits.API_TIMEOUT_S)
        if code is None or code.expires_at_ms <= self._clock.now_ms():
            raise _invalid_otp()
        if not await self._accounts.count_attempt(phone, now_ms=self._clock.now_ms(), timeout_s=limits.API_TIMEOUT_S):
            raise _invalid_otp()
        if not digests_equal(self._secrets.code_mac(otp, phone, code.expires_at_ms), code.mac):
            raise _invalid_otp()
        if code.spent is None:
            session, token, is_new_user = await self._spend(code, phone_number, device_id)
        else:
            session, token = await self._repeat(code, device_id)
            is_new_user = code.spent.is_new_user
        await self._revoke_replaced(session)
        users = await self._accounts.users([session.user_id], timeout_s=limits.API_TIMEOUT_S)
        return SignIn(user=users[session.user_id], session=session, refresh_token=token, is_new_user=is_new_user)

    async def open_session(self, user_id: str, device_id: str) -> Session:
        """A session without a code, for a user whom an operator vouches for. Its refresh token is given to no client.

        A user has `SESSIONS_PER_USER_MAX` sessions: the oldest end, as in `verify`.
        """
        session, _ = self._new_session(user_id, device_id, self._clock.now_ms())

        async def open_session(replaces: Sequence[str]) -> None:
            await self._accounts.open_session(session, replaces=replaces, timeout_s=limits.API_TIMEOUT_S)

        await self._revoker.replace(await self._replaced_by(session), open_session)
        return session

    async def _spend(self, code: Code, phone_number: str, device_id: str) -> tuple[Session, str, bool]:
        known = await self._accounts.users_by_phone([phone_number], timeout_s=limits.API_TIMEOUT_S)
        now_ms = self._clock.now_ms()
        new_user = None
        if phone_number not in known:
            now = iso(now_ms)
            new_user = User(
                user_id=self._new_id(USER),
                phone_number=phone_number,
                display_name=None,
                created_at=now,
                updated_at=now,
            )
        session, token = self._new_session(new_user.user_id if new_user else known[phone_number], device_id, now_ms)

        async def sign_in(replaces: Sequence[str]) -> None:
            await self._accounts.sign_in(
                code.phone_hash,
                code.mac,
                session,
                new_user,
                replaces=replaces,
                now_ms=now_ms,
                timeout_s=limits.API_TIMEOUT_S,
            )

        await self._revoker.replace([] if new_user else await self._replaced_by(session), sign_in)
        return session, token, new_user is not None

    async def _repeat(self, code: Code, device_id: str) -> tuple[Session, str]:
        """The same device lost the first answer: it gets the same session, and tokens that only it has."""
        assert code.spent is not None, "only a spent code is repeated"
        session_id = code.spent.session_id
        if code.spent.device_id != device_id:
            raise _invalid_otp()
        token = self._new_token(session_id)
        reissued = await self._accounts.reissue(
            session_id, digest=refresh_digest(token), now_ms=self._clock.now_ms(), timeout_s=limits.API_TIMEOUT_S
        )
        session = await self._accounts.session(session_id, timeout_s=limits.API_TIMEOUT_S) if reissued else None
        if session is None:
            raise _invalid_otp()
        return session, token

    async def _revoke_replaced(self, session: Session) -> None:
        """One session per device, five in all. The transaction saw to it, unless others signed in at the same time.

        If this fails the caller gets an error, repeats the request, and this runs again.
        """
        for each in await self._replaced_by(session):
            await self._revoker.revoke(each.session_id, each.user_id)

    async def _replaced_by(self, session: Session) -> Sequence[Session]:
        """Which sessions end for this one. Called after the code was found right: a wrong one ends no session."""
        sessions = await self._accounts.sessions_of(session.user_id, timeout_s=limits.API_TIMEOUT_S)
        others = [each for each in sessions if each.session_id != session.session_id]
        return sessions_to_replace(others, session.device_id, self._clock.now_ms())

    # --- refreshing ----------------------------------------------------------------------------------------------

    async def session_of(self, refresh_token: str) -> Session:
        """The active session that a refresh token names. Its secret is checked by `refresh`, not here."""
        session_id, _ = split_refresh_token(refresh_token)
        session = await self._accounts.session(session_id, timeout_s=limits.API_TIMEOUT_S)
        if session is None or not is_active(session, self._clock.now_ms()):
            raise _invalid_refresh_token()
        return session

    async def refresh(self, session: Session, refresh_token: str, device_id: str, *, access_token: str | None) -> str:
        """A new refresh token for the session. Each token works once: one that comes back ends the session.

        `access_token`, if it was sent, must be of the same session; it may have expired.
        """
        if access_token is not None:
            claims = self._authenticator.verify(access_token, expired_too=True)
            if claims.sid != session.session_id:
                raise _invalid_refresh_token()
        if self._is_reused(session, refresh_digest(refresh_token), device_id):
            await self._end_stolen(session)
            raise _invalid_refresh_token()
        if session.device_id != device_id:
            raise DeviceMismatch("this session belongs to another device; sign in on this one")
        return await self._rotate(session)

    def _is_reused(self, session: Session, digest: str, device_id: str) -> bool:
        """Whether a token that was already exchanged came back. Raises for one that this session never had."""
        if digests_equal(digest, session.refresh_digest):
            return False
        if session.previous_digest is None or not digests_equal(digest, session.previous_digest):
            raise _invalid_refresh_token()
        rotated_at_ms = session.rotated_at_ms or 0
        in_time = self._clock.now_ms() < rotated_at_ms + self._reuse_leeway_s * 1000
        return not (in_time and device_id == session.device_id)

    async def _rotate(self, session: Session) -> str:
        """A request that loses the race for a token does not end the session: the winner may be the same device."""
        token = self._new_token(session.session_id)
        digest = refresh_digest(token)
        try:
            rotated = await self._accounts.rotate(
                session.session_id,
                old=session.refresh_digest,
                new=digest,
                now_ms=self._clock.now_ms(),
                timeout_s=limits.API_TIMEOUT_S,
            )
        except OutcomeUnknown:
            # A client that tries again would present a token that may be used up, and lose its session.
            now = await self._accounts.session(session.session_id, timeout_s=limits.API_TIMEOUT_S)
            if now is None or now.refresh_digest != digest:
                raise
            rotated = True
        if not rotated:
            raise _invalid_refresh_token()
        return token

    async def _end_stolen(self, session: Session) -> None:
        fields = {"session_id": session.session_id, "user_id": session.user_id, "generation": session.generation}
        self._observe.audit("auth.refresh_token_reuse", fields)
        await self._revoker.revoke(session.session_id, session.user_id)

    # --- signing out ---------------------------------------------------------------------------------------------

    async def sign_out(self, claims: Claims, refresh_token: str | None) -> None:
        """Ends the session of these claims. A refresh token, if it was sent, must be the session's current one."""
        if refresh_token is not None:
            session = await self._accounts.session(claims.sid, timeout_s=limits.API_TIMEOUT_S)
            if session is None or not digests_equal(refresh_digest(refresh_token), session.refresh_digest):
                raise _invalid_refresh_token()
        await self._revoker.revoke(claims.sid, claims.sub, claims.jti)

    # --- sessions and tokens -------------------------------------------------------------------------------------

    def access_token(self, session: Session) -> str:
        claims = new_claims(
            user_id=session.user_id,
            session_id=session.session_id,
            device_id=session.device_id,
            token_id=self._new_id(""),
            now_s=self._clock.now_ms() // 1000,
        )
        return self._signer.sign(claims)

    def _new_session(self, user_id: str, device_id: str, now_ms: int) -> tuple[Session, str]:
        session_id = self._new_id(SESSION)
        token = self._new_token(session_id)
        session = Session(
            session_id=session_id,
            user_id=user_id,
            device_id=device_id,
            refresh_digest=refresh_digest(token),
            created_at_ms=now_ms,
            expires_at_ms=now_ms + limits.SESSION_LIFETIME_S * 1000,
            last_active_at_ms=now_ms,
        )
        return session, token

    def _new_token(self, session_id: str) -> str:
        return new_refresh_token(session_id, self._clock.random_bits(limits.REFRESH_SECRET_BITS))

    def _new_id(self, prefix: str) -> str:
        return prefix + new_ulid(self._clock.now_ms(), self._clock.random_bits)


def _invalid_otp() -> InvalidOtp:
    return InvalidOtp("this code is wrong or was used; check it, or ask for a new one")


def _invalid_refresh_token() -> InvalidRefreshToken:
    return InvalidRefreshToken("this refresh token is not valid; sign in again")

"""Signing in, staying signed in, signing out (docs/spec/rest.md#signing-in).

A code is spent exactly when a session is made (R17). An attempt is counted before the code is compared, so that
guessing costs tries whatever else goes wrong.
"""

from collections.abc import Sequence
from typing import Any

from seriatim.api.auth_bodies import (
    LogoutRequest,
    Refreshed,
    RefreshRequest,
    SignedIn,
    SignInRequest,
    TokenPair,
    device_of,
    session_view,
    user_view,
)
from seriatim.api.core.dispatch import bearer_token
from seriatim.api.core.observer import ApiObserver
from seriatim.api.core.rate_limit import Bucket
from seriatim.api.core.route import Access, ApiRequest, ApiResponse, Nothing, Route
from seriatim.api.otp import CodeRequest, Codes, CodeSent, check_phone
from seriatim.api.sessions import SessionRevoker, is_active, sessions_to_replace
from seriatim.domain import limits
from seriatim.domain.account import Code, Session, User, is_code, phone_hash
from seriatim.domain.errors import (
    DeviceMismatch,
    InvalidOtp,
    InvalidRefreshToken,
    OutcomeUnknown,
    Unauthorized,
    ValidationFailed,
)
from seriatim.domain.ids import SESSION, USER, ulid
from seriatim.domain.times import iso
from seriatim.domain.tokens import digests_equal, new_claims, new_refresh_token, refresh_digest, split_refresh_token
from seriatim.ports.accounts import Accounts
from seriatim.ports.clock import Clock
from seriatim.ports.secrets import Secrets
from seriatim.ports.tokens import Authenticator, TokenSigner


def routes(codes: Codes, auth: "AuthResource") -> Sequence[Route]:
    return [
        Route(
            method="POST",
            path="/auth/request-otp",
            handler=codes.request,
            summary="Ask for a one-time code",
            description="Sends a code to the phone. Asking again while it is valid sends the same code again.",
            tag="auth",
            access=Access.PUBLIC,
            body=CodeRequest,
            answers={200: CodeSent},
        ),
        Route(
            method="POST",
            path="/auth/verify-otp",
            handler=auth.verify,
            summary="Sign in with a one-time code",
            description="201 when this made a new user. X-Device-ID must be sent and equal device_id. "
            "Repeating the request with the same code and device gives the same session and new tokens.",
            tag="auth",
            access=Access.PUBLIC,
            body=SignInRequest,
            answers={200: SignedIn, 201: SignedIn},
            errors=(InvalidOtp,),
        ),
        Route(
            method="POST",
            path="/auth/refresh",
            handler=auth.refresh,
            summary="Exchange a refresh token for new tokens",
            description="Each refresh token works once; using one again ends the session. X-Device-ID must be sent.",
            tag="auth",
            access=Access.PUBLIC,
            body=RefreshRequest,
            answers={200: Refreshed},
            errors=(InvalidRefreshToken, DeviceMismatch, Unauthorized),
        ),
        Route(
            method="POST",
            path="/auth/logout",
            handler=auth.logout,
            summary="Sign this device out",
            tag="auth",
            body=LogoutRequest,
            body_optional=True,
            answers={204: Nothing},
            errors=(InvalidRefreshToken,),
        ),
    ]


class AuthResource:
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
        observe: ApiObserver,
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

    async def verify(self, request: ApiRequest[SignInRequest, Any]) -> ApiResponse:
        device_id = check_sign_in(request)
        phone = phone_hash(request.body.phone_number)
        await request.spend(_of_phone(phone))
        code = await self._accounts.code(phone, timeout_s=limits.API_TIMEOUT_S)
        if code is None or code.expires_at_ms <= self._clock.now_ms():
            raise _wrong_code()
        if not await self._accounts.count_attempt(phone, now_ms=self._clock.now_ms(), timeout_s=limits.API_TIMEOUT_S):
            raise _wrong_code()
        if not digests_equal(self._secrets.code_mac(request.body.otp, phone, code.expires_at_ms), code.mac):
            raise _wrong_code()
        if code.spent is None:
            session, token, is_new_user = await self._sign_in(request.body.phone_number, device_id, code)
        else:
            session, token = await self._repeat(code, device_id)
            is_new_user = code.spent.is_new_user
        await self._make_room(session)
        users = await self._accounts.users([session.user_id], timeout_s=limits.API_TIMEOUT_S)
        data = SignedIn(
            user=user_view(users[session.user_id]),
            session=session_view(session),
            tokens=self._token_pair(session, token),
            is_new_user=is_new_user,
        )
        return ApiResponse(status=201 if is_new_user else 200, data=data)

    async def _sign_in(self, phone_number: str, device_id: str, code: Code) -> tuple[Session, str, bool]:
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

        await self._revoker.replace([] if new_user else await self._sessions_to_replace(session), sign_in)
        return session, token, new_user is not None

    async def _repeat(self, code: Code, device_id: str) -> tuple[Session, str]:
        """The same device lost our first answer: the same session, and tokens that only it has."""
        assert code.spent is not None, "only a spent code is repeated"
        session_id = code.spent.session_id
        if code.spent.device_id != device_id:
            raise _wrong_code()
        token = self._new_token(session_id)
        reissued = await self._accounts.reissue(
            session_id, digest=refresh_digest(token), now_ms=self._clock.now_ms(), timeout_s=limits.API_TIMEOUT_S
        )
        session = await self._accounts.session(session_id, timeout_s=limits.API_TIMEOUT_S) if reissued else None
        if session is None:
            raise _wrong_code()
        return session, token

    async def _make_room(self, session: Session) -> None:
        """One session per device, five in all. The sign-in saw to it, unless others signed in at the same time.

        If this fails the caller gets an error, repeats the request, and comes by here again.
        """
        for each in await self._sessions_to_replace(session):
            await self._revoker.revoke(each.session_id, each.user_id)

    async def _sessions_to_replace(self, session: Session) -> Sequence[Session]:
        """Who goes for it. Its code was right: a wrong one signs nobody out."""
        sessions = await self._accounts.sessions_of(session.user_id, timeout_s=limits.API_TIMEOUT_S)
        others = [each for each in sessions if each.session_id != session.session_id]
        return sessions_to_replace(others, session.device_id, self._clock.now_ms())

    # --- staying signed in ---------------------------------------------------------------------------------------

    async def refresh(self, request: ApiRequest[RefreshRequest, Any]) -> ApiResponse:
        device_id = device_of(request)
        session_id, _ = split_refresh_token(request.body.refresh_token)
        session = await self._accounts.session(session_id, timeout_s=limits.API_TIMEOUT_S)
        if session is None or not is_active(session, self._clock.now_ms()):
            raise _wrong_token()
        await request.spend(_of_refreshes(session.user_id))
        if "authorization" in request.headers:
            claims = self._authenticator.verify(bearer_token(request.headers), expired_too=True)
            if claims.sid != session_id:
                raise _wrong_token()
        digest = refresh_digest(request.body.refresh_token)
        if self._is_reused(session, digest, device_id):
            await self._end_stolen(session)
            raise _wrong_token()
        if session.device_id != device_id:
            raise DeviceMismatch("this session belongs to another device; sign in on this one")
        token = await self._rotate(session)
        return ApiResponse(data=Refreshed(tokens=self._token_pair(session, token)))

    def _is_reused(self, session: Session, digest: str, device_id: str) -> bool:
        """Whether a token that was already exchanged came back. Raises for one that never was ours."""
        if digests_equal(digest, session.refresh_digest):
            return False
        if session.previous_digest is None or not digests_equal(digest, session.previous_digest):
            raise _wrong_token()
        rotated_at_ms = session.rotated_at_ms or 0
        in_time = self._clock.now_ms() < rotated_at_ms + self._reuse_leeway_s * 1000
        return not (in_time and device_id == session.device_id)

    async def _rotate(self, session: Session) -> str:
        """Whoever loses the race for a token keeps the session: the winner's answer may be their own."""
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
            # A client that is told to try again would present a token that may be used up, and lose its session.
            now = await self._accounts.session(session.session_id, timeout_s=limits.API_TIMEOUT_S)
            if now is None or now.refresh_digest != digest:
                raise
            rotated = True
        if not rotated:
            raise _wrong_token()
        return token

    async def _end_stolen(self, session: Session) -> None:
        fields = {"session_id": session.session_id, "user_id": session.user_id, "generation": session.generation}
        self._observe.audit("auth.refresh_token_reuse", fields)
        await self._revoker.revoke(session.session_id, session.user_id)

    # --- signing out ---------------------------------------------------------------------------------------------

    async def logout(self, request: ApiRequest[LogoutRequest, Any]) -> ApiResponse:
        claims = request.claims
        assert claims is not None, "logging out needs a token"
        if request.body.refresh_token is not None:
            session = await self._accounts.session(claims.sid, timeout_s=limits.API_TIMEOUT_S)
            digest = refresh_digest(request.body.refresh_token)
            if session is None or not digests_equal(digest, session.refresh_digest):
                raise _wrong_token()
        await self._revoker.revoke(claims.sid, claims.sub, claims.jti)
        return ApiResponse(status=204)

    # --- what is made --------------------------------------------------------------------------------------------

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
        return prefix + ulid(self._clock.now_ms(), self._clock.random_bits(80))

    def _token_pair(self, session: Session, refresh_token: str) -> TokenPair:
        claims = new_claims(
            user_id=session.user_id,
            session_id=session.session_id,
            device_id=session.device_id,
            token_id=self._new_id(""),
            now_s=self._clock.now_ms() // 1000,
        )
        return TokenPair(access_token=self._signer.sign(claims), refresh_token=refresh_token)


def check_sign_in(request: ApiRequest[SignInRequest, Any]) -> str:
    """The device that signs in. Raises `ValidationFailed`."""
    check_phone(request.body.phone_number)
    if not is_code(request.body.otp):
        raise ValidationFailed("otp must be six digits", field="otp", field_code="INVALID_FORMAT")
    device_id = device_of(request)
    if request.body.device_id.lower() != device_id:
        raise ValidationFailed("device_id must equal X-Device-ID", field="device_id", field_code="MISMATCH")
    return device_id


def _of_phone(phone: str) -> Bucket:
    return Bucket(
        name=f"otp_verify:phone:{phone}",
        limit=limits.CODE_ATTEMPTS_MAX,
        window_s=limits.CODE_LIFETIME_S,
        fail_closed=True,
        lockout=f"otp_lockout:phone:{phone}",
    )


def _of_refreshes(user_id: str) -> Bucket:
    return Bucket(name=f"auth_refresh:user:{user_id}", limit=limits.REFRESHES_MAX, window_s=60)


def _wrong_code() -> InvalidOtp:
    return InvalidOtp("this code is wrong or was used; check it, or ask for a new one")


def _wrong_token() -> InvalidRefreshToken:
    return InvalidRefreshToken("this refresh token is not valid; sign in again")

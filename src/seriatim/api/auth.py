"""Signing in, refreshing and signing out over REST (docs/spec/rest.md#signing-in). The rules are `services.sign_in`'s.

A request for a code gets the same answer whether or not a user has that number.
"""

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from seriatim.api.core.dispatch import bearer_token
from seriatim.api.core.fields import PhoneNumber, Time, check_phone
from seriatim.api.core.rate_limit import Bucket
from seriatim.api.core.route import Access, ApiRequest, ApiResponse, Nothing, Route
from seriatim.domain import limits
from seriatim.domain.account import Session, User, is_code, phone_hash
from seriatim.domain.addresses import rate_key
from seriatim.domain.errors import DeviceMismatch, InvalidOtp, InvalidRefreshToken, Unauthorized, ValidationFailed
from seriatim.domain.times import iso
from seriatim.services.otp import OtpService
from seriatim.services.sign_in import SignInService

DeviceId = Annotated[
    str,
    Meta(
        pattern="^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$",
        description="A UUID of version 4 that the device made for itself.",
        examples=["7d9f2c1e-5b3a-4c8d-9e6f-1a2b3c4d5e6f"],
    ),
]
RefreshToken = Annotated[
    str, Meta(min_length=1, max_length=256, description="Works once.", examples=["sess_01J....secret"])
]


class SignInRequest(msgspec.Struct, frozen=True, kw_only=True):
    phone_number: PhoneNumber
    otp: Annotated[str, Meta(pattern=f"^[0-9]{{{limits.CODE_DIGITS}}}$", description="The code.", examples=["000000"])]
    device_id: DeviceId


class RefreshRequest(msgspec.Struct, frozen=True, kw_only=True):
    refresh_token: RefreshToken


class LogoutRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The token is optional; if it is sent it must be this session's current one."""

    refresh_token: RefreshToken | None = None


class TokenPair(msgspec.Struct, frozen=True, kw_only=True):
    access_token: Annotated[str, Meta(description="Send it as `Authorization: Bearer <token>`.")]
    refresh_token: RefreshToken
    token_type: str = "Bearer"
    expires_in: Annotated[int, Meta(description="Seconds the access token is valid.")] = limits.ACCESS_TOKEN_S


class SignedInUser(msgspec.Struct, frozen=True, kw_only=True):
    user_id: str
    phone_number: PhoneNumber
    display_name: str | None
    created_at: Time


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    device_id: DeviceId
    created_at: Time
    expires_at: Time


class SignedIn(msgspec.Struct, frozen=True, kw_only=True):
    user: SignedInUser
    session: NewSession
    tokens: TokenPair
    is_new_user: bool


class Refreshed(msgspec.Struct, frozen=True, kw_only=True):
    tokens: TokenPair


class CodeRequest(msgspec.Struct, frozen=True, kw_only=True):
    phone_number: PhoneNumber


class CodeSent(msgspec.Struct, frozen=True, kw_only=True):
    phone_number: PhoneNumber
    expires_at: Time
    retry_after_seconds: Annotated[int, Meta(description="Wait this long before you ask for the code again.")]


def routes(auth: "AuthResource") -> Sequence[Route]:
    return [
        Route(
            method="POST",
            path="/auth/request-otp",
            handler=auth.request_otp,
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
    def __init__(self, otp: OtpService, sign_in: SignInService) -> None:
        self._otp = otp
        self._sign_in = sign_in

    async def request_otp(self, request: ApiRequest[CodeRequest, Any]) -> ApiResponse:
        phone_number = check_phone(request.body.phone_number)
        # The address first: one address that asks for many numbers must not use up those numbers' own quota.
        await request.spend(_requests_of_address(request.client_ip))
        await request.spend(_requests_of_phone(phone_hash(phone_number)))
        code = await self._otp.request(phone_number)
        return ApiResponse(
            data=CodeSent(
                phone_number=phone_number,
                expires_at=iso(code.expires_at_ms),
                retry_after_seconds=limits.CODE_RESEND_S,
            )
        )

    async def verify(self, request: ApiRequest[SignInRequest, Any]) -> ApiResponse:
        device_id = check_sign_in(request)
        await request.spend(_attempts_of_phone(phone_hash(request.body.phone_number)))
        done = await self._sign_in.verify(request.body.phone_number, request.body.otp, device_id)
        data = SignedIn(
            user=user_view(done.user),
            session=session_view(done.session),
            tokens=self._token_pair(done.session, done.refresh_token),
            is_new_user=done.is_new_user,
        )
        return ApiResponse(status=201 if done.is_new_user else 200, data=data)

    async def refresh(self, request: ApiRequest[RefreshRequest, Any]) -> ApiResponse:
        device_id = device_of(request)
        session = await self._sign_in.session_of(request.body.refresh_token)
        await request.spend(_refreshes_of_user(session.user_id))
        access_token = bearer_token(request.headers) if "authorization" in request.headers else None
        token = await self._sign_in.refresh(session, request.body.refresh_token, device_id, access_token=access_token)
        return ApiResponse(data=Refreshed(tokens=self._token_pair(session, token)))

    async def logout(self, request: ApiRequest[LogoutRequest, Any]) -> ApiResponse:
        assert request.claims is not None, "logging out needs a token"
        await self._sign_in.sign_out(request.claims, request.body.refresh_token)
        return ApiResponse(status=204)

    def _token_pair(self, session: Session, refresh_token: str) -> TokenPair:
        return TokenPair(access_token=self._sign_in.access_token(session), refresh_token=refresh_token)


def device_of(request: ApiRequest[Any, Any]) -> str:
    """The device that asks, from `X-Device-ID`. Raises `ValidationFailed` without a proper one."""
    if request.device_id is None:
        code = "INVALID_FORMAT" if "x-device-id" in request.headers else "REQUIRED"
        raise ValidationFailed(
            "send X-Device-ID: a UUID of version 4 that names this device", field="X-Device-ID", field_code=code
        )
    return request.device_id


def user_view(user: User) -> SignedInUser:
    return SignedInUser(
        user_id=user.user_id,
        phone_number=user.phone_number,
        display_name=user.display_name,
        created_at=user.created_at,
    )


def session_view(session: Session) -> NewSession:
    return NewSession(
        session_id=session.session_id,
        device_id=session.device_id,
        created_at=iso(session.created_at_ms),
        expires_at=iso(session.expires_at_ms),
    )


def check_sign_in(request: ApiRequest[SignInRequest, Any]) -> str:
    """The device that signs in. Raises `ValidationFailed`."""
    check_phone(request.body.phone_number)
    if not is_code(request.body.otp):
        raise ValidationFailed("otp must be six digits", field="otp", field_code="INVALID_FORMAT")
    device_id = device_of(request)
    if request.body.device_id.lower() != device_id:
        raise ValidationFailed("device_id must equal X-Device-ID", field="device_id", field_code="MISMATCH")
    return device_id


def _attempts_of_phone(phone: str) -> Bucket:
    return Bucket(
        name=f"otp_verify:phone:{phone}",
        limit=limits.CODE_ATTEMPTS_MAX,
        window_s=limits.CODE_LIFETIME_S,
        fail_closed=True,
        lockout=f"otp_lockout:phone:{phone}",
    )


def _refreshes_of_user(user_id: str) -> Bucket:
    return Bucket(name=f"auth_refresh:user:{user_id}", limit=limits.REFRESHES_MAX, window_s=60)


def _requests_of_address(client_ip: str) -> Bucket:
    address = hashlib.sha256(rate_key(client_ip).encode()).hexdigest()
    return Bucket(name=f"otp_req:ip:{address}", limit=limits.CODES_PER_ADDRESS_MAX, window_s=limits.CODE_QUOTA_S)


def _requests_of_phone(phone: str) -> Bucket:
    return Bucket(
        name=f"otp_req:phone:{phone}", limit=limits.CODES_PER_PHONE_MAX, window_s=limits.CODE_QUOTA_S, fail_closed=True
    )

"""What sign-in takes and answers, as it stands on the wire and in the OpenAPI document."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from seriatim.api.core.fields import Time
from seriatim.api.core.route import ApiRequest
from seriatim.api.otp import PhoneNumber
from seriatim.domain import limits
from seriatim.domain.account import Session, User
from seriatim.domain.errors import ValidationFailed
from seriatim.domain.times import iso

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

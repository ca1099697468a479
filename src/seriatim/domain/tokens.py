"""What an access token must say and how a refresh token is built. Engines sign; clocks give random bits.

The order of checks is docs/spec/rest.md#access-token: issuer and audience, then issue time, then expiry.
"""

import base64
import hashlib
import hmac
import re

import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import InvalidRefreshToken, Unauthorized
from seriatim.domain.ids import is_id

ISSUER = "messaging-platform"
AUDIENCE = "messaging-api"
SCOPE = "messaging"


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """What a verified signature vouches for. What is checked has no default: nothing passes by being left out."""

    iss: str
    aud: str
    sub: str
    sid: str
    jti: str
    iat: int
    exp: int
    scope: str
    device_id: str | None = None  # other issuers need not know devices; then the client names its own


def new_claims(*, user_id: str, session_id: str, device_id: str, token_id: str, now_s: int) -> Claims:
    return Claims(
        iss=ISSUER,
        aud=AUDIENCE,
        sub=user_id,
        sid=session_id,
        jti=token_id,
        iat=now_s,
        exp=now_s + limits.ACCESS_TOKEN_S,
        scope=SCOPE,
        device_id=device_id,
    )


def check_claims(claims: Claims, now_s: float) -> None:
    """Raises `Unauthorized` with `details.reason` `token_invalid` or `token_expired`. No check of revocation."""
    if claims.iss != ISSUER or claims.aud != AUDIENCE or claims.scope != SCOPE:
        raise _unauthorized("this token was issued by or for another service", "token_invalid")
    if not (is_id(claims.sub) and is_id(claims.sid) and is_id(claims.jti)):
        raise _unauthorized("this token names no user, session or token id", "token_invalid")
    if claims.iat > now_s + limits.TOKEN_ISSUED_LEEWAY_S:
        raise _unauthorized("this token was issued in the future; check the clocks", "token_invalid")
    if claims.exp <= now_s:
        raise _unauthorized("this token has expired; refresh it", "token_expired")


def new_refresh_token(session_id: str, secret_bits: int) -> str:
    """`<session_id>.<secret>`: the session is found by its key. `secret_bits` is 256 random bits as one number."""
    secret = secret_bits.to_bytes(limits.REFRESH_SECRET_BITS // 8, "big")
    return f"{session_id}.{base64.urlsafe_b64encode(secret).rstrip(b'=').decode()}"


def split_refresh_token(token: str) -> tuple[str, str]:
    """Session id and secret. Raises `InvalidRefreshToken` for any other shape."""
    session_id, _, secret = token.partition(".")
    if not is_id(session_id) or _SECRET.fullmatch(secret) is None:
        raise InvalidRefreshToken("this is not a refresh token")
    return session_id, secret


def refresh_digest(token: str) -> str:
    """All that is stored of a refresh token."""
    return hashlib.sha256(token.encode()).hexdigest()


def digests_equal(one: str, other: str) -> bool:
    """Takes the same time wherever the first difference is."""
    return hmac.compare_digest(one.encode(), other.encode())


_SECRET = re.compile(rf"[A-Za-z0-9_-]{{{-(-limits.REFRESH_SECRET_BITS // 6)}}}")


def _unauthorized(message: str, reason: str) -> Unauthorized:
    return Unauthorized(message, details={"reason": reason})

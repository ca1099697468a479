"""Signature Version 4, as far as DynamoDB needs it: one path, no query, four headers. It costs three hashes.

The key that signs is derived once for each day and secret.
"""

import hashlib
import hmac

import msgspec

from seriatim.domain.times import iso

_ALGORITHM = "AWS4-HMAC-SHA256"
_SERVICE = "dynamodb"
_TARGET = "DynamoDB_20120810."


class AwsCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """An access key. Its repr never shows the secrets."""

    key_id: str
    secret: str
    session_token: str | None = None

    def __repr__(self) -> str:
        return f"AwsCredentials({self.key_id[:4]}...)"


class Signer:
    """Writes the heads of signed requests to one host."""

    def __init__(self, *, host: str, region: str) -> None:
        self._host = host
        self._region = region
        self._key_for: tuple[str, str] | None = None
        self._key = b""

    def head(self, credentials: AwsCredentials, operation: str, body: bytes, now_ms: int) -> bytes:
        """All of an HTTP request but its body."""
        now = iso(now_ms)
        day = now[0:4] + now[5:7] + now[8:10]
        time = f"{day}T{now[11:13]}{now[14:16]}{now[17:19]}Z"
        scope = f"{day}/{self._region}/{_SERVICE}/aws4_request"
        token = credentials.session_token
        names = "host;x-amz-date;x-amz-security-token;x-amz-target" if token else "host;x-amz-date;x-amz-target"
        token_line = f"x-amz-security-token:{token}\n" if token else ""
        canonical = (
            f"POST\n/\n\nhost:{self._host}\nx-amz-date:{time}\n{token_line}"
            f"x-amz-target:{_TARGET}{operation}\n\n{names}\n{hashlib.sha256(body).hexdigest()}"
        )
        to_sign = f"{_ALGORITHM}\n{time}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        signature = hmac.digest(self._signing_key(credentials.secret, day), to_sign.encode(), "sha256").hex()
        token_line = f"X-Amz-Security-Token: {token}\r\n" if token else ""
        return (
            f"POST / HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/x-amz-json-1.0\r\n"
            f"X-Amz-Date: {time}\r\nX-Amz-Target: {_TARGET}{operation}\r\n{token_line}"
            f"Authorization: {_ALGORITHM} Credential={credentials.key_id}/{scope}, SignedHeaders={names}, "
            f"Signature={signature}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode()

    def _signing_key(self, secret: str, day: str) -> bytes:
        if self._key_for != (secret, day):
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, _SERVICE, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._key, self._key_for = key, (secret, day)
        return self._key

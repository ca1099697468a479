"""What attackers make of an access token that they have seen and a public key that they know."""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from functools import cache

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from jwt import PyJWS

RS = PyJWS(algorithms=["RS256", "RS512", "PS256"])


def forgeries(token: str, *, kid: str, public_pem: bytes) -> Mapping[str, str]:
    """By name. The genuine token is valid; each of these tries to pass for it, or to harm its verifier."""
    header, payload, signature = token.split(".")
    claims, other = unpacked(payload), foreign_key()
    none = packed({"alg": "none", "typ": "JWT", "kid": kid})
    confused = f"{packed({'alg': 'HS256', 'typ': 'JWT', 'kid': kid})}.{payload}"
    with_user_2 = packed({**claims, "sub": "user_2"})
    bomb = base64url(b'{"kid":' + b"[" * 2900)
    return {
        "no algorithm": f"{none}.{payload}.",
        "no algorithm, old signature": f"{none}.{payload}.{signature}",
        "another spelling of none": f"{packed({'alg': 'nOnE', 'kid': kid})}.{payload}.",
        "the public key as a password": f"{confused}.{base64url(_hs256(public_pem, confused))}",
        "a foreign key": signed(claims, other, kid=kid),
        "a foreign key and no kid": signed(claims, other, kid=None),
        "a foreign key with a kid of its own": signed(claims, other, kid="foreign"),
        "a kid that is a path": signed(claims, other, kid="../../etc/passwd"),
        "a kid that is nothing": signed(claims, other, kid=""),
        "a kid that is a number": f"{packed({'alg': 'RS256', 'kid': 1})}.{payload}.{signature}",
        "a key of its own in the header": signed(claims, other, kid=kid, jwk={"kty": "RSA", "n": "AQAB", "e": "AQAB"}),
        "a claim that must be understood": f"{packed({'alg': 'RS256', 'kid': kid, 'crit': ['x'], 'x': 1})}.{payload}.x",
        "another user": f"{header}.{with_user_2}.{signature}",
        "without its signature": f"{header}.{payload}.",
        "without its last character": token[:-1],
        "with something behind": token + ".",
        "with padding in the middle": f"{header}=.{payload}.{signature}",
        "twice": token + token,
        "with a space": token + " ",
        "with a letter of another script": token + "é",
        "with half a character": token + "\ud800",
        "nothing": "",
        "two dots": "..",
        "five parts": "a.b.c.d.e",
        "a header that is no object": f"{base64url(b'[]')}.{payload}.{signature}",
        "a header that is no text": f"{base64url(bytes([255, 254]))}.{payload}.{signature}",
        "a header without end": f"{bomb}.{payload}.{signature}",
        "too long to be looked at": f"{header}.{'A' * 4096}.{signature}",
        "a megabyte": "A" * 1_000_000,
    }


def signed(
    claims: Mapping[str, object] | bytes, key: RSAPrivateKey, *, kid: str | None, alg: str = "RS256", **more: object
) -> str:
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    headers: dict[str, object] = dict(more) if kid is None else {"kid": kid, **more}
    return RS.encode(payload, key, algorithm=alg, headers=headers)


@cache
def foreign_key() -> RSAPrivateKey:
    return generate_private_key(public_exponent=65537, key_size=2048)


def packed(part: Mapping[str, object]) -> str:
    return base64url(json.dumps(part).encode())


def unpacked(segment: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(base64.urlsafe_b64decode(segment + "=="))
    return found


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _hs256(secret: bytes, text: str) -> bytes:
    return hmac.new(secret, text.encode(), hashlib.sha256).digest()

"""WebSocket handshakes that expect to be refused, and tokens that the server's own key signs for a test."""

import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from tests.support.forged_tokens import signed, unpacked
from tests.system.users import Endpoint, Reply, User, request

KEY = "AAAAAAAAAAAAAAAAAAAAAA=="


def try_handshake(server: Endpoint, token: str | None, path: str = "/v1/ws", **headers: str) -> Reply:
    """The answer to a handshake, as a refused client reads it."""
    named = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": KEY,
        **({} if token is None else {"Authorization": f"Bearer {token}"}),
        **headers,
    }
    return request(server, "GET", path, None, port=server.port, **named)


def server_key(data: Path) -> tuple[str, RSAPrivateKey]:
    """The key that signs the server's tokens, and its name."""
    [file] = sorted((data / "keys").glob("*.pem"))
    key = load_pem_private_key(file.read_bytes(), None)
    assert isinstance(key, RSAPrivateKey)
    return file.stem, key


def public_pem(key: RSAPrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def short_lived_token(data: Path, user: User, seconds: int) -> str:
    return token_with(data, user, exp=int(time.time()) + seconds)


def token_with(data: Path, user: User, **claims: object) -> str:
    """As the server made it, but for these claims."""
    kid, key = server_key(data)
    header, payload, _ = user.access_token.split(".")
    assert unpacked(header)["kid"] == kid
    return signed({**unpacked(payload), **claims}, key, kid=kid)

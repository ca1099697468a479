"""`Secrets` on the keys of the key folder: HMAC-SHA256 for codes and cursors, AES-256-GCM for what is sealed."""

import hashlib
import hmac
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from seriatim.engines.keys.key_folder import CODE_KEY, CURSOR_KEY, PEPPER, KeyFolder
from seriatim.ports.secrets import Secrets

_NONCE_BYTES = 12


class KeySecrets(Secrets):
    """Refuses to be made without pepper and cursor key. Without the code key it seals nothing."""

    def __init__(self, keys: KeyFolder) -> None:
        self._pepper = keys.secret(PEPPER)
        self._cursor_key = keys.secret(CURSOR_KEY)
        code_key = keys.optional_secret(CODE_KEY)
        self._cipher = None if code_key is None else AESGCM(code_key)

    def code_mac(self, code: str, phone_hash: str, expires_at_ms: int) -> str:
        # With separators, so that no two triples have the same text.
        bound = f"{code}\n{phone_hash}\n{expires_at_ms}".encode()
        return hmac.digest(self._pepper, bound, hashlib.sha256).hex()

    def seal(self, text: str, context: str) -> bytes | None:
        if self._cipher is None:
            return None
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, text.encode(), context.encode())

    def unseal(self, sealed: bytes, context: str) -> str | None:
        if self._cipher is None:
            return None
        try:
            text = self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], context.encode())
        except (InvalidTag, ValueError):  # ValueError: too short to hold even a nonce
            return None
        return text.decode()

    def cursor_tag(self, payload: bytes) -> bytes:
        return hmac.digest(self._cursor_key, payload, hashlib.sha256)

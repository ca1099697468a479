"""Access tokens as RS256 JWTs: signed with the newest key of the folder, verified with all of them.

This module decides which algorithm and keys are accepted; the token's header only says which key to try.
"""

import hashlib
import json
from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Callable

import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWS
from jwt.exceptions import PyJWTError

from seriatim.domain import limits
from seriatim.domain.errors import Unauthorized
from seriatim.domain.ids import is_id
from seriatim.domain.tokens import Claims
from seriatim.engines.keys.key_folder import KeyFolder, KeyFolderError
from seriatim.ports.clock import Clock
from seriatim.ports.tokens import TokenSigner

_RS256 = "RS256"
_JWS = PyJWS(algorithms=[_RS256])


class Rs256Signer(TokenSigner):
    """Refuses to be made without a signing key, so that a server without one does not start."""

    def __init__(self, keys: KeyFolder) -> None:
        self._keys = keys
        _ = keys.signing

    def sign(self, claims: Claims) -> str:
        key = self._keys.signing
        return _JWS.encode(msgspec.json.encode(claims), key.private, algorithm=_RS256, headers={"kid": key.kid})


class Rs256Verifier:
    """Checks signature and shape only; `KeyAuthenticator` checks times, issuer and revocation.

    Keys are read again every `KEYS_RELOAD_S`, and for an unknown kid, but for that no more often than every
    `KEYS_RELOAD_PAUSE_S`. `reload_failed` is called with the error; until a reload succeeds, the old keys are used.
    """

    def __init__(self, keys: KeyFolder, clock: Clock, reload_failed: Callable[[KeyFolderError], None]) -> None:
        self._keys = keys
        self._clock = clock
        self._reload_failed = reload_failed
        self._reload_due = clock.monotonic() + limits.KEYS_RELOAD_S
        self._unknown_kid_reload_due = clock.monotonic()
        self._verified: OrderedDict[bytes, _Verified] = OrderedDict()

    def verify(self, token: str) -> Claims:
        """Raises `Unauthorized` with `details.reason` `token_invalid`."""
        if len(token) > limits.ACCESS_TOKEN_CHARS_MAX or not token.isascii():
            raise _invalid()
        now = self._clock.monotonic()
        if now >= self._reload_due:
            self._reload(now)
        digest = hashlib.sha256(token.encode()).digest()
        known = self._verified.get(digest)
        # By identity of the key: once the key was reloaded or removed, cached results are void.
        if known is None or self._keys.public(known.kid) is not known.key:
            known = self._verify(token, now)
            self._remember(digest, known)
        return known.claims

    @property
    def remembered(self) -> int:
        """How many verified tokens are cached."""
        return len(self._verified)

    def _verify(self, token: str, now: float) -> "_Verified":
        try:
            kid = _kid(token)
            key = self._key(kid, now)
            return _Verified(kid, key, _claims(_JWS.decode(token, key, algorithms=[_RS256])))
        except (PyJWTError, ValueError, RecursionError):
            # Without its cause: the text of the cause may quote the token.
            raise _invalid() from None

    def _key(self, kid: str, now: float) -> RSAPublicKey:
        found = self._keys.public(kid)
        if found is None and now >= self._unknown_kid_reload_due:
            self._unknown_kid_reload_due = now + limits.KEYS_RELOAD_PAUSE_S
            self._reload(now)
            found = self._keys.public(kid)
        if found is None:
            raise _invalid()
        return found

    def _reload(self, now: float) -> None:
        self._reload_due = now + limits.KEYS_RELOAD_S
        try:
            self._keys.reload()
        except KeyFolderError as error:
            self._reload_failed(error)

    def _remember(self, digest: bytes, verified: "_Verified") -> None:
        self._verified[digest] = verified
        if len(self._verified) > limits.TOKENS_CACHED_MAX:
            self._verified.popitem(last=False)


class _Verified(msgspec.Struct, frozen=True):
    """A valid signature, and the key that verified it."""

    kid: str
    key: RSAPublicKey
    claims: Claims


class _Header(msgspec.Struct, frozen=True):
    kid: str


def _kid(token: str) -> str:
    """Which key to try. It is not trusted: with any other key the signature is invalid."""
    segment = token.partition(".")[0]
    kid = msgspec.json.decode(urlsafe_b64decode(segment + "=" * (-len(segment) % 4)), type=_Header).kid
    if not is_id(kid):
        raise _invalid()
    return kid


def _claims(payload: bytes) -> Claims:
    """A claim that occurs twice is refused: another reader could take the other value."""
    claims: object = json.loads(payload, object_pairs_hook=_without_duplicates)
    return msgspec.convert(claims, Claims, strict=True)


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a claim occurs twice")
    return found


def _invalid() -> Unauthorized:
    return Unauthorized("this is not a valid access token; sign in or refresh it", details={"reason": "token_invalid"})

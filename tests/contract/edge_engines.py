"""The engines under contract for what the REST edge needs beside its stores: quotas, revocations, tokens, secrets.

To put another engine under contract, write its class here and add it to the list at the end.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from seriatim.domain.account import Session
from seriatim.domain.errors import OutcomeUnknown
from seriatim.engines.inprocess.code_sender import FixedCodes, LogCodeSender
from seriatim.engines.inprocess.quotas import InProcessQuotas
from seriatim.engines.inprocess.revocations import InProcessRevocations
from seriatim.engines.keys.authenticator import KeyAuthenticator
from seriatim.engines.keys.key_folder import CODE_KEY, KeyFolder
from seriatim.engines.keys.secrets import KeySecrets
from seriatim.engines.keys.tokens import Rs256Signer
from seriatim.ports.accounts import Sessions
from seriatim.ports.code_sender import CodeSender
from seriatim.ports.quotas import Quotas
from seriatim.ports.revocations import Revocations, Verdict
from seriatim.ports.secrets import Secrets
from seriatim.ports.tokens import Authenticator, TokenSigner
from tests.contract.event_engines import Engine, MemoryEngine
from tests.contract.redis_engines import RedisQuotasEngine, RedisRevocationsEngine
from tests.support.manual_clock import ManualClock


class TimedEngine(Engine, Protocol):
    """Its time passes by `advance`, or is waited for."""

    async def advance(self, seconds: float) -> None: ...


class QuotasEngine(TimedEngine, Protocol):
    """Empty at first."""

    def quotas(self) -> Quotas: ...


class RevocationsEngine(TimedEngine, Protocol):
    """Empty at first. It began to remember when it was opened, or when it was last wiped."""

    def revocations(self) -> Revocations: ...

    def now_s(self) -> int:
        """What a token issued at this moment says of its issue."""
        ...

    async def wipe(self) -> None: ...


class TokensEngine(TimedEngine, Protocol):
    """One signer and any number of verifiers. `sessions` is the authority that they ask, and both it and the fast
    `revocations` can be made to fail."""

    sessions: "GivenSessions"
    revocations: "FailingRevocations"

    def signer(self) -> TokenSigner: ...

    def authenticator(self) -> Authenticator: ...

    def now_s(self) -> int: ...

    def public_pem(self) -> bytes:
        """What an attacker can know of our key."""
        ...

    def kid(self) -> str: ...


class SecretsEngine(Engine, Protocol):
    def secrets(self) -> Secrets:
        """Each a process of its own, with the same keys."""
        ...

    def stranger(self) -> Secrets:
        """With other keys."""
        ...

    def without_sealing_key(self) -> Secrets: ...


class CodeSenderEngine(Engine, Protocol):
    def sender(self) -> CodeSender: ...

    def break_carrier(self) -> bool:
        """Says whether there is a carrier that can refuse."""
        ...


class GivenSessions(Sessions):
    """An authority that knows what it is given, while it is `up`."""

    def __init__(self) -> None:
        self.up = True
        self.known: dict[str, Session] = {}
        self.asked = 0

    async def session(self, session_id: str, *, timeout_s: float) -> Session | None:
        self.asked += 1
        if not self.up or timeout_s <= 0:
            raise OutcomeUnknown("the store is away; try again")
        return self.known.get(session_id)


class FailingRevocations(Revocations):
    """A real engine, while it is `up`; then it takes all the time it is given and says nothing."""

    def __init__(self, engine: Revocations, clock: ManualClock) -> None:
        self.up = True
        self.engine = engine
        self.clock = clock

    async def revoke(self, session_id: str, token_id: str | None, *, timeout_s: float) -> None:
        await self.engine.revoke(session_id, token_id, timeout_s=timeout_s)

    async def check(self, session_id: str, token_id: str, issued_at_s: int, *, timeout_s: float) -> Verdict:
        if not self.up:
            self.clock.advance(timeout_s)
            raise OutcomeUnknown("the cache is away; try again")
        return await self.engine.check(session_id, token_id, issued_at_s, timeout_s=timeout_s)


class ByHand(MemoryEngine):
    def __init__(self) -> None:
        self.clock = ManualClock()

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def now_s(self) -> int:
        return self.clock.now_s()


class LocalQuotasEngine(ByHand):
    async def open(self) -> None:
        self._quotas = InProcessQuotas(self.clock)

    def quotas(self) -> Quotas:
        return self._quotas


class LocalRevocationsEngine(ByHand):
    async def open(self) -> None:
        await self.wipe()

    def revocations(self) -> Revocations:
        return self._revocations

    async def wipe(self) -> None:
        self._revocations = InProcessRevocations(self.clock)


class KeyFolderTokensEngine(ByHand):
    async def open(self) -> None:
        self._root = tempfile.TemporaryDirectory(prefix="seriatim-")
        self.path = Path(self._root.name) / "keys"
        self.keys = KeyFolder.open(self.path, create=True, clock=self.clock)
        self.sessions = GivenSessions()
        self.revocations = FailingRevocations(InProcessRevocations(self.clock), self.clock)

    async def close(self) -> None:
        self._root.cleanup()

    def signer(self) -> TokenSigner:
        return Rs256Signer(self.keys)

    def authenticator(self) -> Authenticator:
        keys = KeyFolder.open(self.path, create=False, clock=self.clock)
        return KeyAuthenticator(keys, self.revocations, self.sessions, self.clock)

    def public_pem(self) -> bytes:
        return self.keys.signing.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def kid(self) -> str:
        return self.keys.signing.kid


class KeyFolderSecretsEngine(MemoryEngine):
    async def open(self) -> None:
        self._root = tempfile.TemporaryDirectory(prefix="seriatim-")

    async def close(self) -> None:
        self._root.cleanup()

    def secrets(self) -> Secrets:
        return KeySecrets(self._folder("keys"))

    def stranger(self) -> Secrets:
        return KeySecrets(self._folder("others"))

    def without_sealing_key(self) -> Secrets:
        (self._folder("keys").path / CODE_KEY).unlink()
        return KeySecrets(self._folder("keys", create=False))

    def _folder(self, name: str, *, create: bool = True) -> KeyFolder:
        return KeyFolder.open(Path(self._root.name) / name, create=create, clock=ManualClock())


class LogCodeSenderEngine(MemoryEngine):
    def __init__(self) -> None:
        self._closed = False

    def sender(self) -> CodeSender:
        return LogCodeSender(self._print)

    def break_carrier(self) -> bool:
        self._closed = True
        return True

    def _print(self, line: str) -> None:
        if self._closed:
            raise BrokenPipeError


class FixedCodesEngine(MemoryEngine):
    def sender(self) -> CodeSender:
        return FixedCodes()

    def break_carrier(self) -> bool:
        return False


QUOTAS: Sequence[Callable[[], QuotasEngine]] = (LocalQuotasEngine, RedisQuotasEngine)
REVOCATIONS: Sequence[Callable[[], RevocationsEngine]] = (LocalRevocationsEngine, RedisRevocationsEngine)
TOKENS: Sequence[Callable[[], TokensEngine]] = (KeyFolderTokensEngine,)
SECRETS: Sequence[Callable[[], SecretsEngine]] = (KeyFolderSecretsEngine,)
CODE_SENDERS: Sequence[Callable[[], CodeSenderEngine]] = (LogCodeSenderEngine, FixedCodesEngine)

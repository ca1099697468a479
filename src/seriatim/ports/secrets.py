"""What only the REST edge can compute, with keys that never leave it."""

from typing import Protocol


class Secrets(Protocol):
    def code_mac(self, code: str, phone_hash: str, expires_at_ms: int) -> str:
        """Binds a one-time code to its phone and its expiry; without the key codes cannot be tried against it."""
        ...

    def seal(self, text: str, context: str) -> bytes | None:
        """Only `unseal` with the same context opens it. None when no key for that is configured."""
        ...

    def unseal(self, sealed: bytes, context: str) -> str | None:
        """None for anything that was not sealed here with this context."""
        ...

    def cursor_tag(self, payload: bytes) -> bytes:
        """Authenticates a page cursor: it cannot be computed without the key."""
        ...

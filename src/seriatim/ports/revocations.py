"""The fast answer to "was this token revoked?". It may forget everything, and then says that it is not sure."""

from enum import Enum
from typing import Protocol


class Verdict(Enum):
    CLEAR = "clear"
    REVOKED = "revoked"
    UNSURE = "unsure"


class Revocations(Protocol):
    async def revoke(self, session_id: str, token_id: str | None, *, timeout_s: float) -> None:
        """From now on both are `REVOKED`, for as long as any token of that session can live."""
        ...

    async def check(self, session_id: str, token_id: str, issued_at_s: int, *, timeout_s: float) -> Verdict:
        """`CLEAR` only for a token issued after this store began to remember; an older one is `UNSURE`."""
        ...

"""How a one-time code reaches a phone."""

from typing import Protocol


class CodeSender(Protocol):
    async def send(self, phone_number: str, code: str) -> None:
        """Best effort, after the code was stored. Raises `ServiceUnavailable` when the carrier refused it."""
        ...

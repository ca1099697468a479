"""Idempotency keys of the REST edge: a repeated request finds what the first one made (W22)."""

from typing import Protocol

import msgspec


class Claimed(msgspec.Struct, frozen=True):
    """The caller has the key: do the work, then `finish`. `resource_id` is the id to use, its own or an earlier
    attempt's.
    """

    resource_id: str
    resumed: bool


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The key was used before. `status_code` is None while that request is in progress."""

    body_hash: str
    resource_id: str
    status_code: int | None


class RequestKeys(Protocol):
    """`scope` names user, method and route; within it, `key` is the caller's own.

    A finished key is neither released, abandoned nor finished again: it stays until it is free again.
    """

    async def claim(
        self, scope: str, key: str, *, body_hash: str, resource_id: str, now_ms: int, timeout_s: float
    ) -> Claimed | Taken:
        """Of two that claim a key one wins. A key is free again after `REQUEST_KEY_LIFETIME_S` from its first claim.

        A claim with the same body that was abandoned, or is older than `REQUEST_CLAIM_S` without an outcome, is taken
        over together with its resource id.
        """
        ...

    async def finish(self, scope: str, key: str, *, status_code: int, timeout_s: float) -> None:
        """From now on the key answers with this outcome."""
        ...

    async def release(self, scope: str, key: str, *, timeout_s: float) -> None:
        """The request was refused and changed nothing: the key is as if it had never been used."""
        ...

    async def abandon(self, scope: str, key: str, *, timeout_s: float) -> None:
        """The outcome is unknown: the next claim with the same body takes over at once, with the same resource id."""
        ...

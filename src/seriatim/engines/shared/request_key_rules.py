"""The rules of request keys in every engine: pure functions of a row and a request (W22)."""

import msgspec

from seriatim.domain import limits
from seriatim.ports.request_keys import Claimed, Taken


class RequestRow(msgspec.Struct, frozen=True, kw_only=True):
    """A key in use. Without `status_code` a request works on it since `claimed_at_ms`, or has abandoned it."""

    body_hash: str
    resource_id: str
    claimed_at_ms: int
    expires_at_ms: int
    status_code: int | None = None
    abandoned: bool = False


def claimed(
    row: RequestRow | None, *, body_hash: str, resource_id: str, now_ms: int
) -> tuple[Claimed, RequestRow] | Taken:
    """A successful claim comes with the row to write."""
    if row is None or row.expires_at_ms <= now_ms:
        fresh = RequestRow(
            body_hash=body_hash,
            resource_id=resource_id,
            claimed_at_ms=now_ms,
            expires_at_ms=now_ms + 1000 * limits.REQUEST_KEY_LIFETIME_S,
        )
        return Claimed(resource_id, resumed=False), fresh
    if row.body_hash == body_hash and _is_abandoned(row, now_ms):
        # The lifetime goes on: it counts from the first claim.
        taken_over = msgspec.structs.replace(row, claimed_at_ms=now_ms, abandoned=False)
        return Claimed(row.resource_id, resumed=True), taken_over
    return Taken(body_hash=row.body_hash, resource_id=row.resource_id, status_code=row.status_code)


def is_open(row: RequestRow) -> bool:
    """Whether its outcome may still be stored; a known one is final."""
    return row.status_code is None


def finished(row: RequestRow, status_code: int) -> RequestRow:
    return msgspec.structs.replace(row, status_code=status_code)


def abandoned(row: RequestRow) -> RequestRow:
    return msgspec.structs.replace(row, abandoned=True)


def _is_abandoned(row: RequestRow, now_ms: int) -> bool:
    return is_open(row) and (row.abandoned or now_ms - row.claimed_at_ms > 1000 * limits.REQUEST_CLAIM_S)

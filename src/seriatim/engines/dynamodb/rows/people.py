"""Rows of `users`, `otp_requests`, `sessions` and `api_idempotency` (docs/spec/data.md#tables).

Among the users are sentinels, one for each phone: their key is made of its hash, and they hold no number.
"""

import msgspec

from seriatim.domain.account import Code, Session, Spent, User, phone_hash
from seriatim.domain.times import iso, milliseconds
from seriatim.engines.dynamodb.rows.attributes import TRUE, B, Bool, N, RowDecoder, S, TextOrNull, n, text_or_null
from seriatim.engines.shared.account_rules import code_kept_until_ms
from seriatim.engines.shared.request_key_rules import RequestRow

PENDING, VERIFIED = "pending", "verified"
CLAIMED, DONE = "claimed", "done"


class UserItem(msgspec.Struct, frozen=True, kw_only=True):
    user_id: S
    phone_number: S
    phone_verified: Bool
    display_name: TextOrNull
    created_at: S
    updated_at: S


def user_item(user: User) -> UserItem:
    return UserItem(
        user_id=S(user.user_id),
        phone_number=S(user.phone_number),
        phone_verified=TRUE,
        display_name=text_or_null(user.display_name),
        created_at=S(user.created_at),
        updated_at=S(user.updated_at),
    )


def user_from(item: UserItem) -> User:
    return User(
        user_id=item.user_id.S,
        phone_number=item.phone_number.S,
        display_name=item.display_name.S,
        created_at=item.created_at.S,
        updated_at=item.updated_at.S,
    )


class PhoneItem(msgspec.Struct, frozen=True, kw_only=True):
    user_id: S
    canonical_user_id: S
    created_at: S


def phone_item(user: User) -> PhoneItem:
    return PhoneItem(
        user_id=S(phone_key(phone_hash(user.phone_number))),
        canonical_user_id=S(user.user_id),
        created_at=S(user.created_at),
    )


def phone_key(hashed: str) -> str:
    """No user has such an id: ids have no `#`."""
    return f"PHONE#{hashed}"


class CodeItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    phone_hash: S
    otp_mac: S
    created_at: S
    expires_at: S
    attempt_count: N
    status: S
    ttl: N
    otp_ciphertext: B | None = None
    session_id: S | None = None
    device_id: S | None = None
    is_new_user: Bool | None = None


def code_item(code: Code) -> CodeItem:
    """Of a code that was not used yet: using it is an update."""
    return CodeItem(
        phone_hash=S(code.phone_hash),
        otp_mac=S(code.mac),
        created_at=S(iso(code.created_at_ms)),
        expires_at=S(iso(code.expires_at_ms)),
        attempt_count=n(code.attempts),
        status=S(PENDING),
        ttl=seconds_up(code_kept_until_ms(code)),
        otp_ciphertext=None if code.sealed is None else B(code.sealed),
    )


def code_from(item: CodeItem) -> Code:
    spent = None
    if item.session_id is not None and item.device_id is not None and item.is_new_user is not None:
        spent = Spent(session_id=item.session_id.S, device_id=item.device_id.S, is_new_user=item.is_new_user.BOOL)
    return Code(
        phone_hash=item.phone_hash.S,
        mac=item.otp_mac.S,
        sealed=None if item.otp_ciphertext is None else item.otp_ciphertext.B,
        created_at_ms=milliseconds(item.created_at.S),
        expires_at_ms=milliseconds(item.expires_at.S),
        attempts=int(item.attempt_count.N),
        spent=spent,
    )


class SessionItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    session_id: S
    user_id: S
    device_id: S
    refresh_token_hash: S
    token_generation: N
    created_at: S
    expires_at: S
    last_active_at: S
    ttl: N
    prev_token_hash: S | None = None
    rotated_at: S | None = None


def session_item(session: Session) -> SessionItem:
    return SessionItem(
        session_id=S(session.session_id),
        user_id=S(session.user_id),
        device_id=S(session.device_id),
        refresh_token_hash=S(session.refresh_digest),
        token_generation=n(session.generation),
        created_at=S(iso(session.created_at_ms)),
        expires_at=S(iso(session.expires_at_ms)),
        last_active_at=S(iso(session.last_active_at_ms)),
        ttl=seconds_up(session.expires_at_ms),
        prev_token_hash=None if session.previous_digest is None else S(session.previous_digest),
        rotated_at=None if session.rotated_at_ms is None else S(iso(session.rotated_at_ms)),
    )


def session_from(item: SessionItem) -> Session:
    return Session(
        session_id=item.session_id.S,
        user_id=item.user_id.S,
        device_id=item.device_id.S,
        refresh_digest=item.refresh_token_hash.S,
        generation=int(item.token_generation.N),
        created_at_ms=milliseconds(item.created_at.S),
        expires_at_ms=milliseconds(item.expires_at.S),
        last_active_at_ms=milliseconds(item.last_active_at.S),
        previous_digest=None if item.prev_token_hash is None else item.prev_token_hash.S,
        rotated_at_ms=None if item.rotated_at is None else milliseconds(item.rotated_at.S),
    )


class RequestItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    scope: S
    idem_key: S
    body_hash: S
    state: S
    resource_id: S
    claimed_at: S
    expires_at: S
    ttl: N
    status_code: N | None = None
    is_abandoned: Bool | None = None


def request_item(scope: str, key: str, row: RequestRow) -> RequestItem:
    """Of a new claim: its later states are updates."""
    return RequestItem(
        scope=S(scope),
        idem_key=S(key),
        body_hash=S(row.body_hash),
        state=S(CLAIMED),
        resource_id=S(row.resource_id),
        claimed_at=S(iso(row.claimed_at_ms)),
        expires_at=S(iso(row.expires_at_ms)),
        ttl=seconds_up(row.expires_at_ms),
    )


def request_from(item: RequestItem) -> RequestRow:
    return RequestRow(
        body_hash=item.body_hash.S,
        resource_id=item.resource_id.S,
        claimed_at_ms=milliseconds(item.claimed_at.S),
        expires_at_ms=milliseconds(item.expires_at.S),
        status_code=None if item.status_code is None else int(item.status_code.N),
        abandoned=item.is_abandoned is not None,
    )


def seconds_up(ms: int) -> N:
    """When the store may remove a row: never before its time."""
    return n(-(-ms // 1000))


USER = RowDecoder(UserItem)
PHONE = RowDecoder(PhoneItem)
CODE = RowDecoder(CodeItem)
SESSION = RowDecoder(SessionItem)
REQUEST = RowDecoder(RequestItem)

"""The rules of codes and sessions in every engine: pure functions of rows (W14-W18).

Secrets are compared in constant time here too, although only digests and MACs are compared.
"""

import msgspec

from seriatim.domain import limits
from seriatim.domain.account import Code, Session, Spent, User, phone_hash
from seriatim.domain.errors import AlreadyExists, InternalError, InvalidOtp, UserNotFound
from seriatim.domain.times import iso
from seriatim.domain.tokens import digests_equal

# --- codes ------------------------------------------------------------------------------------------------------------


def is_pending(code: Code, now_ms: int) -> bool:
    return code.spent is None and code.expires_at_ms > now_ms


def tried(code: Code | None, now_ms: int) -> Code | None:
    """The code after one more try; None when it takes no more."""
    if code is None or code.expires_at_ms <= now_ms or code.attempts >= limits.CODE_ATTEMPTS_MAX:
        return None
    return msgspec.structs.replace(code, attempts=code.attempts + 1)


def spent(code: Code | None, mac: str, session: Session, new_user: User | None, now_ms: int) -> Code:
    """The code after the sign-in. It remembers what it became, for a retry that lost its answer."""
    if code is None or not is_pending(code, now_ms) or not digests_equal(code.mac, mac):
        raise invalid_otp()
    became = Spent(session_id=session.session_id, device_id=session.device_id, is_new_user=new_user is not None)
    return msgspec.structs.replace(code, spent=became)


def code_kept_until_ms(code: Code) -> int:
    return code.expires_at_ms + 1000 * limits.CODE_KEPT_S


# --- sessions ---------------------------------------------------------------------------------------------------------


def rotated(session: Session | None, *, old: str, new: str, now_ms: int) -> Session | None:
    """None when the session is gone, has expired, or has another digest by now."""
    if session is None or session.expires_at_ms <= now_ms or not digests_equal(session.refresh_digest, old):
        return None
    return msgspec.structs.replace(
        session,
        refresh_digest=new,
        previous_digest=old,
        rotated_at_ms=now_ms,
        generation=session.generation + 1,
        last_active_at_ms=max(session.last_active_at_ms, now_ms),
    )


def reissued(session: Session | None, *, digest: str, now_ms: int) -> Session | None:
    """Without a previous digest: the token of the answer that was lost is plainly invalid, and no sign of a theft."""
    if session is None or session.expires_at_ms <= now_ms:
        return None
    return msgspec.structs.replace(
        session,
        refresh_digest=digest,
        previous_digest=None,
        rotated_at_ms=None,
        generation=session.generation + 1,
        last_active_at_ms=max(session.last_active_at_ms, now_ms),
    )


def touched(session: Session | None, now_ms: int) -> Session | None:
    """None when there is nothing to write."""
    if session is None or session.last_active_at_ms >= now_ms:
        return None
    return msgspec.structs.replace(session, last_active_at_ms=now_ms)


def age(session: Session) -> tuple[int, str]:
    """Sorts sessions, the oldest first."""
    return session.created_at_ms, session.session_id


# --- users ------------------------------------------------------------------------------------------------------------


def renamed(user: User | None, display_name: str, now_ms: int) -> User:
    if user is None:
        raise UserNotFound("there is no such user")
    return msgspec.structs.replace(user, display_name=display_name, updated_at=iso(now_ms))


# --- refusals ---------------------------------------------------------------------------------------------------------


def invalid_otp() -> InvalidOtp:
    """One text for every cause: a guesser learns nothing from it."""
    return InvalidOtp("this code is wrong, expired or used; ask for a new one")


def session_taken() -> AlreadyExists:
    return AlreadyExists("this session id is taken; make another one")


def user_taken() -> AlreadyExists:
    return AlreadyExists("this user id is taken; make another one")


def check_sign_in(code_of: str, session: Session, new_user: User | None) -> None:
    """Arguments that only a bug can produce, checked before any row is read."""
    if new_user is None:
        return
    if new_user.user_id != session.user_id or phone_hash(new_user.phone_number) != code_of:
        raise InternalError("sign_in: the code, the session and the new user are not one person's")

"""The authority for people, one-time codes and sessions (W13-W19)."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from seriatim.domain.account import Code, Session, User


class Sessions(Protocol):
    """All that a gateway may ask of this authority."""

    async def session(self, session_id: str, *, timeout_s: float) -> Session | None:
        """The session as of now, expired or not; None when there is none, or it was revoked.

        What has expired is removed some time later.
        """
        ...


class Accounts(Sessions, Protocol):
    """A refused change raises the reason and leaves every row as it was."""

    # --- codes --------------------------------------------------------------------------------------------------------

    async def issue_code(self, code: Code, *, now_ms: int, timeout_s: float) -> Code:
        """At most one pending code per phone. Returns the phone's pending code: this one, or the first."""
        ...

    async def code(self, phone_hash: str, *, timeout_s: float) -> Code | None:
        """The phone's last code as of now, pending, spent or expired. It is kept until `CODE_KEPT_S` after its end."""
        ...

    async def count_attempt(self, phone_hash: str, *, now_ms: int, timeout_s: float) -> bool:
        """Counts one try at the phone's code, a spent one too.

        False, and nothing counted, when there is none, it has expired or `CODE_ATTEMPTS_MAX` tries are used up.
        """
        ...

    async def sign_in(
        self,
        phone_hash: str,
        mac: str,
        session: Session,
        new_user: User | None,
        *,
        replaces: Sequence[str] = (),
        now_ms: int,
        timeout_s: float,
    ) -> None:
        """Spends the pending code and creates the session, and the user if one is given: all or nothing.

        The sessions of these ids that it `replaces` are gone with it, and stay if it is refused. Raises `InvalidOtp`
        when the code is not pending, expired or another one, or when the phone has another user by now. A taken session
        or user id raises `AlreadyExists`.
        """
        ...

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def sessions_of(self, user_id: str, *, timeout_s: float) -> Sequence[Session]:
        """The user's sessions, oldest first, expired ones too. May lag behind."""
        ...

    async def open_session(self, session: Session, *, replaces: Sequence[str] = (), timeout_s: float) -> None:
        """A session without a code, for operators. A taken id raises `AlreadyExists`.

        The sessions of these ids that it `replaces` are gone with it, and stay if it is refused.
        """
        ...

    async def rotate(self, session_id: str, *, old: str, new: str, now_ms: int, timeout_s: float) -> bool:
        """Replaces the refresh digest if it is still `old` and the session is not expired; `old` becomes the previous
        one.

        Says whether it did. Of two that rotate the same digest one wins.
        """
        ...

    async def reissue(self, session_id: str, *, digest: str, now_ms: int, timeout_s: float) -> bool:
        """Replaces the refresh digest whatever it is, and forgets the previous one.

        False when the session is gone or has expired.
        """
        ...

    async def touch(self, session_id: str, *, now_ms: int, timeout_s: float) -> None:
        """The session was used at `now_ms`. A session that is gone stays gone."""
        ...

    async def revoke(self, session_id: str, *, timeout_s: float) -> None:
        """Once it returns, the session is not found any more. Revoking twice is fine."""
        ...

    # --- users --------------------------------------------------------------------------------------------------------

    async def add_user(self, user: User, *, timeout_s: float) -> str:
        """One user per phone, for ever. Returns the id of the phone's user: this one, or the first.

        An id that another phone's user has raises `AlreadyExists`.
        """
        ...

    async def users(self, user_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, User]:
        """Those of them that exist, as of now."""
        ...

    async def users_by_phone(self, phone_numbers: Sequence[str], *, timeout_s: float) -> Mapping[str, str]:
        """The ids of the users with one of these numbers, by number, as of now."""
        ...

    async def rename_user(self, user_id: str, display_name: str, *, now_ms: int, timeout_s: float) -> User:
        """Returns the user as changed. An unknown user raises `UserNotFound`."""
        ...

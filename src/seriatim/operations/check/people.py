"""Users, phones, sessions and codes: R15, R16, R18, and the index of sessions (D5)."""

import re
from collections.abc import Callable, Sequence
from functools import partial

from seriatim.domain import limits
from seriatim.domain.account import Code, Session, User, phone_hash
from seriatim.operations.check.findings import Findings
from seriatim.ports.inspection import StoredRows

_DIGEST = re.compile("[0-9a-f]{64}")
_SEALED_BYTES_MIN = 28  # a nonce and an authentication tag; a code in clear has six digits


class PeopleCheck:
    def __init__(self, store: StoredRows, findings: Findings, now_ms: Callable[[], int]) -> None:
        self._rows = store
        self._findings = findings
        self._now_ms = now_ms

    async def run(self) -> None:
        await self._sessions_by_user()
        async for session in self._rows.sessions():
            self._findings.row()
            await self._session(session)
        async for code in self._rows.codes():
            self._findings.row()
            self._code(code)
        async for phone in self._rows.phones():
            self._findings.row()
            self._findings.examined("R16")
            user = await self._rows.user(phone.user_id)
            if user is None or phone_hash(user.phone_number) != phone.phone_hash:
                kind = "who is not there" if user is None else "who has another one"
                self._findings.violated("R16", phone.user_id, f"a phone number belongs to this user, {kind}")
        async for user in self._rows.users():
            self._findings.row()
            await self._user(user)

    async def _sessions_by_user(self) -> None:
        user_id, sessions = "", list[Session]()
        async for row in self._rows.user_sessions():
            self._findings.row()
            self._findings.examined("D5")
            if row.user_id != user_id:
                await self._check_session_count(user_id, sessions)
                user_id, sessions = row.user_id, []
            session = await self._rows.session(row.session_id)
            if session is None or session.user_id != row.user_id:
                recheck = partial(self._index_row_without_source, row.user_id, row.session_id)
                await self._findings.confirm("D5", f"{row.user_id} {row.session_id}", recheck)
            else:
                sessions.append(session)
        await self._check_session_count(user_id, sessions)

    async def _check_session_count(self, user_id: str, sessions: Sequence[Session]) -> None:
        if not user_id:
            return
        self._findings.examined("R15")
        if self._too_many_sessions(sessions):
            await self._findings.confirm("R15", user_id, partial(self._still_too_many_sessions, sessions))

    async def _still_too_many_sessions(self, sessions: Sequence[Session]) -> str | None:
        """Sessions begin and end while they are read: not all of these may have lived at the same time."""
        found = [await self._rows.session(each.session_id) for each in sessions]
        return self._too_many_sessions([each for each in found if each is not None])

    def _too_many_sessions(self, sessions: Sequence[Session]) -> str | None:
        devices = [each.device_id for each in sessions if each.expires_at_ms > self._now_ms()]
        if len(devices) > limits.SESSIONS_PER_USER_MAX:
            return f"{len(devices)} living sessions; {limits.SESSIONS_PER_USER_MAX} are allowed"
        return "two living sessions of one device" if len(set(devices)) < len(devices) else None

    async def _index_row_without_source(self, user_id: str, session_id: str) -> str | None:
        session = await self._rows.session(session_id)
        is_theirs = session is not None and session.user_id == user_id
        if is_theirs or not await self._rows.has_user_session(user_id, session_id):
            return None
        return "the user's list names a session that is not theirs"

    async def _missing_index_row(self, user_id: str, session_id: str) -> str | None:
        if await self._rows.has_user_session(user_id, session_id) or not await self._rows.session(session_id):
            return None
        return "the user's list does not name this session of theirs"

    async def _session(self, session: Session) -> None:
        self._findings.examined("R18", "D5")
        if not await self._rows.has_user_session(session.user_id, session.session_id):
            recheck = partial(self._missing_index_row, session.user_id, session.session_id)
            await self._findings.confirm("D5", f"{session.user_id} {session.session_id}", recheck)
        # What it is instead is not shown: it may be the secret itself.
        digests = [session.refresh_digest, *([session.previous_digest] if session.previous_digest is not None else [])]
        if not all(map(_DIGEST.fullmatch, digests)):
            self._findings.violated("R18", session.session_id, "what is stored of a refresh token is no digest")

    def _code(self, code: Code) -> None:
        self._findings.examined("R18")
        subject = f"code of phone {code.phone_hash[:8]}"
        if _DIGEST.fullmatch(code.mac) is None:
            self._findings.violated("R18", subject, "what is stored of a one-time code is no MAC")
        if code.sealed is not None and len(code.sealed) < _SEALED_BYTES_MIN:
            self._findings.violated("R18", subject, "a one-time code is stored, and too short to be sealed")

    async def _user(self, user: User) -> None:
        self._findings.examined("R16")
        owner = await self._rows.phone(phone_hash(user.phone_number))
        if owner != user.user_id:
            whose = "no user" if owner is None else owner
            self._findings.violated("R16", user.user_id, f"their phone number belongs to {whose}")

"""Stores of people and request keys that break one promise each, on purpose."""

import copy
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from seriatim.domain.account import Code, Session, User, phone_hash
from seriatim.domain.errors import AlreadyExists, InvalidOtp, UserNotFound
from seriatim.domain.times import iso
from seriatim.engines.inprocess.wire import Wire
from seriatim.engines.shared.account_rules import rotated
from seriatim.ports.accounts import Accounts, Sessions
from seriatim.ports.request_keys import RequestKeys
from seriatim.simulation.stores.accounts import MemoryAccounts, MemorySessions
from seriatim.simulation.stores.request_keys import MemoryRequestKeys
from tests.contract.store_engines import MemoryEngine

T = TypeVar("T")


class BrokenEngine(MemoryEngine):
    """A memory engine with one class replaced by a broken heir."""

    def __init__(
        self,
        *,
        accounts: type[MemoryAccounts] = MemoryAccounts,
        sessions: type[MemorySessions] = MemorySessions,
        request_keys: type[MemoryRequestKeys] = MemoryRequestKeys,
    ) -> None:
        super().__init__()
        self._accounts, self._sessions, self._request_keys = accounts, sessions, request_keys

    def accounts(self) -> Accounts:
        return self._accounts(self.store, self.wire)

    def sessions(self) -> Sessions:
        return self._sessions(self.store, self.wire)

    def request_keys(self) -> RequestKeys:
        return self._request_keys(self.store, self.wire)


class AnswersBeforeDurable(MemoryEngine):
    """What the last call of one kind wrote is still in a cache when the process dies."""

    def __init__(self, operation: str) -> None:
        super().__init__()
        self.wire = _CachingWire(self, operation)
        self.cached = self.store

    async def reopen(self) -> None:
        self.store = self.cached


class _CachingWire(Wire):
    def __init__(self, engine: AnswersBeforeDurable, operation: str) -> None:
        self._engine = engine
        self._operation = operation

    async def call(
        self, operation: str, apply: Callable[[], T], *, timeout_s: float, finish: Callable[[], None] | None = None
    ) -> T:
        if operation == self._operation:
            self._engine.cached = copy.deepcopy(self._engine.store)
        return await super().call(operation, apply, timeout_s=timeout_s, finish=finish)


# --- codes ------------------------------------------------------------------------------------------------------------


class ReplacesAPendingCode(MemoryAccounts):
    async def issue_code(self, code: Code, *, now_ms: int, timeout_s: float) -> Code:
        self._rows.codes.drop(code.phone_hash)
        return await super().issue_code(code, now_ms=now_ms, timeout_s=timeout_s)


class ForgetsASpentCode(MemoryAccounts):
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
        await super().sign_in(phone_hash, mac, session, new_user, replaces=replaces, now_ms=now_ms, timeout_s=timeout_s)
        self._rows.codes.drop(phone_hash)


class CountsTriesInTwoSteps(MemoryAccounts):
    async def count_attempt(self, phone_hash: str, *, now_ms: int, timeout_s: float) -> bool:
        before = await self.code(phone_hash, timeout_s=timeout_s)
        counted = await super().count_attempt(phone_hash, now_ms=now_ms, timeout_s=timeout_s)
        if before is not None and counted:
            self._rows.codes.change(phone_hash, msgspec.structs.replace(before, attempts=before.attempts + 1))
        return counted


class CountsTriesAtAnExpiredCode(MemoryAccounts):
    async def count_attempt(self, phone_hash: str, *, now_ms: int, timeout_s: float) -> bool:
        return await super().count_attempt(phone_hash, now_ms=0, timeout_s=timeout_s)


# --- signing in -------------------------------------------------------------------------------------------------------


class SignsInStepByStep(MemoryAccounts):
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
        await super().sign_in(phone_hash, mac, session, None, replaces=replaces, now_ms=now_ms, timeout_s=timeout_s)
        if new_user is not None:
            await self.add_user(new_user, timeout_s=timeout_s)


class LeavesTheCodePending(MemoryAccounts):
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
        before = self._rows.codes.get(phone_hash)
        await super().sign_in(phone_hash, mac, session, new_user, replaces=replaces, now_ms=now_ms, timeout_s=timeout_s)
        if before is not None:
            self._rows.codes.change(phone_hash, before)


class TakesAnyCode(MemoryAccounts):
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
        code = self._rows.codes.get(phone_hash)
        right = code.mac if code else mac
        await super().sign_in(
            phone_hash, right, session, new_user, replaces=replaces, now_ms=now_ms, timeout_s=timeout_s
        )


class TakesAnExpiredCode(MemoryAccounts):
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
        await super().sign_in(phone_hash, mac, session, new_user, replaces=replaces, now_ms=0, timeout_s=timeout_s)


class SpendsBeforeItRefuses(MemoryAccounts):
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
        try:
            await super().sign_in(
                phone_hash, mac, session, new_user, replaces=replaces, now_ms=now_ms, timeout_s=timeout_s
            )
        except (AlreadyExists, InvalidOtp):
            code = self._rows.codes.get(phone_hash)
            if code is not None:
                self._rows.codes.change(phone_hash, msgspec.structs.replace(code, attempts=code.attempts + 1))
            raise


class TakesAPhoneTwice(MemoryAccounts):
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
        self._rows.phones.pop(phone_hash, None)
        await super().sign_in(phone_hash, mac, session, new_user, replaces=replaces, now_ms=now_ms, timeout_s=timeout_s)


class EndsWhatItReplacesFirst(MemoryAccounts):
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
        for session_id in replaces:
            await self.revoke(session_id, timeout_s=timeout_s)
        await super().sign_in(phone_hash, mac, session, new_user, now_ms=now_ms, timeout_s=timeout_s)


class KeepsWhatASignInReplaces(MemoryAccounts):
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
        await super().sign_in(phone_hash, mac, session, new_user, now_ms=now_ms, timeout_s=timeout_s)


# --- sessions ---------------------------------------------------------------------------------------------------------


class OpensASessionTwice(MemoryAccounts):
    async def open_session(self, session: Session, *, replaces: Sequence[str] = (), timeout_s: float) -> None:
        self._rows.sessions.drop(session.session_id)
        await super().open_session(session, replaces=replaces, timeout_s=timeout_s)


class KeepsWhatAnOpenedSessionReplaces(MemoryAccounts):
    async def open_session(self, session: Session, *, replaces: Sequence[str] = (), timeout_s: float) -> None:
        await super().open_session(session, timeout_s=timeout_s)


class ListsTheNewestFirst(MemoryAccounts):
    async def sessions_of(self, user_id: str, *, timeout_s: float) -> list[Session]:
        return list(await super().sessions_of(user_id, timeout_s=timeout_s))[::-1]


class RotatesAnyDigest(MemoryAccounts):
    async def rotate(self, session_id: str, *, old: str, new: str, now_ms: int, timeout_s: float) -> bool:
        session = self._rows.sessions.get(session_id)
        current = session.refresh_digest if session else old
        return await super().rotate(session_id, old=current, new=new, now_ms=now_ms, timeout_s=timeout_s)


class RotatesInTwoSteps(MemoryAccounts):
    async def rotate(self, session_id: str, *, old: str, new: str, now_ms: int, timeout_s: float) -> bool:
        session = await self.session(session_id, timeout_s=timeout_s)
        changed = rotated(session, old=old, new=new, now_ms=now_ms)
        if changed is None:
            return False
        await self._wire.call("rotate", lambda: self._rows.sessions.change(session_id, changed), timeout_s=timeout_s)
        return True


class RotatesAnExpiredSession(MemoryAccounts):
    async def rotate(self, session_id: str, *, old: str, new: str, now_ms: int, timeout_s: float) -> bool:
        session = self._rows.sessions.get(session_id)
        in_time = min(now_ms, session.expires_at_ms - 1) if session else now_ms
        return await super().rotate(session_id, old=old, new=new, now_ms=in_time, timeout_s=timeout_s)


class ReissueKeepsThePreviousDigest(MemoryAccounts):
    async def reissue(self, session_id: str, *, digest: str, now_ms: int, timeout_s: float) -> bool:
        before = self._rows.sessions.get(session_id)
        done = await super().reissue(session_id, digest=digest, now_ms=now_ms, timeout_s=timeout_s)
        after = self._rows.sessions.get(session_id)
        if before is not None and after is not None and done:
            kept = msgspec.structs.replace(after, previous_digest=before.refresh_digest)
            self._rows.sessions.change(session_id, kept)
        return done


class TouchBringsBack(MemoryAccounts):
    async def touch(self, session_id: str, *, now_ms: int, timeout_s: float) -> None:
        seen = self._rows.sessions.get(session_id)
        await super().touch(session_id, now_ms=now_ms, timeout_s=timeout_s)
        if seen is not None:
            touched = msgspec.structs.replace(seen, last_active_at_ms=max(seen.last_active_at_ms, now_ms))
            self._rows.sessions.change(session_id, touched)


class RevokesOnlyForTheList(MemoryAccounts):
    """The row stays, where no list of sessions shows it."""

    async def revoke(self, session_id: str, *, timeout_s: float) -> None:
        session = self._rows.sessions.get(session_id)
        await super().revoke(session_id, timeout_s=timeout_s)
        if session is not None:
            self._rows.sessions.change(session_id, msgspec.structs.replace(session, user_id="unknown"))


# --- users ------------------------------------------------------------------------------------------------------------


class AddsASecondUser(MemoryAccounts):
    async def add_user(self, user: User, *, timeout_s: float) -> str:
        self._rows.phones.pop(phone_hash(user.phone_number), None)
        return await super().add_user(user, timeout_s=timeout_s)


class GivesAnIdAway(MemoryAccounts):
    async def add_user(self, user: User, *, timeout_s: float) -> str:
        if phone_hash(user.phone_number) not in self._rows.phones:
            self._rows.users.pop(user.user_id, None)
        return await super().add_user(user, timeout_s=timeout_s)


class RenamesIntoBeing(MemoryAccounts):
    async def rename_user(self, user_id: str, display_name: str, *, now_ms: int, timeout_s: float) -> User:
        try:
            return await super().rename_user(user_id, display_name, now_ms=now_ms, timeout_s=timeout_s)
        except UserNotFound:
            at = iso(now_ms)
            self._rows.users[user_id] = User(
                user_id=user_id, phone_number="", display_name=display_name, created_at=at, updated_at=at
            )
            raise

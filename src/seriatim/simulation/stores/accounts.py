"""`Accounts` and `Sessions` in memory: the conditions of W13-W19, checked where the rows are written."""

from collections.abc import Callable, Mapping, Sequence

from seriatim.domain.account import Code, Session, User, phone_hash
from seriatim.engines.inprocess.wire import Wire
from seriatim.engines.shared import account_rules as rules
from seriatim.ports.accounts import Accounts, Sessions
from seriatim.simulation.stores.tables import MemoryStore


class MemorySessions(Sessions):
    """A gateway's handle: it has nothing to write with."""

    def __init__(self, store: MemoryStore, wire: Wire) -> None:
        self._rows = store.accounts
        self._wire = wire

    async def session(self, session_id: str, *, timeout_s: float) -> Session | None:
        rows = self._rows
        return await self._wire.call("session", lambda: rows.sessions.get(session_id), timeout_s=timeout_s)


class MemoryAccounts(MemorySessions, Accounts):
    """One process's handle on the accounts of a `MemoryStore`."""

    async def issue_code(self, code: Code, *, now_ms: int, timeout_s: float) -> Code:
        rows = self._rows

        def apply() -> Code:
            first = rows.codes.get(code.phone_hash)
            if first is not None and rules.is_pending(first, now_ms):
                return first
            rows.codes.add(code.phone_hash, code, now_ms)
            return code

        return await self._wire.call("issue_code", apply, timeout_s=timeout_s)

    async def code(self, phone_hash: str, *, timeout_s: float) -> Code | None:
        return await self._wire.call("code", lambda: self._rows.codes.get(phone_hash), timeout_s=timeout_s)

    async def count_attempt(self, phone_hash: str, *, now_ms: int, timeout_s: float) -> bool:
        rows = self._rows

        def apply() -> bool:
            tried = rules.tried(rows.codes.get(phone_hash), now_ms)
            if tried is not None:
                rows.codes.change(phone_hash, tried)
            return tried is not None

        return await self._wire.call("count_attempt", apply, timeout_s=timeout_s)

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
        rows = self._rows
        rules.check_sign_in(phone_hash, session, new_user)

        def apply() -> None:
            spent = rules.spent(rows.codes.get(phone_hash), mac, session, new_user, now_ms)
            if new_user is not None and phone_hash in rows.phones:
                raise rules.invalid_otp()
            if new_user is not None and new_user.user_id in rows.users:
                raise rules.user_taken()
            self._check_new(session)
            rows.codes.change(phone_hash, spent)
            if new_user is not None:
                rows.put_user(new_user, phone_hash)
            rows.sessions.add(session.session_id, session, now_ms)
            self._drop_all(replaces)

        await self._wire.call("sign_in", apply, timeout_s=timeout_s)

    async def sessions_of(self, user_id: str, *, timeout_s: float) -> Sequence[Session]:
        rows = self._rows

        def read() -> Sequence[Session]:
            return sorted([each for each in rows.sessions if each.user_id == user_id], key=rules.age)

        return await self._wire.call("sessions_of", read, timeout_s=timeout_s)

    async def open_session(self, session: Session, *, replaces: Sequence[str] = (), timeout_s: float) -> None:
        rows = self._rows

        def apply() -> None:
            self._check_new(session)
            rows.sessions.add(session.session_id, session, session.created_at_ms)
            self._drop_all(replaces)

        await self._wire.call("open_session", apply, timeout_s=timeout_s)

    async def rotate(self, session_id: str, *, old: str, new: str, now_ms: int, timeout_s: float) -> bool:
        def rotated(session: Session | None) -> Session | None:
            return rules.rotated(session, old=old, new=new, now_ms=now_ms)

        return await self._change("rotate", session_id, rotated, timeout_s)

    async def reissue(self, session_id: str, *, digest: str, now_ms: int, timeout_s: float) -> bool:
        def reissued(session: Session | None) -> Session | None:
            return rules.reissued(session, digest=digest, now_ms=now_ms)

        return await self._change("reissue", session_id, reissued, timeout_s)

    async def touch(self, session_id: str, *, now_ms: int, timeout_s: float) -> None:
        await self._change("touch", session_id, lambda session: rules.touched(session, now_ms), timeout_s)

    async def revoke(self, session_id: str, *, timeout_s: float) -> None:
        await self._wire.call("revoke", lambda: self._rows.sessions.drop(session_id), timeout_s=timeout_s)

    async def add_user(self, user: User, *, timeout_s: float) -> str:
        rows, phone = self._rows, phone_hash(user.phone_number)

        def apply() -> str:
            first = rows.phones.get(phone)
            if first is not None:
                return first
            if user.user_id in rows.users:
                raise rules.user_taken()
            rows.put_user(user, phone)
            return user.user_id

        return await self._wire.call("add_user", apply, timeout_s=timeout_s)

    async def users(self, user_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, User]:
        rows = self._rows

        def read() -> Mapping[str, User]:
            return {each: rows.users[each] for each in user_ids if each in rows.users}

        return await self._wire.call("users", read, timeout_s=timeout_s)

    async def users_by_phone(self, phone_numbers: Sequence[str], *, timeout_s: float) -> Mapping[str, str]:
        rows, hashes = self._rows, {each: phone_hash(each) for each in phone_numbers}

        def read() -> Mapping[str, str]:
            return {number: rows.phones[phone] for number, phone in hashes.items() if phone in rows.phones}

        return await self._wire.call("users_by_phone", read, timeout_s=timeout_s)

    async def rename_user(self, user_id: str, display_name: str, *, now_ms: int, timeout_s: float) -> User:
        rows = self._rows

        def apply() -> User:
            renamed = rules.renamed(rows.users.get(user_id), display_name, now_ms)
            rows.users[user_id] = renamed
            return renamed

        return await self._wire.call("rename_user", apply, timeout_s=timeout_s)

    def _drop_all(self, session_ids: Sequence[str]) -> None:
        for session_id in session_ids:
            self._rows.sessions.drop(session_id)

    def _check_new(self, session: Session) -> None:
        if self._rows.sessions.get(session.session_id) is not None:
            raise rules.session_taken()

    async def _change(
        self, operation: str, session_id: str, rule: Callable[[Session | None], Session | None], timeout_s: float
    ) -> bool:
        """Whether the rule had something to write."""
        rows = self._rows

        def apply() -> bool:
            changed = rule(rows.sessions.get(session_id))
            if changed is not None:
                rows.sessions.change(session_id, changed)
            return changed is not None

        return await self._wire.call(operation, apply, timeout_s=timeout_s)

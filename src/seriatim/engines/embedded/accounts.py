"""`Accounts` and `Sessions` in the data folder: the conditions of W13-W19, checked where rows are written.

Of a code there is a MAC and perhaps a ciphertext, of a refresh token a digest; the keys to them are elsewhere.
"""

from collections.abc import Callable, Mapping, Sequence

from seriatim.domain.account import Code, Session, User, phone_hash
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.storage.snapshot import ReadSnapshot, WriteTransaction
from seriatim.engines.shared import account_rules as rules
from seriatim.ports.accounts import Accounts, Sessions


class EmbeddedSessions(Sessions):
    """A gateway's handle: it has nothing to write with."""

    def __init__(self, folder: Folder) -> None:
        self._writer = folder.writer

    async def session(self, session_id: str, *, timeout_s: float) -> Session | None:
        key = rows.session_key(session_id)
        return await self._writer.read(
            "session", lambda snapshot: rows.SESSION.found(snapshot.get(key)), timeout_s=timeout_s
        )


class EmbeddedAccounts(EmbeddedSessions, Accounts):
    """A handle on the people of a folder."""

    async def issue_code(self, code: Code, *, now_ms: int, timeout_s: float) -> Code:
        key = rows.code_key(code.phone_hash)

        def decide(transaction: WriteTransaction) -> Code:
            first = rows.CODE.found(transaction.get(key))
            if first is not None and rules.is_pending(first, now_ms):
                return first
            transaction.put(key, rows.CODE.encode(code))
            return code

        return await self._writer.commit("issue_code", decide, timeout_s=timeout_s)

    async def code(self, phone_hash: str, *, timeout_s: float) -> Code | None:
        key = rows.code_key(phone_hash)
        return await self._writer.read("code", lambda snapshot: rows.CODE.found(snapshot.get(key)), timeout_s=timeout_s)

    async def count_attempt(self, phone_hash: str, *, now_ms: int, timeout_s: float) -> bool:
        key = rows.code_key(phone_hash)

        def decide(transaction: WriteTransaction) -> bool:
            tried = rules.tried(rows.CODE.found(transaction.get(key)), now_ms)
            if tried is not None:
                transaction.put(key, rows.CODE.encode(tried))
            return tried is not None

        return await self._writer.commit("count_attempt", decide, timeout_s=timeout_s)

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
        code_key = rows.code_key(phone_hash)
        rules.check_sign_in(phone_hash, session, new_user)

        def decide(transaction: WriteTransaction) -> None:
            spent = rules.spent(rows.CODE.found(transaction.get(code_key)), mac, session, new_user, now_ms)
            transaction.put(code_key, rows.CODE.encode(spent))
            if new_user is not None:
                if transaction.get(rows.phone_key(phone_hash)) is not None:
                    raise rules.invalid_otp()
                _put_new_user(transaction, new_user, phone_hash)
            _put_new_session(transaction, session)
            _drop_all(transaction, replaces)

        await self._writer.commit("sign_in", decide, timeout_s=timeout_s)

    async def sessions_of(self, user_id: str, *, timeout_s: float) -> Sequence[Session]:
        prefix = rows.user_sessions_prefix(user_id)

        def read(snapshot: ReadSnapshot) -> Sequence[Session]:
            ids = [rows.last_text(key, prefix) for key, _ in snapshot.scan(prefix, rows.after(prefix))]
            found = [rows.SESSION.found(snapshot.get(rows.session_key(each))) for each in ids]
            return sorted([each for each in found if each is not None], key=rules.age)

        return await self._writer.read("sessions_of", read, timeout_s=timeout_s)

    async def open_session(self, session: Session, *, replaces: Sequence[str] = (), timeout_s: float) -> None:
        def decide(transaction: WriteTransaction) -> None:
            _put_new_session(transaction, session)
            _drop_all(transaction, replaces)

        await self._writer.commit("open_session", decide, timeout_s=timeout_s)

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
        await self._writer.commit(
            "revoke", lambda transaction: _drop_all(transaction, (session_id,)), timeout_s=timeout_s
        )

    async def add_user(self, user: User, *, timeout_s: float) -> str:
        phone = phone_hash(user.phone_number)

        def decide(transaction: WriteTransaction) -> str:
            first = rows.TEXT.found(transaction.get(rows.phone_key(phone)))
            if first is not None:
                return first
            _put_new_user(transaction, user, phone)
            return user.user_id

        return await self._writer.commit("add_user", decide, timeout_s=timeout_s)

    async def users(self, user_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, User]:
        def read(snapshot: ReadSnapshot) -> Mapping[str, User]:
            found = {each: rows.USER.found(snapshot.get(rows.user_key(each))) for each in user_ids}
            return {user_id: user for user_id, user in found.items() if user is not None}

        return await self._writer.read("users", read, timeout_s=timeout_s)

    async def users_by_phone(self, phone_numbers: Sequence[str], *, timeout_s: float) -> Mapping[str, str]:
        keys = {each: rows.phone_key(phone_hash(each)) for each in phone_numbers}

        def read(snapshot: ReadSnapshot) -> Mapping[str, str]:
            found = {number: rows.TEXT.found(snapshot.get(key)) for number, key in keys.items()}
            return {number: user_id for number, user_id in found.items() if user_id is not None}

        return await self._writer.read("users_by_phone", read, timeout_s=timeout_s)

    async def rename_user(self, user_id: str, display_name: str, *, now_ms: int, timeout_s: float) -> User:
        key = rows.user_key(user_id)

        def decide(transaction: WriteTransaction) -> User:
            renamed = rules.renamed(rows.USER.found(transaction.get(key)), display_name, now_ms)
            transaction.put(key, rows.USER.encode(renamed))
            return renamed

        return await self._writer.commit("rename_user", decide, timeout_s=timeout_s)

    async def _change(
        self, operation: str, session_id: str, rule: Callable[[Session | None], Session | None], timeout_s: float
    ) -> bool:
        """Whether the rule had something to write."""
        key = rows.session_key(session_id)

        def decide(transaction: WriteTransaction) -> bool:
            changed = rule(rows.SESSION.found(transaction.get(key)))
            if changed is not None:
                transaction.put(key, rows.SESSION.encode(changed))
            return changed is not None

        return await self._writer.commit(operation, decide, timeout_s=timeout_s)


def drop_session(transaction: WriteTransaction, session: Session) -> None:
    transaction.delete(rows.session_key(session.session_id))
    transaction.delete(rows.user_session_key(session.user_id, session.session_id))


def _drop_all(transaction: WriteTransaction, session_ids: Sequence[str]) -> None:
    for session_id in session_ids:
        session = rows.SESSION.found(transaction.get(rows.session_key(session_id)))
        if session is not None:
            drop_session(transaction, session)


def _put_new_user(transaction: WriteTransaction, user: User, phone_hash: str) -> None:
    if transaction.get(rows.user_key(user.user_id)) is not None:
        raise rules.user_taken()
    transaction.put(rows.user_key(user.user_id), rows.USER.encode(user))
    transaction.put(rows.phone_key(phone_hash), rows.TEXT.encode(user.user_id))


def _put_new_session(transaction: WriteTransaction, session: Session) -> None:
    key = rows.session_key(session.session_id)
    if transaction.get(key) is not None:
        raise rules.session_taken()
    transaction.put(key, rows.SESSION.encode(session))
    transaction.put(rows.user_session_key(session.user_id, session.session_id), b"")

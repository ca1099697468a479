"""`Accounts` and `Sessions` on DynamoDB: the conditions of W13-W19.

A phone belongs to one user by a sentinel row among the users, which is written with the user or not at all.
"""

from collections.abc import Mapping, Sequence

import msgspec

from seriatim.domain import limits
from seriatim.domain.account import Code, Session, User, phone_hash
from seriatim.domain.errors import UserNotFound
from seriatim.domain.times import iso
from seriatim.engines.dynamodb.rows import people as rows
from seriatim.engines.dynamodb.rows.attributes import Bool, S, n
from seriatim.engines.dynamodb.rows.messages import malformed_row
from seriatim.engines.dynamodb.store import CODES, SESSIONS, SESSIONS_OF_USER, USERS, DynamoStore, ReadOnlyStore
from seriatim.engines.dynamodb.transport.client import Request
from seriatim.engines.dynamodb.transport.errors import ConditionFailed, TransactionCancelled
from seriatim.engines.shared import account_rules as rules
from seriatim.ports.accounts import Accounts, Sessions

_NO_SUCH_USER = "attribute_not_exists(user_id)"
_NO_SUCH_SESSION = "attribute_not_exists(session_id)"
_STATUS = {"#status": "status"}


class DynamoSessions(Sessions):
    """A gateway's handle, without any write."""

    def __init__(self, store: ReadOnlyStore) -> None:
        self._store = store

    async def session(self, session_id: str, *, timeout_s: float) -> Session | None:
        until = self._store.until(timeout_s)
        found = await self._store.get(SESSIONS, {"session_id": S(session_id)}, rows.SESSION, until=until)
        return None if found is None else rows.session_from(found)


class DynamoAccounts(DynamoSessions, Accounts):
    """A handle on the users, codes and sessions of a deployment."""

    _store: DynamoStore

    def __init__(self, store: DynamoStore) -> None:
        super().__init__(store)

    # --- codes ---

    async def issue_code(self, code: Code, *, now_ms: int, timeout_s: float) -> Code:
        until = self._store.until(timeout_s)
        request = self._store.write_request(
            CODES,
            {"Item": rows.code_item(code)},
            "attribute_not_exists(phone_hash) OR #status = :verified OR expires_at <= :now",
            {":verified": S(rows.VERIFIED), ":now": S(iso(now_ms))},
            _STATUS,
        )
        try:
            await self._store.retry_refused(lambda: self._store.put(request, until=until), until=until)
        except ConditionFailed as failed:
            if not failed.item:
                raise malformed_row("a pending code has no row") from failed
            return rows.code_from(rows.CODE.decode(failed.item))
        return code

    async def code(self, phone_hash: str, *, timeout_s: float) -> Code | None:
        until = self._store.until(timeout_s)
        found = await self._store.get(CODES, {"phone_hash": S(phone_hash)}, rows.CODE, until=until)
        return None if found is None else rows.code_from(found)

    async def count_attempt(self, phone_hash: str, *, now_ms: int, timeout_s: float) -> bool:
        request = self._store.write_request(
            CODES,
            {"Key": {"phone_hash": S(phone_hash)}, "UpdateExpression": "ADD attempt_count :one"},
            "attribute_exists(phone_hash) AND attempt_count < :most AND expires_at > :now",
            {":one": n(1), ":most": n(limits.CODE_ATTEMPTS_MAX), ":now": S(iso(now_ms))},
        )
        return await self._update_if(request, timeout_s)

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
        rules.check_sign_in(phone_hash, session, new_user)
        until = self._store.until(timeout_s)
        writes = [self._spend_code(phone_hash, mac, session, new_user is not None, now_ms), self._put_session(session)]
        if new_user is not None:
            writes += self._put_user(new_user)
        writes += self._delete_sessions(
            replaces
        )  # without conditions, and last: the reasons of the others keep their places
        token = self._store.token()
        try:
            await self._store.retry_refused(lambda: self._store.transact(writes, token=token, until=until), until=until)
        except TransactionCancelled as cancelled:
            code, opened, phone, user = [*(each.failed for each in cancelled.reasons), False, False][:4]
            if code or phone:
                raise rules.invalid_otp() from None
            if user:
                raise rules.user_taken() from None
            assert opened
            raise rules.session_taken() from None

    def _spend_code(self, phone_hash: str, mac: str, session: Session, is_new_user: bool, now_ms: int) -> Request:
        what = {
            "Key": {"phone_hash": S(phone_hash)},
            "UpdateExpression": (
                "SET #status = :verified, session_id = :session, device_id = :device, is_new_user = :is_new"
            ),
        }
        values = {
            ":pending": S(rows.PENDING),
            ":verified": S(rows.VERIFIED),
            ":mac": S(mac),
            ":now": S(iso(now_ms)),
            ":session": S(session.session_id),
            ":device": S(session.device_id),
            ":is_new": Bool(is_new_user),
        }
        condition = "#status = :pending AND expires_at > :now AND otp_mac = :mac"
        return {"Update": self._store.write_request(CODES, what, condition, values, _STATUS)}

    def _put_session(self, session: Session) -> Request:
        return {"Put": self._store.write_request(SESSIONS, {"Item": rows.session_item(session)}, _NO_SUCH_SESSION)}

    def _delete_sessions(self, session_ids: Sequence[str]) -> list[Request]:
        keys = [{"Key": {"session_id": S(session_id)}} for session_id in session_ids]
        return [{"Delete": self._store.write_request(SESSIONS, key)} for key in keys]

    def _put_user(self, user: User) -> list[Request]:
        return [
            {"Put": self._store.write_request(USERS, {"Item": rows.phone_item(user)}, _NO_SUCH_USER)},
            {"Put": self._store.write_request(USERS, {"Item": rows.user_item(user)}, _NO_SUCH_USER)},
        ]

    # --- sessions ---

    async def sessions_of(self, user_id: str, *, timeout_s: float) -> Sequence[Session]:
        query = {
            "IndexName": SESSIONS_OF_USER,
            "KeyConditionExpression": "user_id = :user",
            "ExpressionAttributeValues": {":user": S(user_id)},
        }
        found = await self._store.pages(SESSIONS, query, rows.SESSION, until=self._store.until(timeout_s))
        return sorted([rows.session_from(item) for item in found], key=rules.age)

    async def open_session(self, session: Session, *, replaces: Sequence[str] = (), timeout_s: float) -> None:
        until = self._store.until(timeout_s)
        request = self._store.write_request(SESSIONS, {"Item": rows.session_item(session)}, _NO_SUCH_SESSION)
        writes, token = [{"Put": request}, *self._delete_sessions(replaces)], self._store.token()

        async def attempt() -> None:
            if replaces:
                await self._store.transact(writes, token=token, until=until)
            else:
                await self._store.put(request, until=until)

        try:
            await self._store.retry_refused(attempt, until=until)
        except (ConditionFailed, TransactionCancelled):
            raise rules.session_taken() from None

    async def rotate(self, session_id: str, *, old: str, new: str, now_ms: int, timeout_s: float) -> bool:
        request = self._store.write_request(
            SESSIONS,
            {
                "Key": {"session_id": S(session_id)},
                "UpdateExpression": (
                    "SET refresh_token_hash = :new, prev_token_hash = :old, rotated_at = :now, "
                    "last_active_at = :now, token_generation = token_generation + :one"
                ),
            },
            "refresh_token_hash = :old AND expires_at > :now",
            {":old": S(old), ":new": S(new), ":now": S(iso(now_ms)), ":one": n(1)},
        )
        return await self._update_if(request, timeout_s)

    async def reissue(self, session_id: str, *, digest: str, now_ms: int, timeout_s: float) -> bool:
        request = self._store.write_request(
            SESSIONS,
            {
                "Key": {"session_id": S(session_id)},
                "UpdateExpression": (
                    "SET refresh_token_hash = :new, last_active_at = :now, "
                    "token_generation = token_generation + :one REMOVE prev_token_hash, rotated_at"
                ),
            },
            "attribute_exists(session_id) AND expires_at > :now",
            {":new": S(digest), ":now": S(iso(now_ms)), ":one": n(1)},
        )
        return await self._update_if(request, timeout_s)

    async def touch(self, session_id: str, *, now_ms: int, timeout_s: float) -> None:
        request = self._store.write_request(
            SESSIONS,
            {"Key": {"session_id": S(session_id)}, "UpdateExpression": "SET last_active_at = :now"},
            "last_active_at < :now",
            {":now": S(iso(now_ms))},
        )
        await self._update_if(request, timeout_s)

    async def revoke(self, session_id: str, *, timeout_s: float) -> None:
        until = self._store.until(timeout_s)
        request = self._store.write_request(SESSIONS, {"Key": {"session_id": S(session_id)}})
        await self._store.retry_refused(lambda: self._store.delete(request, until=until), until=until)

    # --- users ---

    async def add_user(self, user: User, *, timeout_s: float) -> str:
        until = self._store.until(timeout_s)
        writes, token = self._put_user(user), self._store.token()
        try:
            await self._store.retry_refused(lambda: self._store.transact(writes, token=token, until=until), until=until)
        except TransactionCancelled as cancelled:
            first = rows.PHONE.found(cancelled.reasons[0].item)
            if first is None:
                raise rules.user_taken() from None
            return first.canonical_user_id.S
        return user.user_id

    async def users(self, user_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, User]:
        until = self._store.until(timeout_s)
        found = [rows.user_from(rows.USER.decode(item)) for item in await self._users(user_ids, until)]
        by_id = {user.user_id: user for user in found}
        return {each: by_id[each] for each in user_ids if each in by_id}

    async def users_by_phone(self, phone_numbers: Sequence[str], *, timeout_s: float) -> Mapping[str, str]:
        until = self._store.until(timeout_s)
        keys = {each: rows.phone_key(phone_hash(each)) for each in phone_numbers}
        found = [rows.PHONE.decode(item) for item in await self._users(list(keys.values()), until)]
        owners = {item.user_id.S: item.canonical_user_id.S for item in found}
        return {number: owners[key] for number, key in keys.items() if key in owners}

    async def rename_user(self, user_id: str, display_name: str, *, now_ms: int, timeout_s: float) -> User:
        until = self._store.until(timeout_s)
        request = self._store.write_request(
            USERS,
            {
                "Key": {"user_id": S(user_id)},
                "UpdateExpression": "SET display_name = :name, updated_at = :now",
            },
            "attribute_exists(user_id)",
            {":name": S(display_name), ":now": S(iso(now_ms))},
        )
        try:
            renamed = await self._store.retry_refused(
                lambda: self._store.update_returning(request, rows.USER, until=until), until=until
            )
        except ConditionFailed:
            raise UserNotFound("there is no such user") from None
        return rows.user_from(renamed)

    async def _users(self, ids: Sequence[str], until: float) -> list[msgspec.Raw]:
        """Rows of the table of users, each asked for once, as many at a time as the store takes."""
        distinct = list(dict.fromkeys(ids))
        found: list[msgspec.Raw] = []
        for start in range(0, len(distinct), limits.LOOKUP_KEYS_MAX):
            keys = [{"user_id": S(each)} for each in distinct[start : start + limits.LOOKUP_KEYS_MAX]]
            found += (await self._store.get_all({USERS: keys}, until=until))[USERS]
        return found

    async def _update_if(self, request: Request, timeout_s: float) -> bool:
        """Whether the condition held and the row was changed."""
        until = self._store.until(timeout_s)
        try:
            await self._store.retry_refused(lambda: self._store.update(request, until=until), until=until)
        except ConditionFailed:
            return False
        return True

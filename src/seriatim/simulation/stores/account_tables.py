"""The tables of users, codes, sessions and request keys of a `MemoryStore`. Expired rows do not accumulate."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Generic, TypeVar

from seriatim.domain.account import Code, Session, User
from seriatim.engines.shared.account_rules import code_kept_until_ms
from seriatim.engines.shared.request_key_rules import RequestRow

K = TypeVar("K")
V = TypeVar("V")


class AccountTables:
    """Users and their phone numbers stay; all other rows expire."""

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.phones: dict[str, str] = {}
        self.codes: ExpiringTable[str, Code] = ExpiringTable(code_kept_until_ms)
        self.sessions: ExpiringTable[str, Session] = ExpiringTable(lambda session: session.expires_at_ms)
        self.requests: ExpiringTable[tuple[str, str], RequestRow] = ExpiringTable(lambda row: row.expires_at_ms)

    def put_user(self, user: User, phone_hash: str) -> None:
        self.users[user.user_id] = user
        self.phones[phone_hash] = user.user_id


class ExpiringTable(Generic[K, V]):
    """Rows that expire. Each new row checks two others, so expired rows are never the larger part."""

    def __init__(self, ends_at_ms: Callable[[V], int]) -> None:
        self._ends_at_ms = ends_at_ms
        self._rows: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[V]:
        return iter(self._rows.values())

    def get(self, key: K) -> V | None:
        return self._rows.get(key)

    def add(self, key: K, row: V, now_ms: int) -> None:
        """A new row, or one in place of an expired row."""
        for other in list(islice(self._rows, 2)):
            looked_at = self._rows.pop(other)
            if self._ends_at_ms(looked_at) > now_ms:
                self._rows[other] = looked_at
        self._rows[key] = row

    def change(self, key: K, row: V) -> None:
        self._rows[key] = row

    def drop(self, key: K) -> None:
        self._rows.pop(key, None)

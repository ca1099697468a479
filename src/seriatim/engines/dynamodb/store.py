"""The tables behind one client, and the few ways in which handles ask for rows: what all of them share.

Nothing here decides: a write that was refused raises `ConditionFailed` or `TransactionCancelled`, and its caller
knows what the condition meant.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import Conflict, Throttled
from seriatim.domain.ids import ulid
from seriatim.engines.dynamodb.rows.attributes import NOTHING, Row
from seriatim.engines.dynamodb.transport.client import Client, Request
from seriatim.engines.shared.store_rules import check_batch
from seriatim.ports.clock import Clock

T = TypeVar("T")
R = TypeVar("R")

USERS = "users"
CHATS = "chats"
MEMBERSHIPS = "chat_memberships"
MESSAGES = "messages"
COUNTERS = "chat_counters"
KEYS = "idempotency_keys"
DELIVERY = "delivery_state"
SESSIONS = "sessions"
CODES = "otp_requests"
PAIRS = "direct_chat_index"
REQUESTS = "api_idempotency"

CHATS_OF_USER = "user_chats-index"
SESSIONS_OF_USER = "user_sessions-index"
DIRTY_CHATS = "dirty-index"


class _Got(msgspec.Struct, frozen=True):
    item: msgspec.Raw = msgspec.field(name="Item", default=NOTHING)


class _Updated(msgspec.Struct, frozen=True):
    attributes: msgspec.Raw = msgspec.field(name="Attributes", default=NOTHING)


class _Batch(msgspec.Struct, frozen=True):
    responses: dict[str, list[msgspec.Raw]] = msgspec.field(name="Responses", default_factory=dict)
    unprocessed: dict[str, msgspec.Raw] = msgspec.field(name="UnprocessedKeys", default_factory=dict)


class Page(msgspec.Struct, frozen=True):
    """Rows of one answer. `next_key` is where the store goes on, `NOTHING` at the end."""

    items: list[msgspec.Raw] = msgspec.field(name="Items", default_factory=list)
    next_key: msgspec.Raw = msgspec.field(name="LastEvaluatedKey", default=NOTHING)

    @property
    def more(self) -> bool:
        return bool(self.next_key)


_got = msgspec.json.Decoder(_Got)
_updated = msgspec.json.Decoder(_Updated)
_batch = msgspec.json.Decoder(_Batch)
_page = msgspec.json.Decoder(Page)


class Rows:
    """One deployment's tables, for those who only read: there is nothing here to write with.

    The names of the tables begin with `prefix`.
    """

    def __init__(self, client: Client, clock: Clock, *, prefix: str = "") -> None:
        self._client = client
        self._clock = clock
        self._prefix = prefix
        self.until = client.until

    def table(self, name: str) -> str:
        return self._prefix + name

    async def get(self, table: str, key: Request, row: Row[T], *, until: float) -> T | None:
        """As of now."""
        request = {"TableName": self.table(table), "Key": key, "ConsistentRead": True}
        return row.found(_got.decode(await self._client.call("GetItem", request, until=until)).item)

    async def get_all(
        self, keys: Mapping[str, Sequence[Request]], *, until: float
    ) -> Mapping[str, Sequence[msgspec.Raw]]:
        """Rows by table, as of now and in any order. What the store leaves over is asked for again."""
        check_batch(sum(map(len, keys.values())))
        found: dict[str, list[msgspec.Raw]] = {table: [] for table in keys}
        left: Mapping[str, object] = {
            self.table(table): {"Keys": wanted, "ConsistentRead": True} for table, wanted in keys.items() if wanted
        }
        pause = limits.CONFLICT_BACKOFF_S
        while left:
            answer = _batch.decode(await self._client.call("BatchGetItem", {"RequestItems": left}, until=until))
            for table, items in answer.responses.items():
                found[table.removeprefix(self._prefix)] += items
            left = answer.unprocessed
            if left:
                await self._pause(pause, until, Throttled("the store has no capacity at this moment; retry"))
                pause = min(2 * pause, limits.CONFLICT_BACKOFF_MAX_S)
        return found

    async def page(self, table: str, query: Request, *, until: float) -> Page:
        """One answer to a query."""
        request = {"TableName": self.table(table), **query}
        return _page.decode(await self._client.call("Query", request, until=until))

    async def scan(self, table: str, scan: Request, *, until: float) -> Page:
        """One answer to a scan."""
        request = {"TableName": self.table(table), **scan}
        return _page.decode(await self._client.call("Scan", request, until=until))

    async def pages(self, table: str, query: Request, row: Row[T], *, until: float) -> list[T]:
        """All answers to a query."""
        found: list[T] = []
        page = await self.page(table, query, until=until)
        while True:
            found += map(row.decode, page.items)
            if not page.more:
                return found
            page = await self.page(table, {**query, "ExclusiveStartKey": page.next_key}, until=until)

    async def _pause(self, seconds: float, until: float, otherwise: Throttled | Conflict) -> None:
        """Sleeps with jitter, if there is still room for an attempt afterwards."""
        jittered = seconds * (0.5 + self._clock.random() / 2)
        if asyncio.get_running_loop().time() + jittered > until - limits.ATTEMPT_ROOM_S:
            raise otherwise
        self._client.retries += 1
        await asyncio.sleep(jittered)


class Store(Rows):
    """The same for those who also write."""

    def token(self) -> str:
        """For a transaction: unlike any before."""
        return ulid(self._clock.now_ms(), self._clock.random_bits(80))

    async def put(self, request: Request, *, until: float) -> None:
        await self._client.call("PutItem", request, until=until)

    async def update(self, request: Request, row: Row[T], *, until: float) -> T:
        """The row as changed."""
        answer = await self._client.call("UpdateItem", {**request, "ReturnValues": "ALL_NEW"}, until=until)
        return row.decode(_updated.decode(answer).attributes)

    async def change(self, request: Request, *, until: float) -> None:
        """An update whose result nobody asks for."""
        await self._client.call("UpdateItem", request, until=until)

    async def delete(self, request: Request, *, until: float) -> None:
        await self._client.call("DeleteItem", request, until=until)

    async def transact(self, writes: Sequence[Request], *, token: str, until: float) -> None:
        request = {"TransactItems": writes, "ClientRequestToken": token}
        await self._client.call("TransactWriteItems", request, until=until)

    def writing(
        self,
        table: str,
        what: Mapping[str, object],
        condition: str | None = None,
        values: Mapping[str, object] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> dict[str, object]:
        """A write, alone or within a transaction. `what` is its item, or its key with an update expression."""
        request: dict[str, object] = {"TableName": self.table(table), **what}
        if condition is not None:
            request["ConditionExpression"] = condition
            request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        if values:
            request["ExpressionAttributeValues"] = values
        if names:
            request["ExpressionAttributeNames"] = names
        return request

    # --- patience ---

    async def patiently(self, attempt: Callable[[], Awaitable[R]], *, until: float) -> R:
        """Repeats what the store refused without applying it, with ADR-009's pauses, while there is time.

        For the ports whose callers do not: the message log's callers have a patience of their own.
        """
        throttles = conflicts = 0
        while True:
            try:
                return await attempt()
            except Throttled as error:
                if throttles == limits.THROTTLE_RETRIES_MAX:
                    raise
                refused: Throttled | Conflict = error
                pause = min(limits.THROTTLE_BACKOFF_S * 2**throttles, limits.THROTTLE_BACKOFF_MAX_S)
                throttles += 1
            except Conflict as error:
                if conflicts == limits.CONFLICT_RETRIES_MAX:
                    raise
                refused = error
                pause = min(limits.CONFLICT_BACKOFF_S * 2**conflicts, limits.CONFLICT_BACKOFF_MAX_S)
                conflicts += 1
            await self._pause(pause, until, refused)

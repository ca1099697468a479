"""The tables of a deployment behind one client: the reads and writes of which all handles are made.

Nothing here decides: a write that was refused raises `ConditionFailed` or `TransactionCancelled`, and its caller
knows what the condition meant.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from seriatim.concurrency.retry import retry
from seriatim.domain import limits
from seriatim.domain.backoff import RefusalBackoff, backoff_s
from seriatim.domain.errors import Conflict, ServiceUnavailable, Throttled
from seriatim.domain.ids import new_ulid
from seriatim.engines.dynamodb.rows.attributes import RowDecoder
from seriatim.engines.dynamodb.transport.client import DynamoClient, Request
from seriatim.engines.dynamodb.transport.outputs import BATCH_GET_ITEM, GET_ITEM, QUERY, UPDATE_ITEM, QueryOutput
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


class ReadOnlyStore:
    """One deployment's tables, without any write.

    The names of the tables begin with `prefix`.
    """

    def __init__(self, client: DynamoClient, clock: Clock, *, prefix: str = "") -> None:
        self._client = client
        self._clock = clock
        self._prefix = prefix
        self.until = client.until

    def table(self, name: str) -> str:
        return self._prefix + name

    async def get(self, table: str, key: Request, row: RowDecoder[T], *, until: float) -> T | None:
        """As of now."""
        request = {"TableName": self.table(table), "Key": key, "ConsistentRead": True}
        return row.found(GET_ITEM.decode(await self._client.call("GetItem", request, until=until)).item)

    async def get_all(
        self, keys: Mapping[str, Sequence[Request]], *, until: float
    ) -> Mapping[str, Sequence[msgspec.Raw]]:
        """Rows by table, as of now and in any order. Unprocessed keys are asked for again."""
        check_batch(sum(map(len, keys.values())))
        found: dict[str, list[msgspec.Raw]] = {table: [] for table in keys}
        left: Mapping[str, object] = {
            self.table(table): {"Keys": wanted, "ConsistentRead": True} for table, wanted in keys.items() if wanted
        }
        doublings = 0
        while left:
            answer = BATCH_GET_ITEM.decode(await self._client.call("BatchGetItem", {"RequestItems": left}, until=until))
            for table, items in answer.responses.items():
                found[table.removeprefix(self._prefix)] += items
            left = answer.unprocessed
            if left:
                pause_s = backoff_s(
                    doublings,
                    first_s=limits.CONFLICT_BACKOFF_S,
                    max_s=limits.CONFLICT_BACKOFF_MAX_S,
                    random=self._clock.random,
                )
                if not self._allows(pause_s, until):
                    raise Throttled("the store has no capacity at this moment; retry")
                await asyncio.sleep(pause_s)
                doublings += 1
        return found

    async def page(self, table: str, query: Request, *, until: float) -> QueryOutput:
        """One page of a query."""
        request = {"TableName": self.table(table), **query}
        return QUERY.decode(await self._client.call("Query", request, until=until))

    async def scan(self, table: str, scan: Request, *, until: float) -> QueryOutput:
        """One page of a scan."""
        request = {"TableName": self.table(table), **scan}
        return QUERY.decode(await self._client.call("Scan", request, until=until))

    async def pages(self, table: str, query: Request, row: RowDecoder[T], *, until: float) -> list[T]:
        """All rows of a query."""
        found: list[T] = []
        page = await self.page(table, query, until=until)
        while True:
            found += map(row.decode, page.items)
            if not page.more:
                return found
            page = await self.page(table, {**query, "ExclusiveStartKey": page.next_key}, until=until)

    def _allows(self, pause_s: float, until: float) -> bool:
        """Whether there is room for another attempt after such a pause. Then it is counted as a retry."""
        allowed = asyncio.get_running_loop().time() + pause_s <= until - limits.ATTEMPT_ROOM_S
        self._client.retries += allowed
        return allowed


class DynamoStore(ReadOnlyStore):
    """The same with writes."""

    def token(self) -> str:
        """A new token of a transaction."""
        return new_ulid(self._clock.now_ms(), self._clock.random_bits)

    async def put(self, request: Request, *, until: float) -> None:
        await self._client.call("PutItem", request, until=until)

    async def update_returning(self, request: Request, row: RowDecoder[T], *, until: float) -> T:
        """Returns the row as changed."""
        answer = await self._client.call("UpdateItem", {**request, "ReturnValues": "ALL_NEW"}, until=until)
        return row.decode(UPDATE_ITEM.decode(answer).attributes)

    async def update(self, request: Request, *, until: float) -> None:
        await self._client.call("UpdateItem", request, until=until)

    async def delete(self, request: Request, *, until: float) -> None:
        await self._client.call("DeleteItem", request, until=until)

    async def transact(self, writes: Sequence[Request], *, token: str, until: float) -> None:
        request = {"TransactItems": writes, "ClientRequestToken": token}
        await self._client.call("TransactWriteItems", request, until=until)

    def write_request(
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

    # --- retries ---

    async def retry_refused(self, attempt: Callable[[], Awaitable[R]], *, until: float) -> R:
        """Repeats what DynamoDB refused without applying it, with ADR-009's pauses, while there is time.

        For the ports whose callers do not retry: the durability plane retries the calls of the message log itself.
        """
        backoff = RefusalBackoff(self._clock.random)

        def pause_after(refusal: ServiceUnavailable) -> float | None:
            pause_s = backoff.pause_s(refusal)
            return pause_s if pause_s is not None and self._allows(pause_s, until) else None

        return await retry(attempt, pause_after, Throttled, Conflict)

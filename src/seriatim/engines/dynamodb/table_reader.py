"""All ways to read tables, and none to write them: what tools have that look at everything.

Reads may be repeated, so a store that fails or throttles in the middle of a long look is asked again.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import InternalError, OutcomeUnknown, Throttled
from seriatim.engines.dynamodb.rows.attributes import NOTHING, Row
from seriatim.engines.dynamodb.transport.client import Client, Request
from seriatim.engines.dynamodb.transport.errors import Refusal

T = TypeVar("T")


class Reader:
    """One deployment's tables: their names begin with `prefix`."""

    def __init__(self, client: Client, *, prefix: str = "") -> None:
        self._client = client
        self._prefix = prefix

    async def count(self, table: str) -> int:
        """About how many rows there are. Asked once: who begins to look wants to know at once that it is in vain."""
        name = self._prefix + table
        until = self._client.until(limits.INSPECTION_TIMEOUT_S)
        try:
            answer = await self._client.call("DescribeTable", {"TableName": name}, until=until)
        except InternalError as error:
            if isinstance(error.__cause__, Refusal) and error.__cause__.kind == "ResourceNotFoundException":
                raise InternalError(f"there is no table {name}: see `seriatim tables verify`") from None
            raise
        return _described.decode(answer).table.rows

    async def get(self, table: str, key: Request, row: Row[T]) -> T | None:
        """As of now."""
        return row.found(_got.decode(await self._ask("GetItem", table, {"Key": key, "ConsistentRead": True})).item)

    async def get_all(self, table: str, keys: Sequence[Request]) -> Sequence[msgspec.Raw]:
        """As of now, in any order. What the store leaves over is left out."""
        name = self._prefix + table
        request = {"RequestItems": {name: {"Keys": keys, "ConsistentRead": True}}}
        return _batch.decode(await self._call("BatchGetItem", request)).responses.get(name, [])

    async def first(self, table: str, query: Request) -> Sequence[msgspec.Raw]:
        """The first answer to a query."""
        return _page.decode(await self._ask("Query", table, query)).items

    async def query(self, table: str, query: Request) -> AsyncIterator[Sequence[msgspec.Raw]]:
        """All answers to a query."""
        async for items in self._pages("Query", table, query):
            yield items

    async def leap(self, table: str, after: Request | None) -> Sequence[msgspec.Raw]:
        """One row, as of now: the first of all, or the one behind a place where none need be."""
        request: dict[str, object] = {"ConsistentRead": True, "Limit": 1}
        if after is not None:
            request["ExclusiveStartKey"] = after
        return _page.decode(await self._ask("Scan", table, request)).items

    async def scan(self, table: str, *, index: str | None = None) -> AsyncIterator[Sequence[msgspec.Raw]]:
        """All rows, as of now; those of an index may lag behind. Rows of one partition key follow each other.

        A few at a time: each is looked at soon after it was read, so that little has changed by then.
        """
        where: dict[str, object] = {"ConsistentRead": True} if index is None else {"IndexName": index}
        async for items in self._pages("Scan", table, {**where, "Limit": limits.INSPECTED_AHEAD_ROWS}):
            yield items

    async def _pages(self, operation: str, table: str, request: Request) -> AsyncIterator[Sequence[msgspec.Raw]]:
        page = _page.decode(await self._ask(operation, table, request))
        while True:
            yield page.items
            if not page.next_key:
                return
            page = _page.decode(await self._ask(operation, table, {**request, "ExclusiveStartKey": page.next_key}))

    async def _ask(self, operation: str, table: str, request: Request) -> bytes:
        return await self._call(operation, {"TableName": self._prefix + table, **request})

    async def _call(self, operation: str, request: Request) -> bytes:
        give_up = self._client.until(limits.INSPECTION_PATIENCE_S)
        pause = limits.INSPECTION_BACKOFF_S
        while True:
            try:
                return await self._client.call(
                    operation, request, until=self._client.until(limits.INSPECTION_TIMEOUT_S)
                )
            except (OutcomeUnknown, Throttled):
                if asyncio.get_running_loop().time() + pause > give_up:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, limits.INSPECTION_BACKOFF_MAX_S)


class _Got(msgspec.Struct, frozen=True):
    item: msgspec.Raw = msgspec.field(name="Item", default=NOTHING)


class _Batch(msgspec.Struct, frozen=True):
    responses: dict[str, list[msgspec.Raw]] = msgspec.field(name="Responses", default_factory=dict)


class _Page(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] = msgspec.field(name="Items", default_factory=list)
    next_key: msgspec.Raw = msgspec.field(name="LastEvaluatedKey", default=NOTHING)


class _Table(msgspec.Struct, frozen=True):
    rows: int = msgspec.field(name="ItemCount", default=0)


class _Described(msgspec.Struct, frozen=True):
    table: _Table = msgspec.field(name="Table")


_got = msgspec.json.Decoder(_Got)
_batch = msgspec.json.Decoder(_Batch)
_page = msgspec.json.Decoder(_Page)
_described = msgspec.json.Decoder(_Described)

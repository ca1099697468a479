"""Reads of whole tables, for tools: it never writes.

A read may be repeated, so one that fails or is throttled in the middle of a long scan is retried.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import count
from typing import TypeVar

import msgspec

from seriatim.concurrency.retry import retry
from seriatim.domain import limits
from seriatim.domain.backoff import doubled_s
from seriatim.domain.errors import InternalError, OutcomeUnknown, ServiceUnavailable, Throttled
from seriatim.engines.dynamodb.rows.attributes import RowDecoder
from seriatim.engines.dynamodb.transport.client import DynamoClient, Request
from seriatim.engines.dynamodb.transport.errors import DynamoError
from seriatim.engines.dynamodb.transport.outputs import BATCH_GET_ITEM, GET_ITEM, QUERY

T = TypeVar("T")


class TableReader:
    """One deployment's tables: their names begin with `prefix`."""

    def __init__(self, client: DynamoClient, *, prefix: str = "") -> None:
        self._client = client
        self._prefix = prefix

    async def count(self, table: str) -> int:
        """About how many rows there are. Not retried: a tool that begins must fail at once if it cannot read."""
        name = self._prefix + table
        until = self._client.until(limits.INSPECTION_TIMEOUT_S)
        try:
            answer = await self._client.call("DescribeTable", {"TableName": name}, until=until)
        except InternalError as error:
            if isinstance(error.__cause__, DynamoError) and error.__cause__.code == "ResourceNotFoundException":
                raise InternalError(f"there is no table {name}: see `seriatim tables verify`") from None
            raise
        return _DESCRIBE_TABLE.decode(answer).table.rows

    async def get(self, table: str, key: Request, row: RowDecoder[T]) -> T | None:
        """As of now."""
        return row.found(
            GET_ITEM.decode(await self._call_table("GetItem", table, {"Key": key, "ConsistentRead": True})).item
        )

    async def get_all(self, table: str, keys: Sequence[Request]) -> Sequence[msgspec.Raw]:
        """As of now, in any order. Unprocessed keys are left out."""
        name = self._prefix + table
        request = {"RequestItems": {name: {"Keys": keys, "ConsistentRead": True}}}
        return BATCH_GET_ITEM.decode(await self._call("BatchGetItem", request)).responses.get(name, [])

    async def first(self, table: str, query: Request) -> Sequence[msgspec.Raw]:
        """The first page of a query."""
        return QUERY.decode(await self._call_table("Query", table, query)).items

    async def query(self, table: str, query: Request) -> AsyncIterator[Sequence[msgspec.Raw]]:
        """All pages of a query."""
        async for items in self._pages("Query", table, query):
            yield items

    async def scan_one(self, table: str, after: Request | None) -> Sequence[msgspec.Raw]:
        """One row, as of now: the first of the table, or the first behind the key `after`, which need not exist."""
        request: dict[str, object] = {"ConsistentRead": True, "Limit": 1}
        if after is not None:
            request["ExclusiveStartKey"] = after
        return QUERY.decode(await self._call_table("Scan", table, request)).items

    async def scan(self, table: str, *, index: str | None = None) -> AsyncIterator[Sequence[msgspec.Raw]]:
        """All rows, as of now; those of an index may lag behind. Rows of one partition key follow each other.

        In small pages: each row is checked soon after it was read, so that little has changed by then.
        """
        where: dict[str, object] = {"ConsistentRead": True} if index is None else {"IndexName": index}
        async for items in self._pages("Scan", table, {**where, "Limit": limits.INSPECTED_AHEAD_ROWS}):
            yield items

    async def _pages(self, operation: str, table: str, request: Request) -> AsyncIterator[Sequence[msgspec.Raw]]:
        page = QUERY.decode(await self._call_table(operation, table, request))
        while True:
            yield page.items
            if not page.more:
                return
            page = QUERY.decode(
                await self._call_table(operation, table, {**request, "ExclusiveStartKey": page.next_key})
            )

    async def _call_table(self, operation: str, table: str, request: Request) -> bytes:
        return await self._call(operation, {"TableName": self._prefix + table, **request})

    async def _call(self, operation: str, request: Request) -> bytes:
        """Retried with growing pauses for `INSPECTION_RETRY_S`."""
        give_up = self._client.until(limits.INSPECTION_RETRY_S)
        doublings = count()

        async def attempt() -> bytes:
            return await self._client.call(operation, request, until=self._client.until(limits.INSPECTION_TIMEOUT_S))

        def pause_after(error: ServiceUnavailable) -> float | None:
            pause_s = doubled_s(
                next(doublings), first_s=limits.INSPECTION_BACKOFF_S, max_s=limits.INSPECTION_BACKOFF_MAX_S
            )
            return pause_s if asyncio.get_running_loop().time() + pause_s <= give_up else None

        return await retry(attempt, pause_after, OutcomeUnknown, Throttled)


class _TableRows(msgspec.Struct, frozen=True):
    rows: int = msgspec.field(name="ItemCount", default=0)


class _DescribeTableRowsOutput(msgspec.Struct, frozen=True):
    table: _TableRows = msgspec.field(name="Table")


_DESCRIBE_TABLE = msgspec.json.Decoder(_DescribeTableRowsOutput)

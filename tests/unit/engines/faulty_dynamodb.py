"""A DynamoDB Local of a test behind a client that injects faults: refusals, lost answers, and faster writers."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from seriatim.domain.errors import OutcomeUnknown
from seriatim.engines.dynamodb.transport.client import Request
from tests.contract.store_engines import DynamoEngine
from tests.support.real_dynamodb import PATIENCE_S, PREFIX, CarefulClient, client_with_tables

Row = dict[str, dict[str, object]]


class FaultyDynamoClient(CarefulClient):
    """`refusals` are raised by the next calls of an operation, one each, and `answers` given: nothing is sent.

    `meanwhile` runs once, just before the next call of an operation. `deaf_after` calls of an operation are answered,
    and then no more: they arrive, and their answers are lost.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.refusals: dict[str, list[Exception]] = {}
        self.meanwhile: dict[str, Callable[[], Awaitable[object]]] = {}
        self.deaf_after: dict[str, int] = {}
        self.answers: dict[str, list[bytes]] = {}

    async def call(self, operation: str, request: Request, *, until: float) -> bytes:
        refusals = self.refusals.get(operation)
        if refusals:
            self.requests.append((operation, request))
            raise refusals.pop(0)
        if self.answers.get(operation):
            return self.answers[operation].pop(0)
        others = self.meanwhile.pop(operation, None)
        if others is not None:
            await others()
        answer = await super().call(operation, request, until=until)
        left = self.deaf_after.get(operation)
        if left == 0:
            raise OutcomeUnknown("the answer was lost")
        if left is not None:
            self.deaf_after[operation] = left - 1
        return answer

    @property
    def operations(self) -> list[str]:
        """What was asked since the last time."""
        asked, self._seen = self.requests[self._seen :], len(self.requests)
        return [operation for operation, _ in asked]

    _seen = 0


class FaultyDynamoEngine(DynamoEngine):
    async def open(self) -> None:
        real = await client_with_tables()
        await real.close()
        self.faults = self.client = FaultyDynamoClient(real.url)
        self.store = self.client.store()

    async def row(self, table: str, **key: str | int) -> Row:
        """A row as it lies in the store; empty if there is none."""
        typed = {name: {"N": str(part)} if isinstance(part, int) else {"S": part} for name, part in key.items()}
        request = {"TableName": PREFIX + table, "Key": typed, "ConsistentRead": True}
        answer = await self.client.plain.call("GetItem", request, until=self.client.until(PATIENCE_S))
        return msgspec.json.decode(answer, type=dict[str, Row]).get("Item", {})


@asynccontextmanager
async def faulty_engine() -> AsyncIterator[FaultyDynamoEngine]:
    engine = FaultyDynamoEngine()
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()

"""A real DynamoDB Local for tests: one server per test process, started by the first test that needs it.

Its tables are made once and emptied after each test. `CarefulClient` looks at every request that a test makes.
"""

import asyncio
import atexit
import functools
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from seriatim.engines.dynamodb.store import DynamoStore
from seriatim.engines.dynamodb.table_control import DynamoTableControl
from seriatim.engines.dynamodb.transport.client import DynamoClient, Request
from seriatim.engines.dynamodb.transport.signing import AwsCredentials
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.operations.tables import TABLES, create
from tests.support.real_engines import real_engines
from tools.engines.dynamodb import KEY_ID, REGION, SECRET, DynamoDB

PATIENCE_S = 30.0
PREFIX = "test_"
DELETES_MAX = 25  # in one batch of the store
TEST_CREDENTIALS = AwsCredentials(key_id=KEY_ID, secret=SECRET)

_EXPRESSIONS = ("ConditionExpression", "UpdateExpression", "KeyConditionExpression", "ProjectionExpression")
_KEYWORDS = frozenset({"SET", "ADD", "REMOVE", "AND", "OR", "NOT"})
_NAME = re.compile(r"(?<![:#\w])[A-Za-z_]+(?![\w(])")


def real_dynamodb() -> DynamoDB:
    """Running, with all tables, whatever the test before did to it."""
    with real_engines():
        server = _server()
        server.start()
    return server


async def client_with_tables() -> "CarefulClient":
    """A client of one test; the tables are empty."""
    url = (await asyncio.to_thread(real_dynamodb)).url
    client = CarefulClient(url)
    if url not in _ready:
        await create(DynamoTableControl(client.plain), SystemClock(), prefix=PREFIX)
        _ready.append(url)
    return client


class PatientClient(DynamoClient):
    """Whatever a caller's deadline is, the engine gets `patience_s` to answer: a busy machine makes no test fail.

    A call that would not begin because its time is up still does not. Without patience the caller's deadline rules.
    """

    def __init__(self, url: str, patience_s: float = PATIENCE_S) -> None:
        super().__init__(url, region=REGION, credentials=lambda: TEST_CREDENTIALS, clock=SystemClock())
        self._patience_s = patience_s

    async def call(self, operation: str, request: Request, *, until: float) -> bytes:
        now = asyncio.get_running_loop().time()
        return await super().call(
            operation, request, until=max(until, now + self._patience_s) if until > now else until
        )


class CarefulClient(PatientClient):
    """Refuses what docs/spec/data.md#reads forbids, and remembers which tables were written to."""

    def __init__(self, url: str, patience_s: float = PATIENCE_S) -> None:
        super().__init__(url, patience_s)
        self.plain = PatientClient(url)
        self.url = url
        self.requests: list[tuple[str, Request]] = []

    async def call(self, operation: str, request: Request, *, until: float) -> bytes:
        check(operation, request)
        self.requests.append((operation, request))
        return await super().call(operation, request, until=until)

    def store(self) -> DynamoStore:
        return DynamoStore(self, SystemClock(), prefix=PREFIX)

    async def close(self) -> None:
        await super().close()
        await self.plain.close()

    async def empty(self) -> None:
        """Removes the rows of every table that a request named."""
        tables = dict.fromkeys(table for _, request in self.requests for table in _tables(request))
        await asyncio.gather(*(self._empty(table) for table in tables))

    async def _empty(self, name: str) -> None:
        table = next(each for each in TABLES if PREFIX + each.name == name)
        keys = {f"#{key.name}": key.name for key in (table.partition, table.sort) if key is not None}
        scan = {"TableName": name, "ProjectionExpression": ", ".join(keys), "ExpressionAttributeNames": keys}
        more = True
        while more:
            answer = await self.plain.call("Scan", scan, until=self.until(PATIENCE_S))
            page = msgspec.json.decode(answer, type=_Scanned)
            deletes = [{"DeleteRequest": {"Key": key}} for key in page.items]
            for start in range(0, len(deletes), DELETES_MAX):
                batch = {"RequestItems": {name: deletes[start : start + DELETES_MAX]}}
                await self.plain.call("BatchWriteItem", batch, until=self.until(PATIENCE_S))
            more = bool(page.items)


def check(operation: str, request: Request) -> None:
    """Reads are as of now unless they go by an index, no word is reserved, transactions fit.

    Only the repair of a counter scans, and only watermarks.
    """
    match operation:
        case "GetItem":
            assert request["ConsistentRead"] is True
        case "Scan":
            assert (request["TableName"], request["ConsistentRead"]) == (PREFIX + "delivery_state", True)
        case "Query":
            assert "IndexName" in request or request["ConsistentRead"] is True
        case "BatchGetItem":
            wanted = request["RequestItems"]
            assert isinstance(wanted, Mapping)
            assert len(wanted) >= 1
        case "TransactWriteItems":
            items, token = request["TransactItems"], request["ClientRequestToken"]
            assert isinstance(items, Sequence)
            assert isinstance(token, str)
            assert 1 <= len(items) <= 100
            assert 1 <= len(token) <= 36
        case _:
            assert operation in ("PutItem", "UpdateItem", "DeleteItem"), operation
    for expression in _expressions(request):
        # No reserved word has an underscore, and most of what people name an attribute without one is reserved.
        plain = [word for word in _NAME.findall(expression) if "_" not in word and word not in _KEYWORDS]
        assert plain == [], f"{expression}: alias {plain}"


class _Scanned(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] = msgspec.field(name="Items", default_factory=list)


_ready: list[str] = []


@functools.cache
def _server() -> DynamoDB:
    """In memory, where that is a folder: these tests ask what it answers, not what its disk survives."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="seriatim-dynamodb-", dir=memory if memory.is_dir() else None))
    server = DynamoDB(folder / "dynamodb")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.kill)
    return server


def _tables(request: object) -> Iterator[str]:
    for name, value in _walk(request):
        if name == "TableName" and isinstance(value, str):
            yield value


def _expressions(request: object) -> Iterator[str]:
    for name, value in _walk(request):
        if name in _EXPRESSIONS and isinstance(value, str):
            yield value


def _walk(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield name, inner
            yield from _walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner)

"""Reads of whole tables: what passes is retried, what does not pass is raised at once."""

import pytest

from seriatim.domain.errors import InternalError, OutcomeUnknown, SeriatimError, ServiceUnavailable, Throttled
from seriatim.engines.dynamodb.store import CHATS
from seriatim.engines.dynamodb.table_reader import TableReader
from seriatim.engines.dynamodb.transport.client import DynamoClient, Request
from seriatim.engines.dynamodb.transport.signing import AwsCredentials
from seriatim.engines.inprocess.clock import SystemClock


class FailingClient(DynamoClient):
    """Raises `to_raise` one after another, then answers with pages of one row each."""

    def __init__(self, *to_raise: SeriatimError, pages: int = 1) -> None:
        credentials = AwsCredentials(key_id="local", secret="local")
        super().__init__("http://nowhere", region="local", credentials=lambda: credentials, clock=SystemClock())
        self.to_raise = list(to_raise)
        self.requests: list[tuple[str, Request]] = []
        self._pages = pages

    async def call(self, operation: str, request: Request, *, until: float) -> bytes:
        self.requests.append((operation, request))
        if self.to_raise:
            raise self.to_raise.pop(0)
        self._pages -= 1
        more = b', "LastEvaluatedKey": {"chat_id": {"S": "c"}}' if self._pages else b""
        return b'{"Items": [{"chat_id": {"S": "c"}}]' + more + b"}"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seriatim.domain.limits.INSPECTION_BACKOFF_S", 0.001)
    monkeypatch.setattr("seriatim.domain.limits.INSPECTION_RETRY_S", 0.1)


async def test_a_store_that_throttles_or_fails_for_a_moment_is_asked_again_from_the_same_place() -> None:
    client = FailingClient(pages=2)
    rows = TableReader(client).scan(CHATS)
    assert len(await anext(rows)) == 1
    client.to_raise = [Throttled("later"), OutcomeUnknown("outcome unknown")]
    assert [len(page) async for page in rows] == [1]
    starts = [request.get("ExclusiveStartKey") is not None for _, request in client.requests]
    assert starts == [False, True, True, True]


async def test_a_store_that_goes_on_failing_is_given_up() -> None:
    client = FailingClient(*[OutcomeUnknown("away")] * 1000)
    with pytest.raises(OutcomeUnknown):
        await anext(TableReader(client).scan(CHATS))
    assert len(client.requests) > 3


@pytest.mark.parametrize("refusal", [ServiceUnavailable("no credentials"), InternalError("no table")])
async def test_what_waiting_does_not_mend_is_not_asked_again(refusal: SeriatimError) -> None:
    client = FailingClient(refusal)
    with pytest.raises(type(refusal)):
        await anext(TableReader(client).scan(CHATS))
    assert len(client.requests) == 1


async def test_the_count_is_asked_for_once() -> None:
    client = FailingClient(OutcomeUnknown("away"))
    with pytest.raises(OutcomeUnknown):
        await TableReader(client).count(CHATS)
    assert len(client.requests) == 1

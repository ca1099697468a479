"""A long look at DynamoDB survives what passes, and says at once when it is in vain."""

import pytest

from seriatim.domain.errors import InternalError, OutcomeUnknown, SeriatimError, ServiceUnavailable, Throttled
from seriatim.engines.dynamodb.store import CHATS
from seriatim.engines.dynamodb.table_reader import Reader
from seriatim.engines.dynamodb.transport.client import Client, Request
from seriatim.engines.dynamodb.transport.signing import Credentials
from seriatim.engines.inprocess.clock import SystemClock


class MoodyClient(Client):
    """Fails as told, then answers with pages of one row each."""

    def __init__(self, *failures: SeriatimError, pages: int = 1) -> None:
        anybody = Credentials(key_id="local", secret="local")
        super().__init__("http://nowhere", region="local", credentials=lambda: anybody, clock=SystemClock())
        self.failures = list(failures)
        self.requests: list[tuple[str, Request]] = []
        self._pages = pages

    async def call(self, operation: str, request: Request, *, until: float) -> bytes:
        self.requests.append((operation, request))
        if self.failures:
            raise self.failures.pop(0)
        self._pages -= 1
        more = b', "LastEvaluatedKey": {"chat_id": {"S": "c"}}' if self._pages else b""
        return b'{"Items": [{"chat_id": {"S": "c"}}]' + more + b"}"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seriatim.domain.limits.INSPECTION_BACKOFF_S", 0.001)
    monkeypatch.setattr("seriatim.domain.limits.INSPECTION_PATIENCE_S", 0.1)


async def test_a_store_that_throttles_or_fails_for_a_moment_is_asked_again_from_the_same_place() -> None:
    client = MoodyClient(pages=2)
    rows = Reader(client).scan(CHATS)
    assert len(await anext(rows)) == 1
    client.failures = [Throttled("later"), OutcomeUnknown("who knows")]
    assert [len(page) async for page in rows] == [1]
    starts = [request.get("ExclusiveStartKey") is not None for _, request in client.requests]
    assert starts == [False, True, True, True]


async def test_a_store_that_goes_on_failing_is_given_up() -> None:
    client = MoodyClient(*[OutcomeUnknown("away")] * 1000)
    with pytest.raises(OutcomeUnknown):
        await anext(Reader(client).scan(CHATS))
    assert len(client.requests) > 3


@pytest.mark.parametrize("refusal", [ServiceUnavailable("no credentials"), InternalError("no table")])
async def test_what_waiting_does_not_mend_is_not_asked_again(refusal: SeriatimError) -> None:
    client = MoodyClient(refusal)
    with pytest.raises(type(refusal)):
        await anext(Reader(client).scan(CHATS))
    assert len(client.requests) == 1


async def test_the_first_question_is_asked_once() -> None:
    client = MoodyClient(OutcomeUnknown("away"))
    with pytest.raises(OutcomeUnknown):
        await Reader(client).count(CHATS)
    assert len(client.requests) == 1

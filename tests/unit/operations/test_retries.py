"""What is retried while tables and topics are made, how often, and what is not retried."""

from collections.abc import Callable

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import Conflict, InternalError, OutcomeUnknown, SeriatimError, ServiceUnavailable, Throttled
from seriatim.engines.dynamodb.table_control import DynamoTableControl
from seriatim.engines.dynamodb.transport.client import DynamoClient, Request
from seriatim.engines.dynamodb.transport.errors import error_of_response
from seriatim.operations.retries import RetryingTableControl, retry_preparation
from seriatim.operations.tables import TABLES
from tests.support.manual_clock import ManualClock

TABLE = TABLES[0]
LOST = "the connection was lost; retry"


class _Client(DynamoClient):
    """Answers each call by what the test says."""

    def __init__(self, answer: Callable[[str], bytes]) -> None:
        self._answer = answer
        self.asked: list[str] = []

    async def call(self, operation: str, request: Request, *, until: float) -> bytes:
        self.asked.append(operation)
        return self._answer(operation)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PREPARE_BACKOFF_S", 0.001)


@pytest.mark.parametrize("error", [OutcomeUnknown(LOST), Throttled(LOST), Conflict(LOST)])
async def test_f4_a_call_that_may_be_repeated_is_repeated_a_bounded_number_of_times(error: SeriatimError) -> None:
    reported: list[str] = []
    client = _Client(_raising(error))
    with pytest.raises(type(error)):
        await RetryingTableControl(DynamoTableControl(client), ManualClock(), reported.append).describe(
            "users", timeout_s=1
        )
    assert client.asked == ["DescribeTable"] * limits.PREPARE_TRIES_MAX
    assert reported == [
        f"users: the connection was lost; trying again in {0.001 * 2**number:g} s" for number in range(4)
    ]


@pytest.mark.parametrize(
    "error", [ServiceUnavailable("the store refuses this server's credentials"), InternalError("not understood")]
)
async def test_f4_what_the_store_refuses_for_good_is_raised_at_once(error: SeriatimError) -> None:
    client = _Client(_raising(error))
    with pytest.raises(type(error)):
        await RetryingTableControl(DynamoTableControl(client), ManualClock(), pytest.fail).describe(
            "users", timeout_s=1
        )
    assert client.asked == ["DescribeTable"]


async def test_f4_no_try_begins_when_the_patience_is_used_up() -> None:
    clock, reported = ManualClock(), list[str]()

    async def slow() -> None:
        clock.advance(limits.PREPARE_TIMEOUT_S / 2 - 0.1)
        raise OutcomeUnknown(LOST)

    with pytest.raises(OutcomeUnknown):
        await retry_preparation("topics", slow, (OutcomeUnknown,), clock, reported.append)
    assert len(reported) == 2


async def test_f4_a_table_that_is_being_changed_is_waited_for() -> None:
    """As after a change whose answer was lost."""
    described = (
        b'{"Table": {"KeySchema": [{"AttributeName": "user_id", "KeyType": "HASH"}], "AttributeDefinitions": [], '
        b'"TableStatus": "UPDATING"}, "ContinuousBackupsDescription": '
        b'{"PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": "ENABLED"}}}'
    )

    def answer(operation: str) -> bytes:
        if operation == "UpdateTable":
            raise error_of_response(
                operation, 400, b'{"__type": "com.amazonaws.dynamodb.v20120810#ResourceInUseException"}'
            )
        return described

    client = _Client(answer)
    assert TABLE.protected
    assert await DynamoTableControl(client).adjust(TABLE, timeout_s=1) is False
    assert client.asked[-1] == "UpdateTable"


def _raising(error: SeriatimError) -> Callable[[str], bytes]:
    def answer(operation: str) -> bytes:
        raise error

    return answer

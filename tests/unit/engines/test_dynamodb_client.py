"""The client translates every refusal once, tells callers nothing of the store's inside, and trusts no stranger."""

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from seriatim.domain.errors import (
    Conflict,
    InternalError,
    OutcomeUnknown,
    SeriatimError,
    ServiceUnavailable,
    Throttled,
)
from seriatim.engines.dynamodb.transport.client import DynamoClient
from seriatim.engines.dynamodb.transport.errors import (
    ConditionFailed,
    DynamoError,
    TransactionCancelled,
    error_of_response,
)
from seriatim.engines.dynamodb.transport.signing import AwsCredentials
from seriatim.engines.inprocess.clock import SystemClock
from tests.unit.connection.test_listener_tls import contexts
from tests.unit.engines.scripted_http_server import Server, echo, http, serving


def client_of(url: str) -> DynamoClient:
    return DynamoClient(
        url, region="eu-central-1", credentials=lambda: AwsCredentials(key_id="k", secret="s"), clock=SystemClock()
    )


def said(kind: str, **more: object) -> bytes:
    prefix = "com.amazonaws.dynamodb.v20120810#"
    return msgspec.json.encode({"__type": prefix + kind, "message": "the inside of the store", **more})


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (400, "ProvisionedThroughputExceededException", Throttled),
        (400, "ThrottlingException", Throttled),
        (400, "RequestLimitExceeded", Throttled),
        (503, "ThrottlingException", Throttled),
        (400, "TransactionConflictException", Conflict),
        (400, "TransactionInProgressException", OutcomeUnknown),
        (500, "InternalServerError", OutcomeUnknown),
        (503, "ServiceUnavailable", OutcomeUnknown),
        (400, "ValidationException", InternalError),
        (400, "IdempotentParameterMismatchException", InternalError),
        (400, "ResourceNotFoundException", InternalError),
        (400, "SomethingNewException", InternalError),
        (400, "AccessDeniedException", ServiceUnavailable),
        (400, "ExpiredTokenException", ServiceUnavailable),
        (400, "UnrecognizedClientException", ServiceUnavailable),
    ],
)
def test_each_refusal_has_one_meaning_and_its_words_are_for_the_log(
    status: int, kind: str, error: type[SeriatimError]
) -> None:
    found = error_of_response("PutItem", status, said(kind))
    assert type(found) is error
    assert "inside" not in found.message
    assert kind not in found.message
    assert isinstance(found.__cause__, DynamoError)
    assert "PutItem" in str(found.__cause__)
    assert kind in str(found.__cause__)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"__type": 5}'])
def test_a_refusal_that_is_not_the_stores_own_is_judged_by_its_status(body: bytes) -> None:
    assert type(error_of_response("GetItem", 502, body)) is OutcomeUnknown
    assert type(error_of_response("GetItem", 404, body)) is InternalError


def test_a_failed_condition_brings_the_row_that_made_it_fail() -> None:
    failed = error_of_response("PutItem", 400, said("ConditionalCheckFailedException", Item={"a": {"S": "x"}}))
    assert isinstance(failed, ConditionFailed)
    assert msgspec.json.decode(failed.item) == {"a": {"S": "x"}}
    nothing = error_of_response("PutItem", 400, said("ConditionalCheckFailedException"))
    assert isinstance(nothing, ConditionFailed)
    assert not nothing.item


def test_a_cancelled_transaction_brings_its_reasons_in_order() -> None:
    reasons = [{"Code": "None"}, {"Code": "ConditionalCheckFailed", "Item": {"a": {"S": "x"}}}, {"Code": "None"}]
    cancelled = error_of_response(
        "TransactWriteItems", 400, said("TransactionCanceledException", CancellationReasons=reasons)
    )
    assert isinstance(cancelled, TransactionCancelled)
    assert [reason.failed for reason in cancelled.reasons] == [False, True, False]
    assert msgspec.json.decode(cancelled.reasons[1].item) == {"a": {"S": "x"}}


@pytest.mark.parametrize(
    ("codes", "error"),
    [
        (["None", "TransactionConflict"], Conflict),
        (["ThrottlingError", "None"], Throttled),
        (["ProvisionedThroughputExceeded"], Throttled),
        (["ThrottlingError", "TransactionConflict"], Conflict),
        (["ConditionalCheckFailed", "TransactionConflict"], TransactionCancelled),
        (["ValidationError"], InternalError),
        ([], InternalError),
    ],
)
def test_any_cancelled_transaction_is_not_a_failed_condition(codes: list[str], error: type[Exception]) -> None:
    body = said("TransactionCanceledException", CancellationReasons=[{"Code": code} for code in codes])
    assert type(error_of_response("TransactWriteItems", 400, body)) is error


# --- calls ------------------------------------------------------------------------------------------------------------


async def test_a_call_is_signed_counted_and_sent_once() -> None:
    async with serving(echo) as server:
        client = client_of(server.url)
        answer = await client.call("GetItem", {"TableName": "t"}, until=client.until(5))
        assert answer == b'{"TableName":"t"}'
        assert b"Authorization: AWS4-HMAC-SHA256 Credential=k/" in server.heads[0]
        assert b"X-Amz-Target: DynamoDB_20120810.GetItem\r\n" in server.heads[0]
        assert f"Host: 127.0.0.1:{server.port}\r\n".encode() in server.heads[0]
        assert client.calls == {"GetItem": 1}
        await client.close()


async def test_a_refused_call_is_not_repeated() -> None:
    async def refuse(server: Server, number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(http(said("ProvisionedThroughputExceededException"), "400 Bad Request"))

    async with serving(refuse) as server:
        client = client_of(server.url)
        with pytest.raises(Throttled):
            await client.call("UpdateItem", {}, until=client.until(5))
        assert len(server.requests) == 1
        await client.close()


async def test_credentials_are_asked_for_at_each_call() -> None:
    names = iter(["old", "new"])
    async with serving(echo) as server:
        client = DynamoClient(
            server.url,
            region="eu-central-1",
            credentials=lambda: AwsCredentials(key_id=next(names), secret="s"),
            clock=SystemClock(),
        )
        for _ in range(2):
            await client.call("GetItem", {}, until=client.until(5))
        assert [b"Credential=old/" in server.heads[0], b"Credential=new/" in server.heads[1]] == [True, True]
        await client.close()


async def test_a_server_without_a_trusted_certificate_is_sent_no_request(tmp_path: Path) -> None:
    tls, _ = contexts(tmp_path)
    async with serving(echo, tls) as server:
        client = client_of(server.url.replace("http://", "https://"))
        with pytest.raises(OutcomeUnknown) as unknown:
            await client.call("GetItem", {"secret": "text"}, until=client.until(5))
        assert isinstance(unknown.value.__cause__, ssl.SSLCertVerificationError)
        assert server.requests == []
        await client.close()


@pytest.mark.parametrize("url", ["", "here", "ftp://here", "https://", "https://here/path"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="no address"):
        client_of(url)


async def test_every_call_is_counted_and_what_was_not_done_is_counted_with_its_reason() -> None:
    refused = [
        (200, b"{}"),
        (400, said("ThrottlingException")),
        (400, said("TransactionConflictException")),
        (400, said("ConditionalCheckFailedException")),
        (400, said("AccessDeniedException")),
        (400, said("ValidationException")),
        (500, b""),
    ]

    async def respond(server: Server, number: int, writer: asyncio.StreamWriter) -> None:
        status, body = refused[number]
        writer.write(http(body, f"{status} so"))

    async with serving(respond) as server:
        client = client_of(server.url)
        for _ in refused:
            with suppress(SeriatimError, ConditionFailed):
                await client.call("PutItem", {}, until=client.until(5))
        await client.close()
    assert client.calls == {"PutItem": len(refused)}
    reasons = ("throttled", "conflict", "condition", "credentials", "misunderstood", "unanswered")
    assert client.failures == {("PutItem", reason): 1 for reason in reasons}

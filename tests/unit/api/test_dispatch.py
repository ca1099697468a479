"""The frame of every request: ids, tokens, bodies, headers, and what a failure looks like."""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from seriatim.api.core.route import Access, ApiRequest, ApiResponse, Nothing, Route
from seriatim.domain import limits
from seriatim.domain.errors import CounterMissing, OutcomeUnknown, ServerBusy
from seriatim.domain.ids import is_uuid4
from seriatim.domain.tokens import new_claims
from tests.support.rest import DEVICE, PHONE, Reply, RestClient, RestServer

REQUEST_ID = "0b9fbb1c-3a52-4c1e-8f0e-5a1f5f4c2d10"


class Thing(msgspec.Struct, frozen=True):
    name: str
    other: int = 0


def echo(**options: Any) -> Route:
    """A route that answers with what its handler was given."""

    async def handler(request: ApiRequest[Any, Any]) -> ApiResponse:
        return ApiResponse(data={"body": request.body, "hash": request.body_hash, "device": request.device_id})

    given: dict[str, Any] = {"method": "POST", "path": "/things", "body": Thing, "access": Access.PUBLIC, **options}
    return Route(handler=handler, summary="echo", tag="test", answers={200: Nothing}, **given)


def failing(failure: Exception) -> Route:
    async def handler(request: ApiRequest[Any, Any]) -> ApiResponse:
        raise failure

    return Route(
        method="GET",
        path="/fails",
        handler=handler,
        summary="fails",
        tag="test",
        answers={200: Nothing},
        access=Access.PUBLIC,
    )


# --- who asks --------------------------------------------------------------------------------------------------------


async def test_R1_without_a_valid_token_nothing_but_the_public_list_answers(
    server: RestServer, rest: RestClient
) -> None:
    for route in server.routes():
        if route.access is Access.SIGNED_IN:
            reply = await rest(route.method, "/api/v1" + route.path.replace("{", "").replace("}", ""))
            assert (reply.status, reply.code) == (401, "UNAUTHORIZED"), route.path
            assert reply.details == {"reason": "token_missing"}
            assert reply.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("sent", ["Bearer x.y.z", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "nonsense"])
async def test_R1_a_token_that_is_none_is_invalid(rest: RestClient, sent: str) -> None:
    reply = await rest("GET", "users/me", headers={"Authorization": sent})
    assert (reply.status, reply.details) == (401, {"reason": "token_invalid"})


async def test_a_token_that_was_sent_twice_is_none(rest: RestClient) -> None:
    token = (await rest.sign_in())["tokens"]["access_token"]
    reply = await rest("GET", "users/me", headers={"Authorization": f"Bearer {token}, Bearer {token}"})
    assert reply.details == {"reason": "token_invalid"}


async def test_an_expired_token_says_so(server: RestServer, rest: RestClient) -> None:
    token = (await rest.sign_in())["tokens"]["access_token"]
    server.clock.advance(3601)
    reply = await rest("GET", "users/me", token=token)
    assert (reply.status, reply.details) == (401, {"reason": "token_expired"})


async def test_the_scheme_of_a_token_may_be_written_in_any_case(rest: RestClient) -> None:
    token = (await rest.sign_in())["tokens"]["access_token"]
    assert (await rest("GET", "users/me", headers={"Authorization": f"bearer {token}"})).status == 200


async def test_when_it_is_unknown_whether_a_token_was_revoked_the_request_is_refused(
    server: RestServer, rest: RestClient
) -> None:
    token = (await rest.sign_in())["tokens"]["access_token"]
    server.wire.broken["session"] = OutcomeUnknown("down")
    reply = await rest("GET", "users/me", token=token)
    assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "SERVICE_UNAVAILABLE", "1")


async def test_a_foreign_session_id_in_a_validly_signed_token_opens_nothing(
    server: RestServer, rest: RestClient
) -> None:
    signed_in = await rest.sign_in()
    claims = new_claims(
        user_id=signed_in["user"]["user_id"],
        session_id="sess_other",
        device_id=DEVICE,
        token_id="t",
        now_s=server.clock.now_ms() // 1000,
    )
    reply = await rest("GET", "users/me", token=server.signer.sign(claims))
    assert reply.details == {"reason": "token_revoked"}


# --- what every answer carries ---------------------------------------------------------------------------------------


async def _answers(rest: RestClient) -> Sequence[Reply]:
    token = (await rest.sign_in())["tokens"]["access_token"]
    return [
        await rest("GET", "users/me", token=token),
        await rest("GET", "users/me"),
        await rest("GET", "/nowhere"),
        await rest("PUT", "users/me"),
        await rest("GET", "/health"),
        await rest("GET", "/health/ready"),
        await rest("GET", "/docs"),
        await rest("GET", "openapi.json"),
        await rest("PATCH", "users/me", token=token, body=b"{"),
        await rest("POST", "auth/logout", token=token),
    ]


async def test_R5_rate_limit_headers_are_on_every_answer(server: RestServer, rest: RestClient) -> None:
    for reply in await _answers(rest):
        assert int(reply.headers["x-ratelimit-limit"]) >= int(reply.headers["x-ratelimit-remaining"]) >= 0
        assert int(reply.headers["x-ratelimit-reset"]) > server.clock.now_ms() // 1000
        assert is_uuid4(reply.headers["x-request-id"])
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.status == 204 or "content-type" in reply.headers


async def test_R6_every_error_has_code_message_and_request_id(rest: RestClient) -> None:
    errors = [reply for reply in await _answers(rest) if reply.status >= 400]
    assert [reply.status for reply in errors] == [401, 404, 405, 400]
    for reply in errors:
        error = reply.json["error"]
        assert error["code"]
        assert error["message"]
        assert error["request_id"] == reply.headers["x-request-id"]
        assert reply.headers["content-type"] == "application/json; charset=utf-8"


async def test_a_request_id_is_echoed_and_a_malformed_one_replaced(rest: RestClient) -> None:
    echoed = await rest("GET", "/health", headers={"X-Request-ID": REQUEST_ID})
    assert echoed.headers["x-request-id"] == REQUEST_ID
    replaced = await rest("GET", "/health", headers={"X-Request-ID": "<script>"})
    assert is_uuid4(replaced.headers["x-request-id"])


async def test_two_requests_get_two_ids(rest: RestClient) -> None:
    one, other = await rest("GET", "/health"), await rest("GET", "/health")
    assert one.headers["x-request-id"] != other.headers["x-request-id"]


async def test_answers_with_tokens_are_not_stored_by_caches(server: RestServer, rest: RestClient) -> None:
    await rest("POST", "auth/request-otp", {"phone_number": PHONE})
    reply = await rest.verify(await server.delivered_code())
    assert reply.headers["cache-control"] == "no-store"


async def test_every_path_also_answers_below_the_alias(rest: RestClient) -> None:
    token = (await rest.sign_in())["tokens"]["access_token"]
    assert (await rest("GET", "/api/users/me", token=token)).data == (await rest("GET", "users/me", token=token)).data


async def test_head_is_get_without_the_body(rest: RestClient) -> None:
    got, headed = await rest("GET", "/health"), await rest("HEAD", "/health")
    assert (headed.status, headed.body) == (200, b"")
    assert headed.headers["content-length"] == got.headers["content-length"]


# --- the error table of docs/spec/rest.md#error-body, as far as the frame makes it -----------------------------------


@pytest.mark.parametrize("body", [b"{", b"[1]", b'"text"', b"12", b"\xff", b'{"name": 1e999}', b"[" * 50_000])
async def test_400_bad_request_for_what_is_not_a_json_object(server: RestServer, body: bytes) -> None:
    reply = await server.client([echo()])("POST", "things", body=body)
    assert (reply.status, reply.code) == (400, "BAD_REQUEST")


async def test_400_bad_request_for_a_missing_body(server: RestServer) -> None:
    reply = await server.client([echo()])("POST", "things")
    assert (reply.status, reply.code) == (400, "BAD_REQUEST")


async def test_400_validation_error_for_a_field_that_breaks_a_rule(server: RestServer) -> None:
    reply = await server.client([echo()])("POST", "things", {"name": 5})
    assert (reply.status, reply.code, reply.field_error) == (400, "VALIDATION_ERROR", ("name", "INVALID_FORMAT"))


async def test_400_validation_error_for_half_a_surrogate_pair(server: RestServer) -> None:
    reply = await server.client([echo()])("POST", "things", body=b'{"name": "a\\ud800"}')
    assert (reply.status, reply.code, reply.field_error) == (400, "VALIDATION_ERROR", ("name", "INVALID_FORMAT"))


async def test_404_not_found_for_a_path_without_a_route(rest: RestClient) -> None:
    reply = await rest("GET", "nothing/here")
    assert (reply.status, reply.code) == (404, "NOT_FOUND")


@pytest.mark.parametrize("odd", ["x y", "a" * 65, "ä", "a.b", "a\n", "PHONE#1", "{id}"])
async def test_404_not_found_for_an_id_that_cannot_be_one_before_any_store_is_asked(
    server: RestServer, rest: RestClient, odd: str
) -> None:
    token = (await rest.sign_in())["tokens"]["access_token"]
    await rest("GET", "users/me", token=token)
    server.wire.broken["users"] = AssertionError("asked")
    reply = await rest("GET", f"users/{odd}", token=token)
    assert (reply.status, reply.code) == (404, "NOT_FOUND")


async def test_405_method_not_allowed_names_the_methods_that_are(rest: RestClient) -> None:
    reply = await rest("PUT", "users/me")
    assert (reply.status, reply.code, reply.headers["allow"]) == (405, "METHOD_NOT_ALLOWED", "GET, HEAD, PATCH")


async def test_413_payload_too_large_is_decided_by_the_declared_size_before_reading(server: RestServer) -> None:
    reply = await server.client([echo()])("POST", "things", body=b"{}", headers={"Content-Length": "65537"})
    assert (reply.status, reply.code) == (413, "PAYLOAD_TOO_LARGE")
    assert reply.details == {"max_bytes": limits.BODY_BYTES_MAX, "received_bytes": 65537}


async def test_413_payload_too_large_is_decided_by_what_arrives(server: RestServer) -> None:
    chunks = [b" " * 40_000, b" " * 40_000, b'{"name": "x"}']
    reply = await server.client([echo()])("POST", "things", body=chunks, headers={"Content-Length": "5"})
    assert (reply.status, reply.details["received_bytes"]) == (413, 80_000)


async def test_a_body_of_exactly_the_limit_is_read_whatever_its_chunks(server: RestServer) -> None:
    body = b'{"name": "x"}' + b" " * (limits.BODY_BYTES_MAX - 13)
    reply = await server.client([echo()])("POST", "things", body=[body[:7], body[7:]])
    assert reply.data["body"] == {"name": "x", "other": 0}


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16"]
)
async def test_415_unsupported_media_type(server: RestServer, kind: str) -> None:
    reply = await server.client([echo()])("POST", "things", {"name": "x"}, headers={"Content-Type": kind})
    assert (reply.status, reply.code) == (415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize(
    "kind", ["application/json", "APPLICATION/JSON; charset=UTF-8", 'application/json;charset="utf-8"']
)
async def test_json_is_recognised_however_it_is_written(server: RestServer, kind: str) -> None:
    reply = await server.client([echo()])("POST", "things", {"name": "x"}, headers={"Content-Type": kind})
    assert reply.status == 200


async def test_500_internal_error_tells_nothing_but_its_request_id(server: RestServer) -> None:
    rest = server.client([failing(ValueError("secret detail"))])
    reply = await rest("GET", "fails")
    assert (reply.status, reply.code) == (500, "INTERNAL_ERROR")
    assert b"secret" not in reply.body
    ((request_id, failure),) = server.observed.failures
    assert request_id == reply.json["error"]["request_id"]
    assert isinstance(failure, ValueError)


async def test_500_internal_error_of_the_operators_kind_is_reported_too(server: RestServer) -> None:
    reply = await server.client([failing(CounterMissing("chat_1"))])("GET", "fails")
    assert (reply.status, reply.headers["retry-after"], len(server.observed.failures)) == (500, "60", 1)


@pytest.mark.parametrize(
    ("failure", "code", "wait"),
    [
        (OutcomeUnknown("store"), "SERVICE_UNAVAILABLE", "1"),
        (ServerBusy("busy", retry_after_seconds=2.4), "SERVER_BUSY", "3"),
    ],
)
async def test_503_always_says_how_long_to_wait(server: RestServer, failure: Exception, code: str, wait: str) -> None:
    reply = await server.client([failing(failure)])("GET", "fails")
    assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, code, wait)
    assert not server.observed.failures


# --- bodies and order ------------------------------------------------------------------------------------------------


async def test_unknown_fields_are_ignored_and_the_hash_does_not_depend_on_spelling(server: RestServer) -> None:
    rest = server.client([echo()])
    one = await rest("POST", "things", body=b'{"name": "x", "extra": [1]}')
    other = await rest("POST", "things", body=b'{ "extra":[1],"name":"\\u0078" }')
    third = await rest("POST", "things", body=b'{"name": "x"}')
    assert one.data["hash"] == other.data["hash"] == hashlib.sha256(b'{"extra":[1],"name":"x"}').hexdigest()
    assert third.data["hash"] != one.data["hash"]


async def test_an_optional_body_may_be_left_out(server: RestServer) -> None:
    class Maybe(msgspec.Struct, frozen=True):
        name: str | None = None

    rest = server.client([echo(body=Maybe, body_optional=True)])
    assert (await rest("POST", "things")).data["body"] == {"name": None}


async def test_a_device_id_is_lower_case_or_nothing(server: RestServer) -> None:
    rest = server.client([echo()])
    assert (await rest("POST", "things", {"name": "x"}, device=DEVICE.upper())).data["device"] == DEVICE
    assert (await rest("POST", "things", {"name": "x"}, device="mine")).data["device"] is None


async def test_the_token_is_asked_for_before_the_body_is_read(rest: RestClient) -> None:
    reply = await rest("PATCH", "users/me", body=b"not json", headers={"Content-Length": "99999999"})
    assert reply.status == 401


async def test_the_observer_hears_the_template_and_never_the_path(server: RestServer, rest: RestClient) -> None:
    await rest("GET", "users/user_secret")
    await rest("GET", "/secret")
    assert server.observed.requests == [("/api/v1/users/{user_id}", "GET", 401), ("unmatched", "GET", 404)]


async def test_a_caller_who_leaves_before_the_body_is_whole_is_not_answered(server: RestServer) -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(event: Any) -> None:
        sent.append(event)

    scope = {"type": "http", "method": "POST", "path": "/api/v1/things", "query_string": b"", "headers": []}
    await server.app([echo()])({**scope, "client": None}, receive, send)
    assert not sent


# --- other origins ---------------------------------------------------------------------------------------------------


PREFLIGHT = {"Origin": "https://chat.example", "Access-Control-Request-Method": "PATCH"}


async def test_without_a_list_no_other_origin_is_let_in(rest: RestClient) -> None:
    reply = await rest("OPTIONS", "users/me", headers=PREFLIGHT)
    assert reply.status == 405
    assert "access-control-allow-origin" not in reply.headers


async def test_a_listed_origin_is_let_in_and_may_read_our_headers(server: RestServer) -> None:
    rest = server.client(cors_origins=["https://chat.example"])
    asked = await rest("OPTIONS", "users/me", headers=PREFLIGHT)
    assert asked.status == 204
    assert asked.headers["access-control-allow-origin"] == "https://chat.example"
    assert asked.headers["access-control-allow-methods"] == "GET, HEAD, PATCH"
    answered = await rest("GET", "users/me", headers=PREFLIGHT)
    assert answered.headers["vary"] == "Origin"
    assert "X-RateLimit-Remaining" in answered.headers["access-control-expose-headers"]


async def test_an_origin_that_is_not_listed_is_not_let_in(server: RestServer) -> None:
    rest = server.client(cors_origins=["https://chat.example"])
    reply = await rest("GET", "/health", headers={"Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in reply.headers
    assert reply.headers["vary"] == "Origin"


# --- whose address ---------------------------------------------------------------------------------------------------


async def test_only_a_trusted_proxy_may_speak_for_others(server: RestServer) -> None:
    rest = server.client(trusted_proxies=["10.0.0.0/8"])
    rest.ip = "10.1.2.3"
    first = await rest("GET", "/nowhere", headers={"X-Forwarded-For": "198.51.100.1"})
    second = await rest("GET", "/nowhere", headers={"X-Forwarded-For": "198.51.100.2"})
    assert first.headers["x-ratelimit-remaining"] == second.headers["x-ratelimit-remaining"] == "119"
    rest.ip = "192.0.2.1"
    await rest("GET", "/nowhere", headers={"X-Forwarded-For": "198.51.100.3"})
    liar = await rest("GET", "/nowhere", headers={"X-Forwarded-For": "198.51.100.4"})
    assert liar.headers["x-ratelimit-remaining"] == "118"

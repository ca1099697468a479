"""Rate limits: who is counted where, what the headers say, and what happens when counting fails."""

from typing import Any

import pytest

from seriatim.api.core.rate_limit import Bucket, RateLimiter
from seriatim.domain.errors import OutcomeUnknown, RateLimited, ServiceUnavailable
from seriatim.engines.inprocess.quotas import InProcessQuotas
from tests.support.manual_clock import ManualClock
from tests.support.rest import OTHER_DEVICE, OTHER_PHONE, PHONE, RestClient, RestServer


class Uncountable(InProcessQuotas):
    """Counters that do not answer."""

    def _now(self, timeout_s: float) -> float:
        raise OutcomeUnknown("down")


async def test_429_tells_limit_window_and_wait(server: RestServer, rest: RestClient) -> None:
    token = (await rest.sign_in())["tokens"]["access_token"]
    for left in range(59, -1, -1):
        reply = await rest("PATCH", "users/me", {"display_name": "Ada"}, token=token)
        assert (reply.status, reply.headers["x-ratelimit-remaining"]) == (200, str(left))
    server.clock.advance(20)
    refused = await rest("PATCH", "users/me", {"display_name": "Ada"}, token=token)
    assert (refused.status, refused.code) == (429, "RATE_LIMITED")
    assert refused.details == {"limit": 60, "window_seconds": 60, "retry_after_seconds": 40}
    assert (refused.headers["retry-after"], refused.headers["x-ratelimit-remaining"]) == ("40", "0")
    server.clock.advance(41)
    assert (await rest("PATCH", "users/me", {"display_name": "Ada"}, token=token)).status == 200


async def test_reads_and_writes_of_different_users_are_counted_apart(rest: RestClient) -> None:
    one = (await rest.sign_in())["tokens"]["access_token"]
    other = (await rest.sign_in(OTHER_PHONE, OTHER_DEVICE))["tokens"]["access_token"]
    assert (await rest("GET", "users/me", token=one)).headers["x-ratelimit-remaining"] == "299"
    assert (await rest("HEAD", "users/me", token=one)).headers["x-ratelimit-remaining"] == "298"
    assert (await rest("GET", "users/me", token=other)).headers["x-ratelimit-remaining"] == "299"
    patched = await rest("PATCH", "users/me", {"display_name": "Ada"}, token=one)
    assert patched.headers["x-ratelimit-remaining"] == "59"


async def test_strangers_are_counted_by_address_also_when_they_guess_tokens(rest: RestClient) -> None:
    for _ in range(120):
        assert (await rest("GET", "users/me", token="guess")).status == 401
    assert (await rest("GET", "users/me", token="guess")).status == 429
    assert (await rest("GET", "/nowhere")).status == 429
    rest.ip = "192.0.2.2"
    assert (await rest("GET", "users/me", token="guess")).status == 401


async def test_requests_that_need_no_token_are_counted_by_address_too(rest: RestClient) -> None:
    for left in range(119, -1, -1):
        reply = await rest("GET", "openapi.json")
        assert (reply.status, reply.headers["x-ratelimit-remaining"]) == (200, str(left))
    assert (await rest("GET", "openapi.json")).status == 429
    rest.ip = "192.0.2.2"
    assert (await rest("GET", "openapi.json")).status == 200


async def test_a_signed_in_user_does_not_suffer_from_strangers_at_the_same_address(rest: RestClient) -> None:
    token = (await rest.sign_in())["tokens"]["access_token"]
    for _ in range(125):
        await rest("GET", "/nowhere")
    assert (await rest("GET", "users/me", token=token)).status == 200


async def test_health_is_never_refused_for_being_asked_often(rest: RestClient) -> None:
    for _ in range(129):
        await rest("GET", "/health")
    reply = await rest("GET", "/health")
    assert (reply.status, reply.headers["x-ratelimit-remaining"]) == (200, "120")


async def test_three_codes_per_phone_and_ten_per_address_in_fifteen_minutes(
    server: RestServer, rest: RestClient
) -> None:
    statuses = [(await rest("POST", "auth/request-otp", {"phone_number": PHONE})).status for _ in range(4)]
    assert statuses == [200, 200, 200, 429]
    numbers = [f"+4915112340{number:03d}" for number in range(7)]
    statuses = [(await rest("POST", "auth/request-otp", {"phone_number": each})).status for each in numbers]
    assert statuses == [200] * 6 + [429]
    rest.ip = "192.0.2.2"
    assert (await rest("POST", "auth/request-otp", {"phone_number": numbers[6]})).status == 200
    server.clock.advance(901)
    rest.ip = "192.0.2.1"
    assert (await rest("POST", "auth/request-otp", {"phone_number": PHONE})).status == 200


async def test_ten_lookups_a_minute_and_a_hundred_an_hour(server: RestServer, rest: RestClient) -> None:
    signed_in = await rest.sign_in()
    call: Any = {"method": "POST", "path": "users/lookup", "json": {"phone_numbers": [PHONE]}}
    bucket = f"rl:lookup-hour:{signed_in['user']['user_id']}"
    for _ in range(99):
        await server.quotas.slide(bucket, limit=100, window_s=3600, timeout_s=1)
    token = signed_in["tokens"]["access_token"]
    reply = await rest(**call, token=token)
    assert (reply.status, reply.headers["x-ratelimit-limit"], reply.headers["x-ratelimit-remaining"]) == (
        200,
        "100",
        "0",
    )
    refused = await rest(**call, token=token)
    assert (refused.status, refused.details["window_seconds"]) == (429, 3600)
    for _ in range(7):
        await rest(**call, token=token)
    server.clock.advance(5)
    assert (await rest(**call, token=token)).headers["x-ratelimit-limit"] == "100"
    assert (await rest(**call, token=token)).details["window_seconds"] == 60


async def test_without_counters_reads_pass_and_sign_in_is_closed(server: RestServer, rest: RestClient) -> None:
    token = (await rest.sign_in())["tokens"]["access_token"]
    blind = server.client(quotas=Uncountable(server.clock))
    passed = await blind("GET", "users/me", token=token)
    assert (passed.status, passed.headers["x-ratelimit-limit"]) == (200, "300")
    for reply in (await blind("POST", "auth/request-otp", {"phone_number": PHONE}), await blind.verify("000000")):
        assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "SERVICE_UNAVAILABLE", "1")


async def test_rate_limits_that_are_off_refuse_no_request_and_are_still_reported(server: RestServer) -> None:
    rest = server.client(rate_limits_off=True)
    for _ in range(129):
        await rest("GET", "/nowhere")
    reply = await rest("GET", "/nowhere")
    assert (reply.status, reply.headers["x-ratelimit-limit"]) == (404, "120")
    for _ in range(5):
        await rest("POST", "auth/request-otp", {"phone_number": PHONE})
    asked = await rest("POST", "auth/request-otp", {"phone_number": PHONE})
    assert (asked.status, asked.headers["x-ratelimit-limit"]) == (200, "3")


async def test_the_tightest_bucket_is_the_one_reported() -> None:
    clock = ManualClock()
    meter = RateLimiter(InProcessQuotas(clock), clock, rate_limits_off=False).meter()
    for bucket in (
        Bucket(name="wide", limit=100, window_s=60),
        Bucket(name="tight", limit=3, window_s=900),
        Bucket(name="middle", limit=10, window_s=60),
    ):
        await meter.spend(bucket)
    assert (meter.headers()["x-ratelimit-limit"], meter.headers()["x-ratelimit-remaining"]) == ("3", "2")


async def test_a_lock_closes_with_the_last_permitted_try_and_outlives_the_window() -> None:
    clock = ManualClock()
    rate_limiter = RateLimiter(InProcessQuotas(clock), clock, rate_limits_off=False)
    bucket = Bucket(name="tries", limit=2, window_s=60, fail_closed=True, lockout="lock")
    await rate_limiter.meter().spend(bucket)
    await rate_limiter.meter().spend(bucket)
    clock.advance(61)
    with pytest.raises(RateLimited) as caught:
        await rate_limiter.meter().spend(bucket)
    assert caught.value.retry_after_seconds == 839
    clock.advance(840)
    await rate_limiter.meter().spend(bucket)


async def test_a_closed_bucket_that_cannot_be_counted_refuses() -> None:
    clock = ManualClock()
    rate_limiter = RateLimiter(Uncountable(clock), clock, rate_limits_off=False)
    await rate_limiter.meter().spend(Bucket(name="open", limit=1, window_s=60))
    with pytest.raises(ServiceUnavailable):
        await rate_limiter.meter().spend(Bucket(name="closed", limit=1, window_s=60, fail_closed=True))

"""Staying signed in and signing out: rotation, reuse, and what a refresh token is bound to."""

import asyncio
from typing import Any

import pytest

from seriatim.domain.errors import OutcomeUnknown
from tests.support.rest import OTHER_DEVICE, OTHER_PHONE, RestClient, RestServer

# --- refreshing ------------------------------------------------------------------------------------------------------


async def test_R13_a_refresh_from_another_device_is_a_device_mismatch(rest: RestClient) -> None:
    token = (await rest.sign_in())["tokens"]["refresh_token"]
    reply = await rest.refresh(token, OTHER_DEVICE)
    assert (reply.status, reply.code) == (401, "DEVICE_MISMATCH")
    assert (await rest.refresh(token)).status == 200


async def test_R14_a_refresh_token_that_comes_back_ends_the_session(server: RestServer, rest: RestClient) -> None:
    signed_in = await rest.sign_in()
    stolen = signed_in["tokens"]["refresh_token"]
    fresh = (await rest.refresh(stolen)).data["tokens"]
    reply = await rest.refresh(stolen)
    assert (reply.status, reply.code) == (401, "INVALID_REFRESH_TOKEN")
    assert (await rest.refresh(fresh["refresh_token"])).code == "INVALID_REFRESH_TOKEN"
    assert (await rest("GET", "users/me", token=fresh["access_token"])).details == {"reason": "token_revoked"}
    ((event, fields),) = server.observed.audits
    assert (event, fields["session_id"]) == ("auth.refresh_token_reuse", signed_in["session"]["session_id"])


async def test_R14_a_thief_on_another_device_ends_the_session_too(rest: RestClient) -> None:
    stolen = (await rest.sign_in())["tokens"]["refresh_token"]
    fresh = (await rest.refresh(stolen)).data["tokens"]
    assert (await rest.refresh(stolen, OTHER_DEVICE)).code == "INVALID_REFRESH_TOKEN"
    assert (await rest.refresh(fresh["refresh_token"])).code == "INVALID_REFRESH_TOKEN"


async def test_within_the_leeway_the_same_device_may_repeat_a_refresh(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    server = RestServer(tmp_path_factory.mktemp("keys") / "keys", reuse_leeway_s=10)
    rest = server.client()
    first = (await rest.sign_in())["tokens"]["refresh_token"]
    lost = (await rest.refresh(first)).data["tokens"]["refresh_token"]
    server.clock.advance(9)
    again = (await rest.refresh(first)).data["tokens"]["refresh_token"]
    server.clock.advance(11)
    assert (await rest.refresh(lost)).code == "INVALID_REFRESH_TOKEN"
    assert (await rest.refresh(again)).code == "INVALID_REFRESH_TOKEN", "the lost one came back too late: reuse"
    await server.close()


async def test_of_two_refreshes_at_once_one_wins_and_the_session_lives(rest: RestClient) -> None:
    token = (await rest.sign_in())["tokens"]["refresh_token"]
    replies = await asyncio.gather(*[rest.refresh(token) for _ in range(2)])
    assert sorted(reply.status for reply in replies) == [200, 401]
    (winner,) = [reply for reply in replies if reply.status == 200]
    assert (await rest.refresh(winner.data["tokens"]["refresh_token"])).status == 200


async def test_a_rotation_whose_answer_was_lost_is_found_out_and_answered(server: RestServer, rest: RestClient) -> None:
    token = (await rest.sign_in())["tokens"]["refresh_token"]
    rotate = server.accounts.rotate

    async def applied_but_unanswered(*arguments: Any, **options: Any) -> bool:
        await rotate(*arguments, **options)
        raise OutcomeUnknown("no answer")

    server.accounts.rotate = applied_but_unanswered  # type: ignore[method-assign]
    reply = await rest.refresh(token)
    assert reply.status == 200
    server.accounts.rotate = rotate  # type: ignore[method-assign]
    assert (await rest.refresh(reply.data["tokens"]["refresh_token"])).status == 200


async def test_refreshing_does_not_make_a_session_live_longer(server: RestServer, rest: RestClient) -> None:
    token = (await rest.sign_in())["tokens"]["refresh_token"]
    server.clock.advance(29 * 86_400)
    token = (await rest.refresh(token)).data["tokens"]["refresh_token"]
    server.clock.advance(86_401)
    assert (await rest.refresh(token)).code == "INVALID_REFRESH_TOKEN"


async def test_a_refresh_may_carry_its_expired_access_token_but_no_other(server: RestServer, rest: RestClient) -> None:
    mine = (await rest.sign_in())["tokens"]
    other = (await rest.sign_in(OTHER_PHONE, OTHER_DEVICE))["tokens"]
    server.clock.advance(4000)
    assert (await rest.refresh(mine["refresh_token"], token="nonsense")).code == "UNAUTHORIZED"
    assert (await rest.refresh(mine["refresh_token"], token=other["access_token"])).code == "INVALID_REFRESH_TOKEN"
    assert (await rest.refresh(mine["refresh_token"], token=mine["access_token"])).status == 200


@pytest.mark.parametrize("token", ["x", "sess_1.short", ".", "sess_1." + "A" * 43])
async def test_what_never_was_a_refresh_token_is_invalid(rest: RestClient, token: str) -> None:
    reply = await rest.refresh(token)
    assert (reply.status, reply.code) == (401, "INVALID_REFRESH_TOKEN")


async def test_refreshing_needs_a_device(rest: RestClient) -> None:
    reply = await rest.refresh("x", None)
    assert (reply.status, reply.field_error) == (400, ("X-Device-ID", "REQUIRED"))


async def test_refreshing_more_than_thirty_times_a_minute_is_too_often(rest: RestClient) -> None:
    token = (await rest.sign_in())["tokens"]["refresh_token"]
    for _ in range(30):
        token = (await rest.refresh(token)).data["tokens"]["refresh_token"]
    reply = await rest.refresh(token)
    assert (reply.status, reply.details["limit"]) == (429, 30)


# --- signing out -----------------------------------------------------------------------------------------------------


async def test_signing_out_with_a_refresh_token_takes_only_the_current_one(rest: RestClient) -> None:
    tokens = (await rest.sign_in())["tokens"]
    fresh = (await rest.refresh(tokens["refresh_token"])).data["tokens"]
    old = await rest("POST", "auth/logout", {"refresh_token": tokens["refresh_token"]}, token=fresh["access_token"])
    assert (old.status, old.code) == (401, "INVALID_REFRESH_TOKEN")
    new = await rest("POST", "auth/logout", {"refresh_token": fresh["refresh_token"]}, token=fresh["access_token"])
    assert (new.status, new.body) == (204, b"")

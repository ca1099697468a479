"""Users over REST: oneself, others, and the address book."""

import asyncio
from typing import Any

import pytest

from seriatim.domain.errors import OutcomeUnknown
from tests.support.rest import OTHER_DEVICE, OTHER_PHONE, PHONE, RestClient, RestServer

UNKNOWN_PHONE = "+33612345678"


@pytest.fixture
async def token(rest: RestClient) -> str:
    return str((await rest.sign_in())["tokens"]["access_token"])


async def test_me_is_who_the_token_says(rest: RestClient, token: str) -> None:
    me = (await rest("GET", "users/me", token=token)).data
    assert list(me) == ["user_id", "phone_number", "display_name", "created_at", "updated_at"]
    assert (me["phone_number"], me["display_name"]) == (PHONE, None)


async def test_a_name_is_changed_and_seen_at_once(server: RestServer, rest: RestClient, token: str) -> None:
    before = (await rest("GET", "users/me", token=token)).data
    server.clock.advance(5)
    changed = await rest("PATCH", "users/me", {"display_name": "Ada"}, token=token)
    assert changed.data["display_name"] == "Ada"
    assert changed.data["updated_at"] > before["updated_at"]
    assert (await rest("GET", "users/me", token=token)).data == changed.data


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ({}, "REQUIRED"),
        ({"display_name": None}, "INVALID_FORMAT"),
        ({"display_name": ""}, "MIN_LENGTH"),
        ({"display_name": "x" * 65}, "TOO_LONG"),
        ({"display_name": " Ada"}, "INVALID_FORMAT"),
        ({"display_name": "Ada\u0007"}, "INVALID_FORMAT"),
        ({"display_name": "Ada\n"}, "INVALID_FORMAT"),
        ({"display_name": 5}, "INVALID_FORMAT"),
    ],
)
async def test_a_name_that_is_none_is_refused(rest: RestClient, token: str, patch: Any, code: str) -> None:
    reply = await rest("PATCH", "users/me", patch, token=token)
    assert (reply.status, reply.field_error) == (400, ("display_name", code))
    assert (await rest("GET", "users/me", token=token)).data["display_name"] is None


async def test_others_see_a_name_but_no_phone_number(rest: RestClient, token: str) -> None:
    other = await rest.sign_in(OTHER_PHONE, OTHER_DEVICE)
    seen = (await rest("GET", f"users/{other['user']['user_id']}", token=token)).data
    assert list(seen) == ["user_id", "display_name", "created_at"]


async def test_404_for_a_user_id_that_does_not_exist(rest: RestClient, token: str) -> None:
    reply = await rest("GET", "users/user_nobody", token=token)
    assert (reply.status, reply.code) == (404, "NOT_FOUND")


async def test_a_lookup_keeps_the_order_and_says_each_number_once(
    server: RestServer, rest: RestClient, token: str
) -> None:
    other = await rest.sign_in(OTHER_PHONE, OTHER_DEVICE)
    numbers = [UNKNOWN_PHONE, OTHER_PHONE, PHONE, OTHER_PHONE, UNKNOWN_PHONE]
    found = (await rest("POST", "users/lookup", {"phone_numbers": numbers}, token=token)).data
    assert [each["phone_number"] for each in found["users"]] == [OTHER_PHONE, PHONE]
    assert found["users"][0]["user_id"] == other["user"]["user_id"]
    assert found["not_found"] == [UNKNOWN_PHONE]
    ((event, fields),) = server.observed.audits
    assert (event, fields["asked"], fields["found"]) == ("users.lookup", 3, 2)
    assert PHONE not in str(fields)


async def test_a_lookup_takes_a_quarter_of_a_second_whatever_it_finds(
    server: RestServer, rest: RestClient, token: str
) -> None:
    for chance, least_s, most_s in [(0.0, 0.19, 0.24), (0.999, 0.29, 0.4)]:
        server.clock.random = lambda chance=chance: chance  # type: ignore[method-assign,misc]
        began = asyncio.get_running_loop().time()
        await rest("POST", "users/lookup", {"phone_numbers": [UNKNOWN_PHONE]}, token=token)
        assert least_s < asyncio.get_running_loop().time() - began < most_s + 1


@pytest.mark.parametrize(
    ("numbers", "field", "code"),
    [
        ([], "phone_numbers", "MIN_LENGTH"),
        ([PHONE] * 101, "phone_numbers", "TOO_LONG"),
        ([PHONE, "123"], "phone_numbers[1]", "INVALID_FORMAT"),
    ],
)
async def test_a_lookup_takes_one_to_a_hundred_numbers(
    rest: RestClient, token: str, numbers: list[str], field: str, code: str
) -> None:
    reply = await rest("POST", "users/lookup", {"phone_numbers": numbers}, token=token)
    assert (reply.status, reply.field_error) == (400, (field, code))


async def test_503_when_the_store_does_not_answer(server: RestServer, rest: RestClient, token: str) -> None:
    await rest("GET", "users/me", token=token)
    server.wire.broken["users"] = OutcomeUnknown("down")
    reply = await rest("GET", "users/me", token=token)
    assert (reply.status, reply.code) == (503, "SERVICE_UNAVAILABLE")

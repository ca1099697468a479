"""Signing in, staying signed in, signing out: the flows of docs/spec/rest.md#acceptance-flows and its promises."""

import asyncio
import base64

import msgspec
import pytest

from seriatim.domain import limits
from seriatim.domain.account import Code, phone_hash
from seriatim.domain.errors import OutcomeUnknown, ServiceUnavailable
from tests.support.rest import DEVICE, OTHER_DEVICE, OTHER_PHONE, PHONE, RestClient, RestServer


def device(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


async def ask_code(rest: RestClient, phone: str = PHONE) -> str:
    assert (await rest("POST", "auth/request-otp", {"phone_number": phone})).status == 200
    return await rest.server.delivered_code()


def wrong(code: str) -> str:
    return f"{(int(code) + 1) % 1_000_000:06d}"


# --- flows -----------------------------------------------------------------------------------------------------------


async def test_F1_from_the_first_code_to_a_token_that_no_longer_works(rest: RestClient) -> None:
    verified = await rest.verify(await ask_code(rest))
    assert verified.status == 201
    signed_in = verified.data
    assert signed_in["is_new_user"] is True
    assert signed_in["user"]["phone_number"] == PHONE
    assert signed_in["user"]["display_name"] is None
    assert signed_in["session"]["device_id"] == DEVICE
    assert (signed_in["tokens"]["token_type"], signed_in["tokens"]["expires_in"]) == ("Bearer", 3600)
    token = signed_in["tokens"]["access_token"]
    me = await rest("GET", "users/me", token=token)
    assert me.data["user_id"] == signed_in["user"]["user_id"]
    refreshed = (await rest.refresh(signed_in["tokens"]["refresh_token"])).data["tokens"]
    assert (await rest("GET", "users/me", token=refreshed["access_token"])).status == 200
    assert (await rest("POST", "auth/logout", token=refreshed["access_token"])).status == 204
    for old in (token, refreshed["access_token"]):
        reply = await rest("GET", "users/me", token=old)
        assert (reply.status, reply.details) == (401, {"reason": "token_revoked"})
    assert (await rest.refresh(refreshed["refresh_token"])).code == "INVALID_REFRESH_TOKEN"


async def test_F2_a_second_device_adds_a_session_and_the_same_one_replaces_its_own(
    server: RestServer, rest: RestClient
) -> None:
    first = await rest.sign_in()
    server.clock.advance(1)
    second = await rest.verify(await ask_code(rest), device=OTHER_DEVICE)
    server.clock.advance(1)
    assert (second.status, second.data["is_new_user"]) == (200, False)
    assert second.data["user"]["user_id"] == first["user"]["user_id"]
    third = (await rest.verify(await ask_code(rest))).data
    sessions = (await rest("GET", "sessions", token=third["tokens"]["access_token"])).data
    ids = [each["session_id"] for each in sessions]
    assert ids == [second.data["session"]["session_id"], third["session"]["session_id"]]
    replaced = await rest("GET", "users/me", token=first["tokens"]["access_token"])
    assert replaced.details == {"reason": "token_revoked"}


async def test_F3_five_wrong_codes_lock_the_phone_out_even_for_the_right_one(
    server: RestServer, rest: RestClient
) -> None:
    code = await ask_code(rest)
    for _ in range(5):
        reply = await rest.verify(wrong(code))
        assert (reply.status, reply.code) == (401, "INVALID_OTP")
    locked = await rest.verify(code)
    assert (locked.status, locked.code) == (429, "RATE_LIMITED")
    assert locked.headers["retry-after"] == "900"
    assert locked.details == {"limit": 5, "window_seconds": 300, "retry_after_seconds": 900}
    server.clock.advance(880)
    still = await rest.verify(await ask_code(rest))
    assert (still.status, int(still.headers["retry-after"])) == (429, 20)
    server.clock.advance(21)
    assert (await rest.verify(await ask_code(rest))).status == 201


async def test_F4_a_retry_by_the_same_device_gets_the_same_session_and_tokens_that_work(rest: RestClient) -> None:
    code = await ask_code(rest)
    first = await rest.verify(code)
    again = await rest.verify(code)
    assert (first.status, again.status) == (201, 201)
    assert again.data["is_new_user"] is True
    assert again.data["session"] == first.data["session"]
    assert again.data["user"] == first.data["user"]
    assert again.data["tokens"] != first.data["tokens"]
    assert (await rest("GET", "users/me", token=again.data["tokens"]["access_token"])).status == 200
    stale = await rest.refresh(first.data["tokens"]["refresh_token"])
    assert (stale.status, stale.code) == (401, "INVALID_REFRESH_TOKEN")
    assert (await rest.refresh(again.data["tokens"]["refresh_token"])).status == 200


async def test_F4_a_spent_code_is_worth_nothing_to_another_device(rest: RestClient) -> None:
    code = await ask_code(rest)
    await rest.verify(code)
    reply = await rest.verify(code, device=OTHER_DEVICE)
    assert (reply.status, reply.code) == (401, "INVALID_OTP")


async def test_F4_a_retry_is_worth_nothing_once_the_code_has_expired(server: RestServer, rest: RestClient) -> None:
    code = await ask_code(rest)
    await rest.verify(code)
    server.clock.advance(300)
    assert (await rest.verify(code)).code == "INVALID_OTP"


async def test_a_spent_code_with_other_digits_opens_nothing(rest: RestClient) -> None:
    code = await ask_code(rest)
    await rest.verify(code)
    assert (await rest.verify(wrong(code))).code == "INVALID_OTP"


# --- asking for a code -----------------------------------------------------------------------------------------------


async def test_asking_again_sends_the_same_code_with_the_same_end(server: RestServer, rest: RestClient) -> None:
    first = await rest("POST", "auth/request-otp", {"phone_number": PHONE})
    server.clock.advance(100)
    again = await rest("POST", "auth/request-otp", {"phone_number": PHONE})
    await server.delivered_code()
    assert first.data == again.data
    assert first.data["retry_after_seconds"] == 60
    assert len(server.code_sender.codes) == 2
    assert server.code_sender.codes[0] == server.code_sender.codes[1]


async def test_an_expired_code_is_replaced_at_once(server: RestServer, rest: RestClient) -> None:
    old = await ask_code(rest)
    server.clock.advance(301)
    new = await ask_code(rest)
    assert (await rest.verify(old if old != new else wrong(new))).code == "INVALID_OTP"
    assert (await rest.verify(new)).status == 201


async def test_the_answer_is_the_same_for_known_and_unknown_numbers(rest: RestClient) -> None:
    await rest.sign_in()
    known = await rest("POST", "auth/request-otp", {"phone_number": PHONE})
    unknown = await rest("POST", "auth/request-otp", {"phone_number": OTHER_PHONE})
    assert known.status == unknown.status == 200
    assert list(known.data) == list(unknown.data)


async def test_R19_at_most_one_code_per_phone_is_pending(server: RestServer, rest: RestClient) -> None:
    replies = await asyncio.gather(*[rest("POST", "auth/request-otp", {"phone_number": PHONE}) for _ in range(3)])
    await server.delivered_code()
    assert len({reply.data["expires_at"] for reply in replies}) == 1
    assert len(dict.fromkeys(server.code_sender.codes)) == 1
    assert (await rest.verify(server.code_sender.codes[0][1])).status == 201


async def test_a_carrier_that_fails_is_noted_without_the_code_and_the_answer_stays(
    server: RestServer, rest: RestClient
) -> None:
    server.code_sender.failure = ServiceUnavailable("could not send 123456")
    reply = await rest("POST", "auth/request-otp", {"phone_number": PHONE})
    await server.otp.settled()
    assert reply.status == 200
    ((event, fields),) = server.observed.audits
    assert event == "auth.otp_delivery_failed"
    assert fields == {"phone": phone_hash(PHONE), "reason": "ServiceUnavailable"}


async def test_a_carrier_that_hangs_delays_neither_the_response_nor_the_shutdown(
    server: RestServer, rest: RestClient
) -> None:
    async def never(phone_number: str, code: str) -> None:
        await asyncio.Event().wait()

    server.code_sender.send = never  # type: ignore[method-assign]
    assert (await rest("POST", "auth/request-otp", {"phone_number": PHONE})).status == 200
    await server.close()


async def test_codes_do_not_pile_up_behind_a_carrier_that_hangs(
    server: RestServer, rest: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CODE_DELIVERIES_MAX", 1)
    await rest("POST", "auth/request-otp", {"phone_number": PHONE})
    assert (await rest("POST", "auth/request-otp", {"phone_number": OTHER_PHONE})).status == 200
    await server.otp.settled()
    assert [phone for phone, _ in server.code_sender.codes] == [PHONE]
    assert server.observed.audits == [
        ("auth.otp_delivery_failed", {"phone": phone_hash(OTHER_PHONE), "reason": "queue full"})
    ]


async def test_without_a_code_no_user_signs_in(rest: RestClient) -> None:
    assert (await rest.verify("000000")).code == "INVALID_OTP"


@pytest.mark.parametrize(
    "number", ["12345678", "+0123456789", "+123456", "+1234567890123456", "+49 1511", "+4915112345678\n"]
)
async def test_a_phone_number_is_e164(rest: RestClient, number: str) -> None:
    reply = await rest("POST", "auth/request-otp", {"phone_number": number})
    assert (reply.status, reply.field_error) == (400, ("phone_number", "INVALID_FORMAT"))


@pytest.mark.parametrize("code", ["00000", "0000000", "00000a", "٠٠٠٠٠٠", "000000\n"])
async def test_a_code_has_six_digits(rest: RestClient, code: str) -> None:
    reply = await rest.verify(code)
    assert (reply.status, reply.field_error) == (400, ("otp", "INVALID_FORMAT"))


async def test_the_device_must_say_the_same_in_header_and_body(rest: RestClient) -> None:
    body = {"phone_number": PHONE, "otp": "000000", "device_id": DEVICE}
    other = await rest("POST", "auth/verify-otp", body, device=OTHER_DEVICE)
    assert (other.status, other.field_error) == (400, ("device_id", "MISMATCH"))
    missing = await rest("POST", "auth/verify-otp", body)
    assert (missing.status, missing.field_error) == (400, ("X-Device-ID", "REQUIRED"))
    malformed = await rest("POST", "auth/verify-otp", body, device="mine")
    assert (malformed.status, malformed.field_error) == (400, ("X-Device-ID", "INVALID_FORMAT"))


async def test_a_device_may_spell_its_id_in_any_case(rest: RestClient) -> None:
    code = await ask_code(rest)
    body = {"phone_number": PHONE, "otp": code, "device_id": DEVICE.upper()}
    assert (await rest("POST", "auth/verify-otp", body, device=DEVICE)).data["session"]["device_id"] == DEVICE


# --- promises --------------------------------------------------------------------------------------------------------


async def test_R15_five_sessions_per_user_and_the_oldest_goes(server: RestServer, rest: RestClient) -> None:
    all_tokens = []
    for number in range(6):
        server.clock.advance(301)
        all_tokens.append((await rest.sign_in(device=device(number)))["tokens"])
    sessions = (await rest("GET", "sessions", token=all_tokens[-1]["access_token"])).data
    assert [each["device_id"] for each in sessions] == [device(number) for number in range(1, 6)]
    assert (await rest.refresh(all_tokens[0]["refresh_token"], device(0))).code == "INVALID_REFRESH_TOKEN"
    assert (await rest.refresh(all_tokens[1]["refresh_token"], device(1))).status == 200


async def test_R15_a_wrong_code_ends_no_session(rest: RestClient) -> None:
    token = (await rest.sign_in())["tokens"]["access_token"]
    await rest.verify(wrong(await ask_code(rest)))
    assert (await rest("GET", "users/me", token=token)).status == 200


async def test_R15_a_process_that_dies_after_the_sign_in_leaves_no_sixth_session(
    server: RestServer, rest: RestClient
) -> None:
    for number in range(5):
        server.clock.advance(301)
        await rest.sign_in(device=device(number))
    code = await ask_code(rest)
    server.wire.broken["users"] = OutcomeUnknown("nothing after the sign-in happens any more")
    assert (await rest.verify(code, device=device(5))).status == 503
    assert sorted(each.device_id for each in server.store.accounts.sessions) == sorted(map(device, range(1, 6)))


async def test_R15_a_sign_in_that_fails_leaves_the_stored_session(server: RestServer, rest: RestClient) -> None:
    old = await rest.sign_in()
    code = await ask_code(rest)
    server.wire.broken["sign_in"] = OutcomeUnknown("lost before it was applied")
    assert (await rest.verify(code)).status == 503
    assert [each.session_id for each in server.store.accounts.sessions] == [old["session"]["session_id"]]


async def test_R15_a_sign_in_that_could_not_make_room_does_so_when_it_is_repeated(
    server: RestServer, rest: RestClient
) -> None:
    old = await rest.sign_in()
    code = await ask_code(rest)
    server.wire.broken["sessions_of"] = OutcomeUnknown("down")
    assert (await rest.verify(code)).status == 503
    server.wire.broken.clear()
    again = await rest.verify(code)
    assert again.status == 200
    (only,) = (await rest("GET", "sessions", token=again.data["tokens"]["access_token"])).data
    assert only["session_id"] == again.data["session"]["session_id"] != old["session"]["session_id"]


async def test_R16_of_two_first_sign_ins_at_once_one_makes_the_user(server: RestServer, rest: RestClient) -> None:
    code = await ask_code(rest)
    replies = await asyncio.gather(*[rest.verify(code, device=device(number)) for number in range(4)])
    assert sorted(reply.status for reply in replies) == [201, 401, 401, 401]
    assert len(server.store.accounts.users) == 1


async def test_R17_a_code_is_spent_exactly_when_a_session_is_made(server: RestServer, rest: RestClient) -> None:
    code = await ask_code(rest)
    server.wire.broken["sign_in"] = OutcomeUnknown("lost before it was applied")
    assert (await rest.verify(code)).status == 503
    assert not list(server.store.accounts.sessions)
    server.wire.broken.clear()
    assert (await rest.verify(code)).status == 201
    stored = server.store.accounts.codes.get(phone_hash(PHONE))
    assert isinstance(stored, Code)
    assert stored.spent is not None
    assert [each.session_id for each in server.store.accounts.sessions] == [stored.spent.session_id]


async def test_R18_neither_codes_nor_refresh_tokens_are_stored_in_clear(server: RestServer, rest: RestClient) -> None:
    code = await ask_code(rest)
    codes = [code, await ask_code(rest, OTHER_PHONE)]
    pending = msgspec.json.encode(list(server.store.accounts.codes))
    # One of them may be a part of some number by chance, but not both.
    assert not all(each.encode() in pending for each in codes)
    assert PHONE.encode() not in pending
    signed_in = (await rest.verify(code)).data
    secret = signed_in["tokens"]["refresh_token"].partition(".")[2]
    for stored in (list(server.store.accounts.codes), list(server.store.accounts.sessions)):
        text = msgspec.json.encode(stored)
        assert secret.encode() not in text
        assert base64.b64encode(secret.encode()) not in text


async def test_attempts_count_even_when_the_counters_forget(server: RestServer, rest: RestClient) -> None:
    code = await ask_code(rest)
    unlimited = server.client(rate_limits_off=True)
    for _ in range(5):
        assert (await unlimited.verify(wrong(code))).code == "INVALID_OTP"
    assert (await unlimited.verify(code)).code == "INVALID_OTP"

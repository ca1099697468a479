"""Every row of the handshake's table (docs/spec/websocket.md#connecting), over real sockets."""

import asyncio
import base64

import pytest
from websockets.asyncio.client import connect

from seriatim.connection.listener.admission import FixedWindowLimiter
from seriatim.domain import limits
from seriatim.domain.addresses import parse_networks
from tests.unit.connection.listener_harness import (
    ANN,
    DEVICE,
    HttpAnswer,
    ListenerHarness,
    Peer,
    bearer_subprotocols,
    handshake,
    listener_harness,
    on_real_loops,
    read,
    until,
)

OTHER = "1b0e8400-e29b-41d4-a716-446655440000"


def device(number: int) -> str:
    return f"{number:08d}{DEVICE[8:]}"


def refusal(answer: HttpAnswer) -> tuple[int, object]:
    """Checks on the way what all refusals have in common."""
    assert set(answer.json) >= {"error", "message", "details"}
    assert answer.headers["content-type"].startswith("application/json")
    return answer.status, answer.error


async def joined(harness: ListenerHarness, request: bytes) -> Peer:
    """Connected and greeted on a plain socket."""
    peer = await harness.dial()
    peer.send(request)
    await peer.reader.readuntil(b"connection_established")
    return peer


# --- who gets in -----------------------------------------------------------------------------------------------------


@on_real_loops
async def test_101_answers_the_key_and_promises_nothing_else() -> None:
    async with listener_harness() as harness:
        answer = await harness.upgrade()
        assert answer.status == 101
        assert answer.headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # RFC 6455 section 1.3
        assert "sec-websocket-protocol" not in answer.headers
        assert "sec-websocket-extensions" not in answer.headers
        await until(lambda: not harness.gateway.connections)


@on_real_loops
async def test_a_browser_presents_its_token_as_a_subprotocol_and_the_token_is_not_echoed() -> None:
    async with (
        listener_harness() as harness,
        connect(
            f"ws://127.0.0.1:{harness.port}/ws?device_id={DEVICE}", subprotocols=bearer_subprotocols("bob")
        ) as socket,
    ):
        greeting = await read(socket)
        assert (greeting["user_id"], greeting["device_id"]) == ("user_bob", DEVICE)
        assert socket.subprotocol == "messaging.v1"


@on_real_loops
async def test_a_subprotocol_is_selected_only_if_it_was_offered() -> None:
    async with listener_harness() as harness:
        answer = await harness.upgrade(without=("Authorization",), sec_websocket_protocol="bearer.ann")
        assert answer.status == 101
        assert "sec-websocket-protocol" not in answer.headers


@on_real_loops
async def test_the_query_may_carry_token_and_device() -> None:
    async with (
        listener_harness() as harness,
        connect(f"ws://127.0.0.1:{harness.port}/v1/ws?token=ann&device_id={DEVICE.upper()}") as socket,
    ):
        assert (await read(socket))["device_id"] == DEVICE


@on_real_loops
async def test_a_token_that_names_its_device_is_enough() -> None:
    async with (
        listener_harness() as harness,
        connect(
            f"ws://127.0.0.1:{harness.port}/v1/ws", additional_headers={"Authorization": f"Bearer ann/{DEVICE}"}
        ) as socket,
    ):
        assert (await read(socket))["device_id"] == DEVICE


@on_real_loops
async def test_the_header_wins_over_the_subprotocol_and_that_over_the_query() -> None:
    async with listener_harness() as harness:
        wrong = await harness.upgrade("/v1/ws?token=ann", authorization="Bearer nobody")
        assert refusal(wrong) == (401, "invalid_token")
        wrong = await harness.upgrade(
            "/v1/ws?token=ann", without=("Authorization",), sec_websocket_protocol="bearer.eve"
        )
        assert refusal(wrong) == (401, "invalid_token")


# --- 400 and 426 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v2/ws", "/v0/ws", "/v01/ws", "/v999999999/ws"])
@on_real_loops
async def test_an_unknown_version_is_400_and_says_which_are_known(path: str) -> None:
    async with listener_harness() as harness:
        answer = await harness.upgrade(path)
        assert refusal(answer) == (400, "unsupported_version")
        assert answer.details == {"supported_versions": [1]}


@pytest.mark.parametrize("device_id", ["phone", "", OTHER.replace("-41", "-11"), OTHER + "0"])
@on_real_loops
async def test_a_device_id_that_is_no_uuid4_is_400(device_id: str) -> None:
    async with listener_harness() as harness:
        assert refusal(await harness.upgrade(x_device_id=device_id)) == (400, "invalid_request")


@on_real_loops
async def test_no_device_id_at_all_is_400() -> None:
    async with listener_harness() as harness:
        assert refusal(await harness.upgrade(without=("X-Device-ID",))) == (400, "invalid_request")


@pytest.mark.parametrize("key", ["", "short", base64.b64encode(b"x" * 15).decode(), "!" * 24])
@on_real_loops
async def test_a_malformed_key_is_400(key: str) -> None:
    async with listener_harness() as harness:
        assert refusal(await harness.upgrade(sec_websocket_key=key)) == (400, "invalid_request")


@on_real_loops
async def test_a_post_a_body_and_http_10_are_400() -> None:
    async with listener_harness() as harness:
        good = handshake()
        for bad in (
            good.replace(b"GET", b"POST", 1),
            handshake(content_length="2") + b"xx",
            good.replace(b"HTTP/1.1", b"HTTP/1.0"),
        ):
            assert refusal(await harness.ask(bad)) == (400, "invalid_request")


@on_real_loops
async def test_another_websocket_version_is_426_and_says_which_is_spoken() -> None:
    async with listener_harness() as harness:
        answer = await harness.upgrade(sec_websocket_version="8")
        assert refusal(answer) == (426, "invalid_request")
        assert answer.headers["sec-websocket-version"] == "13"


@on_real_loops
async def test_a_plain_get_is_426_and_says_what_to_ask_for() -> None:
    async with listener_harness() as harness:
        answer = await harness.ask(b"GET /v1/ws HTTP/1.1\r\nHost: here\r\n\r\n")
        assert refusal(answer) == (426, "invalid_request")
        assert answer.headers["upgrade"] == "websocket"


@on_real_loops
async def test_an_upgrade_to_something_else_or_elsewhere_is_an_ordinary_request() -> None:
    async with listener_harness() as harness:
        for request in (handshake("/elsewhere"), handshake("/elsewhere", upgrade="h2c")):
            answer = await harness.ask(request)
            assert (answer.status, answer.body) == (200, b"GET /elsewhere ")
            assert answer.headers["connection"] == "close"


# --- 401 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer ", "Basic ann", "Bearer eve"])
@on_real_loops
async def test_no_good_token_is_401(authorization: str) -> None:
    async with listener_harness() as harness:
        assert refusal(await harness.upgrade(authorization=authorization)) == (401, "invalid_token")
        assert harness.seen.refusals == ["invalid_token"]


@on_real_loops
async def test_a_token_of_another_device_is_401_device_mismatch() -> None:
    async with listener_harness() as harness:
        answer = await harness.upgrade(authorization=f"Bearer ann/{OTHER}")
        assert refusal(answer) == (401, "invalid_token")
        assert answer.details == {"reason": "device_mismatch"}


@on_real_loops
async def test_a_revoked_session_is_401_token_revoked() -> None:
    async with listener_harness() as harness:
        harness.authenticator.revoked.append("sess_ann")
        assert refusal(await harness.upgrade()) == (401, "token_revoked")


@on_real_loops
async def test_a_refusal_repeats_neither_token_nor_query() -> None:
    async with listener_harness() as harness:
        answer = await harness.upgrade("/v1/ws?token=s3cret", without=("Authorization",))
        assert b"s3cret" not in answer.body
        assert "s3cret" not in str(answer.headers)


# --- 403 -------------------------------------------------------------------------------------------------------------


@on_real_loops
async def test_pages_of_any_origin_connect_unless_there_is_a_list() -> None:
    async with listener_harness() as harness:
        assert (await harness.upgrade(origin="https://evil.example")).status == 101
    async with listener_harness(origins=("https://good.example",)) as harness:
        assert refusal(await harness.upgrade(origin="https://evil.example")) == (403, "forbidden")
        assert (await harness.upgrade(origin="https://GOOD.example")).status == 101
        assert (await harness.upgrade()).status == 101  # no browser


# --- 429 -------------------------------------------------------------------------------------------------------------


@on_real_loops
async def test_too_many_attempts_of_one_address_are_429_and_say_how_long_to_wait() -> None:
    async with listener_harness(rate_limits_off=False) as harness:
        for _ in range(limits.ATTEMPTS_PER_ADDRESS_MAX):
            assert (await harness.upgrade(authorization="Bearer eve")).status == 401
        answer = await harness.upgrade()
        assert refusal(answer) == (429, "rate_limited")
        wait = int(answer.headers["retry-after"])
        assert 1 <= wait <= 60
        assert answer.json["retry_after_seconds"] == wait
        assert answer.details["retry_after_seconds"] == wait


@on_real_loops
async def test_behind_a_trusted_proxy_attempts_count_for_the_client_it_speaks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "ATTEMPTS_PER_ADDRESS_MAX", 1)
    async with listener_harness(rate_limits_off=False, trusted_proxies=parse_networks(["127.0.0.1"])) as harness:
        assert (await harness.upgrade(x_forwarded_for="8.8.8.8, 1.1.1.1")).status == 101
        assert (await harness.upgrade(x_forwarded_for="9.9.9.9, 1.1.1.1")).status == 429
        assert (await harness.upgrade(x_forwarded_for="1.1.1.1, 2.2.2.2")).status == 101
    async with listener_harness(rate_limits_off=False) as harness:
        assert (await harness.upgrade(x_forwarded_for="1.1.1.1")).status == 101
        assert (await harness.upgrade(x_forwarded_for="2.2.2.2")).status == 429


@on_real_loops
async def test_too_many_new_connections_of_one_user_are_429_and_another_user_is_not_concerned() -> None:
    async with listener_harness(rate_limits_off=False) as harness:
        for _ in range(limits.CONNECTS_PER_USER_MAX):
            assert (await harness.upgrade()).status == 101
        assert refusal(await harness.upgrade()) == (429, "rate_limited")
        assert (await harness.upgrade(authorization="Bearer bob")).status == 101


@on_real_loops
async def test_a_sixth_device_is_429_but_one_of_the_five_may_come_back() -> None:
    async with listener_harness(rate_limits_off=False) as harness:
        peers = [await joined(harness, handshake(x_device_id=device(number))) for number in range(5)]
        assert refusal(await harness.upgrade(x_device_id=device(6))) == (429, "rate_limited")
        peers.append(await joined(harness, handshake(x_device_id=device(0))))
        await peers[1].close()
        await until(lambda: len(harness.registry.listed(ANN)) == 4)
        peers.append(await joined(harness, handshake(x_device_id=device(6))))
        for peer in peers:
            await peer.close()


@on_real_loops
async def test_devices_that_arrive_together_are_counted_together() -> None:
    async with listener_harness(rate_limits_off=False) as harness:
        peers = [await harness.dial() for _ in range(8)]
        for number, peer in enumerate(peers):
            peer.send(handshake(x_device_id=device(number)))
        answers = [(await peer.answer()).status for peer in peers]
        assert sorted(answers) == [101] * 5 + [429] * 3
        for peer in peers:
            await peer.close()


# --- 503 -------------------------------------------------------------------------------------------------------------


@on_real_loops
async def test_a_directory_that_does_not_answer_is_503() -> None:
    async with listener_harness(rate_limits_off=False) as harness:
        harness.directory_wire.broken = True
        answer = await harness.upgrade()
        harness.directory_wire.broken = False
        assert refusal(answer) == (503, "service_unavailable")
        assert int(answer.headers["retry-after"]) >= 1


@on_real_loops
async def test_when_it_is_unknown_whether_a_token_was_revoked_it_is_503() -> None:
    async with listener_harness() as harness:
        harness.authenticator.fails = True
        assert refusal(await harness.upgrade()) == (503, "service_unavailable")


@on_real_loops
async def test_a_gateway_that_hears_no_pushes_refuses_with_503() -> None:
    async with listener_harness() as harness:
        harness.gateway.interrupted()
        answer = await harness.upgrade()
        assert refusal(answer) == (503, "service_unavailable")
        assert answer.json["retry_after_seconds"] == 1


@on_real_loops
async def test_a_registration_that_fails_after_101_closes_with_upstream_failure() -> None:
    async with listener_harness() as harness:
        harness.directory_wire.broken = True
        async with harness.client(greeted=False) as socket:
            assert (await read(socket))["reason"] == "upstream_failure"
        harness.directory_wire.broken = False


@pytest.mark.parametrize("cut_by", ["client", "server"])
@on_real_loops
async def test_a_socket_that_ends_during_the_handshake_leaves_nothing_behind(cut_by: str) -> None:
    async with listener_harness() as harness:
        entered, go = asyncio.Event(), asyncio.Event()
        ask = harness.authenticator.check_revoked

        async def slowly(claims, *, timeout_s):  # type: ignore[no-untyped-def]
            entered.set()
            await go.wait()
            await ask(claims, timeout_s=timeout_s)

        harness.authenticator.check_revoked = slowly  # type: ignore[method-assign]
        peer = await harness.dial()
        peer.send(handshake())
        await entered.wait()
        if cut_by == "client":
            peer.writer.transport.abort()
        else:
            harness.listener._state.abort_all()
            assert await peer.rest() == b""
        await peer.close()
        go.set()
        await until(lambda: not harness.listener._state.tasks._tasks)
        await until(lambda: not harness.gateway.connections)


# --- the table of attempts -------------------------------------------------------------------------------------------


def test_a_window_begins_with_the_first_attempt_and_ends_after_a_minute() -> None:
    table = FixedWindowLimiter(2)
    assert [table.add("a", now) for now in (0.0, 50.0)] == [None, None]
    assert table.add("a", 59.5) == 1
    assert [table.add("a", now) for now in (60.0, 100.0)] == [None, None]
    assert table.add("a", 101.0) == 19
    assert table.add("b", 101.0) is None


def test_the_table_of_attempts_is_bounded_and_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ATTEMPT_KEYS_MAX", 2)
    table = FixedWindowLimiter(1)
    for now, key in enumerate(("a", "b", "c")):
        assert table.add(key, float(now)) is None
    assert table.add("b", 3.0) is not None
    assert table.add("a", 3.0) is None

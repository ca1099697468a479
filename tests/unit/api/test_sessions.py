"""Sessions over REST: seeing them, ending them, and what ending one reaches."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from seriatim.domain.errors import OutcomeUnknown
from seriatim.engines.inprocess.push import InProcessPushSubscriber
from seriatim.engines.inprocess.revocations import InProcessRevocations
from seriatim.ports.directory import Registration
from seriatim.ports.push import CloseOrder, PushEnvelope
from seriatim.services.sessions import is_active
from tests.support.rest import DEVICE, OTHER_DEVICE, OTHER_PHONE, RestClient, RestServer


class Gateway:
    """Implements `PushReceiver`: keeps what it receives."""

    def __init__(self) -> None:
        self.envelopes: list[PushEnvelope] = []

    def received(self, envelopes: Sequence[PushEnvelope]) -> None:
        self.envelopes.extend(envelopes)

    def interrupted(self) -> None: ...

    def resumed(self) -> None: ...


async def connect(server: RestServer, signed_in: Any, connection_id: str) -> None:
    registration = Registration(
        connection_id=connection_id,
        user_id=signed_in["user"]["user_id"],
        device_id=signed_in["session"]["device_id"],
        session_id=signed_in["session"]["session_id"],
        gateway_id="gateway",
        connected_at="",
    )
    await server.directory.register([registration], timeout_s=1)


async def two_devices(rest: RestClient) -> tuple[Any, Any]:
    return await rest.sign_in(), await rest.sign_in(device=OTHER_DEVICE)


async def test_sessions_are_listed_with_the_current_one_marked(rest: RestClient) -> None:
    one, other = await two_devices(rest)
    sessions = (await rest("GET", "sessions", token=other["tokens"]["access_token"])).data
    assert [(each["session_id"], each["is_current"]) for each in sessions] == [
        (one["session"]["session_id"], False),
        (other["session"]["session_id"], True),
    ]
    assert sessions[0]["device_id"] == DEVICE
    assert sessions[0]["expires_at"] == one["session"]["expires_at"]


async def test_expired_sessions_are_not_shown(server: RestServer, rest: RestClient) -> None:
    old = await rest.sign_in()
    server.clock.advance(31 * 86_400)
    new = await rest.sign_in(device=OTHER_DEVICE)
    token = new["tokens"]["access_token"]
    (only,) = (await rest("GET", "sessions", token=token)).data
    assert only["session_id"] == new["session"]["session_id"]
    assert (await rest("DELETE", f"sessions/{old['session']['session_id']}", token=token)).status == 404


async def test_a_session_lives_up_to_its_end_and_not_at_it(server: RestServer, rest: RestClient) -> None:
    await rest.sign_in()
    [session] = list(server.store.accounts.sessions)
    assert is_active(session, session.expires_at_ms - 1)
    assert not is_active(session, session.expires_at_ms)


async def test_R20_a_revoked_token_is_refused_at_the_next_request(rest: RestClient) -> None:
    one, other = await two_devices(rest)
    gone = await rest("DELETE", f"sessions/{one['session']['session_id']}", token=other["tokens"]["access_token"])
    assert (gone.status, gone.body) == (204, b"")
    reply = await rest("GET", "users/me", token=one["tokens"]["access_token"])
    assert (reply.status, reply.details) == (401, {"reason": "token_revoked"})
    assert (await rest("GET", "users/me", token=other["tokens"]["access_token"])).status == 200


async def test_R20_also_when_only_the_fast_store_is_asked(server: RestServer, rest: RestClient) -> None:
    server.clock.advance(60)  # long enough for the fast store to be sure of what it remembers
    one, other = await two_devices(rest)
    await rest("DELETE", f"sessions/{one['session']['session_id']}", token=other["tokens"]["access_token"])
    server.wire.broken["session"] = OutcomeUnknown("the authority is down")
    assert (await rest("GET", "users/me", token=other["tokens"]["access_token"])).status == 200
    reply = await rest("GET", "users/me", token=one["tokens"]["access_token"])
    assert (reply.status, reply.details) == (401, {"reason": "token_revoked"})


async def test_R20_also_right_after_the_fast_store_lost_everything(server: RestServer, rest: RestClient) -> None:
    one, other = await two_devices(rest)
    await rest("DELETE", f"sessions/{one['session']['session_id']}", token=other["tokens"]["access_token"])
    server.authenticator._revocations = InProcessRevocations(server.clock)
    reply = await rest("GET", "users/me", token=one["tokens"]["access_token"])
    assert (reply.status, reply.details) == (401, {"reason": "token_revoked"})


async def test_the_sockets_of_a_revoked_session_get_a_close_order_and_no_others(
    server: RestServer, rest: RestClient
) -> None:
    one, other = await two_devices(rest)
    gateway = Gateway()
    await InProcessPushSubscriber(server.channels, server.wire).subscribe("gateway", gateway, timeout_s=1)
    await connect(server, one, "conn_1")
    await connect(server, other, "conn_2")
    await rest("POST", "auth/logout", token=one["tokens"]["access_token"])
    await asyncio.sleep(0)  # an envelope arrives with the next turn of the loop
    assert gateway.envelopes == [CloseOrder(connection_id="conn_1", reason="session_revoked")]


@pytest.mark.parametrize("operation", ["connections", "publish"])
async def test_a_socket_that_cannot_be_reached_does_not_keep_the_session_alive(
    server: RestServer, rest: RestClient, operation: str
) -> None:
    signed_in = await rest.sign_in()
    await connect(server, signed_in, "conn_1")
    server.wire.broken[operation] = OutcomeUnknown("down")
    assert (await rest("POST", "auth/logout", token=signed_in["tokens"]["access_token"])).status == 204
    assert (await rest("GET", "users/me", token=signed_in["tokens"]["access_token"])).status == 401


async def test_a_revocation_that_failed_half_way_can_be_repeated(server: RestServer, rest: RestClient) -> None:
    one, other = await two_devices(rest)
    path, token = f"sessions/{one['session']['session_id']}", other["tokens"]["access_token"]
    server.wire.broken["revoke"] = OutcomeUnknown("down")
    assert (await rest("DELETE", path, token=token)).status == 503
    server.wire.broken.clear()
    assert (await rest("DELETE", path, token=token)).status == 204
    assert (await rest("DELETE", path, token=token)).status == 404


async def test_no_user_ends_the_session_of_another_user(rest: RestClient) -> None:
    mine = await rest.sign_in()
    theirs = await rest.sign_in(OTHER_PHONE, OTHER_DEVICE)
    reply = await rest("DELETE", f"sessions/{theirs['session']['session_id']}", token=mine["tokens"]["access_token"])
    assert (reply.status, reply.code) == (404, "NOT_FOUND")
    assert (await rest("GET", "users/me", token=theirs["tokens"]["access_token"])).status == 200


async def test_one_may_end_the_session_one_is_in(rest: RestClient) -> None:
    mine = await rest.sign_in()
    token = mine["tokens"]["access_token"]
    assert (await rest("DELETE", f"sessions/{mine['session']['session_id']}", token=token)).status == 204
    assert (await rest("GET", "sessions", token=token)).status == 401


async def test_ending_all_sessions_keeps_the_current_one_unless_it_is_included(rest: RestClient) -> None:
    one, other = await two_devices(rest)
    token = other["tokens"]["access_token"]
    assert (await rest("DELETE", "sessions", token=token)).data == {"revoked_count": 1}
    assert (await rest("GET", "users/me", token=one["tokens"]["access_token"])).status == 401
    assert (await rest("DELETE", "sessions", token=token, query="include_current=true")).data == {"revoked_count": 1}
    assert (await rest("GET", "users/me", token=token)).status == 401


async def test_use_is_written_down_at_most_once_a_minute(server: RestServer, rest: RestClient) -> None:
    token = (await rest.sign_in())["tokens"]["access_token"]

    async def last_active() -> str:
        return str((await rest("GET", "sessions", token=token)).data[0]["last_active_at"])

    first = await last_active()
    server.clock.advance(59)
    assert await last_active() == first
    server.clock.advance(2)
    assert await last_active() > first


async def test_a_session_whose_use_cannot_be_written_down_is_served_all_the_same(
    server: RestServer, rest: RestClient
) -> None:
    token = (await rest.sign_in())["tokens"]["access_token"]
    server.wire.broken["touch"] = OutcomeUnknown("down")
    assert (await rest("GET", "users/me", token=token)).status == 200

"""Every end of a connection: said first, coded right, registered no more (docs/spec/websocket.md#close-reasons)."""

import asyncio

import pytest

from seriatim.domain import limits
from seriatim.protocol.frames import CloseReason, ConnectionClosing, MessageAck
from tests.unit.connection.fakes import CHAT, a_receipt
from tests.unit.connection.gateway_harness import GatewayHarness, a_send, a_sync, an_ack, ask, gateway_chance, turns


async def test_a_ping_leaves_every_30_seconds_and_a_pong_keeps_the_connection(harness: GatewayHarness) -> None:
    _, socket = await harness.connect()
    await asyncio.sleep(301)
    assert socket.pings == 10
    assert socket.is_open


async def test_a_peer_that_answers_no_ping_is_closed_after_10_seconds(harness: GatewayHarness) -> None:
    _, socket = await harness.connect()
    socket.pong_received = lambda: None
    await asyncio.sleep(39.9)
    assert socket.is_open
    await asyncio.sleep(0.2)
    assert socket.closed == (1001, "idle_timeout")


async def test_a_connection_ends_with_its_token(harness: GatewayHarness) -> None:
    _, socket = await harness.connect(expires_in_s=20)
    await asyncio.sleep(19.9)
    assert socket.is_open
    await asyncio.sleep(0.2)
    assert socket.closed == (1008, "token_expired")
    assert socket.closing is not None
    assert socket.closing.reconnect_allowed


@gateway_chance(0.5)
async def test_a_connection_of_a_day_is_rotated_with_jitter(harness: GatewayHarness) -> None:
    _, socket = await harness.connect()
    lasts = limits.CONNECTION_AGE_MAX_S + limits.CONNECTION_AGE_JITTER_S / 2
    await asyncio.sleep(lasts - 1)
    assert socket.is_open
    await asyncio.sleep(2)
    assert socket.closed == (1001, "max_connection_age")


async def test_every_close_repeats_its_reason_and_ends_the_registration(harness: GatewayHarness) -> None:
    for reason in CloseReason:
        connection, socket = await harness.connect()
        connection.close(reason)
        await turns()
        assert socket.closed == (reason.code, reason.value)
        assert isinstance(socket.frames[-1], ConnectionClosing)
        assert socket.frames[-1].reason == reason.value
        assert harness.directory.registered == {}


async def test_a_lost_socket_ends_everything_and_answers_go_nowhere(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    await ask(connection, a_send())
    connection.lost()
    harness.durability.answer(0, a_receipt(2))
    harness.deliver(connection, 3, 2)
    connection.received('{"type":"heartbeat"}')
    connection.writable()
    await asyncio.sleep(100)
    assert socket.frames == []
    assert harness.directory.registered == {}
    assert harness.observed.ends == [None]


async def test_what_waits_leaves_before_the_closing_if_the_client_reads(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    harness.deliver(connection, 2, 1)
    connection.close(CloseReason.MAX_CONNECTION_AGE)
    assert [type(frame).__name__ for frame in socket.frames] == ["MessageFrame", "ConnectionClosing"]


async def test_a_chat_that_is_owed_something_is_named_in_the_closing(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    harness.deliver(connection, 3, None)
    connection.close(CloseReason.TOKEN_EXPIRED)
    assert socket.closing is not None
    assert socket.closing.sync_from_sequence == {CHAT: 1}


@pytest.mark.parametrize("reason", ["rate", "protocol"])
async def test_the_error_comes_before_the_closing(harness: GatewayHarness, reason: str) -> None:
    connection, socket = await harness.connect()
    if reason == "rate":
        await ask(connection, *[a_send(number) for number in range(20)])
        for number in range(201):
            await ask(connection, a_send(number))
    else:
        for _ in range(10):
            connection.received("nonsense")
    assert [type(frame).__name__ for frame in socket.frames[-2:]] == ["ErrorFrame", "ConnectionClosing"]


# --- draining ------------------------------------------------------------------------------------------------------


@gateway_chance(0.5)
async def test_a_drain_tells_everyone_with_a_spread_delay_and_closes_the_idle(harness: GatewayHarness) -> None:
    _, socket = await harness.connect()
    await harness.gateway.drain()
    assert socket.closing is not None
    assert (socket.closing.reason, socket.closing.reconnect_delay_ms) == ("server_shutdown", 2500)
    assert socket.closed == (1001, "server_shutdown")
    assert harness.directory.registered == {}
    assert not harness.gateway.ready


async def test_accepted_requests_are_answered_after_the_closing_and_pushes_are_not_sent(
    harness: GatewayHarness,
) -> None:
    connection, socket = await harness.synced([1])
    await ask(connection, a_send())
    draining = asyncio.ensure_future(harness.gateway.drain())
    await turns()
    harness.deliver(connection, 2, 1)
    await asyncio.sleep(2)
    assert socket.is_open
    harness.durability.answer(0, a_receipt(3))
    await draining
    assert [type(frame) for frame in socket.frames] == [ConnectionClosing, MessageAck]
    assert socket.closed == (1001, "server_shutdown")


async def test_requests_during_a_drain_are_refused_and_acks_are_taken(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1, 2])
    await ask(connection, a_send())
    draining = asyncio.ensure_future(harness.gateway.drain())
    await turns()
    await ask(connection, a_send(1), a_sync(0), an_ack(2))
    assert socket.codes == ["SERVICE_UNAVAILABLE", "SERVICE_UNAVAILABLE"]
    assert len(harness.durability.submitted) == 1
    assert harness.durability.acks == [(CHAT, 2)]
    harness.durability.answer(0, a_receipt(3))
    await draining


async def test_a_drain_ends_after_30_seconds_whatever_is_in_progress(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    await ask(connection, a_send())
    started = harness.clock.monotonic()
    await harness.gateway.drain()
    assert 29.9 < harness.clock.monotonic() - started < 30.1
    assert socket.closed == (1001, "server_shutdown")
    assert len(socket.of(ConnectionClosing)) == 1


async def test_a_drain_drops_what_a_slow_client_did_not_take_and_says_so(harness: GatewayHarness) -> None:
    connection, socket = await harness.synced([1])
    socket.room = False
    harness.deliver(connection, 2, 1)
    await turns()
    draining = asyncio.ensure_future(harness.gateway.drain())
    await turns()
    socket.room = True
    connection.writable()
    await draining
    assert socket.messages == []
    assert socket.closing is not None
    assert socket.closing.sync_from_sequence == {CHAT: 1}


async def test_a_twin_that_connects_elsewhere_does_not_forbid_a_draining_client_to_come_back(
    harness: GatewayHarness,
) -> None:
    connection, socket = await harness.connect()
    await ask(connection, a_send())
    draining = asyncio.ensure_future(harness.gateway.drain())
    await turns()
    connection.close(CloseReason.DUPLICATE_CONNECTION)
    await draining
    assert socket.closed == (1001, "server_shutdown")
    assert all(frame.reconnect_allowed for frame in socket.frames if isinstance(frame, ConnectionClosing))


async def test_a_drain_without_connections_ends_at_once(harness: GatewayHarness) -> None:
    started = harness.clock.monotonic()
    await harness.gateway.drain()
    assert harness.clock.monotonic() == started

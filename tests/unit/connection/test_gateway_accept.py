"""From the handshake to the greeting: what must have happened before a client may sync.

See docs/spec/websocket.md#greeting.
"""

import asyncio

import pytest

from seriatim.domain.errors import Draining, OutcomeUnknown, ServiceUnavailable
from seriatim.ports.push import CloseOrder
from seriatim.protocol.codec import encode
from seriatim.protocol.frames import ConnectionEstablished, Heartbeat, HeartbeatAck, MessageFrame
from tests.unit.connection.fakes import CHAT, FakeSocket
from tests.unit.connection.gateway_harness import DEVICE, GATEWAY, GatewayHarness, a_send, a_sync, turns


async def test_the_greeting_is_the_first_frame_and_says_who_is_who(harness: GatewayHarness) -> None:
    socket = FakeSocket()
    connection = await harness.gateway.open(socket, harness.identity())
    await turns()
    greeting = socket.frames[0]
    assert isinstance(greeting, ConnectionEstablished)
    assert (greeting.connection_id, greeting.gateway_id) == (connection.connection_id, GATEWAY)
    assert greeting.heartbeat_interval_ms == 30_000


async def test_a_connection_is_registered_before_it_is_greeted(harness: GatewayHarness) -> None:
    socket = FakeSocket()
    seen: list[int] = []
    harness.directory.during_register = lambda: seen.append(len(socket.writes))
    connection = await harness.gateway.open(socket, harness.identity())
    assert seen == [0]
    assert harness.directory.registered[connection.connection_id].gateway_id == GATEWAY
    assert harness.subscriber.subscribed == [GATEWAY]


async def test_a_push_that_arrives_before_the_greeting_leaves_after_it(harness: GatewayHarness) -> None:
    socket = FakeSocket()
    connection = harness.gateway.accept(socket, harness.identity())
    harness.deliver(connection, 1, None)
    await turns()
    assert socket.writes == []
    await harness.gateway.establish(connection)
    await turns()
    assert [type(frame) for frame in socket.frames] == [ConnectionEstablished, MessageFrame]


async def test_h16_a_sync_sent_before_the_greeting_reads_only_after_the_registration(harness: GatewayHarness) -> None:
    reads_before: list[int] = []
    harness.directory.during_register = lambda: reads_before.append(len(harness.durability.reads))
    socket = FakeSocket()
    connection = harness.gateway.accept(socket, harness.identity())
    connection.received(encode(a_sync(0)))
    await harness.gateway.establish(connection)
    await turns()
    assert reads_before == [0]
    assert len(socket.batches) == 1


async def test_a_connection_that_cannot_be_registered_is_closed_as_upstream_failure(harness: GatewayHarness) -> None:
    harness.directory.failure = OutcomeUnknown("away")
    socket = FakeSocket()
    connection = harness.gateway.accept(socket, harness.identity())
    for _ in range(101):
        connection.received(encode(a_sync(0)))
    await harness.gateway.establish(connection)
    assert connection.closed
    assert socket.closed == (1011, "upstream_failure")
    assert socket.closing is not None
    assert socket.closing.reconnect_allowed
    assert len(socket.frames) == 1


async def test_a_socket_lost_while_it_was_being_registered_leaves_no_registration(harness: GatewayHarness) -> None:
    connection = harness.gateway.accept(FakeSocket(), harness.identity())
    harness.directory.before_register = connection.lost
    await harness.gateway.establish(connection)
    assert harness.directory.registered == {}
    await asyncio.sleep(61)
    assert harness.directory.registered == {}
    assert harness.gateway.connections == {}


async def test_everything_bound_for_a_socket_in_one_turn_leaves_in_one_write(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    connection.received(encode(Heartbeat()))
    harness.deliver(connection, 1, None)
    harness.deliver(connection, 2, 1)
    await turns()
    assert [len(frames) for frames in socket.writes] == [3]


async def test_after_a_protocol_error_nothing_that_waited_is_obeyed(harness: GatewayHarness) -> None:
    socket = FakeSocket()
    connection = harness.gateway.accept(socket, harness.identity())
    for _ in range(10):
        connection.received("nonsense")
    connection.received(encode(a_send()))
    await harness.gateway.establish(connection)
    assert socket.closed == (1008, "protocol_error")
    assert harness.durability.submitted == []


async def test_a_heartbeat_is_answered_with_the_time(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    connection.received(encode(Heartbeat(request_id="h-1")))
    await turns()
    [answer] = socket.frames
    assert isinstance(answer, HeartbeatAck)
    assert answer.request_id == "h-1"


async def test_an_unknown_frame_is_counted_and_not_answered(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    connection.received('{"type":"typing_started"}')
    await turns()
    assert harness.observed.unknown == ["typing_started"]
    assert socket.frames == []


async def test_a_draining_gateway_takes_no_newcomers(harness: GatewayHarness) -> None:
    await harness.gateway.drain()
    with pytest.raises(Draining):
        harness.gateway.accept(FakeSocket(), harness.identity())


async def test_a_gateway_that_hears_nothing_takes_no_newcomers_until_it_hears_again(harness: GatewayHarness) -> None:
    harness.gateway.interrupted()
    with pytest.raises(ServiceUnavailable):
        harness.gateway.accept(FakeSocket(), harness.identity())
    harness.gateway.resumed()
    assert harness.gateway.ready
    await harness.connect()


# --- the same device again -----------------------------------------------------------------------------------------


async def test_the_newest_connection_of_a_device_evicts_the_older_one(harness: GatewayHarness) -> None:
    _, old = await harness.connect()
    newest, new = await harness.connect()
    assert old.closed == (1008, "duplicate_connection")
    assert old.closing is not None
    assert not old.closing.reconnect_allowed
    assert new.closed is None
    assert list(harness.gateway.connections) == [newest.connection_id]


async def test_the_newest_connection_stays_even_if_the_wall_clock_was_set_back(harness: GatewayHarness) -> None:
    _, old = await harness.connect()
    harness.clock.skew_s -= 60
    _, new = await harness.connect()
    assert old.closed == (1008, "duplicate_connection")
    assert new.is_open


async def test_another_device_of_the_same_user_stays(harness: GatewayHarness) -> None:
    _, one = await harness.connect(DEVICE)
    await harness.connect("device_2")
    assert one.closed is None


async def test_an_older_connection_on_another_gateway_is_closed_by_an_order_to_it(harness: GatewayHarness) -> None:
    here, _ = await harness.connect()
    mine = harness.directory.registered[here.connection_id]
    there = type(mine)(
        connection_id="conn_0",
        user_id=mine.user_id,
        device_id=mine.device_id,
        session_id=mine.session_id,
        gateway_id="gw_2",
        connected_at="2020-01-01T00:00:00.000Z",
    )
    harness.directory.registered["conn_0"] = there
    await harness.connect()
    assert harness.push.published == [("gw_2", CloseOrder(connection_id="conn_0", reason="duplicate_connection"))]


async def test_of_two_connections_that_arrive_together_the_newer_one_stays(harness: GatewayHarness) -> None:
    older, newer = FakeSocket(), FakeSocket()
    first = harness.gateway.accept(older, harness.identity())
    second = harness.gateway.accept(newer, harness.identity())
    await harness.gateway.establish(second)
    await harness.gateway.establish(first)
    assert older.closed == (1008, "duplicate_connection")
    assert newer.is_open


async def test_a_close_order_closes_the_connection_it_names(harness: GatewayHarness) -> None:
    connection, socket = await harness.connect()
    harness.gateway.received([CloseOrder(connection_id="conn_x", reason="session_revoked")])
    harness.gateway.received([CloseOrder(connection_id=connection.connection_id, reason="gibberish")])
    assert socket.is_open
    harness.gateway.received([CloseOrder(connection_id=connection.connection_id, reason="session_revoked")])
    assert socket.closed == (1008, "session_revoked")


async def test_a_push_for_a_connection_that_is_gone_is_counted(harness: GatewayHarness) -> None:
    connection, _ = await harness.connect()
    connection.lost()
    harness.deliver(connection, 1, None, CHAT)
    assert harness.observed.strays == 1

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
from tests.unit.connection.gateway_harness import DEVICE, GATEWAY, World, a_send, a_sync, turns, with_world


@with_world
async def test_the_greeting_is_the_first_frame_and_says_who_is_who(world: World) -> None:
    socket = FakeSocket()
    connection = await world.gateway.open(socket, world.identity())
    await turns()
    greeting = socket.frames[0]
    assert isinstance(greeting, ConnectionEstablished)
    assert (greeting.connection_id, greeting.gateway_id) == (connection.connection_id, GATEWAY)
    assert greeting.heartbeat_interval_ms == 30_000


@with_world
async def test_a_connection_is_registered_before_it_is_greeted(world: World) -> None:
    socket = FakeSocket()
    seen: list[int] = []
    world.directory.during_register = lambda: seen.append(len(socket.writes))
    connection = await world.gateway.open(socket, world.identity())
    assert seen == [0]
    assert world.directory.registered[connection.connection_id].gateway_id == GATEWAY
    assert world.subscriber.subscribed == [GATEWAY]


@with_world
async def test_a_push_that_arrives_before_the_greeting_leaves_after_it(world: World) -> None:
    socket = FakeSocket()
    connection = world.gateway.accept(socket, world.identity())
    world.deliver(connection, 1, None)
    await turns()
    assert socket.writes == []
    await world.gateway.establish(connection)
    await turns()
    assert [type(frame) for frame in socket.frames] == [ConnectionEstablished, MessageFrame]


@with_world
async def test_h16_a_sync_sent_before_the_greeting_reads_only_after_the_registration(world: World) -> None:
    reads_before: list[int] = []
    world.directory.during_register = lambda: reads_before.append(len(world.durability.reads))
    socket = FakeSocket()
    connection = world.gateway.accept(socket, world.identity())
    connection.received(encode(a_sync(0)))
    await world.gateway.establish(connection)
    await turns()
    assert reads_before == [0]
    assert len(socket.batches) == 1


@with_world
async def test_a_connection_that_cannot_be_registered_is_closed_as_upstream_failure(world: World) -> None:
    world.directory.failure = OutcomeUnknown("away")
    socket = FakeSocket()
    connection = world.gateway.accept(socket, world.identity())
    for _ in range(101):
        connection.received(encode(a_sync(0)))
    await world.gateway.establish(connection)
    assert connection.closed
    assert socket.closed == (1011, "upstream_failure")
    assert socket.closing is not None
    assert socket.closing.reconnect_allowed
    assert len(socket.frames) == 1


@with_world
async def test_a_socket_lost_while_it_was_being_registered_leaves_no_registration(world: World) -> None:
    connection = world.gateway.accept(FakeSocket(), world.identity())
    world.directory.before_register = connection.lost
    await world.gateway.establish(connection)
    assert world.directory.registered == {}
    await asyncio.sleep(61)
    assert world.directory.registered == {}
    assert world.gateway.connections == {}


@with_world
async def test_everything_bound_for_a_socket_in_one_turn_leaves_in_one_write(world: World) -> None:
    connection, socket = await world.connect()
    connection.received(encode(Heartbeat()))
    world.deliver(connection, 1, None)
    world.deliver(connection, 2, 1)
    await turns()
    assert [len(frames) for frames in socket.writes] == [3]


@with_world
async def test_after_a_protocol_error_nothing_that_waited_is_obeyed(world: World) -> None:
    socket = FakeSocket()
    connection = world.gateway.accept(socket, world.identity())
    for _ in range(10):
        connection.received("nonsense")
    connection.received(encode(a_send()))
    await world.gateway.establish(connection)
    assert socket.closed == (1008, "protocol_error")
    assert world.durability.submitted == []


@with_world
async def test_a_heartbeat_is_answered_with_the_time(world: World) -> None:
    connection, socket = await world.connect()
    connection.received(encode(Heartbeat(request_id="h-1")))
    await turns()
    [answer] = socket.frames
    assert isinstance(answer, HeartbeatAck)
    assert answer.request_id == "h-1"


@with_world
async def test_an_unknown_frame_is_counted_and_not_answered(world: World) -> None:
    connection, socket = await world.connect()
    connection.received('{"type":"typing_started"}')
    await turns()
    assert world.observed.unknown == ["typing_started"]
    assert socket.frames == []


@with_world
async def test_a_draining_gateway_takes_no_newcomers(world: World) -> None:
    await world.gateway.drain()
    with pytest.raises(Draining):
        world.gateway.accept(FakeSocket(), world.identity())


@with_world
async def test_a_gateway_that_hears_nothing_takes_no_newcomers_until_it_hears_again(world: World) -> None:
    world.gateway.interrupted()
    with pytest.raises(ServiceUnavailable):
        world.gateway.accept(FakeSocket(), world.identity())
    world.gateway.resumed()
    assert world.gateway.ready
    await world.connect()


# --- the same device again -----------------------------------------------------------------------------------------


@with_world
async def test_the_newest_connection_of_a_device_evicts_the_older_one(world: World) -> None:
    _, old = await world.connect()
    newest, new = await world.connect()
    assert old.closed == (1008, "duplicate_connection")
    assert old.closing is not None
    assert not old.closing.reconnect_allowed
    assert new.closed is None
    assert list(world.gateway.connections) == [newest.connection_id]


@with_world
async def test_the_newest_connection_stays_even_if_the_wall_clock_was_set_back(world: World) -> None:
    _, old = await world.connect()
    world.clock.skew_s -= 60
    _, new = await world.connect()
    assert old.closed == (1008, "duplicate_connection")
    assert new.is_open


@with_world
async def test_another_device_of_the_same_user_stays(world: World) -> None:
    _, one = await world.connect(DEVICE)
    await world.connect("device_2")
    assert one.closed is None


@with_world
async def test_an_older_connection_on_another_gateway_is_closed_by_an_order_to_it(world: World) -> None:
    here, _ = await world.connect()
    mine = world.directory.registered[here.connection_id]
    there = type(mine)(
        connection_id="conn_0",
        user_id=mine.user_id,
        device_id=mine.device_id,
        session_id=mine.session_id,
        gateway_id="gw_2",
        connected_at="2020-01-01T00:00:00.000Z",
    )
    world.directory.registered["conn_0"] = there
    await world.connect()
    assert world.push.published == [("gw_2", CloseOrder(connection_id="conn_0", reason="duplicate_connection"))]


@with_world
async def test_of_two_connections_that_arrive_together_the_newer_one_stays(world: World) -> None:
    older, newer = FakeSocket(), FakeSocket()
    first = world.gateway.accept(older, world.identity())
    second = world.gateway.accept(newer, world.identity())
    await world.gateway.establish(second)
    await world.gateway.establish(first)
    assert older.closed == (1008, "duplicate_connection")
    assert newer.is_open


@with_world
async def test_a_close_order_closes_the_connection_it_names(world: World) -> None:
    connection, socket = await world.connect()
    world.gateway.received([CloseOrder(connection_id="conn_x", reason="session_revoked")])
    world.gateway.received([CloseOrder(connection_id=connection.connection_id, reason="gibberish")])
    assert socket.is_open
    world.gateway.received([CloseOrder(connection_id=connection.connection_id, reason="session_revoked")])
    assert socket.closed == (1008, "session_revoked")


@with_world
async def test_a_push_for_a_connection_that_is_gone_is_counted(world: World) -> None:
    connection, _ = await world.connect()
    connection.lost()
    world.deliver(connection, 1, None, CHAT)
    assert world.observed.strays == 1

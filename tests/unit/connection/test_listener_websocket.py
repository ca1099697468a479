"""The WebSocket shell over real sockets: frames in, frames out, and every way in which a socket ends."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from seriatim.domain import limits
from seriatim.protocol.frames import CloseReason
from tests.unit.connection.fakes import CHAT, UUID
from tests.unit.connection.listener_harness import DEVICE, handshake, listener_harness, on_real_loops, read, until
from tests.unit.connection.listener_harness import Peer as PlainPeer

SEND = msgspec.json.encode(
    {"type": "send_message", "client_message_id": UUID, "chat_id": CHAT, "content": "Grüße 🎉"}
).decode()


def frame(opcode: int, payload: bytes, *, fin: bool = True) -> bytes:
    """A client's frame: masked with zeros, which changes nothing."""
    first = (0x80 if fin else 0) | opcode
    if len(payload) < 126:
        head = bytes((first, 0x80 | len(payload)))
    else:
        head = struct.pack("!BBH", first, 0x80 | 126, len(payload))
    return head + bytes(4) + payload


async def close_of(peer: PlainPeer) -> int:
    """Reads on to the end; the code of the close frame that came last."""
    everything = await peer.rest()
    at = max(everything.rfind(b"\x88" + bytes((size,))) for size in range(2, 126))
    return int.from_bytes(everything[at + 2 : at + 4], "big")


async def socket_to_its_end(socket: ClientConnection) -> AsyncIterator[str | bytes]:
    with suppress(ConnectionClosed):
        while True:
            yield await socket.recv()


# --- frames ----------------------------------------------------------------------------------------------------------


@on_real_loops
async def test_a_send_is_acknowledged_and_read_back_by_a_sync() -> None:
    async with listener_harness() as harness, harness.client() as socket:
        await socket.send(SEND)
        ack = await read(socket)
        assert (ack["type"], ack["sequence"]) == ("message_ack", 1)
        await socket.send('{"type":"sync_request","chat_id":"chat_a","last_acked_sequence":0}')
        batch = await read(socket)
        assert msgspec.convert(batch["messages"], list[dict[str, object]])[0]["content"] == "Grüße 🎉"


@on_real_loops
async def test_a_fragmented_text_is_one_message_even_cut_inside_a_character_and_around_a_ping() -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(handshake())
        await peer.reader.readuntil(b"connection_established")
        data = SEND.encode()
        cut = data.index("ü".encode()) + 1
        peer.send(frame(0x1, data[:cut], fin=False) + frame(0x9, b"abc") + frame(0x0, data[cut:]))
        assert b"\x8a\x03abc" in await peer.reader.readuntil(b"message_ack")
        await peer.close()


@on_real_loops
async def test_frames_of_every_length_class_arrive_whole_and_in_order() -> None:
    async with listener_harness() as harness, harness.client() as socket:
        sizes = (1, 10, 3000, 70_000)
        for sequence, size in enumerate(sizes, start=1):
            harness.push(sequence, "x" * size)
        assert [len(str((await read(socket))["content"])) for _ in sizes] == list(sizes)


@on_real_loops
async def test_what_is_bound_for_a_socket_in_one_turn_leaves_in_one_write() -> None:
    async with listener_harness() as harness, harness.client() as socket:
        writes = []
        shell = harness.connection._socket
        transport = shell._transport  # type: ignore[attr-defined]

        class Counting:
            def write(self, data: bytes) -> None:
                writes.append(data)
                transport.write(data)

            def __getattr__(self, name: str) -> object:
                return getattr(transport, name)

        shell._transport = Counting()  # type: ignore[attr-defined]
        for sequence in range(1, 51):
            harness.push(sequence)
        for sequence in range(1, 51):
            assert (await read(socket))["sequence"] == sequence
        assert len(writes) == 1


@on_real_loops
async def test_what_a_client_sends_before_the_greeting_waits_for_it() -> None:
    """Even in one packet with the handshake."""
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(handshake() + frame(0x1, SEND.encode()))
        before = await peer.reader.readuntil(b"message_ack")
        assert b"connection_established" in before
        await peer.close()


@on_real_loops
async def test_our_pings_are_heard_and_their_answers_keep_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PING_INTERVAL_S", 0.02)
    async with listener_harness() as harness, harness.client() as socket:
        pongs, pong_received = 0, harness.connection.pong_received

        def counted() -> None:
            nonlocal pongs
            pongs += 1
            pong_received()

        monkeypatch.setattr(harness.connection, "pong_received", counted)
        await until(lambda: pongs > 3)
        await socket.send(SEND)
        assert (await read(socket))["type"] == "message_ack"


@on_real_loops
async def test_a_peer_that_answers_no_ping_is_notified_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PING_INTERVAL_S", 0.05)
    monkeypatch.setattr(limits, "PONG_TIMEOUT_S", 0.05)
    monkeypatch.setattr(limits, "CLOSE_WAIT_S", 0.05)
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(handshake())
        closing = await peer.reader.readuntil(b"idle_timeout")
        assert b"connection_closing" in closing
        await until(lambda: harness.seen.timeouts == ["close"])
        await peer.close()


@on_real_loops
async def test_not_even_at_debug_is_it_logged_what_people_write(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(handshake("/v1/ws?token=s3cret") + frame(0x1, SEND.encode()))
        await peer.reader.readuntil(b"message_ack")
        await peer.close()
    assert "Gr" not in caplog.text
    assert "s3cret" not in caplog.text


# --- wrong input -----------------------------------------------------------------------------------------------------


@on_real_loops
async def test_a_binary_frame_closes_1003() -> None:
    async with listener_harness() as harness, harness.client() as socket:
        await socket.send(b"\x00\x01")
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 1003
        await until(lambda: harness.observed.ends == [None])


@on_real_loops
async def test_text_that_is_not_utf8_closes_1007() -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(handshake() + frame(0x1, b"\xff\xfe"))
        assert await close_of(peer) == 1007
        await peer.close()


@on_real_loops
async def test_a_frame_beyond_64_kib_closes_1009_and_one_of_64_kib_does_not() -> None:
    async with listener_harness() as harness, harness.client() as socket:
        await socket.send("x" * limits.FRAME_BYTES_MAX)
        assert (await read(socket))["code"] == "INVALID_MESSAGE"
        await socket.send("x" * (limits.FRAME_BYTES_MAX + 1))
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 1009


@on_real_loops
async def test_fragments_that_add_up_to_more_than_64_kib_close_1009() -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        half = b"x" * (limits.FRAME_BYTES_MAX // 2 + 1)
        peer.send(handshake() + frame(0x1, half, fin=False) + frame(0x0, half))
        assert await close_of(peer) == 1009
        await peer.close()


@pytest.mark.parametrize(
    "broken",
    [
        b"\x81\x01x",  # not masked
        frame(0x3, b"x"),  # no such opcode
        b"\xc1" + frame(0x1, b"x")[1:],  # a reserved bit
        frame(0x0, b"x"),  # continues nothing
        frame(0x9, b"x" * 126),  # a long ping
        frame(0x8, b"\x00\x01"),  # no such close code
    ],
)
@on_real_loops
async def test_a_violation_of_the_protocol_closes_1002(broken: bytes) -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(handshake() + broken)
        assert await close_of(peer) == 1002
        await peer.close()


@on_real_loops
async def test_a_bug_met_by_one_frame_closes_its_connection_alone_with_1011() -> None:
    async with (
        listener_harness() as harness,
        harness.client() as bystander,
        harness.client(device_id=DEVICE[:-1] + "1") as victim,
    ):
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        first, second = harness.gateway.connections.values()

        def broken(text: str | bytes) -> None:
            raise RuntimeError("a bug in the code")

        second.received = broken  # type: ignore[method-assign]
        await victim.send(SEND)
        with pytest.raises(ConnectionClosed):
            await victim.recv()
        assert victim.close_code == 1011
        await bystander.send(SEND)
        assert (await read(bystander))["type"] == "message_ack"
        assert not first.closed


# --- how a socket ends -----------------------------------------------------------------------------------------------


@on_real_loops
async def test_a_client_that_says_goodbye_is_answered_and_forgotten() -> None:
    async with listener_harness() as harness:
        async with harness.client() as socket:
            await socket.close(1000, "bye")
            assert socket.close_code == 1000
        await until(lambda: not harness.gateway.connections)
        assert harness.observed.ends == [None]


@on_real_loops
async def test_a_client_that_vanishes_is_forgotten_once() -> None:
    async with listener_harness() as harness:
        async with harness.client() as socket:
            socket.transport.abort()
            await until(lambda: harness.observed.ends == [None])
        assert not harness.gateway.connections


@on_real_loops
async def test_the_reason_of_a_close_stands_in_the_last_frame_and_in_the_close_frame() -> None:
    async with listener_harness() as harness, harness.client() as socket:
        await harness.listener.drain()
        closing = await read(socket)
        assert (closing["type"], closing["reason"]) == ("connection_closing", "server_shutdown")
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert (socket.close_code, socket.close_reason) == (1001, "server_shutdown")


@on_real_loops
async def test_a_peer_that_does_not_answer_the_close_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLOSE_WAIT_S", 0.05)
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(handshake())
        await peer.reader.readuntil(b"connection_established")
        await harness.listener.drain()
        with suppress(ConnectionResetError):  # a plain end of the stream is as good
            await peer.rest()
        assert harness.seen.timeouts == ["close"]
        await peer.close()


@on_real_loops
async def test_a_peer_that_never_reads_the_close_is_cut_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLOSE_WAIT_S", 0.05)
    monkeypatch.setattr(limits, "CLOSE_UNREAD_S", 0.2)
    async with listener_harness() as harness, harness.client() as socket:
        socket.transport.pause_reading()
        for sequence in range(1, 101):
            harness.push(sequence, "x" * 100_000)
        await until(lambda: not harness.connection._socket.writable)
        harness.connection.close(CloseReason.SESSION_REVOKED)
        await until(lambda: harness.seen.timeouts == ["close"])
        socket.transport.abort()


@on_real_loops
async def test_a_client_that_reads_again_gets_what_waited_without_asking() -> None:
    async with listener_harness() as harness, harness.client() as socket:
        socket.transport.pause_reading()
        for sequence in range(1, 101):
            harness.push(sequence, "x" * 100_000)
        await until(lambda: not harness.connection._socket.writable)
        socket.transport.resume_reading()
        async with asyncio.timeout(10):
            assert [(await read(socket))["sequence"] for _ in range(100)] == list(range(1, 101))


@on_real_loops
async def test_the_reason_of_a_close_reaches_a_client_that_is_still_sending() -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.send(handshake() + struct.pack("!BBQ", 0x81, 0x80 | 127, 10_000_000) + bytes(4))
        for _ in range(100):
            peer.send(bytes(100_000))
            await peer.writer.drain()
        assert await close_of(peer) == 1009
        await peer.close()


@on_real_loops
async def test_a_second_connection_of_a_device_ends_the_first() -> None:
    async with listener_harness() as harness, harness.client() as first, harness.client() as second:
        assert (await read(first))["reason"] == "duplicate_connection"
        await second.send(SEND)
        assert (await read(second))["type"] == "message_ack"


@on_real_loops
async def test_pongs_to_a_client_that_does_not_read_do_not_pile_up() -> None:
    async with listener_harness() as harness:
        peer = await harness.dial()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.send(handshake())
        await until(lambda: len(harness.gateway.connections) == 1)
        shell = harness.connection._socket
        for _ in range(400):
            peer.send(frame(0x9, b"x" * 125) * 500)
            async with asyncio.timeout(5):
                await peer.writer.drain()
        waiting = shell._transport.get_write_buffer_size()  # type: ignore[attr-defined]
        assert waiting < 1_000_000  # of the 26 MB that were asked for
        peer.writer.transport.abort()
        await until(lambda: not harness.gateway.connections)
        await peer.close()


@on_real_loops
async def test_a_client_that_stops_reading_is_warned_and_then_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the buffer never exceeds its bound; when it reads again it finds the warning, then the reason."""
    monkeypatch.setattr(limits, "SLOW_CONSUMER_GRACE_S", 0.4)
    monkeypatch.setattr(limits, "CLOSE_WAIT_S", 0.05)
    async with listener_harness() as harness, harness.client() as socket:
        socket.transport.pause_reading()
        connection, began = harness.connection, harness.clock.monotonic()
        sequence, most = 0, 0
        while not connection.closed:
            assert harness.clock.monotonic() - began < 20
            for _ in range(50):
                sequence += 1
                harness.push(sequence, "x" * 4000)
            most = max(most, connection._outbound.waiting)
            await asyncio.sleep(0.005)
        await asyncio.sleep(5 * limits.CLOSE_WAIT_S)  # it takes its time, and is not cut while bytes wait for it
        socket.transport.resume_reading()
        everything = [msgspec.json.decode(text, type=dict[str, object]) async for text in socket_to_its_end(socket)]
        others = [each for each in everything if each["type"] != "message"]
        assert [(each["type"], each.get("code") or each.get("reason")) for each in others] == [
            ("error", "SLOW_CONSUMER"),
            ("connection_closing", "slow_consumer"),
        ]
        assert most <= limits.OUTBOUND_FRAMES_MAX
        assert socket.close_code == 1008

"""Clients that stop reading: warned, given time, closed with directions; and no other client notices."""

import asyncio
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from seriatim.domain import limits
from tests.system.devices import Device, faults, same, signed_in
from tests.system.raw_websocket import RawWebSocket
from tests.system.server_process import ServerProcess, serving, until
from tests.system.users import User

Json = dict[str, Any]
LITTLE = 4096  # bytes that the kernel takes for a client that does not read
LOG_GRAIN_S = 0.001  # the log tells milliseconds, cut off
WAVE = 5  # messages of each writer at a time: 300 for one reader, below its warning


@pytest.mark.timeout(240)
async def test_a_client_that_stops_reading_is_warned_given_five_seconds_notified_and_closed(tmp_path: Path) -> None:
    """Sixty users write to one, within their bursts; that one has two devices, and one of them stops reading."""
    writers_count, each, text = 60, limits.SEND_BURST_MAX, "x" * 4000
    total = writers_count * each
    with serving(tmp_path / "data", "--log-level", "debug") as server:
        users = await signed_in(lambda number: User(server, f"+4915100{number:06d}"), writers_count + 1)
        popular, writers = users[0], users[1:]
        second = await asyncio.to_thread(User, server, popular.phone_number)
        chats = await asyncio.to_thread(_direct_chats, popular, writers)
        healthy = Device(second)
        await healthy.connect()
        devices = [Device(writer) for writer in writers]
        await asyncio.gather(*(device.connect() for device in devices))
        with RawWebSocket(server, popular.access_token, receive_buffer=LITTLE) as slow:
            for chat_id in chats:
                await healthy.sync(chat_id)
                slow.send({"type": "sync_request", "chat_id": chat_id, "last_acked_sequence": 0})
                assert slow.frame()["type"] == "message_batch"
            acks = 0
            for wave in range(0, each, WAVE):  # few enough at a time that who reads never has much before it
                sends = [
                    device.send(chat_id, f"{count}{text}")
                    for device, chat_id in zip(devices, chats, strict=True)
                    for count in range(wave, wave + WAVE)
                ]
                acks += len(await asyncio.gather(*sends))
                await asyncio.gather(*(healthy.has(wave + WAVE, chat_id) for chat_id in chats))
            assert acks == total, "a device that reads is answered, whatever another device does"
            fullest = await asyncio.to_thread(_fullest_until_closed, server, 1)
            received, warnings, closing, code = await asyncio.to_thread(_read_to_the_end, slow)
        assert _grace_s(server) >= limits.SLOW_CONSUMER_GRACE_S - LOG_GRAIN_S
        [warning] = warnings
        assert (warning["code"], warning["grace_period"]) == ("SLOW_CONSUMER", 5)
        assert (
            950 < warning["details"]["buffer_size"] <= warning["details"]["buffer_limit"] == limits.OUTBOUND_FRAMES_MAX
        )
        assert (closing["reason"], closing["reconnect_allowed"], code) == ("slow_consumer", True, 1008)
        assert total - len(received) > limits.OUTBOUND_FRAMES_MAX >= fullest, (
            "more was written to it than there is room for"
        )
        _check_directions(closing["sync_from_sequence"], received, chats, each)
        back = Device(popular)
        await back.connect()
        for chat_id in chats:
            await back.sync(chat_id)
            history = [same(message) for message in await asyncio.to_thread(popular.history, chat_id)]
            assert len(history) == each
            assert back.messages(chat_id) == history == healthy.messages(chat_id)
        everyone = [healthy, back, *devices]
        await asyncio.gather(*(device.close() for device in everyone))
        assert faults(everyone) == []
        assert server.metric("gateway_outbound_frames_max") == 0


@pytest.mark.timeout(240)
async def test_two_hundred_clients_that_stop_reading_cost_the_others_no_ack(tmp_path: Path) -> None:
    """Forty users with five devices each, none of which reads, in one chat with sixty who write."""
    stalled_users, devices_each, writers_count, burst, text = 40, 5, 60, limits.SEND_BURST_MAX, "x" * 1500
    with serving(tmp_path / "data") as server, ExitStack() as stack:
        stalled = await signed_in(
            lambda number: User(server, f"+4915200{number % stalled_users:06d}"), stalled_users * devices_each
        )
        users = await signed_in(lambda number: User(server, f"+4915100{number:06d}"), writers_count)
        chat_id = await asyncio.to_thread(users[0].create_group, *users[1:], *stalled[:stalled_users])
        websockets = [
            stack.enter_context(RawWebSocket(server, each.access_token, receive_buffer=LITTLE)) for each in stalled
        ]
        devices = [Device(user) for user in users]
        await asyncio.gather(*(device.connect() for device in devices))
        for websocket in websockets:
            websocket.send({"type": "sync_request", "chat_id": chat_id, "last_acked_sequence": 0})
            assert websocket.frame()["type"] == "message_batch"
        await asyncio.gather(*(device.sync(chat_id) for device in devices))
        acks = await asyncio.gather(
            *(_write(device, chat_id, [f"{n}{text}" for n in range(burst)]) for device in devices)
        )
        assert sum(acks) == writers_count * burst
        await asyncio.gather(*(device.has(sum(acks), chat_id) for device in devices))
        assert await asyncio.to_thread(_fullest_until_closed, server, len(websockets)) <= limits.OUTBOUND_FRAMES_MAX
        await asyncio.gather(*(device.close() for device in devices))
        stack.close()
        assert faults(devices) == []
        await asyncio.to_thread(
            until, lambda: server.metric("gateway_connections_active") == 0, "no connection is left"
        )


async def _write(device: Device, chat_id: str, texts: list[str]) -> int:
    """One after the other; returns how many were acknowledged."""
    return len([await device.send(chat_id, text) for text in texts])


def _direct_chats(popular: User, writers: list[User]) -> list[str]:
    bodies = [{"type": "direct", "member_ids": [writer.user_id]} for writer in writers]
    return [popular.call("POST", "/chats", body).data["chat_id"] for body in bodies]


def _fullest_until_closed(server: ServerProcess, count: int) -> float:
    """The most that was ever seen to wait for one of them until so many slow ones were closed."""
    seen = [0.0]

    def closed() -> bool:
        seen.append(server.metric("gateway_outbound_frames_max"))
        return server.metric("gateway_slow_consumer_disconnects_total") == count

    until(closed, f"{count} slow ones are closed")
    return max(seen)


def _read_to_the_end(slow: RawWebSocket) -> tuple[list[Json], list[Json], Json, int]:
    """Messages, warnings, the closing, and the code of the close."""
    received, warnings = list[Json](), list[Json]()
    while True:
        frame = slow.frame()
        match frame["type"]:
            case "message":
                received.append(frame)
            case "error":
                warnings.append(frame)
            case "connection_closing":
                return received, warnings, frame, slow.close_code()


def _grace_s(server: ServerProcess) -> float:
    warned, closed = (
        datetime.fromisoformat(line["ts"])
        for line in server.lines()
        if line["event"] == "slow_consumer_warned" or line.get("reason") == "slow_consumer"
    )
    return (closed - warned).total_seconds()


def _check_directions(sync_from: dict[str, int], received: list[Json], chats: list[str], each: int) -> None:
    """For each chat with unsent messages: from where to sync, so that nothing is left out or sent for nothing."""
    got: dict[str, list[int]] = {chat_id: [] for chat_id in chats}
    for message in received:
        got[message["chat_id"]].append(message["sequence"])
    for sequences in got.values():
        assert sequences == list(range(1, len(sequences) + 1)), "what was sent is contiguous"
    assert sync_from == {chat_id: len(sequences) for chat_id, sequences in got.items() if len(sequences) < each}

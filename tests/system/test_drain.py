"""SIGTERM under load: clients are notified and go elsewhere, what was acknowledged stays, and the process ends well."""

import asyncio
import signal
from pathlib import Path

from seriatim.domain import limits
from tests.system.devices import Device, Lost, Refused, faults, same, signed_in
from tests.system.handshake_client import try_handshake
from tests.system.raw_websocket import RawWebSocket
from tests.system.server_process import serving
from tests.system.users import User, request

USERS = 20
EACH = 40  # more than a burst: some are asked to wait, and send the same again


async def test_a_drain_under_load_tells_everyone_loses_nothing_and_ends_with_0(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data) as server:
        users = await signed_in(lambda number: User(server, f"+4915100{number:06d}"), USERS)
        chat_id = await asyncio.to_thread(users[0].create_group, *users[1:])
        devices = [Device(each) for each in users]
        await asyncio.gather(*(device.connect() for device in devices))
        await asyncio.gather(*(device.sync(chat_id) for device in devices))
        writing = asyncio.gather(*(_write(device, chat_id) for device in devices))
        await devices[0].until(lambda: len(devices[0].messages(chat_id)) >= USERS)
        server.signal(signal.SIGTERM)
        refusals = [code for codes in await writing for code in codes]
        await asyncio.gather(*(device.wait_closed() for device in devices))
        assert await asyncio.to_thread(server.wait) == 0
        assert [line["event"] for line in server.lines() if line["level"] in ("error", "critical")] == []
    assert set(refusals) <= {"SERVICE_UNAVAILABLE", "RATE_LIMITED"}
    delays = [_closing_delay(device) for device in devices]
    assert len(set(delays)) > 1, "not all at the same moment"
    acked = sum(len(device.acks) for device in devices)
    assert 0 < acked < USERS * EACH, "the signal came in the middle"
    with serving(data) as server:
        for user in users:
            user.server = server
        await asyncio.gather(*(device.connect() for device in devices))
        await asyncio.gather(*(device.sync(chat_id) for device in devices))
        history = [same(each) for each in await asyncio.to_thread(users[0].history, chat_id)]
        await asyncio.gather(*(device.close() for device in devices))
    assert len({each["client_message_id"] for each in history}) == len(history) >= acked
    assert faults(devices) == []
    for device in devices:
        assert device.messages(chat_id) == history


def test_while_it_drains_newcomers_get_503_and_later_requests_service_unavailable(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        alice, bob = User(server, "+4915112345678"), User(server, "+4915112345679")
        chat_id = alice.create_group(bob)
        with alice.connect() as websocket:
            for number in range(20):
                websocket.send(chat_id, f"{number}" + "x" * 4000)
        with RawWebSocket(server, bob.access_token, receive_buffer=4096) as busy, alice.connect() as websocket:
            # Pages that no client reads are answers that were accepted: they hold the drain up until they are taken.
            busy.send(*({"type": "sync_request", "chat_id": chat_id, "last_acked_sequence": 0} for _ in range(50)))
            server.signal(signal.SIGTERM)
            assert websocket.receive("connection_closing")["reason"] == "server_shutdown"
            server.wait_for_event("draining")
            refused = try_handshake(server, alice.access_token)
            assert (refused.status, refused.json["error"]) == (503, "service_unavailable")
            assert refused.json["retry_after_seconds"] >= 1
            assert request(server, "GET", "/health/ready").status == 503
            busy.send({"type": "send_message", "chat_id": chat_id, "client_message_id": _KEY, "content": "too late"})
            frames = list(busy.frames())
        assert [frame["type"] for frame in frames].count("message_batch") == 50
        [closing] = [frame for frame in frames if frame["type"] == "connection_closing"]
        assert closing["reason"] == "server_shutdown"
        [error] = [frame for frame in frames if frame["type"] == "error"]
        assert (error["code"], error["retryable"], error["client_message_id"]) == ("SERVICE_UNAVAILABLE", True, _KEY)
        assert server.wait() == 0


_KEY = "550e8400-e29b-41d4-a716-446655440000"


async def _write(device: Device, chat_id: str) -> list[str]:
    """As fast as it may until the server goes; returns how it was refused."""
    refusals = list[str]()
    for number in range(EACH):
        try:
            await device.send(chat_id, f"number {number}")
        except Refused as refused:
            refusals.append(refused.error["code"])
            if refused.error["code"] == "RATE_LIMITED":
                await asyncio.sleep(refused.error["retry_after_seconds"])
        except Lost:
            break
    return refusals


def _closing_delay(device: Device) -> int:
    assert device.closing is not None
    assert (device.closing["reason"], device.closing["reconnect_allowed"]) == ("server_shutdown", True)
    assert device.close_code == 1001
    delay = device.closing["reconnect_delay_ms"]
    assert isinstance(delay, int)
    assert 0 <= delay <= limits.DRAIN_RECONNECT_SPREAD_MS
    return delay

"""A hundred thousand frames that no client should send: the server neither falls nor grows."""

import asyncio
import os
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.soak import repeat
from tests.system.frame_fuzzer import FrameFuzzer
from tests.system.raw_websocket import CLOSE, framed, handshake
from tests.system.server_process import ServerProcess, serving, until
from tests.system.users import User

FRAMES = repeat(30_000, soak=100_000)
WARM_UP = 20_000  # caches fill, the allocator takes what it needs
PER_CONNECTION_MAX = 150  # below what a client may send without reading its answers
RUBBISH_RATIO = 0.1  # of the connections: they end in bytes that are no frames
DIALLERS = 8
SEED = 20_260_203
GROWTH_BYTES_MAX = 16 * 1024 * 1024  # after the warm-up: what is stored meanwhile; 8 KB a connection would be too much
MARK = b'"request_id":"the-end"'
MET = {
    *("message_ack", "message_batch", "heartbeat_ack", "message", "protocol_error"),
    *("INVALID_MESSAGE", "INVALID_CONTENT_TYPE", "MESSAGE_TOO_LARGE", "NOT_A_MEMBER"),
}


@dataclass
class Sent:
    frames: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)


@pytest.mark.timeout(300)
async def test_fuzzed_frames_neither_crash_nor_leak(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        users = await asyncio.to_thread(_people, server)
        alice, bob = users[0], users[1]
        carol = User(server, "+4915199999999")
        chats = (alice.create_group(*users[1:]), carol.create_group(bob), "chat_nowhere")
        fuzzer, sent = FrameFuzzer(SEED, chats), Sent()
        await _fuzz(server, users, fuzzer, sent, WARM_UP)
        warm = _resident_bytes(server)
        await _fuzz(server, users, fuzzer, sent, FRAMES)
        await asyncio.to_thread(
            until, lambda: server.metric("gateway_connections_active") == 0, "no connection is left"
        )
        growth = _resident_bytes(server) - warm
        dave = User(server, "+4915188888888")  # in no chat of before, of which messages may still be on their way
        with dave.connect() as websocket:
            assert websocket.is_usable()
            assert websocket.send(dave.create_group(bob), "still here")["type"] == "message_ack"
        assert [line for line in server.lines() if line["level"] in ("error", "critical")] == []
        assert server.stop() == 0
    assert sent.frames >= FRAMES
    assert growth < GROWTH_BYTES_MAX, f"{growth} bytes more after {sent}"
    assert set(sent.ends) == {"closed", "rubbish", "left"}
    assert set(sent.answers) >= MET, "the frames were no shots in the dark"


async def _fuzz(server: ServerProcess, users: Sequence[User], fuzzer: FrameFuzzer, sent: Sent, frames: int) -> None:
    async def dial(user: User) -> None:
        while sent.frames < frames:
            await _one_connection(server, user, fuzzer, sent)

    await asyncio.gather(*(dial(user) for user in users))


async def _one_connection(server: ServerProcess, user: User, fuzzer: FrameFuzzer, sent: Sent) -> None:
    """Greeted, then all frames at once, then whatever ends it: the server, rubbish, a goodbye or a silent departure."""
    life = fuzzer.life(PER_CONNECTION_MAX)
    rubbish = fuzzer.rubbish() if fuzzer.chance() < RUBBISH_RATIO else b""
    reader, writer = await asyncio.open_connection(server.host, server.port, limit=2**24)
    try:
        async with asyncio.timeout(60):
            writer.write(handshake(user.access_token))
            received = await reader.readuntil(b'"sync_limit_max":500}}')
            writer.write(b"".join(map(framed, life)) + framed(fuzzer.last(MARK)))
            received += await _read_until(reader, MARK, b'"type":"connection_closing"')
            closed = b'"type":"connection_closing"' in received
            if rubbish:
                writer.write(rubbish)
            if fuzzer.chance() < 0.5:
                writer.write(framed(b"\x03\xe8", CLOSE))
            writer.write_eof()
            received += await _read_until(reader)
    finally:
        # What the server did not read any more stays unwritten: a mere `close` would wait for it beyond this loop.
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()
    sent.frames += len(life) + bool(rubbish)
    sent.ends["closed" if closed else "rubbish" if rubbish else "left"] += 1
    for kind in re.findall(rb'"(?:type|code|reason)":"([A-Za-z_]+)"', received):
        sent.answers[kind.decode()] += 1


async def _read_until(reader: asyncio.StreamReader, *marks: bytes) -> bytes:
    """Up to one of these, or to the end."""
    received = b""
    try:
        while not any(mark in received for mark in marks) and (data := await reader.read(262_144)):
            received += data
    except ConnectionResetError:
        pass
    return received


def _people(server: ServerProcess) -> list[User]:
    return [User(server, f"+4915100{number:06d}") for number in range(DIALLERS)]


def _resident_bytes(server: ServerProcess) -> int:
    status = Path(f"/proc/{server.process.pid}/statm").read_text(encoding="ascii")
    return int(status.split()[1]) * os.sysconf("SC_PAGE_SIZE")

"""WebSocket clients that cost as little as possible: the load generator must never be what is measured.

Frames are built and read by hand. They are masked with a key of zeroes: the mask is there, as the protocol demands,
and the server undoes it at full cost, but applying it changes nothing.
"""

import asyncio
import os
import socket
import time
from collections import deque
from collections.abc import Coroutine, Iterable
from typing import cast

import msgspec

_KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
_ACK = b'{"type":"message_ack"'
_GREETING = b'{"type":"connection_established"'
_BATCH = b'{"type":"message_batch"'
_ERROR = (b'{"type":"error"', b'{"type":"connection_closing"')
CROWD_MAX = 50  # handshakes at once
CONNECT_S = 20.0


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int


class Client(asyncio.Protocol):
    """One connection. `frames` counts the texts it got that were neither greetings nor answers: pushes."""

    def __init__(self, token: str = "", chat_id: str = "") -> None:
        self.token = token
        self.chat_id = chat_id
        self.frames = 0
        self.trouble: str | None = None
        self.closed = False
        self._answer = _ACK
        self._rest = b""
        self._upgraded = False
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._synced: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport

    async def connect(self, to: Address, *, receive_buffer_bytes: int | None = None) -> None:
        """Returns once the server has greeted us; a server without tokens greets nobody."""
        loop = asyncio.get_running_loop()
        made = socket.socket()
        made.setblocking(False)
        if receive_buffer_bytes is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        await loop.sock_connect(made, (to.host, to.port))
        await loop.create_connection(lambda: self, sock=made)
        await asyncio.wait_for(self._ready, CONNECT_S)

    async def sync(self, chat_id: str) -> None:
        """As clients do first: this one has everything so far, and wants all that follows."""
        self._synced = asyncio.get_running_loop().create_future()
        request = {"type": "sync_request", "chat_id": chat_id, "last_acked_sequence": 2**53 - 1}
        text = msgspec.json.encode(request)
        self.write(frame_head(len(text)) + text)
        await asyncio.wait_for(self._synced, CONNECT_S)

    def write(self, frame: bytes) -> None:
        self._transport.write(frame)

    def stop_reading(self) -> None:
        self._transport.pause_reading()

    def close(self) -> None:
        self._transport.abort()

    def check(self) -> None:
        if self.trouble is not None or self.closed:
            raise RuntimeError(f"a client met trouble: {self.trouble or 'the server hung up'}")

    def answered(self) -> None:
        """Our own message came back, as an ack or as an echo."""

    # --- what the transport reports -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # that of uvloop is one in all but name
        bearer = f"Authorization: Bearer {self.token}\r\n" if self.token else ""
        self._transport.write(
            b"GET /v1/ws HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n%b\r\n" % (_KEY, bearer.encode())
        )

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        if not self._upgraded:
            at = self._upgrade(data)
        while end - at >= 2:
            length, body = data[at + 1], at + 2
            if length == 126:
                length, body = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
            elif length == 127:
                length, body = int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
            if body + length > end:
                break
            if data[at] != 0x81:
                self._control(data[at], data[body : body + length])
            elif data.startswith(self._answer, body):
                self.answered()
            else:
                self.frames += 1
                if data.startswith(_OURS, body):
                    self._control_frame(data[body : body + length])
            at = body + length
        self._rest = data[at:]

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if not self._ready.done():
            self._ready.set_exception(RuntimeError(f"the server hung up: {self._rest[:500].decode(errors='replace')}"))

    # --- what is rare -------------------------------------------------------------------------------------------------

    def _upgrade(self, data: bytes) -> int:
        head = data.find(b"\r\n\r\n")
        if head < 0:
            return 0
        if not data.startswith(b"HTTP/1.1 101"):
            self._ready.set_exception(RuntimeError(f"refused: {data[:500].decode(errors='replace')}"))
            return len(data)
        self._upgraded = True
        if not self.token:
            self._ready.set_result(None)
        return head + 4

    def _control(self, first: int, body: bytes) -> None:
        if first == 0x89:
            self._transport.write(bytes((0x8A, 0x80 | len(body))) + bytes(4) + body)
        elif first == 0x88:
            self.trouble = self.trouble or f"closed: {body[2:].decode(errors='replace')}"

    def _control_frame(self, text: bytes) -> None:
        self.frames -= 1
        if text.startswith(_GREETING) and not self._ready.done():
            self._ready.set_result(None)
        elif text.startswith(_BATCH) and self._synced is not None:
            self._synced.set_result(None)
        elif text.startswith(_ERROR):
            self.trouble = text.decode()


_OURS = (_GREETING, _BATCH, *_ERROR)


class Writer(Client):
    """Sends `depth` messages at once, and another whenever one came back, until told to stop.

    `echoed`: the server is a bare one, which sends back what it gets.
    """

    def __init__(self, token: str, chat_id: str, content_bytes: int, *, echoed: bool = False) -> None:
        super().__init__(token, chat_id)
        self.acks = 0
        self.latencies_s: list[float] = []
        opening, self._template = send_frames(chat_id, content_bytes)
        if echoed:
            self._answer = opening
        self._number = 0
        self._sent_at: deque[float] = deque()
        self._going = False

    def begin(self, depth: int = 1) -> None:
        self._going = True
        for _ in range(depth):
            self.send()

    def send(self) -> None:
        self._number += 1
        self._sent_at.append(time.perf_counter())
        self._transport.write(self._template % self._number)

    def answered(self) -> None:
        self.acks += 1
        self.latencies_s.append(time.perf_counter() - self._sent_at.popleft())
        if self._going:
            self.send()

    def cease(self) -> None:
        self._going = False

    @property
    def in_flight(self) -> int:
        return len(self._sent_at)


def send_frames(chat_id: str, content_bytes: int) -> tuple[bytes, bytes]:
    """How the texts of a client begin, and the frames that hold them, to be filled in with a number."""
    start = os.urandom(6).hex()  # nobody else's ids, nor those of an earlier round
    opening = f'{{"type":"send_message","client_message_id":"{start[:8]}-{start[8:]}-4000-8000-'.encode()
    ending = f'","chat_id":"{chat_id}","content":"{("hello " * content_bytes)[:content_bytes]}"}}'.encode()
    head = frame_head(len(opening) + 12 + len(ending)).replace(b"%", b"%%")
    return opening, head + opening + b"%012x" + ending


def frame_head(length: int) -> bytes:
    """Of a masked text frame of this length."""
    if length < 126:
        return bytes((0x81, 0x80 | length)) + bytes(4)
    return b"\x81\xfe" + length.to_bytes(2, "big") + bytes(4)


async def in_crowds(steps: Iterable[Coroutine[object, object, None]]) -> None:
    """All of it, CROWD_MAX at a time."""
    room = asyncio.Semaphore(CROWD_MAX)

    async def one(step: Coroutine[object, object, None]) -> None:
        async with room:
            await step

    async with asyncio.TaskGroup() as group:
        for step in steps:
            group.create_task(one(step))

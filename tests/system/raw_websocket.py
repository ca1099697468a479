"""A WebSocket on a bare socket: sends any bytes, and reads only when the test asks for it."""

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

from tests.system.users import ANSWER_S, Endpoint

Json = dict[str, Any]
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class RawWebSocket:
    """Greeted, unless `greeted` is false. `receive_buffer`: a small one, so that the server soon cannot write more."""

    def __init__(self, server: Endpoint, token: str, *, receive_buffer: int = 0, greeted: bool = True) -> None:
        self.socket = socket.socket()
        self._buffer = b""
        try:
            self.socket.settimeout(ANSWER_S)
            if receive_buffer:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            self.socket.connect((server.host, server.port))
            self.socket.sendall(handshake(token))
            head = self._until(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 101 "), head
            if greeted:
                assert self.frame()["type"] == "connection_established"
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> "RawWebSocket":
        return self

    def __exit__(self, *reason: object) -> None:
        self.socket.close()

    def send(self, *frames: object) -> None:
        """All of them in one write."""
        self.socket.sendall(b"".join(framed(json.dumps(each).encode()) for each in frames))

    def frame(self) -> Json:
        """The next text frame."""
        opcode, payload = self.next()
        assert opcode == TEXT, (opcode, payload)
        found: Json = json.loads(payload)
        return found

    def frames(self) -> Iterator[Json]:
        """Text frames up to the close."""
        while True:
            opcode, payload = self.next()
            if opcode == CLOSE:
                return
            if opcode == TEXT:
                yield json.loads(payload)

    def close_code(self) -> int:
        """Reads on to the close."""
        while True:
            opcode, payload = self.next()
            if opcode == CLOSE:
                return int.from_bytes(payload[:2], "big")

    def next(self) -> tuple[int, bytes]:
        first, second = self._take(2)
        assert first & 0x80, "the server sends whole frames"
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", self._take(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self._take(8))
        return first & 0x0F, self._take(size)

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._buffer += self._more()
        found, self._buffer = self._buffer[:size], self._buffer[size:]
        return found

    def _until(self, end: bytes) -> bytes:
        while end not in self._buffer:
            self._buffer += self._more()
        found, _, self._buffer = self._buffer.partition(end)
        return found

    def _more(self) -> bytes:
        data = self.socket.recv(65_536)
        assert data, "the server hung up"
        return data


def handshake(token: str, path: str = "/v1/ws") -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAuthorization: Bearer {token}\r\n\r\n"
    ).encode()


def framed(payload: bytes, opcode: int = TEXT, *, fin: bool = True) -> bytes:
    """A client's frame, masked with zeros, which changes nothing."""
    first = (0x80 if fin else 0) | opcode
    if len(payload) < 126:
        head = bytes((first, 0x80 | len(payload)))
    elif len(payload) < 65_536:
        head = struct.pack("!BBH", first, 0x80 | 126, len(payload))
    else:
        head = struct.pack("!BBQ", first, 0x80 | 127, len(payload))
    return head + bytes(4) + payload

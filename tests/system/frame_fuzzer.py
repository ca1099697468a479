"""Invalid and odd frames, by the thousand and by a seed: the same ones each time."""

import json
import random
import struct
from collections.abc import Callable
from typing import Any

from seriatim.domain import limits
from seriatim.domain.errors import InvalidMessage
from seriatim.protocol.codec import BadFrame, decode_client_frame
from tests.system.raw_websocket import BINARY, CLOSE, PING, PONG, TEXT, framed

Json = dict[str, Any]
NASTY: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1.5, 47.0, -0.0, 2**53 - 1, 2**53, -(2**63), 2**64, 1e308, 10**300),
    *("", " ", "\x00", "\u200b", "\ufeff", "é", "🎉", "\ud800", "a\nb", "../..", "'; --", "%s%n", "NaN", "null"),
    *("x" * 64, "x" * 65, "x" * 4096, "x" * 4097, "é" * 2049),
    *([], {}, [[]], {"a": 1}, {"": ""}, [0] * 100, {"type": "heartbeat"}),
    "550e8400-e29b-41d4-a716-446655440000",
    "550E8400-E29B-41D4-A716-446655440000",
    "550e8400-e29b-11d4-a716-446655440000",
)
TYPES = ("send_message", "sync_request", "ack", "heartbeat", "typing_started", "message", "message_ack", "error", "")


class FrameFuzzer:
    """`chats`: one that the sender may use, one that it may not, and one that is not there."""

    def __init__(self, seed: int, chats: tuple[str, str, str]) -> None:
        self._chance = random.Random(seed)
        self._chats = chats

    def text(self) -> bytes:
        """The payload of one text frame, anything from right to rubbish."""
        chance = self._chance
        frame = self._valid()
        kind = chance.random()
        if kind < 0.35:
            return _encoded(frame)
        if kind < 0.65:
            return _encoded(self._lenient(frame))
        if kind < 0.85:
            return _encoded(self._mutated(frame))
        return self._spoilt(_encoded(frame))

    def life(self, frames: int) -> list[bytes]:
        """Text frames for one connection: half of them stop just before the server has had enough."""
        enough = limits.INVALID_FRAMES_MAX - (self._chance.random() < 0.5)
        found, invalid = list[bytes](), 0
        while len(found) < frames and invalid < enough:
            found.append(self.text())
            invalid += _is_invalid(found[-1])
        return found

    def rubbish(self) -> bytes:
        """Bytes that may or may not be frames, after which no connection is of use."""
        chance = self._chance
        makers: tuple[Callable[[], bytes], ...] = (
            lambda: chance.randbytes(chance.randrange(1, 400)),
            lambda: framed(chance.randbytes(chance.randrange(0, 100)), BINARY),
            lambda: framed(b"\xc3\x28" * chance.randrange(1, 50), TEXT),
            lambda: framed(b" " * 65_537, TEXT),
            lambda: framed(b"x", chance.choice((3, 4, 5, 6, 7, 11, 15))),
            lambda: framed(chance.randbytes(chance.choice((0, 125, 126))), chance.choice((PING, PONG, CLOSE))),
            lambda: framed(struct.pack("!H", chance.randrange(0, 5000)) + b"bye", CLOSE),
            lambda: framed(_encoded(self._valid()), TEXT, fin=False) + framed(b"}", chance.choice((0, TEXT))),
            lambda: framed(self.text(), TEXT)[: -chance.randrange(1, 5)],
        )
        return b"".join(chance.choice(makers)() for _ in range(chance.randrange(1, 4)))

    def last(self, mark: bytes) -> bytes:
        """A question whose answer tells that all before it was read."""
        return b'{"type":"sync_request","chat_id":"%s","last_acked_sequence":0,%s}' % (self._chats[0].encode(), mark)

    def chance(self) -> float:
        return self._chance.random()

    # --- frames, from right to wrong ----------------------------------------------------------------------------------

    def _valid(self) -> Json:
        chance = self._chance
        chat_id = chance.choice(self._chats)
        match chance.randrange(5):
            case 0:
                key = f"{chance.getrandbits(32):08x}-e29b-41d4-a716-446655440000"
                content = chance.choice(("hi", "Grüße 🎉", " ", "x" * chance.randrange(1, 300)))
                return {"type": "send_message", "chat_id": chat_id, "client_message_id": key, "content": content}
            case 1:
                after = chance.choice((0, 1, 5, 2**53 - 1))
                return {"type": "sync_request", "chat_id": chat_id, "last_acked_sequence": after, "limit": 2}
            case 2:
                return {"type": "ack", "chat_id": chat_id, "last_acked_sequence": chance.choice((1, 7, 10**15))}
            case 3:
                return {"type": "heartbeat", "request_id": chance.choice(("r", "x" * 64))}
            case _:
                return {"type": chance.choice(("presence", "typing_stopped", "message_ack", "x" * 5000)), "a": [1]}

    def _lenient(self, frame: Json) -> Json:
        """Odd, and to be taken all the same."""
        chance = self._chance
        match chance.randrange(4):
            case 0:
                return {**frame, chance.choice(("x", "sender_id", "sequence", "ts", "")): chance.choice(NASTY)}
            case 1:
                rest = {name: value for name, value in frame.items() if name != "type"}
                return {"type": frame["type"], "payload": rest, "timestamp": chance.choice(NASTY)}
            case 2:
                return {**frame, "request_id": chance.choice(NASTY)}
            case _:
                return dict(reversed(frame.items()))

    def _mutated(self, frame: Json) -> Json:
        chance = self._chance
        changed = dict(frame)
        for _ in range(chance.randrange(1, 3)):
            name = chance.choice((*changed, "content_type", "payload", "chat_id"))
            if chance.random() < 0.2:
                changed.pop(name, None)
            elif chance.random() < 0.1:
                changed["type"] = chance.choice(TYPES)
            else:
                changed[name] = chance.choice(NASTY)
        return changed

    def _spoilt(self, payload: bytes) -> bytes:
        """Still UTF-8, for what is not ends the connection at once: see `rubbish`."""
        chance = self._chance
        at = chance.randrange(len(payload) + 1)
        match chance.randrange(5):
            case 0:
                spoilt = payload[:at]
            case 1:
                spoilt = payload[:at] + chance.choice((b"\x00", b"}", b"]", b'"', b"\\", b",")) + payload[at:]
            case 2:
                spoilt = b"[" * chance.randrange(1, 3000)
            case 3:
                spoilt = payload * 2
            case _:
                spoilt = bytes(chance.randrange(128) for _ in range(chance.randrange(100)))
        return spoilt.decode(errors="ignore").encode()


def _encoded(frame: Json) -> bytes:
    """Lone surrogates stay as escapes, as browsers send them."""
    return json.dumps(frame, ensure_ascii=True).encode()


def _is_invalid(payload: bytes) -> bool:
    """Whether it counts against the connection. Asked of the codec, to know when a connection has to be replaced."""
    try:
        decode_client_frame(payload.decode())
    except BadFrame as bad:
        return isinstance(bad.error, InvalidMessage)
    return False

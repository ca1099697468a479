"""One WebSocket on a transport: frames of the codec on this side, a `Connection` on the other.

The codec is sans-I/O (`websockets`); what is written here is when bytes move and how a socket ends. A connection
flushes once per turn of the loop, so one call of `write` is one write to the transport.
"""

import asyncio
import logging
from collections.abc import Sequence
from itertools import chain

from websockets.frames import Frame, Opcode
from websockets.protocol import SEND_EOF, Protocol, Side, State

from seriatim.connection.listener.state import ListenerState
from seriatim.connection.session.connection import Connection
from seriatim.connection.task_group import report
from seriatim.domain import limits
from seriatim.protocol.frames import CloseReason

try:
    from websockets.speedups import apply_mask
except ImportError:  # a machine without a compiled wheel
    from websockets.utils import apply_mask

_OPEN = State.OPEN
_WHOLE_TEXT = 0x80 | Opcode.TEXT
_TEXT, _BINARY, _CONT, _PONG = Opcode.TEXT, Opcode.BINARY, Opcode.CONT, Opcode.PONG
# At DEBUG the codec logs what people write to each other, so its logger is nobody's to switch on.
_SILENT = logging.Logger("seriatim.codec")  # noqa: LOG001
_SILENT.disabled = True


class WebSocket(asyncio.Protocol):
    """The `Socket` of a connection. `Connection.lost` is called once, as soon as nothing more can leave."""

    __slots__ = (
        "_awaited",
        "_codec",
        "_connection",
        "_cut_handle",
        "_door",
        "_fragments",
        "_parted",
        "_rest",
        "_strange",
        "_talks",
        "_transport",
        "writable",
    )

    def __init__(self, transport: asyncio.Transport, door: ListenerState, *, full: bool = False) -> None:
        self._transport = transport
        self._door = door
        self._codec = Protocol(Side.SERVER, max_size=limits.FRAME_BYTES_MAX, logger=_SILENT)
        self._connection: Connection | None = None
        self.writable = not full  # the transport holds no more than it should; it says when that changes
        self._rest: bytearray | None = None  # the beginning of a frame
        self._awaited = 0  # its size, as far as that is known
        self._strange = False  # the codec takes everything as it comes
        self._fragments: list[bytes] | None = None
        self._talks = True  # neither side has said goodbye: what the codec calls open
        self._parted = False  # nothing may be written any more
        self._cut_handle: asyncio.TimerHandle | None = None

    def attach(self, connection: Connection, early: bytes) -> None:
        """The upgrade was answered: this is the connection's now. `early`: what the client did not wait with."""
        self._connection = connection
        self._door.enter(self)
        if early:
            self.data_received(early)

    # --- what the connection asks -------------------------------------------------------------------------------------

    def write(self, frames: Sequence[bytes]) -> None:
        if not self._talks or self._parted:
            return
        self._transport.write(b"".join(chain.from_iterable(zip(map(_header, map(len, frames)), frames, strict=True))))

    def ping(self) -> None:
        if self._talks and not self._parted:
            self._codec.send_ping(b"")
            self._send()

    def close(self, code: int, reason: str) -> None:
        if self._talks and not self._parted:
            self._talks = False
            self._codec.send_close(code, reason)
            self._send()
            self._cut_later()

    # --- what the transport reports -----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Texts in one piece, which is nearly all there is, are read here, first of all one that comes by itself.

        The codec gets all else: frame by whole frame, so that it never waits for the rest of one, until it alone can
        judge; then everything as it comes.
        """
        plain = self._talks and self._fragments is None and not self._strange
        if plain and self._rest is None and len(data) > 7 and data[0] == _WHOLE_TEXT:
            second = data[1]
            mask, whole = (2, second - 0x7A) if second < 0xFE else (4, 8 + (data[2] << 8 | data[3]))
            if whole == len(data) and second != 0xFF:
                self._text(apply_mask(data[mask + 4 :], data[mask : mask + 4]))
                if not self._talks:
                    self._answer()
                return
        if self._rest is not None:
            self._rest += data
            if len(self._rest) < self._awaited:
                return
            data, self._rest = bytes(self._rest), None
        at, end, decoded = 0, len(data), False
        while at < end:
            size = end - at if self._strange else frame_size(data, at)
            if size is None:
                self._strange = True
            elif at + size > end:
                self._rest, self._awaited = bytearray(data[at:]), size
                break
            else:
                frame = data if size == end else data[at : at + size]
                if frame[0] == _WHOLE_TEXT and self._talks and self._fragments is None and not self._strange:
                    mask = 2 if frame[1] < 0xFE else 4
                    self._text(apply_mask(frame[mask + 4 :], frame[mask : mask + 4]))
                else:
                    self._decode(frame)
                    decoded = True
                at += size
        if decoded or not self._talks:
            self._answer()

    def _decode(self, data: bytes) -> None:
        self._codec.receive_data(data)
        self._talks = self._codec.state is _OPEN
        try:
            for event in self._codec.events_received():
                self._received(event)
        except Exception as failure:
            report(failure)
            self._fail(1011)

    def _answer(self) -> None:
        if self._talks and not self.writable:
            self._codec.data_to_send()  # pongs to somebody who does not read are dropped: they must not pile up
        else:
            self._send()
        if not self._talks:
            self._lost()
            self._cut_later()

    def eof_received(self) -> bool:
        """False: the transport closes, for a WebSocket that is half open is of no use."""
        return False

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if self._connection is not None:
            self._connection.writable()

    def connection_lost(self, exc: Exception | None) -> None:
        self._parted = True
        if self._cut_handle is not None:
            self._cut_handle.cancel()
        self._door.leave(self)
        self._lost()

    # --- the server goes ----------------------------------------------------------------------------------------------

    def shut(self) -> None:
        if self._connection is not None:
            self._connection.close(CloseReason.SERVER_SHUTDOWN)

    def cut(self) -> None:
        self._transport.abort()

    # --- reading ------------------------------------------------------------------------------------------------------

    def _received(self, event: object) -> None:
        """What comes after the goodbye, ours or theirs, is not looked at."""
        connection = self._connection
        if not isinstance(event, Frame) or connection is None or connection.closed:
            return
        opcode = event.opcode
        if opcode is _TEXT and event.fin:
            self._text(bytes(event.data))
        elif opcode is _PONG:
            connection.ponged()
        elif opcode is _BINARY:
            self._fail(1003, "text frames only")
            self._lost()
        elif opcode is _TEXT:
            self._fragments = [bytes(event.data)]
        elif opcode is _CONT and self._fragments is not None:
            self._fragments.append(bytes(event.data))
            if event.fin:
                whole, self._fragments = b"".join(self._fragments), None
                self._text(whole)

    def _text(self, data: bytes) -> None:
        """What comes after the goodbye, ours or theirs, is not looked at."""
        connection = self._connection
        if connection is None or connection.closed:
            return
        try:
            text = data.decode()
        except UnicodeDecodeError:
            self._fail(1007, "text must be UTF-8")
            self._lost()
            return
        try:
            connection.received(text)
        except Exception as failure:
            report(failure)
            self._fail(1011)
            self._lost()

    def _fail(self, code: int, reason: str = "") -> None:
        self._talks = False
        self._codec.fail(code, reason)

    def _lost(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.lost()

    # --- writing and ending -------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """What the codec wants to say: pings, pongs and the end."""
        writes = self._codec.data_to_send()
        if not writes or self._parted:
            return
        ends = SEND_EOF in writes
        if data := b"".join(writes):
            self._transport.write(data)
        if ends:
            self._parted = True
            if self._transport.can_write_eof():
                self._transport.write_eof()  # reading on, so that the kernel does not reset what is under way
            else:
                self._transport.close()

    def _cut_later(self) -> None:
        if self._cut_handle is None:
            now = asyncio.get_running_loop().time()
            self._cut_handle = asyncio.get_running_loop().call_later(limits.CLOSE_WAIT_S, self._cut_due, now)

    def _cut_due(self, since: float) -> None:
        """Who has not read the goodbye yet gets more time: it may wake up, and then learns why it was closed."""
        loop = asyncio.get_running_loop()
        unread = self._transport.get_write_buffer_size() > 0
        if unread and loop.time() - since < limits.CLOSE_UNREAD_S and not self._door.closing:
            self._cut_handle = loop.call_later(limits.CLOSE_WAIT_S, self._cut_due, since)
        else:
            self._door.observe.timed_out("close")
            self._transport.abort()


def frame_size(data: bytes, at: int) -> int | None:
    """Of the frame that begins there, at least as much as is needed to say more; None: for the codec to judge."""
    there = len(data) - at
    if there < 2:
        return 2
    second = data[at + 1]
    if second < 0x80 or second == 0xFF or data[at] not in _KNOWN:  # not masked, 64 KiB or more, or no frame of ours
        return None
    if second < 0xFE:
        return second - 0x7A  # two bytes, the mask, and what the lower seven bits say
    return 4 if there < 4 else 8 + (data[at + 2] << 8 | data[at + 3])


# FIN or not with each opcode, and no extension's bit; control frames come in one piece.
_KNOWN = (0x81, 0x8A, 0x89, 0x88, 0x01, 0x00, 0x80, 0x02, 0x82)


class _HeaderCache(dict[int, bytes]):
    """By the length of the text: FIN and TEXT, unmasked. Lengths repeat, and one push goes to many sockets."""

    def __missing__(self, length: int) -> bytes:
        if length < 126:
            header = bytes((0x81, length))
        elif length < 65_536:
            header = b"\x81\x7e" + length.to_bytes(2, "big")
        else:
            header = b"\x81\x7f" + length.to_bytes(8, "big")
        if len(self) < HEADERS_KEPT_MAX:
            self[length] = header
        return header


HEADERS_KEPT_MAX = 4096
_header = _HeaderCache().__getitem__

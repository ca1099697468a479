"""One WebSocket on a transport: reads frames for its `Connection` and writes the connection's texts.

The codec is sans-I/O (`websockets`); this module decides when bytes move and how a socket ends. A connection flushes
once per turn of the loop, so one call of `write` is one write to the transport.
"""

import asyncio
import logging
from collections.abc import Sequence

from websockets.frames import Frame, Opcode
from websockets.protocol import SEND_EOF, Protocol, Side, State

from seriatim.connection.listener.state import ListenerState
from seriatim.connection.listener.ws_frames import WHOLE_TEXT, encode_texts, frame_size, payload, single_text
from seriatim.connection.session.connection import Connection
from seriatim.connection.task_group import report
from seriatim.domain import limits
from seriatim.protocol.frames import CloseReason

_CODEC_OPEN = State.OPEN
_TEXT, _BINARY, _CONT, _PONG = Opcode.TEXT, Opcode.BINARY, Opcode.CONT, Opcode.PONG
# At DEBUG the codec logs message texts, so no configuration of logging may switch its logger on.
_SILENT = logging.Logger("seriatim.codec")  # noqa: LOG001
_SILENT.disabled = True


class WebSocket(asyncio.Protocol):
    """The `Socket` of a connection. `Connection.lost` is called once, as soon as nothing more can leave."""

    __slots__ = (
        "_abort_handle",
        "_codec",
        "_connection",
        "_fragment_timer",
        "_fragments",
        "_listener",
        "_open",
        "_partial_frame",
        "_partial_frame_size",
        "_transport",
        "_use_codec",
        "_write_closed",
        "writable",
    )

    def __init__(self, transport: asyncio.Transport, listener: ListenerState, *, full: bool) -> None:
        self._transport = transport
        self._listener = listener
        self._codec = Protocol(Side.SERVER, max_size=limits.FRAME_BYTES_MAX, logger=_SILENT)
        self._connection: Connection | None = None
        self.writable = not full  # the transport is below its high-water mark; it reports every change
        self._partial_frame: bytearray | None = None  # the beginning of a frame that has not arrived to its end
        self._partial_frame_size = 0  # how many bytes of it are needed to go on
        self._use_codec = False  # the codec reads all bytes as they arrive
        self._fragments: list[bytes] | None = None
        self._fragment_timer: asyncio.TimerHandle | None = None
        self._open = True  # neither side has sent a close frame
        self._write_closed = False  # no byte may be written any more
        self._abort_handle: asyncio.TimerHandle | None = None

    def attach(self, connection: Connection, early: bytes) -> None:
        """The handshake was answered. `early`: the bytes that the client has sent after it already."""
        self._connection = connection
        self._listener.add(self)
        if early:
            self.data_received(early)

    # --- the connection calls -----------------------------------------------------------------------------------------

    def write(self, frames: Sequence[bytes]) -> None:
        if not self._open or self._write_closed:
            return
        self._transport.write(encode_texts(frames))

    def ping(self) -> None:
        if self._open and not self._write_closed:
            self._codec.send_ping(b"")
            self._send()

    def close(self, code: int, reason: str) -> None:
        if self._open and not self._write_closed:
            self._open = False
            self._codec.send_close(code, reason)
            self._send()
            self._abort_later()

    # --- the transport calls ------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Whole texts, which is nearly all that comes, are read by `ws_frames`; the most frequent read is just one.

        The codec gets every other frame as a whole, so that it never waits for the rest of one. Once a frame has come
        that only the codec may judge, it gets all bytes as they arrive.
        """
        plain = self._open and self._fragments is None and not self._use_codec
        if plain and self._partial_frame is None:
            text = single_text(data)
            if text is not None:
                self._text(text)
                if not self._open:
                    self._answer()
                return
        if self._partial_frame is not None:
            self._partial_frame += data
            if len(self._partial_frame) < self._partial_frame_size:
                return
            data, self._partial_frame = bytes(self._partial_frame), None
        at, end, decoded = 0, len(data), False
        while at < end:
            size = end - at if self._use_codec else frame_size(data, at)
            if size is None:
                self._use_codec = True
            elif at + size > end:
                self._partial_frame, self._partial_frame_size = bytearray(data[at:]), size
                break
            else:
                frame = data if size == end else data[at : at + size]
                if frame[0] == WHOLE_TEXT and self._open and self._fragments is None and not self._use_codec:
                    self._text(payload(frame))
                else:
                    self._decode(frame)
                    decoded = True
                at += size
        if decoded or not self._open:
            self._answer()

    def _decode(self, data: bytes) -> None:
        self._codec.receive_data(data)
        self._open = self._codec.state is _CODEC_OPEN
        try:
            for event in self._codec.events_received():
                self._received(event)
        except Exception as failure:
            report(failure)
            self._fail(1011)

    def _answer(self) -> None:
        if self._open and not self.writable:
            self._codec.data_to_send()  # pongs to a client that does not read are dropped: they must not pile up
        else:
            self._send()
        if not self._open:
            self._lost()
            self._abort_later()

    def eof_received(self) -> bool:
        """False: the transport closes. A half-open WebSocket is of no use."""
        return False

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if self._connection is not None:
            self._connection.writable()

    def connection_lost(self, exc: Exception | None) -> None:
        self._write_closed = True
        self._end_fragments()
        if self._abort_handle is not None:
            self._abort_handle.cancel()
        self._listener.remove(self)
        self._lost()

    # --- the listener closes ------------------------------------------------------------------------------------------

    def close_gracefully(self) -> None:
        if self._connection is not None:
            self._connection.close(CloseReason.SERVER_SHUTDOWN)

    def abort(self) -> None:
        self._transport.abort()

    # --- reading ------------------------------------------------------------------------------------------------------

    def _received(self, event: object) -> None:
        """Ignores what arrives after a close frame of either side."""
        connection = self._connection
        if not isinstance(event, Frame) or connection is None or connection.closed:
            return
        opcode = event.opcode
        if opcode is _TEXT and event.fin:
            self._text(bytes(event.data))
        elif opcode is _PONG:
            connection.pong_received()
        elif opcode is _BINARY:
            self._fail(1003, "text frames only")
            self._lost()
        elif opcode is _TEXT:
            self._fragments = [bytes(event.data)]
            loop = asyncio.get_running_loop()
            self._fragment_timer = loop.call_later(limits.FRAGMENTED_MESSAGE_S, self._fragments_late)
        elif opcode is _CONT and self._fragments is not None:
            self._fragment(bytes(event.data), last=event.fin)

    def _fragment(self, data: bytes, *, last: bool) -> None:
        """The codec bounds the bytes of a message; their number is bounded here, since fragments may be empty."""
        assert self._fragments is not None
        self._fragments.append(data)
        if len(self._fragments) > limits.FRAGMENTS_MAX:
            self._end_fragments()
            self._fail(1008, f"a message has at most {limits.FRAGMENTS_MAX} fragments")
            self._lost()
        elif last:
            text = b"".join(self._fragments)
            self._end_fragments()
            self._text(text)

    def _end_fragments(self) -> None:
        self._fragments = None
        if self._fragment_timer is not None:
            self._fragment_timer.cancel()
            self._fragment_timer = None

    def _fragments_late(self) -> None:
        self._end_fragments()
        if self._open and not self._write_closed:
            self._listener.observe.timed_out("message")
            self._fail(1008, f"a message arrives within {limits.FRAGMENTED_MESSAGE_S:g} s")
            self._answer()

    def _text(self, data: bytes) -> None:
        """Ignores what arrives after a close frame of either side."""
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
        self._open = False
        self._codec.fail(code, reason)

    def _lost(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.lost()

    # --- writing and ending -------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Writes what the codec has produced: pings, pongs and close frames."""
        writes = self._codec.data_to_send()
        if not writes or self._write_closed:
            return
        ends = SEND_EOF in writes
        if data := b"".join(writes):
            self._transport.write(data)
        if ends:
            self._write_closed = True
            if self._transport.can_write_eof():
                self._transport.write_eof()  # reads on: unread bytes at the close would reset the connection
            else:
                self._transport.close()

    def _abort_later(self) -> None:
        if self._abort_handle is None:
            now = asyncio.get_running_loop().time()
            self._abort_handle = asyncio.get_running_loop().call_later(limits.CLOSE_WAIT_S, self._abort_due, now)

    def _abort_due(self, since: float) -> None:
        """A client that has not read the close frame yet gets more time: it may still read why it was closed."""
        loop = asyncio.get_running_loop()
        unread = self._transport.get_write_buffer_size() > 0
        if unread and loop.time() - since < limits.CLOSE_UNREAD_S and not self._listener.closing:
            self._abort_handle = loop.call_later(limits.CLOSE_WAIT_S, self._abort_due, since)
        else:
            self._listener.observe.timed_out("close")
            self._transport.abort()

"""A scripted client of a `ClusterHarness`: a socket that records frames with their times, and reads as the test says.

By itself it only answers pings while it reads. Whatever a client may do wrong is up to the test.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from seriatim.connection.session.connection import Connection
from seriatim.protocol.codec import decode_server_frame, encode
from seriatim.protocol.frames import (
    Ack,
    ClientFrame,
    ConnectionClosing,
    ConnectionEstablished,
    ErrorFrame,
    MessageAck,
    MessageBatch,
    MessageFrame,
    SendMessage,
    ServerFrame,
    SyncRequest,
)
from seriatim.simulation.loop import SimulatedLoop
from seriatim.simulation.process import Process
from tests.support.durability_harness import CHAT, key_id

F = TypeVar("F", bound=ServerFrame)

ANSWER_S = 6.0  # longer than every deadline of the server


class ScriptedClient:
    """Implements `connection.socket.Socket`. `ClusterHarness.connect` sets `connection`."""

    connection: Connection

    def __init__(self, loop: SimulatedLoop, gateway: Process) -> None:
        self._loop = loop
        self._gateway = gateway
        self._room: float = math.inf  # writes it still takes
        self.received: list[tuple[float, ServerFrame]] = []
        self.closed: tuple[int, str] | None = None
        self.closed_at = math.inf

    # --- the socket --------------------------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        return self._room > 0

    def write(self, frames: Sequence[bytes]) -> None:
        assert self.closed is None, "a frame after the close"
        self._room = max(0.0, self._room - 1)
        for frame in frames:
            decoded = decode_server_frame(frame)
            assert isinstance(decoded, ServerFrame), decoded
            self.received.append((self._loop.time(), decoded))

    def ping(self) -> None:
        if self._room:
            self._gateway.call_soon(self.connection.pong_received)

    def close(self, code: int, reason: str) -> None:
        assert self.closed is None, "closed twice"
        self._end(code, reason)
        self._gateway.call_soon(self.connection.lost)

    # --- what the client does ----------------------------------------------------------------------------------------

    def send_text(self, text: str | bytes) -> None:
        self._gateway.run(self.connection.received, text)

    def send(self, frame: ClientFrame) -> None:
        self.send_text(encode(frame))

    def stop_reading(self) -> None:
        self._room = 0

    def resume_reading(self, writes: float = math.inf) -> None:
        """Takes so many writes more, of at most FLUSH_BYTES_MAX each."""
        self._room = writes
        self._gateway.run(self.connection.writable)

    def close_by_client(self) -> None:
        self._end(1006, "")
        self._gateway.run(self.connection.lost)

    def reset(self) -> None:
        """The process at the other end is gone."""
        if self.closed is None:
            self._end(1006, "")

    async def post(self, number: int, *, chat_id: str = CHAT, content: str = "") -> MessageAck | ErrorFrame:
        """Sends message `number` and waits for the answer to it."""
        before = len(self.received)
        self.send(a_send(number, chat_id=chat_id, content=content))
        await self._until(lambda: bool(self._answers(number, before)))
        return self._answers(number, before)[0]

    async def posted(self, number: int) -> int:
        """Posts what has to succeed; returns its sequence."""
        answer = await self.post(number)
        assert isinstance(answer, MessageAck), answer
        return answer.sequence

    async def refused(self, number: int, *, chat_id: str = CHAT) -> ErrorFrame:
        """Posts what must not succeed."""
        answer = await self.post(number, chat_id=chat_id)
        assert isinstance(answer, ErrorFrame), answer
        return answer

    async def sync(self, after: int, *, limit: int = 100) -> MessageBatch:
        before = len(self.batches)
        self.send(SyncRequest(chat_id=CHAT, last_acked_sequence=after, limit=limit))
        await self._until(lambda: len(self.batches) > before)
        return self.batches[before]

    async def sync_all(self, after: int, *, limit: int = 100) -> list[MessageBatch]:
        """All pages, each asked for from where the last one said that it ended."""
        pages = [await self.sync(after, limit=limit)]
        while pages[-1].next_sequence is not None:
            pages.append(await self.sync(pages[-1].next_sequence - 1, limit=limit))
        return pages

    def ack(self, sequence: int) -> None:
        self.send(Ack(chat_id=CHAT, last_acked_sequence=sequence))

    # --- what it got -------------------------------------------------------------------------------------------------

    def of(self, kind: type[F]) -> list[F]:
        return [frame for _, frame in self.received if type(frame) is kind]

    @property
    def greeted(self) -> bool:
        return bool(self.of(ConnectionEstablished))

    @property
    def pushes(self) -> list[int]:
        return [frame.sequence for frame in self.of(MessageFrame)]

    @property
    def batches(self) -> list[MessageBatch]:
        return self.of(MessageBatch)

    @property
    def seen(self) -> list[int]:
        """Every message in the order in which it came, pushed or in a batch."""
        found: list[int] = []
        for _, frame in self.received:
            if isinstance(frame, MessageBatch):
                found.extend(item.sequence for item in frame.messages)
            elif isinstance(frame, MessageFrame):
                found.append(frame.sequence)
        return found

    @property
    def errors(self) -> list[ErrorFrame]:
        return self.of(ErrorFrame)

    @property
    def codes(self) -> list[str]:
        return [frame.code for frame in self.errors]

    @property
    def closing(self) -> ConnectionClosing | None:
        return next(iter(self.of(ConnectionClosing)), None)

    def time_of(self, kind: type[ServerFrame]) -> float:
        return next(at for at, frame in self.received if type(frame) is kind)

    def _answers(self, number: int, before: int) -> list[MessageAck | ErrorFrame]:
        later = [frame for _, frame in self.received[before:]]
        answers = [frame for frame in later if isinstance(frame, MessageAck | ErrorFrame)]
        return [frame for frame in answers if frame.client_message_id == key_id(number)]

    def _end(self, code: int, reason: str) -> None:
        self.closed, self.closed_at = (code, reason), self._loop.time()

    async def _until(self, condition: Callable[[], bool]) -> None:
        deadline = self._loop.time() + ANSWER_S
        while not condition():
            assert self._loop.time() < deadline, "no answer came"
            await asyncio.sleep(0.001)


def a_send(number: int, *, chat_id: str = CHAT, content: str = "") -> SendMessage:
    return SendMessage(client_message_id=key_id(number), chat_id=chat_id, content=content or f"text {number}")

"""One stream to one ingest process, from its greeting to its end: drafts go out in batches, outcomes come back.

While one batch is being written the next one gathers. A process that stands still is noticed by its silence.
"""

import asyncio
from collections import deque
from typing import Protocol

import grpc
import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown
from seriatim.engines.grpc.pending_send import Sending
from seriatim.engines.grpc.wire import TALK, Batch, Malformed, Send, Words, decode, encode, error_of, path
from seriatim.ports.clock import Clock

Call = grpc.aio.StreamStreamCall[bytes, bytes]

_words = msgspec.msgpack.Decoder(Words)


class LineBroken(Exception):
    """Why the line ended. Whoever was unanswered is answered by now."""


class Hearing(Protocol):
    """Who keeps the line."""

    def leaving(self) -> None:
        """The other side asks us to go."""
        ...

    def answered(self) -> None:
        """Drafts were answered, with whatever."""
        ...

    def failed(self) -> None:
        """Drafts were not answered in time, and no other was since."""
        ...


class Line:
    """`open`, then `run` until it raises `LineBroken`. `hearing` is told what is said and what is not."""

    def __init__(self, call: Call, clock: Clock, hearing: "Hearing") -> None:
        self._call = call
        self._clock = clock
        self._hearing = hearing
        self._numbers = 0
        self._unsent: deque[tuple[int, Sending]] = deque()
        self._unanswered: dict[int, Sending] = {}  # the unsent ones too
        self._bell = asyncio.Event()
        self._ping = False
        self._unheard = 0
        self._late = False
        self._going = False

    @classmethod
    async def open(
        cls, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...], clock: Clock, hearing: "Hearing"
    ) -> "Line":
        """Returns once the other side has greeted. Raises `LineBroken`."""
        call: Call = channel.stream_stream(path(TALK))(metadata=metadata)
        line = cls(call, clock, hearing)
        try:
            async with asyncio.timeout(limits.RPC_DIAL_S):
                await line._listen()
        except TimeoutError:
            raise LineBroken("it did not greet in time") from None
        return line

    @property
    def unanswered(self) -> int:
        return len(self._unanswered)

    def put(self, sending: Sending) -> None:
        """Goes out after all that was put before it."""
        sending.line = self
        self._numbers += 1
        self._unanswered[self._numbers] = sending
        self._unsent.append((self._numbers, sending))
        self._bell.set()

    def late(self) -> None:
        """Told at the next turn, once for all, unless an answer comes before: we may have stood still ourselves."""
        self._late = True

    async def run(self) -> None:
        """Until it is broken, or has nothing left to wait for after it was asked to go."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._write_for_ever())
                tasks.create_task(self._watch())
                while True:
                    await self._listen()
        except BaseExceptionGroup as group:
            broken, bugs = group.split(LineBroken)
            if broken is None or bugs is not None:
                raise
            raise LineBroken(str(broken.exceptions[0])) from None
        finally:
            self._call.cancel()

    def end(self) -> None:
        """Nothing will be heard of what is left."""
        left, self._unanswered = self._unanswered, {}
        self._unsent.clear()
        for sending in left.values():
            sending.finish(OutcomeUnknown("the durability plane was lost on the way; retry with the same id"))

    # --- out ----------------------------------------------------------------------------------------------------------

    async def _write_for_ever(self) -> None:
        while True:
            await self._bell.wait()
            self._bell.clear()
            while self._unsent or self._ping:
                self._ping = False
                await self._write(self._batch())

    def _batch(self) -> bytes:
        now, size = self._clock.monotonic(), 0
        sends: list[msgspec.Raw] = []
        while self._unsent and size < limits.RPC_BATCH_BYTES_MAX:
            number, sending = self._unsent.popleft()
            if sending.answered:  # its deadline has passed while it waited here: nobody will hear of it
                del self._unanswered[number]
                continue
            data = encode(Send(number, sending.deadline - now, sending.draft))
            size += len(data)
            sends.append(msgspec.Raw(data))
        return encode(Batch(now, tuple(sends)))

    async def _write(self, data: bytes) -> None:
        try:
            await self._call.write(data)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            raise _broken(error) from None

    async def _watch(self) -> None:
        """Counts turns and not seconds: if we ourselves stood still, the other side is not to blame."""
        while True:
            await asyncio.sleep(limits.RPC_PING_S)
            if self._unheard == limits.RPC_PINGS_UNHEARD_MAX:
                raise LineBroken("it fell silent")
            self._unheard += 1
            if self._late:
                self._late = False
                self._hearing.failed()
            self._ping = True
            self._bell.set()

    # --- in -----------------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        try:
            data = await self._call.read()
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            raise _broken(error) from None
        if not isinstance(data, bytes):
            raise LineBroken("it ended the stream")
        try:
            words = decode(_words, data)
        except Malformed as error:
            raise LineBroken(str(error)) from None
        self._heard(words)

    def _heard(self, words: Words) -> None:
        self._unheard = 0
        if words.leaving and not self._going:
            self._going = True
            self._hearing.leaving()
        if words.outcomes:
            self._late = False
            self._hearing.answered()
        for outcome in words.outcomes:
            sending = self._unanswered.pop(outcome.number, None)
            if sending is None:
                continue
            if outcome.receipt is not None:
                sending.finish(outcome.receipt)
            elif outcome.trouble is not None:
                sending.finish(error_of(outcome.trouble))
            else:
                sending.finish(OutcomeUnknown("the durability plane gave no answer; retry with the same id"))
        if self._going and not self._unanswered:
            raise LineBroken("it is leaving")


def _broken(error: Exception) -> LineBroken:
    if isinstance(error, grpc.aio.AioRpcError):
        return LineBroken(f"{error.code().name}: {error.details()}")
    return LineBroken("it ended the stream")

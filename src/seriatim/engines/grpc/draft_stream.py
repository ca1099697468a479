"""One stream to one ingest process, from its greeting to its end: drafts go out in batches, outcomes come back.

While one batch is being written the next one gathers. A process that is stuck is noticed by unanswered pings.
"""

import asyncio
from collections import deque
from typing import Protocol

import grpc
import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown
from seriatim.engines.grpc.pending_send import PendingSend
from seriatim.engines.grpc.wire import (
    DRAFT_STREAM,
    DraftBatch,
    MalformedBytes,
    NumberedDraft,
    ServerBatch,
    decode,
    encode,
    from_wire_error,
    path,
)
from seriatim.ports.clock import Clock

StreamCall = grpc.aio.StreamStreamCall[bytes, bytes]

_server_batch = msgspec.msgpack.Decoder(ServerBatch)


class StreamBroken(Exception):
    """Why the stream ended."""


class DraftStreamListener(Protocol):
    """The owner of the stream."""

    def leaving(self) -> None:
        """The ingest process leaves: send the next drafts elsewhere."""
        ...

    def answered(self) -> None:
        """Drafts were answered, by a receipt or an error."""
        ...

    def failed(self) -> None:
        """Drafts missed their deadline, and none was answered since."""
        ...


class DraftStream:
    """A `DraftSink`: `open` it, then `run` it until it raises `StreamBroken`, then `end` it."""

    def __init__(self, call: StreamCall, clock: Clock, listener: DraftStreamListener) -> None:
        self._call = call
        self._clock = clock
        self._listener = listener
        self._last_number = 0
        self._unsent: deque[tuple[int, PendingSend]] = deque()
        self._unanswered: dict[int, PendingSend] = {}  # the unsent ones too
        self._wake = asyncio.Event()
        self._ping = False
        self._unanswered_pings = 0
        self._deadline_missed = False
        self._leaving = False

    @classmethod
    async def open(
        cls,
        channel: grpc.aio.Channel,
        metadata: tuple[tuple[str, str], ...],
        clock: Clock,
        listener: DraftStreamListener,
    ) -> "DraftStream":
        """Returns once the ingest process has greeted. Raises `StreamBroken`."""
        call: StreamCall = channel.stream_stream(path(DRAFT_STREAM))(metadata=metadata)
        stream = cls(call, clock, listener)
        try:
            async with asyncio.timeout(limits.GRPC_DIAL_S):
                await stream._receive()
        except TimeoutError:
            raise StreamBroken("it did not greet in time") from None
        return stream

    @property
    def unanswered(self) -> int:
        return len(self._unanswered)

    def put(self, send: PendingSend) -> None:
        """Sends the draft after all drafts that were put before it."""
        send.stream = self
        self._last_number += 1
        self._unanswered[self._last_number] = send
        self._unsent.append((self._last_number, send))
        self._wake.set()

    def deadline_missed(self) -> None:
        """Reported at the next ping, once for all drafts, unless an answer comes before: this process may be slow."""
        self._deadline_missed = True

    async def run(self) -> None:
        """Until the stream breaks, or the ingest process leaves and every draft is answered."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._write_batches())
                tasks.create_task(self._ping_periodically())
                while True:
                    await self._receive()
        except BaseExceptionGroup as group:
            broken, bugs = group.split(StreamBroken)
            if broken is None or bugs is not None:
                raise
            raise StreamBroken(str(broken.exceptions[0])) from None
        finally:
            self._call.cancel()

    def end(self) -> None:
        """Answers the drafts that are left with `OutcomeUnknown`."""
        left, self._unanswered = self._unanswered, {}
        self._unsent.clear()
        for send in left.values():
            send.finish(OutcomeUnknown("the durability plane was lost on the way; retry with the same id"))

    # --- out ----------------------------------------------------------------------------------------------------------

    async def _write_batches(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._unsent or self._ping:
                self._ping = False
                await self._write(self._batch())

    def _batch(self) -> bytes:
        now, size = self._clock.monotonic(), 0
        sends: list[msgspec.Raw] = []
        while self._unsent and size < limits.GRPC_BATCH_BYTES_MAX:
            number, send = self._unsent.popleft()
            if send.answered:  # its deadline has passed while it waited here
                del self._unanswered[number]
                continue
            data = encode(NumberedDraft(number, send.deadline - now, send.draft))
            size += len(data)
            sends.append(msgspec.Raw(data))
        return encode(DraftBatch(now, tuple(sends)))

    async def _write(self, data: bytes) -> None:
        try:
            await self._call.write(data)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            raise _broken(error) from None

    async def _ping_periodically(self) -> None:
        """Counts pings and not seconds, so that a pause of this process is not taken for silence of the other."""
        while True:
            await asyncio.sleep(limits.GRPC_PING_S)
            if self._unanswered_pings == limits.GRPC_PINGS_UNANSWERED_MAX:
                raise StreamBroken("it answered no ping")
            self._unanswered_pings += 1
            if self._deadline_missed:
                self._deadline_missed = False
                self._listener.failed()
            self._ping = True
            self._wake.set()

    # --- in -----------------------------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        try:
            data = await self._call.read()
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            raise _broken(error) from None
        if not isinstance(data, bytes):
            raise StreamBroken("it ended the stream")
        try:
            batch = decode(_server_batch, data)
        except MalformedBytes as error:
            raise StreamBroken(str(error)) from None
        self._handle(batch)

    def _handle(self, batch: ServerBatch) -> None:
        self._unanswered_pings = 0
        if batch.leaving and not self._leaving:
            self._leaving = True
            self._listener.leaving()
        if batch.outcomes:
            self._deadline_missed = False
            self._listener.answered()
        for outcome in batch.outcomes:
            send = self._unanswered.pop(outcome.number, None)
            if send is None:
                continue
            if outcome.receipt is not None:
                send.finish(outcome.receipt)
            elif outcome.error is not None:
                send.finish(from_wire_error(outcome.error))
            else:
                send.finish(OutcomeUnknown("the durability plane gave no answer; retry with the same id"))
        if self._leaving and not self._unanswered:
            raise StreamBroken("it is leaving")


def _broken(error: Exception) -> StreamBroken:
    if isinstance(error, grpc.aio.AioRpcError):
        return StreamBroken(f"{error.code().name}: {error.details()}")
    return StreamBroken("it ended the stream")

"""One gateway's stream at an ingest process: drafts in, outcomes out, each in batches."""

import asyncio
from collections import deque
from functools import partial
from typing import TypeAlias

import grpc
import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError, ServerBusy
from seriatim.domain.message import Receipt, check_draft
from seriatim.engines.grpc.observer import GrpcObserver
from seriatim.engines.grpc.queue_delay import QueueDelay
from seriatim.engines.grpc.wire import (
    DraftBatch,
    MalformedBytes,
    NumberedDraft,
    SendOutcome,
    ServerBatch,
    decode,
    encode,
    to_wire_error,
)
from seriatim.ports.clock import Clock
from seriatim.ports.durability import Durability

CallContext: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]

_draft_batch = msgspec.msgpack.Decoder(DraftBatch)
_numbered_draft = msgspec.msgpack.Decoder(NumberedDraft)


class GatewayStream:
    """The server side of one `DraftStream`."""

    def __init__(self, plane: Durability, context: CallContext, clock: Clock, observe: GrpcObserver) -> None:
        self._plane = plane
        self._context = context
        self._clock = clock
        self._observe = observe
        self._queue_delay = QueueDelay()
        self._outcomes: deque[SendOutcome] = deque()
        self._unanswered = 0
        self._wake = asyncio.Event()
        self._must_write = True  # the first batch is the greeting
        self._leaving = False
        self._read_closed = False

    async def run(self) -> None:
        """Until the gateway has closed its side and has all its answers, or is lost."""
        self._wake.set()
        writing = asyncio.create_task(self._write())
        try:
            while await self._read():
                pass
            self._read_closed = True
            self._wake.set()
            await writing
        finally:
            writing.cancel()
            await asyncio.wait((writing,))
            if not writing.cancelled():
                writing.exception()  # a failed write: the gateway is lost, which the read above reports

    def leave(self) -> None:
        """Asks the gateway to send its next drafts elsewhere."""
        self._leaving = self._must_write = True
        self._wake.set()

    # --- in -----------------------------------------------------------------------------------------------------------

    async def _read(self) -> bool:
        data: object = await self._context.read()
        if not isinstance(data, bytes):
            return False  # the end of the stream
        now = self._clock.monotonic()
        try:
            batch = decode(_draft_batch, data)
            sends = [decode(_numbered_draft, each) for each in batch.sends]
        except MalformedBytes as error:
            await self._context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        delay_s = self._queue_delay.measure(batch.sent_at_s, now)
        if delay_s > limits.GRPC_LATE_S:
            self._observe.delayed(delay_s)
        for send in sends:
            self._submit(send, now + min(send.left_s, limits.PERSIST_DEADLINE_S) - delay_s)
        if not sends:
            self._must_write = True
            self._wake.set()
        return True

    def _submit(self, send: NumberedDraft, deadline: float) -> None:
        self._unanswered += 1
        answer = partial(self._answer, send.number)
        if self._unanswered > limits.GRPC_SENDS_MAX:
            answer(ServerBusy("too many messages wait here; retry in a second", retry_after_seconds=1))
            return
        try:
            check_draft(send.draft)  # the gateway has checked it, perhaps by the rules of another release
        except SeriatimError as refusal:
            answer(refusal)
        else:
            self._plane.submit(send.draft, deadline=deadline, answer=answer)

    # --- out ----------------------------------------------------------------------------------------------------------

    def _answer(self, number: int, outcome: Receipt | SeriatimError) -> None:
        if isinstance(outcome, SeriatimError):
            self._outcomes.append(SendOutcome(number, error=to_wire_error(outcome)))
        else:
            self._outcomes.append(SendOutcome(number, receipt=outcome))
        self._wake.set()

    async def _write(self) -> None:
        """While one batch is being written the next outcomes gather."""
        while not (self._read_closed and not self._unanswered):
            await self._wake.wait()
            self._wake.clear()
            while self._outcomes or self._must_write:
                self._must_write = False
                count = min(len(self._outcomes), limits.GRPC_OUTCOMES_MAX)
                outcomes = tuple([self._outcomes.popleft() for _ in range(count)])
                await self._context.write(encode(ServerBatch(outcomes, self._leaving)))
                self._unanswered -= count

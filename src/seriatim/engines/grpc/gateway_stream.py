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
from seriatim.engines.grpc.observer import RpcObserver
from seriatim.engines.grpc.queue_delay import Lateness
from seriatim.engines.grpc.wire import Batch, Malformed, Outcome, Send, Words, decode, encode, trouble_of
from seriatim.ports.clock import Clock
from seriatim.ports.durability import Durability

Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]

_batch = msgspec.msgpack.Decoder(Batch)
_send = msgspec.msgpack.Decoder(Send)


class Conversation:
    def __init__(self, plane: Durability, context: Context, clock: Clock, observe: RpcObserver) -> None:
        self._plane = plane
        self._context = context
        self._clock = clock
        self._observe = observe
        self._lateness = Lateness()
        self._outcomes: deque[Outcome] = deque()
        self._unanswered = 0
        self._bell = asyncio.Event()
        self._owes_words = True  # the first ones greet
        self._leaving = False
        self._heard_all = False

    async def run(self) -> None:
        """Until the gateway has hung up and has all its answers, or is gone."""
        self._bell.set()
        writing = asyncio.create_task(self._write())
        try:
            while await self._read():
                pass
            self._heard_all = True
            self._bell.set()
            await writing
        finally:
            writing.cancel()
            await asyncio.wait((writing,))
            if not writing.cancelled():
                writing.exception()  # it could not be written: the gateway is gone, as the reading will say

    def leave(self) -> None:
        """Asks the gateway to go."""
        self._leaving = self._owes_words = True
        self._bell.set()

    # --- in -----------------------------------------------------------------------------------------------------------

    async def _read(self) -> bool:
        data: object = await self._context.read()
        if not isinstance(data, bytes):
            return False  # the end of the stream
        now = self._clock.monotonic()
        try:
            batch = decode(_batch, data)
            sends = [decode(_send, each) for each in batch.sends]
        except Malformed as error:
            await self._context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        late_s = self._lateness.of(batch.sent_at_s, now)
        if late_s > limits.RPC_LATE_S:
            self._observe.late(late_s)
        for send in sends:
            self._submit(send, now + min(send.left_s, limits.PERSIST_DEADLINE_S) - late_s)
        if not sends:
            self._owes_words = True
            self._bell.set()
        return True

    def _submit(self, send: Send, deadline: float) -> None:
        self._unanswered += 1
        answer = partial(self._answer, send.number)
        if self._unanswered > limits.RPC_SENDS_MAX:
            answer(ServerBusy("too many messages wait here; retry in a second", retry_after_seconds=1))
            return
        try:
            check_draft(send.draft)  # its gateway has; but that is another process, and perhaps of another release
        except SeriatimError as refusal:
            answer(refusal)
        else:
            self._plane.submit(send.draft, deadline=deadline, answer=answer)

    # --- out ----------------------------------------------------------------------------------------------------------

    def _answer(self, number: int, outcome: Receipt | SeriatimError) -> None:
        if isinstance(outcome, SeriatimError):
            self._outcomes.append(Outcome(number, trouble=trouble_of(outcome)))
        else:
            self._outcomes.append(Outcome(number, receipt=outcome))
        self._bell.set()

    async def _write(self) -> None:
        """While some words are being written the next outcomes gather."""
        while not (self._heard_all and not self._unanswered):
            await self._bell.wait()
            self._bell.clear()
            while self._outcomes or self._owes_words:
                self._owes_words = False
                count = min(len(self._outcomes), limits.RPC_OUTCOMES_MAX)
                outcomes = tuple([self._outcomes.popleft() for _ in range(count)])
                await self._context.write(encode(Words(outcomes, self._leaving)))
                self._unanswered -= count

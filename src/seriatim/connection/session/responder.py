"""Answers to the requests of one connection: takes their places in the inbound queue and puts answers into the outbound
buffer, which leaves once per turn of the loop.
"""

from collections.abc import Callable

from seriatim.connection.gateway_context import GatewayContext
from seriatim.connection.session.inbound import InboundQueue
from seriatim.connection.session.outbound import OutboundBuffer
from seriatim.domain.errors import SeriatimError
from seriatim.protocol.codec import Echo, encode, error_frame
from seriatim.protocol.frames import CloseReason, ServerFrame
from seriatim.protocol.server_session import busy


class Responder:
    """What sends, syncs and acks need of their connection. `flush` writes the outbound buffer; `close` ends it all.

    A request is *admitted* first. Then `answer`, `refuse` or `answer_batch` is called exactly once, or `release` if it
    needs no answer. `reject` answers a request that was not admitted. Once `closed`, nothing is answered any more.
    """

    __slots__ = ("_close", "_context", "_flush", "_outbound", "closed", "flush_scheduled", "inbound")

    def __init__(
        self,
        inbound: InboundQueue,
        outbound: OutboundBuffer,
        context: GatewayContext,
        *,
        flush: Callable[[], None],
        close: Callable[[CloseReason], None],
    ) -> None:
        self.inbound = inbound
        self._outbound = outbound
        self._context = context
        self._flush = flush
        self._close = close
        self.closed = False
        self.flush_scheduled = False

    def admit(self, to: Echo) -> bool:
        """Takes a place in the inbound queue, or answers that it is full."""
        if self.inbound.admit(self._context.clock.monotonic()):
            return True
        self.reject(busy(), to)
        return False

    def answer(self, frame: ServerFrame, *, request: bool = True) -> None:
        """The place in the inbound queue is free once the answer has left. Not `request`: there was no place."""
        if self.closed:
            return
        if not self._outbound.answer(encode(frame), request=request):
            self._close(CloseReason.LOAD_SHEDDING)  # it sends requests and does not read the answers
        elif not self.flush_scheduled:
            self.schedule_flush()

    def answer_batch(self, frame: bytes) -> None:
        self._outbound.batch(frame)
        self.schedule_flush()

    def refuse(self, error: SeriatimError, to: Echo) -> None:
        self._context.observe.rejected(error.code)
        self.answer(error_frame(error, to))

    def reject(self, error: SeriatimError, to: Echo) -> None:
        self._context.observe.rejected(error.code)
        self.answer(error_frame(error, to), request=False)

    def release(self) -> None:
        self.inbound.release()
        self.schedule_flush()

    def flood(self) -> None:
        """The client ignores the rate limit."""
        self._close(CloseReason.RATE_LIMITED)

    def overload(self) -> None:
        """There is no room to keep track of what the client is owed."""
        self._close(CloseReason.LOAD_SHEDDING)

    def schedule_flush(self) -> None:
        """One flush per turn of the loop, after everything that happens in it."""
        if not self.flush_scheduled and not self.closed:
            self.flush_scheduled = True
            self._context.flush_scheduler.schedule(self._flush)

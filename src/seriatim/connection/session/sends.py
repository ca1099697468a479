"""The sends of one connection, in the order of arrival: rate limit, then inbound queue, then durability."""

import math
from functools import partial

from msgspec import UNSET

from seriatim.connection.gateway_context import GatewayContext
from seriatim.connection.session.chat_delivery import ChatDelivery
from seriatim.connection.session.responder import Responder
from seriatim.domain import limits
from seriatim.domain.errors import BreakerOpen, RateLimited, SeriatimError
from seriatim.domain.message import Receipt
from seriatim.protocol.frames import MessageAck
from seriatim.protocol.rate_window import RateWindow
from seriatim.protocol.server_session import Submit, busy


class Sends:
    """Each send is answered exactly once, through the responder."""

    def __init__(self, delivery: ChatDelivery, responder: Responder, context: GatewayContext) -> None:
        self._delivery = delivery
        self._responder = responder
        self._inbound = responder.inbound
        self._context = context
        self._rate = SendRate(context.clock.monotonic())

    def submit(self, send: Submit, now: float) -> None:
        """Nothing here awaits, so the drafts of one connection reach durability in the order in which they came."""
        context = self._context
        limited = self._rate.take(now)
        if limited is not None:
            self._responder.reject(limited, send.echo)
            if self._rate.flooding(now):
                self._responder.flood()
        elif not self._inbound.admit(now):
            self._responder.reject(busy(), send.echo)
        else:
            context.durability.submit(
                send.draft, deadline=now + limits.PERSIST_DEADLINE_S, answer=partial(self._submitted, send)
            )

    def _submitted(self, send: Submit, outcome: Receipt | SeriatimError) -> None:
        if isinstance(outcome, SeriatimError):
            if isinstance(outcome, BreakerOpen):
                self._context.breakers.record(outcome)
            self._responder.refuse(outcome, send.echo)
            return
        draft = send.draft
        ack = MessageAck(
            client_message_id=send.client_message_id,
            chat_id=draft.chat_id,
            message_id=outcome.message_id,
            sequence=outcome.sequence,
            created_at=outcome.created_at,
            deduplicated=outcome.deduplicated,
            content_differs=outcome.content_differs or UNSET,
            request_id=send.request_id,
        )
        self._responder.answer(ack)
        self._delivery.own_stored(draft.chat_id, outcome.sequence, outcome.prev_sequence)


class SendRate:
    """A token bucket: full at first; each send takes one token, SEND_RATE_PER_S tokens come back per second."""

    __slots__ = ("_at", "_rejections", "_tokens")

    def __init__(self, now: float) -> None:
        self._tokens = float(limits.SEND_BURST_MAX)
        self._at = now
        self._rejections: RateWindow | None = None  # made at the first rejection

    def take(self, now: float) -> RateLimited | None:
        """None: allowed. Otherwise the error to answer with."""
        tokens = self._tokens + (now - self._at) * limits.SEND_RATE_PER_S
        self._at = now
        if tokens >= 1:
            self._tokens = (tokens if tokens < limits.SEND_BURST_MAX else limits.SEND_BURST_MAX) - 1
            return None
        self._tokens = tokens
        wait = math.ceil((1 - tokens) / limits.SEND_RATE_PER_S)
        return RateLimited("too many messages on this connection", retry_after_seconds=max(1, wait))

    def flooding(self, now: float) -> bool:
        """Counts a rejection. True: more than RATE_REJECTIONS_MAX in the window, so the client ignores them."""
        if self._rejections is None:
            self._rejections = RateWindow(limits.RATE_REJECTIONS_MAX + 1, limits.RATE_REJECTIONS_WINDOW_S)
        return self._rejections.add(now)

"""The sends of one connection, in the order of arrival: rate, then queue, then durability."""

from collections.abc import Callable
from functools import partial

from msgspec import UNSET

from seriatim.connection.gateway_context import GatewayContext
from seriatim.connection.session.chat_delivery import ChatDelivery
from seriatim.connection.session.inbound import InboundQueue
from seriatim.connection.session.rate import SendRate
from seriatim.domain import limits
from seriatim.domain.errors import BreakerOpen, SeriatimError
from seriatim.domain.message import Receipt
from seriatim.protocol.codec import Echo
from seriatim.protocol.frames import MessageAck
from seriatim.protocol.server_session import Submit, busy


class Sends:
    """Each takes a place in the inbound queue. `answered` and `refused` answer what was admitted, once each."""

    def __init__(
        self,
        chats: ChatDelivery,
        services: GatewayContext,
        *,
        inbound: InboundQueue,
        answered: Callable[[MessageAck], None],
        refused: Callable[[SeriatimError, Echo], None],
        rejected: Callable[[SeriatimError, Echo], None],
        flooded: Callable[[], None],
    ) -> None:
        self._chats = chats
        self._services = services
        self._inbound = inbound
        self._answered = answered
        self._refused = refused
        self._rejected = rejected
        self._flooded = flooded
        self._rate = SendRate(services.clock.monotonic())

    def submit(self, send: Submit, now: float) -> None:
        """Nothing here waits, so one connection's drafts reach durability in the order in which they came."""
        services = self._services
        limited = self._rate.take(now)
        if limited is not None:
            self._rejected(limited, send.echo)
            if self._rate.flooding(now):
                self._flooded()
        elif not self._inbound.admit(now):
            self._rejected(busy(), send.echo)
        else:
            services.durability.submit(
                send.draft, deadline=now + limits.PERSIST_DEADLINE_S, answer=partial(self._submitted, send)
            )

    def _submitted(self, send: Submit, outcome: Receipt | SeriatimError) -> None:
        if isinstance(outcome, SeriatimError):
            if isinstance(outcome, BreakerOpen):
                self._services.breakers.heard(outcome)
            self._refused(outcome, send.echo)
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
        self._answered(ack)
        self._chats.own(draft.chat_id, outcome.sequence, outcome.prev_sequence)

"""The sends of one connection, in the order of arrival: rate, then queue, then breaker, then durability."""

import math
from collections.abc import Callable
from functools import partial

from msgspec import UNSET

from seriatim.connection.chats import Chats
from seriatim.connection.rate import SendRate
from seriatim.connection.services import Services
from seriatim.domain.errors import BreakerOpen, SeriatimError
from seriatim.domain.limits import PERSIST_DEADLINE_S
from seriatim.domain.message import Receipt
from seriatim.protocol.codec import Echo
from seriatim.protocol.frames import MessageAck
from seriatim.protocol.server_session import Submit


class Sends:
    """`admit`: takes a place in the inbound queue. `answered` and `refused` answer what was admitted, once each."""

    def __init__(
        self,
        chats: Chats,
        services: Services,
        *,
        admit: Callable[[Echo], bool],
        answered: Callable[[MessageAck], None],
        refused: Callable[[SeriatimError, Echo], None],
        rejected: Callable[[SeriatimError, Echo], None],
        flooded: Callable[[], None],
    ) -> None:
        self._chats = chats
        self._services = services
        self._admit = admit
        self._answered = answered
        self._refused = refused
        self._rejected = rejected
        self._flooded = flooded
        self._rate = SendRate(services.clock.monotonic())

    def submit(self, send: Submit) -> None:
        """Nothing here waits, so one connection's drafts reach durability in the order in which they came."""
        now = self._services.clock.monotonic()
        limited = self._rate.take(now)
        if limited is not None:
            self._rejected(limited, send.echo)
            if self._rate.flooding(now):
                self._flooded()
        elif self._admit(send.echo):
            wait = self._services.breaker.admit(now)
            if wait is not None:
                refusal = BreakerOpen("sending is not possible for the moment", retry_after_seconds=math.ceil(wait))
                self._refused(refusal, send.echo)
                return
            self._services.durability.submit(
                send.draft, deadline=now + PERSIST_DEADLINE_S, answer=partial(self._submitted, send)
            )

    def _submitted(self, send: Submit, outcome: Receipt | SeriatimError) -> None:
        self._count(outcome)
        if isinstance(outcome, SeriatimError):
            self._refused(outcome, send.echo)
            return
        self._answered(_message_ack(send, outcome))
        self._chats.own(send.draft.chat_id, outcome.sequence, outcome.prev_sequence)

    def _count(self, outcome: Receipt | SeriatimError) -> None:
        """Only failures of the infrastructure speak against durability; a refusal is an answer like any other."""
        breaker = self._services.breaker
        if breaker.closed and not isinstance(outcome, SeriatimError):
            return  # nearly always
        now = self._services.clock.monotonic()
        before = breaker.state(now)
        if isinstance(outcome, SeriatimError) and outcome.trips_breaker:
            breaker.failed(now)
        else:
            breaker.succeeded(now)
        if breaker.state(now) is not before:
            self._services.observe.breaker(breaker.state(now))


def _message_ack(send: Submit, receipt: Receipt) -> MessageAck:
    as_sent = send.echo.client_message_id
    return MessageAck(
        client_message_id=send.draft.client_message_id if as_sent is UNSET else as_sent,
        chat_id=send.draft.chat_id,
        message_id=receipt.message_id,
        sequence=receipt.sequence,
        created_at=receipt.created_at,
        deduplicated=receipt.deduplicated,
        content_differs=receipt.content_differs or UNSET,
        request_id=send.echo.request_id,
    )

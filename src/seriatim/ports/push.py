"""From fanout to the gateways: fire and forget. An envelope arrives once or not at all; loss is normal."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from seriatim.domain.message import Message


class MessageDelivery(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A message for some connections of one gateway. `prev_sequence`: the message before it, None when unknown."""

    connection_ids: tuple[str, ...]
    message: Message
    prev_sequence: int | None


class CloseOrder(msgspec.Struct, frozen=True, kw_only=True):
    connection_id: str
    reason: str


PushEnvelope = MessageDelivery | CloseOrder


class PushReceiver(Protocol):
    def received(self, envelopes: Sequence[PushEnvelope]) -> None:
        """In the order in which they were published, some of them at once or each by itself."""
        ...

    def interrupted(self) -> None:
        """The subscription broke: envelopes may have been lost from here on."""
        ...

    def resumed(self) -> None:
        """The subscription is active again: envelopes published from now on arrive."""
        ...


class Push(Protocol):
    async def publish(self, envelopes: Sequence[tuple[str, PushEnvelope]], *, timeout_s: float) -> Sequence[bool]:
        """Sends each envelope to its gateway's channel, in order. Returns for each whether a gateway was subscribed."""
        ...


class PushSubscriber(Protocol):
    async def subscribe(self, gateway_id: str, receiver: PushReceiver, *, timeout_s: float) -> None:
        """Returns once envelopes published from now on reach the receiver.

        Stays subscribed, and reports when it was not.
        """
        ...

    async def unsubscribe(self, gateway_id: str) -> None: ...

"""`Push` and `PushSubscriber` within one process: one channel per gateway, fire and forget."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from seriatim.domain import limits
from seriatim.domain.errors import ServiceUnavailable
from seriatim.engines.inprocess.wire import Wire
from seriatim.ports.push import PushEnvelope, PushReceiver


class InProcessPush:
    """Implements `Push`."""

    def __init__(self, channels: "InProcessChannels", wire: Wire) -> None:
        self._channels = channels
        self._wire = wire

    async def publish(self, envelopes: Sequence[tuple[str, PushEnvelope]], *, timeout_s: float) -> Sequence[bool]:
        return await self._wire.call("publish", partial(self._channels.publish, tuple(envelopes)), timeout_s=timeout_s)


class InProcessPushSubscriber:
    """Implements `PushSubscriber`."""

    def __init__(self, channels: "InProcessChannels", wire: Wire) -> None:
        self._channels = channels
        self._wire = wire
        self._subscriptions: dict[str, Subscription] = {}

    async def subscribe(self, gateway_id: str, receiver: PushReceiver, *, timeout_s: float) -> None:
        """A repeated call after an unknown outcome is the same subscription: no envelope arrives twice."""
        subscription = self._subscriptions.get(gateway_id)
        if subscription is None or subscription.receiver is not receiver:
            if subscription is not None:
                subscription.open = False
            subscription = self._subscriptions[gateway_id] = Subscription(receiver, self._wire)
        await self._wire.call(
            "subscribe", partial(self._channels.subscribe, gateway_id, subscription), timeout_s=timeout_s
        )

    async def unsubscribe(self, gateway_id: str) -> None:
        """The receiver is not called any more from here on, even if the channel cannot be reached."""
        subscription = self._subscriptions.pop(gateway_id, None)
        if subscription is not None:
            subscription.open = False
            with suppress(ServiceUnavailable):
                await self._wire.call(
                    "unsubscribe",
                    partial(self._channels.unsubscribe, gateway_id, subscription),
                    timeout_s=limits.REGISTRATION_TIMEOUT_S,
                )


class Subscription:
    """A receiver and the wire to its process. Everything takes that one wire, so the order is kept."""

    def __init__(self, receiver: PushReceiver, wire: Wire) -> None:
        self.receiver = receiver
        self.open = True
        self.broken = False
        self._wire = wire

    def send(self, envelopes: Sequence[PushEnvelope]) -> None:
        self._wire.deliver_all(self._received, envelopes)

    def interrupt(self) -> None:
        if not self.broken:
            self.broken = True
            self._wire.deliver(self._interrupted)

    def restore(self) -> None:
        if self.broken:
            self.broken = False
            self._wire.deliver(self._resumed)

    def _received(self, envelopes: Sequence[PushEnvelope]) -> None:
        if self.open:
            self.receiver.received(envelopes)

    def _interrupted(self) -> None:
        if self.open:
            self.receiver.interrupted()

    def _resumed(self) -> None:
        if self.open:
            self.receiver.resumed()


class InProcessChannels:
    """All channels, as a server would hold them. An envelope for a channel without an active subscription is lost."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, Subscription] = {}

    def interrupt(self, gateway_id: str) -> None:
        """The gateway's subscription breaks; envelopes are lost until `restore`."""
        subscription = self._subscriptions.get(gateway_id)
        if subscription is not None:
            subscription.interrupt()

    def restore(self, gateway_id: str) -> None:
        subscription = self._subscriptions.get(gateway_id)
        if subscription is not None:
            subscription.restore()

    def wipe(self) -> None:
        """The server restarts: every subscription breaks, and each is active again after its `restore`."""
        for subscription in self._subscriptions.values():
            subscription.interrupt()

    def gateways(self) -> Sequence[str]:
        """The gateways that are subscribed, interrupted or not."""
        return tuple(self._subscriptions)

    def publish(self, envelopes: Sequence[tuple[str, PushEnvelope]]) -> Sequence[bool]:
        sent: dict[str, list[PushEnvelope]] = {}
        for gateway_id, envelope in envelopes:
            if gateway_id in sent:
                sent[gateway_id].append(envelope)
            else:
                sent[gateway_id] = [envelope]
        reached: dict[str, bool] = {}
        for gateway_id, some in sent.items():
            subscription = self._subscriptions.get(gateway_id)
            if subscription is not None and not subscription.broken:
                reached[gateway_id] = True
                subscription.send(some)
        return tuple([gateway_id in reached for gateway_id, _ in envelopes])

    def subscribe(self, gateway_id: str, subscription: Subscription) -> None:
        if subscription.open:
            self._subscriptions[gateway_id] = subscription
            subscription.restore()

    def unsubscribe(self, gateway_id: str, subscription: Subscription) -> None:
        if self._subscriptions.get(gateway_id) is subscription:
            del self._subscriptions[gateway_id]

"""What a run of records needs: pushes to members who are online, caches to clear, or nothing."""

from collections.abc import Sequence

from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError
from seriatim.domain.events import EVENT_VERSION, MembershipChanged, MessagePersisted, decode
from seriatim.fanout.observer import FanoutObserver, SkipReason
from seriatim.fanout.recipients import Recipients
from seriatim.ports.event_log import Record
from seriatim.ports.push import MessageDelivery, Push, PushEnvelope


class Deliverer:
    def __init__(self, recipients: Recipients, push: Push, observe: FanoutObserver) -> None:
        self._recipients = recipients
        self._push = push
        self._observe = observe

    async def handle(self, run: Sequence[Record]) -> None:
        """Raises `BadEvent` for a record that can never be decoded, and has then done nothing. Failures downstream are
        counted, never raised.
        """
        messages: dict[str, list[MessagePersisted]] = {}
        for event in [record.decoded or decode(record.key, record.value) for record in run]:
            if event.envelope.event_version != EVENT_VERSION:
                self._observe.unknown_version(event.envelope.event_version)
            if isinstance(event, MessagePersisted):
                messages.setdefault(event.message.chat_id, []).append(event)
            elif isinstance(event, MembershipChanged):
                await self._recipients.forget(event.chat_id)
        if messages:
            envelopes = await self._recipients.envelopes(messages)
            if envelopes:
                await self._publish(envelopes)

    async def _publish(self, envelopes: Sequence[tuple[str, PushEnvelope]]) -> None:
        try:
            subscribed = await self._push.publish(envelopes, timeout_s=limits.DOWNSTREAM_TIMEOUT_S)
        except SeriatimError as error:
            for _ in envelopes:
                self._observe.skipped(SkipReason.PUSH, error)
            return
        delivered = connections = 0
        for (_, envelope), was_subscribed in zip(envelopes, subscribed, strict=True):
            if not was_subscribed:
                self._observe.skipped(SkipReason.GATEWAY_GONE)
            elif isinstance(envelope, MessageDelivery):
                delivered += 1
                connections += len(envelope.connection_ids)
                if self._observe.traces:
                    sent = envelope.message
                    self._observe.traced(
                        "pushed", sent.chat_id, sent.sequence, sent.message_id, len(envelope.connection_ids)
                    )
        self._observe.delivered(delivered, connections)

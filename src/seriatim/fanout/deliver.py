"""What one record asks for: a push to everyone online, a cache to clear, or nothing."""

from collections.abc import Sequence

from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError
from seriatim.domain.events import EVENT_VERSION, MembershipChanged, MessagePersisted, decode
from seriatim.fanout.observer import FanoutObserver, Skip
from seriatim.fanout.recipients import Recipients, Unreachable
from seriatim.ports.event_log import Record
from seriatim.ports.push import Delivery, Parcel, Push


class Deliverer:
    def __init__(self, recipients: Recipients, push: Push, observe: FanoutObserver) -> None:
        self._recipients = recipients
        self._push = push
        self._observe = observe

    async def handle(self, record: Record) -> None:
        """Raises `BadEvent` for a record nobody will ever understand. Trouble downstream is counted, never raised."""
        event = decode(record.key, record.value)
        if event.envelope.event_version != EVENT_VERSION:
            self._observe.unknown_version(event.envelope.event_version)
        if isinstance(event, MessagePersisted):
            await self._deliver(event)
        elif isinstance(event, MembershipChanged):
            await self._recipients.forget(event.chat_id)

    async def _deliver(self, event: MessagePersisted) -> None:
        try:
            parcels = await self._recipients.parcels(event)
            if parcels:
                await self._publish(parcels)
        except Unreachable as trouble:
            self._observe.skipped(trouble.reason)

    async def _publish(self, parcels: Sequence[tuple[str, Parcel]]) -> None:
        try:
            heard = await self._push.publish(parcels, timeout_s=limits.DOWNSTREAM_TIMEOUT_S)
        except SeriatimError as error:
            raise Unreachable(Skip.PUSH) from error
        for (_, parcel), someone_listened in zip(parcels, heard, strict=True):
            if not someone_listened:
                self._observe.skipped(Skip.GATEWAY_GONE)
            elif isinstance(parcel, Delivery):
                self._observe.delivered(len(parcel.connection_ids))

"""What a run of records asks for: pushes to everyone online, caches to clear, or nothing."""

import asyncio
from collections.abc import Mapping, Sequence

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

    async def handle(self, run: Sequence[Record]) -> None:
        """Raises `BadEvent` for a record nobody will ever understand, and has then done nothing. Trouble downstream is
        counted, never raised.
        """
        messages: dict[str, list[MessagePersisted]] = {}
        for event in [decode(record.key, record.value) for record in run]:
            if event.envelope.event_version != EVENT_VERSION:
                self._observe.unknown_version(event.envelope.event_version)
            if isinstance(event, MessagePersisted):
                messages.setdefault(event.message.chat_id, []).append(event)
            elif isinstance(event, MembershipChanged):
                await self._recipients.forget(event.chat_id)
        if messages:
            await self._deliver(messages)

    async def _deliver(self, messages: Mapping[str, Sequence[MessagePersisted]]) -> None:
        """The messages of one chat stay in order. Chats are asked about side by side: a run in which all are in trouble
        takes as long as one of them, and a stop waits no longer than that.
        """
        if len(messages) == 1:
            parcels = [parcel for events in messages.values() for parcel in await self._parcels(events)]
        else:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(self._parcels(events)) for events in messages.values()]
            parcels = [parcel for each in asked for parcel in each.result()]
        if parcels:
            await self._publish(parcels)

    async def _parcels(self, events: Sequence[MessagePersisted]) -> Sequence[tuple[str, Parcel]]:
        """Of messages of one chat: who gets them is asked once for all of them."""
        try:
            return await self._recipients.parcels(events)
        except Unreachable as trouble:
            for _ in events:
                self._observe.skipped(trouble.reason)
            return ()

    async def _publish(self, parcels: Sequence[tuple[str, Parcel]]) -> None:
        try:
            heard = await self._push.publish(parcels, timeout_s=limits.DOWNSTREAM_TIMEOUT_S)
        except SeriatimError:
            for _ in parcels:
                self._observe.skipped(Skip.PUSH)
            return
        for (_, parcel), someone_listened in zip(parcels, heard, strict=True):
            if not someone_listened:
                self._observe.skipped(Skip.GATEWAY_GONE)
            elif isinstance(parcel, Delivery):
                self._observe.delivered(len(parcel.connection_ids))

"""Who gets a message: the members, their live connections, one parcel per gateway (spec/websocket.md 7.5).

The member cache is believed only when it is at least as new as the event; the roster is asked otherwise.
"""

import asyncio
from collections.abc import Mapping, Sequence

from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError
from seriatim.domain.events import MessagePersisted
from seriatim.fanout.backoff import backoff_s
from seriatim.fanout.observer import FanoutObserver, Skip
from seriatim.ports.catalog import Members, Roster
from seriatim.ports.clock import Clock
from seriatim.ports.directory import CachedMembers, Directory, Registration
from seriatim.ports.push import Delivery, Parcel


class Unreachable(Exception):
    """Something below does not answer, so this message is not pushed. Durability still has it."""

    def __init__(self, reason: Skip) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Recipients:
    def __init__(self, roster: Roster, directory: Directory, clock: Clock, observe: FanoutObserver) -> None:
        self._roster = roster
        self._directory = directory
        self._clock = clock
        self._observe = observe

    async def parcels(self, events: Sequence[MessagePersisted]) -> list[tuple[str, Parcel]]:
        """For messages of one chat: of each, one parcel per gateway that holds a recipient. Raises `Unreachable`."""
        user_ids = await self._members(events[0].message.chat_id, newest_version(events))
        if not user_ids:
            return []
        try:
            online = await self._directory.connections(user_ids, timeout_s=limits.DOWNSTREAM_TIMEOUT_S)
        except SeriatimError as error:
            raise Unreachable(Skip.DIRECTORY) from error
        gateways = by_gateway(user_ids, online)
        return [parcel for event in events for parcel in addressed(event, gateways)]

    async def forget(self, chat_id: str) -> None:
        """The chat's members changed. If the cache cannot be cleared, the version of later events outdates it."""
        try:
            await self._directory.forget_members(chat_id, timeout_s=limits.DOWNSTREAM_TIMEOUT_S)
        except SeriatimError:
            self._observe.cache_failed()

    async def _members(self, chat_id: str, version: int | None) -> Sequence[str]:
        try:
            cached = await self._directory.cached_members(chat_id, timeout_s=limits.DOWNSTREAM_TIMEOUT_S)
        except SeriatimError as error:
            # The connections come from the same place: asking the roster would only add load to an outage.
            raise Unreachable(Skip.DIRECTORY) from error
        if cached is not None and usable(cached, version):
            return cached.user_ids
        return await self._refill(chat_id, version)

    async def _refill(self, chat_id: str, event_version: int | None) -> Sequence[str]:
        members = await self._ask_roster(chat_id)
        fresh = CachedMembers(members.version, members.user_ids)
        # A roster behind the event can only mean a store that lags: good enough for one push, not for five minutes.
        if usable(fresh, event_version):
            try:
                await self._directory.cache_members(chat_id, fresh, timeout_s=limits.DOWNSTREAM_TIMEOUT_S)
            except SeriatimError:
                self._observe.cache_failed()
        return fresh.user_ids

    async def _ask_roster(self, chat_id: str) -> Members:
        failures = 0
        while True:
            try:
                return await self._roster.members(chat_id, timeout_s=limits.DOWNSTREAM_TIMEOUT_S)
            except SeriatimError as error:
                failures += 1
                if failures >= limits.DOWNSTREAM_TRIES_MAX:
                    raise Unreachable(Skip.ROSTER) from error
            self._observe.retried()
            first_s, most_s = limits.DOWNSTREAM_BACKOFF_S, limits.DOWNSTREAM_BACKOFF_MAX_S
            await asyncio.sleep(backoff_s(failures, first_s=first_s, most_s=most_s, clock=self._clock))


def usable(cached: CachedMembers, event_version: int | None) -> bool:
    """A list older than the event may name someone who was removed before the message was written.

    An event that does not say how old a list may be comes from an older producer: no list is new enough.
    """
    return bool(cached.user_ids) and event_version is not None and cached.version >= event_version


def excluded(registration: Registration, event: MessagePersisted) -> bool:
    """The originating connection has its ack; the sender's other devices have nothing yet, and get the message.

    An event that does not name its connection comes from an older producer: the sender is left out altogether.
    """
    if event.origin_connection_id is None:
        return registration.user_id == event.message.sender_id
    return registration.connection_id == event.origin_connection_id


def newest_version(events: Sequence[MessagePersisted]) -> int | None:
    """None, which no list is new enough for, if one of them does not say."""
    versions = [event.members_version for event in events if event.members_version is not None]
    return max(versions) if len(versions) == len(events) else None


def by_gateway(
    user_ids: Sequence[str], online: Mapping[str, Sequence[Registration]]
) -> Mapping[str, Sequence[Registration]]:
    """In the order in which the members come."""
    gateways: dict[str, list[Registration]] = {}
    for user_id in user_ids:
        for registration in online.get(user_id, ()):
            gateways.setdefault(registration.gateway_id, []).append(registration)
    return gateways


def addressed(event: MessagePersisted, gateways: Mapping[str, Sequence[Registration]]) -> list[tuple[str, Parcel]]:
    parcels: list[tuple[str, Parcel]] = []
    for gateway_id, registrations in gateways.items():
        ids = tuple([each.connection_id for each in registrations if not excluded(each, event)])
        if ids:
            delivery = Delivery(connection_ids=ids, message=event.message, prev_sequence=event.prev_sequence)
            parcels.append((gateway_id, delivery))
    return parcels

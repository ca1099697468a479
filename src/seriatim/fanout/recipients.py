"""The recipients of a message: the members, their live connections, one envelope per gateway.

The steps are docs/spec/websocket.md#routing-a-message. The member cache is used only when it is at least as new as
the event; otherwise the roster is read.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from seriatim.domain import limits
from seriatim.domain.backoff import backoff_s
from seriatim.domain.errors import SeriatimError
from seriatim.domain.events import MessagePersisted
from seriatim.fanout.observer import FanoutObserver, SkipReason
from seriatim.ports.catalog import Members, Roster
from seriatim.ports.clock import Clock
from seriatim.ports.directory import CachedMembers, Directory, Registration
from seriatim.ports.push import MessageDelivery, PushEnvelope


class Recipients:
    def __init__(self, roster: Roster, directory: Directory, clock: Clock, observe: FanoutObserver) -> None:
        self._roster = roster
        self._directory = directory
        self._clock = clock
        self._observe = observe

    async def envelopes(self, messages: Mapping[str, Sequence[MessagePersisted]]) -> list[tuple[str, PushEnvelope]]:
        """Of each message one envelope per gateway that holds a recipient, those of a chat in order.

        Directory and roster are read once for all of them. A message whose recipients cannot be found is not pushed,
        which is counted: gateways find it in durability.
        """
        try:
            members = await self._members(messages)
        except SeriatimError as error:
            # The connections come from the same directory: reading the roster would only add load to an outage.
            self._skipped(messages.values(), SkipReason.DIRECTORY, error)
            return []
        try:
            online = await self._online(members)
        except SeriatimError as error:
            self._skipped([messages[chat_id] for chat_id in members], SkipReason.DIRECTORY, error)
            return []
        envelopes: list[tuple[str, PushEnvelope]] = []
        for chat_id, user_ids in members.items():
            gateways = [
                (gateway_id, registrations, tuple([each.connection_id for each in registrations]))
                for gateway_id, registrations in grouped_by_gateway(user_ids, online).items()
            ]
            for event in messages[chat_id]:
                for gateway_id, registrations, everyone in gateways:
                    ids = connections_reached(event, registrations, everyone)
                    if ids:
                        message, prev_sequence = event.message, event.prev_sequence
                        envelope = MessageDelivery(connection_ids=ids, message=message, prev_sequence=prev_sequence)
                        envelopes.append((gateway_id, envelope))
        return envelopes

    async def forget(self, chat_id: str) -> None:
        """The chat's members changed. If the cache cannot be cleared, the version of later events outdates it."""
        try:
            await self._directory.forget_members(chat_id, timeout_s=limits.DOWNSTREAM_TIMEOUT_S)
        except SeriatimError:
            self._observe.cache_failed()

    async def _members(self, messages: Mapping[str, Sequence[MessagePersisted]]) -> Mapping[str, Sequence[str]]:
        """Of each chat whose members can be read; raises what the directory raises."""
        versions = {chat_id: newest_version(events) for chat_id, events in messages.items()}
        cached = await self._directory.cached_members(tuple(versions), timeout_s=limits.DOWNSTREAM_TIMEOUT_S)
        members: dict[str, Sequence[str]] = {}
        unknown: dict[str, int | None] = {}
        for chat_id, version in versions.items():
            known = cached.get(chat_id)
            if known is not None and is_new_enough(known, version):
                members[chat_id] = known.user_ids
            else:
                unknown[chat_id] = version
        for chat_id, found in (await self._refilled(unknown)).items():
            if found is None:
                self._skipped((messages[chat_id],), SkipReason.ROSTER)
            else:
                members[chat_id] = found
        return members

    async def _online(self, members: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[Registration]]:
        everyone = dict.fromkeys([user_id for user_ids in members.values() for user_id in user_ids])
        if not everyone:
            return {}
        return await self._directory.connections(tuple(everyone), timeout_s=limits.DOWNSTREAM_TIMEOUT_S)

    async def _refilled(self, chats: Mapping[str, int | None]) -> Mapping[str, Sequence[str] | None]:
        """Concurrently: when all fail it takes as long as one, and a stop waits no longer than that."""
        if len(chats) <= 1:
            return {chat_id: await self._refill(chat_id, version) for chat_id, version in chats.items()}
        async with asyncio.TaskGroup() as group:
            asked = {chat_id: group.create_task(self._refill(chat_id, version)) for chat_id, version in chats.items()}
        return {chat_id: task.result() for chat_id, task in asked.items()}

    async def _refill(self, chat_id: str, event_version: int | None) -> Sequence[str] | None:
        """None when the roster does not answer."""
        members = await self._ask_roster(chat_id)
        if members is None:
            return None
        fresh = CachedMembers(members.version, members.user_ids)
        # A roster behind the event means a store that lags: good enough for one push, not for `MEMBER_CACHE_TTL_S`.
        if is_new_enough(fresh, event_version):
            try:
                await self._directory.cache_members(chat_id, fresh, timeout_s=limits.DOWNSTREAM_TIMEOUT_S)
            except SeriatimError:
                self._observe.cache_failed()
        return fresh.user_ids

    async def _ask_roster(self, chat_id: str) -> Members | None:
        failures = 0
        while True:
            try:
                return await self._roster.members(chat_id, timeout_s=limits.DOWNSTREAM_TIMEOUT_S)
            except SeriatimError:
                failures += 1
                if failures >= limits.DOWNSTREAM_TRIES_MAX:
                    return None
            self._observe.retried()
            first_s, max_s = limits.DOWNSTREAM_BACKOFF_S, limits.DOWNSTREAM_BACKOFF_MAX_S
            await asyncio.sleep(backoff_s(failures - 1, first_s=first_s, max_s=max_s, random=self._clock.random))

    def _skipped(
        self, runs: Iterable[Sequence[MessagePersisted]], reason: SkipReason, error: Exception | None = None
    ) -> None:
        """Reports each message that is not pushed."""
        for events in runs:
            for _ in events:
                self._observe.skipped(reason, error)


def is_new_enough(cached: CachedMembers, event_version: int | None) -> bool:
    """A list older than the event may name a user who was removed before the message was written.

    An event without a version comes from an older producer: no list is new enough.
    """
    return bool(cached.user_ids) and event_version is not None and cached.version >= event_version


def connections_reached(
    event: MessagePersisted, registrations: Sequence[Registration], everyone: tuple[str, ...]
) -> tuple[str, ...]:
    """All but the originating connection, which has its ack; the sender's other devices are included.

    An event without an origin comes from an older producer: all connections of the sender are left out.
    """
    origin = event.origin_connection_id
    if origin is None:
        sender_id = event.message.sender_id
        return tuple([each.connection_id for each in registrations if each.user_id != sender_id])
    if origin not in everyone:
        return everyone
    at = everyone.index(origin)
    return everyone[:at] + everyone[at + 1 :]


def newest_version(events: Sequence[MessagePersisted]) -> int | None:
    """None, for which no list is new enough, if one of them has none."""
    if len(events) == 1:
        return events[0].members_version
    versions = [event.members_version for event in events if event.members_version is not None]
    return max(versions) if len(versions) == len(events) else None


def grouped_by_gateway(
    user_ids: Sequence[str], online: Mapping[str, Sequence[Registration]]
) -> Mapping[str, Sequence[Registration]]:
    """In the order in which the members come."""
    gateways: defaultdict[str, list[Registration]] = defaultdict(list)
    for user_id in user_ids:
        if user_id in online:
            for registration in online[user_id]:
                gateways[registration.gateway_id].append(registration)
    return gateways

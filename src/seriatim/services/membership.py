"""Changes of membership: commit first, then publish the event, then drop the cached member list.

A committed change stays, even if its event cannot be published: the versioned cache keeps routing right anyway.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from seriatim.domain import limits
from seriatim.domain.chat import Chat, Membership, Role
from seriatim.domain.errors import AlreadyExists, SeriatimError
from seriatim.domain.events import (
    ChangeType,
    ChatCreated,
    MembershipChanged,
    chat_created,
    headers,
    membership_changed,
)
from seriatim.domain.ids import CHAT, EVENT, new_ulid
from seriatim.domain.times import iso
from seriatim.ports.catalog import Catalog, Change
from seriatim.ports.clock import Clock
from seriatim.ports.directory import Directory
from seriatim.ports.event_log import CHATS, MEMBERSHIPS, Event, EventWriter


class MembershipObserver:
    """Does nothing; override what you want to see."""

    def event_not_published(self, chat_id: str, error: SeriatimError) -> None:
        """SEV-2: a change is committed, and its event could not be published."""


class MembershipService:
    """Creates chats; adds, removes and promotes members. The catalog's conditions decide; this publishes the event."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        events: EventWriter,
        directory: Directory,
        clock: Clock,
        producer_id: str,
        observe: MembershipObserver | None = None,
    ) -> None:
        self._catalog = catalog
        self._events = events
        self._directory = directory
        self._clock = clock
        self._producer_id = producer_id
        self._observe = observe or MembershipObserver()

    async def create_group(self, chat: Chat, member_ids: Sequence[str], *, resumed: bool = False) -> None:
        """`resumed`: an earlier attempt may have got this far, and no other request has this chat id. So a taken id
        counts as created, and is published again.
        """
        try:
            await self._catalog.create_group(
                chat, member_ids, now_ms=self._clock.now_ms(), timeout_s=limits.STORE_TIMEOUT_S
            )
        except AlreadyExists:
            if not resumed:
                raise
        await self._created(chat, (chat.created_by, *member_ids))

    async def create_direct(self, chat: Chat, other_id: str) -> str:
        """The id of the pair's chat. Only a new chat is published; a resumed creation finds its own again."""
        nameless = msgspec.structs.replace(chat, name=None)
        chat_id = await self._catalog.create_direct(
            nameless, other_id, now_ms=self._clock.now_ms(), timeout_s=limits.STORE_TIMEOUT_S
        )
        if chat_id == chat.chat_id:
            await self._created(nameless, (chat.created_by, other_id))
        return chat_id

    async def rename(self, chat_id: str, name: str | None, *, by: str) -> Chat:
        """Publishes no event: clients read the name with the chat."""
        return await self._catalog.rename(
            chat_id, name, by=by, now_ms=self._clock.now_ms(), timeout_s=limits.STORE_TIMEOUT_S
        )

    async def add(self, chat_id: str, user_id: str, role: Role, *, by: str) -> Membership:
        change = await self._catalog.add_member(
            chat_id, user_id, role, by=by, now_ms=self._clock.now_ms(), timeout_s=limits.STORE_TIMEOUT_S
        )
        await self._changed(change, ChangeType.ADDED, by)
        return change.membership

    async def remove(self, chat_id: str, user_id: str, *, by: str) -> None:
        """Once this returns, nothing the removed member sends is accepted, and nothing allocated later reaches them."""
        change = await self._catalog.remove_member(
            chat_id, user_id, by=by, now_ms=self._clock.now_ms(), timeout_s=limits.STORE_TIMEOUT_S
        )
        await self._changed(change, ChangeType.REMOVED, by)

    async def leave(self, chat_id: str, user_id: str) -> None:
        change = await self._catalog.leave(
            chat_id, user_id, now_ms=self._clock.now_ms(), timeout_s=limits.STORE_TIMEOUT_S
        )
        await self._changed(change, ChangeType.REMOVED, user_id)

    async def change_role(self, chat_id: str, user_id: str, role: Role, *, by: str) -> Membership:
        change = await self._catalog.change_role(
            chat_id, user_id, role, by=by, now_ms=self._clock.now_ms(), timeout_s=limits.STORE_TIMEOUT_S
        )
        await self._changed(change, ChangeType.ROLE_CHANGED, by)
        return change.membership

    async def _created(self, chat: Chat, members: tuple[str, ...]) -> None:
        """The event's id follows from the chat's, so that a creation that is published twice is recognised."""
        value = chat_created(
            msgspec.structs.replace(chat, member_count=len(members)),
            event_id=EVENT + chat.chat_id.removeprefix(CHAT),
            initial_members=members,
            producer_id=self._producer_id,
            trace_id="",
            event_time=iso(self._clock.now_ms()),
        )
        await self._publish(CHATS, Event(key=chat.chat_id, value=value, headers=headers(ChatCreated, "")))

    async def _changed(self, change: Change, kind: ChangeType, by: str) -> None:
        now, membership = iso(self._clock.now_ms()), change.membership
        value = membership_changed(
            event_id=EVENT + new_ulid(self._clock.now_ms(), self._clock.random_bits),
            chat_id=membership.chat_id,
            user_id=membership.user_id,
            change_type=kind,
            role=membership.role,
            changed_by=by,
            changed_at=now,
            member_count_after=change.member_count,
            producer_id=self._producer_id,
            trace_id="",
            event_time=now,
        )
        event = Event(key=membership.chat_id, value=value, headers=headers(MembershipChanged, ""))
        if not await self._publish(MEMBERSHIPS, event):
            await self._forget_members(membership.chat_id)

    async def _publish(self, topic: str, event: Event) -> bool:
        """Tries a few times. A failure is the operator's, not the caller's: the change is committed."""
        for pause_s in (*limits.LIFECYCLE_PAUSES_S, None):
            try:
                await self._events.append(topic, [event], timeout_s=limits.STORE_TIMEOUT_S)
                return True
            except SeriatimError as error:
                if pause_s is None:
                    self._observe.event_not_published(event.key, error)
                    break
                await asyncio.sleep(pause_s)
        return False

    async def _forget_members(self, chat_id: str) -> None:
        try:
            await self._directory.forget_members(chat_id, timeout_s=limits.DOWNSTREAM_TIMEOUT_S)
        except SeriatimError:
            return  # the cache carries its version: an older one is not used for newer messages

"""Changes of membership as the REST edge makes them: commit first, then tell the event log, then drop the cache.

A change that is committed stays, even if nobody can be told: the versioned cache keeps routing right anyway.
"""

import asyncio
from collections.abc import Sequence

from seriatim.domain import limits
from seriatim.domain.chat import Chat, Membership, Role
from seriatim.domain.errors import SeriatimError
from seriatim.domain.events import (
    ChangeType,
    ChatCreated,
    MembershipChanged,
    chat_created,
    headers,
    membership_changed,
)
from seriatim.domain.ids import EVENT, ulid
from seriatim.domain.times import iso
from seriatim.ports.catalog import Catalog
from seriatim.ports.clock import Clock
from seriatim.ports.directory import Directory
from seriatim.ports.event_log import CHATS, MEMBERSHIPS, Event, EventWriter


class MembershipObserver:
    """Does nothing; override what you want to see."""

    def untold(self, chat_id: str) -> None:
        """SEV-2: a change is committed, and the event log could not be told."""


class MembershipService:
    """Creates groups, adds, removes, lets go, promotes. The catalog's conditions decide; this tells the others."""

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

    async def create_group(self, chat: Chat, member_ids: Sequence[str]) -> None:
        now_ms = self._clock.now_ms()
        await self._catalog.create_group(chat, member_ids, now_ms=now_ms, timeout_s=limits.STORE_TIMEOUT_S)
        value = chat_created(
            chat,
            event_id=self._event_id(),
            initial_members=(chat.created_by, *member_ids),
            producer_id=self._producer_id,
            trace_id="",
            event_time=iso(now_ms),
        )
        await self._tell(CHATS, Event(key=chat.chat_id, value=value, headers=headers(ChatCreated, "")))

    async def add(self, chat_id: str, user_id: str, role: Role, *, by: str) -> Membership:
        membership = await self._catalog.add_member(
            chat_id, user_id, role, by=by, now_ms=self._clock.now_ms(), timeout_s=limits.STORE_TIMEOUT_S
        )
        await self._changed(chat_id, user_id, ChangeType.ADDED, role, by)
        return membership

    async def remove(self, chat_id: str, user_id: str, *, by: str) -> None:
        """Once this returns, nothing the removed member sends is accepted, and nothing allocated later reaches them."""
        await self._catalog.remove_member(
            chat_id, user_id, by=by, now_ms=self._clock.now_ms(), timeout_s=limits.STORE_TIMEOUT_S
        )
        await self._changed(chat_id, user_id, ChangeType.REMOVED, Role.MEMBER, by)

    async def leave(self, chat_id: str, user_id: str) -> None:
        await self._catalog.leave(chat_id, user_id, now_ms=self._clock.now_ms(), timeout_s=limits.STORE_TIMEOUT_S)
        await self._changed(chat_id, user_id, ChangeType.REMOVED, Role.MEMBER, user_id)

    async def change_role(self, chat_id: str, user_id: str, role: Role, *, by: str) -> Membership:
        membership = await self._catalog.change_role(
            chat_id, user_id, role, by=by, now_ms=self._clock.now_ms(), timeout_s=limits.STORE_TIMEOUT_S
        )
        await self._changed(chat_id, user_id, ChangeType.ROLE_CHANGED, role, by)
        return membership

    async def _changed(self, chat_id: str, user_id: str, change: ChangeType, role: Role, by: str) -> None:
        now = iso(self._clock.now_ms())
        value = membership_changed(
            event_id=self._event_id(),
            chat_id=chat_id,
            user_id=user_id,
            change_type=change,
            role=role,
            changed_by=by,
            changed_at=now,
            member_count_after=None,
            producer_id=self._producer_id,
            trace_id="",
            event_time=now,
        )
        event = Event(key=chat_id, value=value, headers=headers(MembershipChanged, ""))
        if not await self._tell(MEMBERSHIPS, event):
            await self._forget_members(chat_id)

    async def _tell(self, topic: str, event: Event) -> bool:
        """Tries a few times. A failure is the operator's, not the caller's: the change is committed."""
        for pause_s in (*limits.LIFECYCLE_PAUSES_S, None):
            try:
                await self._events.append(topic, [event], timeout_s=limits.STORE_TIMEOUT_S)
                return True
            except SeriatimError:
                if pause_s is None:
                    break
                await asyncio.sleep(pause_s)
        self._observe.untold(event.key)
        return False

    async def _forget_members(self, chat_id: str) -> None:
        try:
            await self._directory.forget_members(chat_id, timeout_s=limits.DOWNSTREAM_TIMEOUT_S)
        except SeriatimError:
            return  # the cache carries its version: an older one is not used for newer messages

    def _event_id(self) -> str:
        return EVENT + ulid(self._clock.now_ms(), self._clock.random_bits(80))

"""`Catalog` and `Roster` in memory: the conditions of W5-W12, checked where the rows are written.

The caller has checked the same rules before; here they are checked again, so that a race cannot slip through.
"""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from seriatim.domain import limits
from seriatim.domain.chat import (
    Chat,
    ChatType,
    Membership,
    Role,
    check_group,
    check_may_add,
    check_may_change_role,
    check_may_leave,
    check_may_remove,
    check_may_rename,
    pair_key,
)
from seriatim.domain.errors import AlreadyAMember, AlreadyExists, ChatFull, CounterMissing, InternalError, NotAMember
from seriatim.domain.times import iso
from seriatim.engines.inprocess.wire import Wire
from seriatim.engines.shared.store_rules import NEW_COUNTER
from seriatim.ports.catalog import Catalog, Change, Members, Roster, UserChats
from seriatim.simulation.stores.tables import MemoryStore


class MemoryRoster(Roster):
    """Fanout's handle: it has nothing to write with."""

    def __init__(self, store: MemoryStore, wire: Wire) -> None:
        self._store = store
        self._wire = wire

    async def members(self, chat_id: str, *, timeout_s: float) -> Members:
        store, time = self._store, asyncio.get_running_loop().time
        deadline = time() + timeout_s

        def read_version() -> int:
            row = store.counter(chat_id)
            return row.members_version if row else 0

        def read_list() -> tuple[str, ...]:
            return tuple(sorted(store.members(chat_id)))

        version = await self._wire.call("members_version", read_version, timeout_s=timeout_s)
        user_ids = await self._wire.call("members", read_list, timeout_s=deadline - time())
        return Members(version, user_ids)


class MemoryUserChats(UserChats):
    """The durability plane's handle."""

    def __init__(self, store: MemoryStore, wire: Wire) -> None:
        self._store = store
        self._wire = wire

    async def joined(self, since: Mapping[str, str], *, timeout_s: float) -> Mapping[str, Sequence[str]]:
        given = dict(since)

        def read() -> Mapping[str, Sequence[str]]:
            found = {
                user_id: [row.chat_id for row in self._store.memberships_of(user_id) if row.joined_at >= first]
                for user_id, first in given.items()
            }
            return {user_id: chat_ids for user_id, chat_ids in found.items() if chat_ids}

        return await self._wire.call("joined", read, timeout_s=timeout_s)


class MemoryCatalog(MemoryRoster, Catalog):
    """One process's handle on the chats and memberships of a `MemoryStore`."""

    async def create_group(self, chat: Chat, member_ids: Sequence[str], *, now_ms: int, timeout_s: float) -> None:
        store = self._store
        roles = {chat.created_by: Role.OWNER} | dict.fromkeys(member_ids, Role.MEMBER)
        if chat.chat_type is not ChatType.GROUP or len(roles) != 1 + len(member_ids):
            raise InternalError("create_group: not a group, or its members are not distinct")
        if len(roles) > limits.GROUP_MEMBERS_MAX:
            raise ChatFull(f"a group has at most {limits.GROUP_MEMBERS_MAX} members")

        def apply() -> None:
            _check_new(store, chat.chat_id)
            _create(store, chat, roles, now_ms)

        def finish() -> None:
            for user_id in roles:
                store.index_member(chat.chat_id, user_id)

        await self._wire.call("create_group", apply, timeout_s=timeout_s, finish=finish)

    async def create_direct(self, chat: Chat, other_id: str, *, now_ms: int, timeout_s: float) -> str:
        store, pair = self._store, pair_key(chat.created_by, other_id)
        if chat.chat_type is not ChatType.DIRECT:
            raise InternalError("create_direct: not a direct chat")

        def apply() -> str:
            first = store.pairs.get(pair)
            if first is not None:
                return first
            _check_new(store, chat.chat_id)
            store.pairs[pair] = chat.chat_id
            _create(store, chat, {chat.created_by: Role.MEMBER, other_id: Role.MEMBER}, now_ms)
            return chat.chat_id

        def finish() -> None:
            store.index_member(chat.chat_id, chat.created_by)
            store.index_member(chat.chat_id, other_id)

        return await self._wire.call("create_direct", apply, timeout_s=timeout_s, finish=finish)

    async def add_member(
        self, chat_id: str, user_id: str, role: Role, *, by: str, now_ms: int, timeout_s: float
    ) -> Change:
        store = self._store

        def apply() -> Change:
            caller, chat = _group_of(store, chat_id, by)
            check_may_add(caller.role, role)
            present = store.members(chat_id).get(user_id)
            if present is not None:
                raise AlreadyAMember("that user is a member already", details={"joined_at": present.joined_at})
            if chat.member_count >= limits.GROUP_MEMBERS_MAX:
                raise ChatFull(f"a group has at most {limits.GROUP_MEMBERS_MAX} members")
            added = Membership(chat_id=chat_id, user_id=user_id, role=role, joined_at=iso(now_ms), added_by=by)
            store.put_member(added, _raise_version(store, chat_id))
            return Change(added, _count(store, chat, +1, now_ms))

        return await self._wire.call(
            "add_member", apply, timeout_s=timeout_s, finish=lambda: store.index_member(chat_id, user_id)
        )

    async def remove_member(self, chat_id: str, user_id: str, *, by: str, now_ms: int, timeout_s: float) -> Change:
        store = self._store

        def apply() -> Change:
            caller, chat = _group_of(store, chat_id, by)
            target = store.members(chat_id).get(user_id)
            check_may_remove(by, caller.role, user_id, target.role if target else None)
            return _drop(store, chat, user_id, now_ms)

        return await self._wire.call(
            "remove_member", apply, timeout_s=timeout_s, finish=lambda: store.index_member(chat_id, user_id)
        )

    async def leave(self, chat_id: str, user_id: str, *, now_ms: int, timeout_s: float) -> Change:
        store = self._store

        def apply() -> Change:
            leaver, chat = _group_of(store, chat_id, user_id)
            check_may_leave(leaver.role)
            return _drop(store, chat, user_id, now_ms)

        return await self._wire.call(
            "leave", apply, timeout_s=timeout_s, finish=lambda: store.index_member(chat_id, user_id)
        )

    async def change_role(
        self, chat_id: str, user_id: str, role: Role, *, by: str, now_ms: int, timeout_s: float
    ) -> Change:
        store = self._store

        def apply() -> Change:
            caller, chat = _group_of(store, chat_id, by)
            target = store.members(chat_id).get(user_id)
            check_may_change_role(by, caller.role, user_id, target.role if target else None, role)
            changed = msgspec.structs.replace(store.members(chat_id)[user_id], role=role)
            store.put_member(changed, _raise_version(store, chat_id))
            return Change(changed, chat.member_count)

        return await self._wire.call("change_role", apply, timeout_s=timeout_s)

    async def rename(self, chat_id: str, name: str | None, *, by: str, now_ms: int, timeout_s: float) -> Chat:
        store = self._store

        def apply() -> Chat:
            caller, chat = _group_of(store, chat_id, by)
            check_may_rename(caller.role)
            store.chats[chat_id] = renamed = msgspec.structs.replace(chat, name=name, updated_at=iso(now_ms))
            return renamed

        return await self._wire.call("rename", apply, timeout_s=timeout_s)

    async def mute(self, chat_id: str, user_id: str, until: str | None, *, timeout_s: float) -> Membership:
        store = self._store

        def apply() -> Membership:
            muted = msgspec.structs.replace(_member_of(store, chat_id, user_id), muted_until=until)
            store.note_member(muted)
            return muted

        return await self._wire.call("mute", apply, timeout_s=timeout_s)

    async def chat(self, chat_id: str, *, timeout_s: float) -> Chat | None:
        return await self._wire.call("chat", lambda: self._store.chats.get(chat_id), timeout_s=timeout_s)

    async def membership(self, chat_id: str, user_id: str, *, timeout_s: float) -> Membership | None:
        store = self._store
        return await self._wire.call("membership", lambda: store.members(chat_id).get(user_id), timeout_s=timeout_s)

    async def memberships(self, chat_id: str, *, timeout_s: float) -> Sequence[Membership]:
        def apply() -> Sequence[Membership]:
            return [row for _, row in sorted(self._store.members(chat_id).items())]

        return await self._wire.call("memberships", apply, timeout_s=timeout_s)

    async def memberships_of(self, user_id: str, *, timeout_s: float) -> Sequence[Membership]:
        return await self._wire.call("memberships_of", lambda: self._store.memberships_of(user_id), timeout_s=timeout_s)

    async def chats_of(self, user_id: str, *, timeout_s: float) -> Sequence[str]:
        return await self._wire.call("chats_of", lambda: self._store.chats_of(user_id), timeout_s=timeout_s)


def _check_new(store: MemoryStore, chat_id: str) -> None:
    """A counter without its chat is kept: a second one would start at 0 and overwrite messages."""
    if chat_id in store.chats or chat_id in store.counters:
        raise AlreadyExists("this chat id is taken")


def _create(store: MemoryStore, chat: Chat, roles: dict[str, Role], now_ms: int) -> None:
    store.chats[chat.chat_id] = msgspec.structs.replace(chat, member_count=len(roles))
    store.put_counter(chat.chat_id, NEW_COUNTER)
    for user_id, role in roles.items():
        member = Membership(
            chat_id=chat.chat_id, user_id=user_id, role=role, joined_at=iso(now_ms), added_by=chat.created_by
        )
        store.put_member(member, NEW_COUNTER.members_version)


def _group_of(store: MemoryStore, chat_id: str, user_id: str) -> tuple[Membership, Chat]:
    """The caller's membership comes first: outsiders learn nothing about the chat, not even whether it exists."""
    member = _member_of(store, chat_id, user_id)
    chat = store.chats[chat_id]
    check_group(chat.chat_type)
    return member, chat


def _member_of(store: MemoryStore, chat_id: str, user_id: str) -> Membership:
    member = store.members(chat_id).get(user_id)
    if member is None:
        raise NotAMember("you are not a member of this chat, or it does not exist")
    return member


def _drop(store: MemoryStore, chat: Chat, user_id: str, now_ms: int) -> Change:
    ended = store.members(chat.chat_id)[user_id]
    store.drop_member(chat.chat_id, user_id, _raise_version(store, chat.chat_id))
    return Change(ended, _count(store, chat, -1, now_ms))


def _raise_version(store: MemoryStore, chat_id: str) -> int:
    """The last condition and the first write of a change: without the counter row nothing may change."""
    row = store.counter(chat_id)
    if row is None:
        raise CounterMissing(chat_id)
    raised = msgspec.structs.replace(row, members_version=row.members_version + 1)
    store.put_counter(chat_id, raised)
    return raised.members_version


def _count(store: MemoryStore, chat: Chat, change: int, now_ms: int) -> int:
    counted = msgspec.structs.replace(chat, member_count=chat.member_count + change, updated_at=iso(now_ms))
    store.chats[chat.chat_id] = counted
    return counted.member_count

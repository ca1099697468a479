"""`Catalog` and `Roster` on DynamoDB: W5-W12, each change with the chat's version in one transaction.

A change reads the rows that it depends on, checks the domain's rules on them, and is written only if they are still as
they were read. If not, it reads again: another change was faster, so the loop ends.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from seriatim.concurrency.bounded_gather import bounded_gather
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
from seriatim.domain.errors import (
    AlreadyAMember,
    AlreadyExists,
    ChatFull,
    CounterMissing,
    InternalError,
    NotAMember,
    NotFound,
)
from seriatim.domain.times import iso
from seriatim.engines.dynamodb.chat_writes import ChatWrites
from seriatim.engines.dynamodb.rows import chats as rows
from seriatim.engines.dynamodb.rows.attributes import S
from seriatim.engines.dynamodb.rows.messages import COUNTER, members_sum
from seriatim.engines.dynamodb.store import CHATS, COUNTERS, MEMBERSHIPS, DynamoStore, ReadOnlyStore
from seriatim.engines.dynamodb.transport.client import Request
from seriatim.engines.dynamodb.transport.errors import ConditionFailed, TransactionCancelled
from seriatim.engines.shared.store_rules import NEW_COUNTER
from seriatim.ports.catalog import Catalog, Change, Members, Roster, UserChats

R = TypeVar("R")


class ConcurrentChange(Exception):
    """Another writer changed the rows that this change depends on: read them again."""


class DynamoRoster(Roster):
    """Fanout's handle, without any write."""

    def __init__(self, store: ReadOnlyStore) -> None:
        self._store = store

    async def members(self, chat_id: str, *, timeout_s: float) -> Members:
        return await self._members(chat_id, self._store.until(timeout_s))

    async def _members(self, chat_id: str, until: float) -> Members:
        """A transaction that is being committed may show its version before its members.

        So the two are compared by their sum, and read again while they do not agree. If they keep disagreeing, as after
        a restore from two different times, the list has no version, and no caller keeps it for longer than a moment.
        """
        before: Members | None = None
        while True:
            counter = await self._store.get(COUNTERS, {"chat_id": S(chat_id)}, COUNTER, until=until)
            user_ids = tuple(row.user_id for row in await self._memberships(chat_id, until))
            if counter is None:
                return Members(0, user_ids)
            found = Members(int(counter.members_version.N), user_ids)
            if counter.members_sum is None or int(counter.members_sum.N) == members_sum(user_ids):
                return found
            if found == before:
                return Members(0, user_ids)
            before = found
            await asyncio.sleep(limits.MEMBERS_SETTLE_S)

    async def _memberships(self, chat_id: str, until: float) -> list[Membership]:
        found = await self._store.pages(MEMBERSHIPS, rows.members_query(chat_id), rows.MEMBERSHIP, until=until)
        return [rows.membership_from(item) for item in found]


class DynamoUserChats(UserChats):
    """The durability plane's handle. One query of an index per user: no table is keyed by user and strong."""

    def __init__(self, store: ReadOnlyStore) -> None:
        self._store = store

    async def joined(self, since: Mapping[str, str], *, timeout_s: float) -> Mapping[str, Sequence[str]]:
        until = self._store.until(timeout_s)

        async def of_one(user_id: str) -> list[str]:
            query = {
                **rows.user_chats_query(user_id),
                "FilterExpression": "joined_at >= :since",
                "ExpressionAttributeValues": {":user": S(user_id), ":since": S(since[user_id])},
            }
            found = await self._store.pages(MEMBERSHIPS, query, rows.MEMBERSHIP, until=until)
            return [item.chat_id.S for item in found]

        user_ids = list(since)
        found = await bounded_gather(of_one, user_ids, at_once=limits.JOINED_QUERIES_MAX)
        return {user_id: chat_ids for user_id, chat_ids in zip(user_ids, found, strict=True) if chat_ids}


class DynamoCatalog(DynamoRoster, Catalog):
    """A handle on the chats and memberships of a deployment."""

    _store: DynamoStore

    def __init__(self, store: DynamoStore) -> None:
        super().__init__(store)
        self._writes = ChatWrites(store)

    # --- creation ---

    async def create_group(self, chat: Chat, member_ids: Sequence[str], *, now_ms: int, timeout_s: float) -> None:
        """Members that do not fit into the first transaction follow in a second one. A retry completes it."""
        user_ids = [chat.created_by, *member_ids]
        if chat.chat_type is not ChatType.GROUP or len(dict.fromkeys(user_ids)) != len(user_ids):
            raise InternalError("create_group: not a group, or its members are not distinct")
        if len(user_ids) > limits.GROUP_MEMBERS_MAX:
            raise ChatFull(f"a group has at most {limits.GROUP_MEMBERS_MAX} members")
        until = self._store.until(timeout_s)
        members = [_new_member(chat, each, Role.MEMBER, now_ms) for each in user_ids]
        members[0] = msgspec.structs.replace(members[0], role=Role.OWNER)
        first, rest = members[: limits.CREATED_MEMBERS_MAX], members[limits.CREATED_MEMBERS_MAX :]
        try:
            await self._transact(self._writes.create_chat(chat, first, now_ms), until)
        except TransactionCancelled:
            if not rest or not await self._was_half_created(chat, first, until):
                raise AlreadyExists("this chat id is taken") from None
        if rest:
            await self._add_remaining(chat.chat_id, rest, now_ms, until)

    async def _was_half_created(self, chat: Chat, first: Sequence[Membership], until: float) -> bool:
        """Whether this very creation got through its first transaction before, and nothing has happened since."""
        found = await self._chat(chat.chat_id, until)
        members = await self._members(chat.chat_id, until)
        return (
            found is not None
            and found.created_by == chat.created_by
            and members.version == NEW_COUNTER.members_version
            and sorted(members.user_ids) == sorted(each.user_id for each in first)
        )

    async def _add_remaining(self, chat_id: str, rest: Sequence[Membership], now_ms: int, until: float) -> None:
        try:
            await self._transact(self._writes.put_remaining_members(chat_id, rest, now_ms), until)
        except TransactionCancelled:
            return  # they were added meanwhile, or the group is full: its members manage it by now

    async def create_direct(self, chat: Chat, other_id: str, *, now_ms: int, timeout_s: float) -> str:
        pair = pair_key(chat.created_by, other_id)
        if chat.chat_type is not ChatType.DIRECT:
            raise InternalError("create_direct: not a direct chat")
        until = self._store.until(timeout_s)
        members = [_new_member(chat, each, Role.MEMBER, now_ms) for each in (chat.created_by, other_id)]
        writes = [self._writes.put_pair(pair, chat.chat_id, now_ms), *self._writes.create_chat(chat, members, now_ms)]
        try:
            await self._transact(writes, until)
        except TransactionCancelled as cancelled:
            first = rows.PAIR.found(cancelled.reasons[0].item)
            if first is None:
                raise AlreadyExists("this chat id is taken") from None
            return first.chat_id.S
        return chat.chat_id

    # --- changes ---

    async def add_member(
        self, chat_id: str, user_id: str, role: Role, *, by: str, now_ms: int, timeout_s: float
    ) -> Change:
        async def change(until: float) -> Change:
            chat, caller, target = await self._read_for_change(chat_id, by, user_id, until)
            check_may_add(caller.role, role)
            if target is not None:
                raise AlreadyAMember("that user is a member already", details={"joined_at": target.joined_at})
            if chat.member_count >= limits.GROUP_MEMBERS_MAX:
                raise ChatFull(f"a group has at most {limits.GROUP_MEMBERS_MAX} members")
            added = Membership(chat_id=chat_id, user_id=user_id, role=role, joined_at=iso(now_ms), added_by=by)
            writes = [
                self._writes.put_member(added),
                self._writes.set_member_count(chat, +1, now_ms),
                self._writes.check_role_unchanged(caller),
            ]
            await self._write(chat_id, writes, until, joined=[user_id])
            return Change(added, chat.member_count + 1)

        return await self._retry_concurrent(change, timeout_s)

    async def remove_member(self, chat_id: str, user_id: str, *, by: str, now_ms: int, timeout_s: float) -> Change:
        async def change(until: float) -> Change:
            chat, caller, target = await self._read_for_change(chat_id, by, user_id, until)
            check_may_remove(by, caller.role, user_id, target.role if target else None)
            if target is None:
                raise NotFound("that user is not a member of this chat")
            writes = [
                self._writes.delete_member(target),
                self._writes.set_member_count(chat, -1, now_ms),
                self._writes.check_role_unchanged(caller),
            ]
            await self._write(chat_id, writes, until, left=[user_id])
            return Change(target, chat.member_count - 1)

        return await self._retry_concurrent(change, timeout_s)

    async def leave(self, chat_id: str, user_id: str, *, now_ms: int, timeout_s: float) -> Change:
        async def change(until: float) -> Change:
            chat, leaver, _ = await self._read_for_change(chat_id, user_id, user_id, until)
            check_may_leave(leaver.role)
            writes = [self._writes.delete_member(leaver), self._writes.set_member_count(chat, -1, now_ms)]
            await self._write(chat_id, writes, until, left=[user_id])
            return Change(leaver, chat.member_count - 1)

        return await self._retry_concurrent(change, timeout_s)

    async def change_role(
        self, chat_id: str, user_id: str, role: Role, *, by: str, now_ms: int, timeout_s: float
    ) -> Change:
        async def change(until: float) -> Change:
            chat, caller, target = await self._read_for_change(chat_id, by, user_id, until)
            check_may_change_role(by, caller.role, user_id, target.role if target else None, role)
            if target is None:
                raise NotFound("that user is not a member of this chat")
            writes = [self._writes.set_role(target, role, now_ms), self._writes.check_role_unchanged(caller)]
            await self._write(chat_id, writes, until)
            return Change(msgspec.structs.replace(target, role=role), chat.member_count)

        return await self._retry_concurrent(change, timeout_s)

    async def rename(self, chat_id: str, name: str | None, *, by: str, now_ms: int, timeout_s: float) -> Chat:
        async def change(until: float) -> Chat:
            chat, caller, _ = await self._read_for_change(chat_id, by, by, until)
            check_may_rename(caller.role)
            writes = [self._writes.set_name(chat, name, now_ms), self._writes.check_role_unchanged(caller)]
            try:
                await self._store.transact(writes, token=self._store.token(), until=until)
            except TransactionCancelled as cancelled:
                raise ConcurrentChange from cancelled
            return msgspec.structs.replace(chat, name=name, updated_at=iso(now_ms))

        return await self._retry_concurrent(change, timeout_s)

    async def mute(self, chat_id: str, user_id: str, until: str | None, *, timeout_s: float) -> Membership:
        ends = self._store.until(timeout_s)
        update = "REMOVE muted_until" if until is None else "SET muted_until = :until"
        request = self._store.write_request(
            MEMBERSHIPS,
            {"Key": rows.member_key(chat_id, user_id), "UpdateExpression": update},
            "attribute_exists(user_id)",
            None if until is None else {":until": S(until)},
        )
        try:
            muted = await self._store.retry_refused(
                lambda: self._store.update_returning(request, rows.MEMBERSHIP, until=ends), until=ends
            )
        except ConditionFailed:
            raise _not_a_member() from None
        return rows.membership_from(muted)

    async def _retry_concurrent(self, change: Callable[[float], Awaitable[R]], timeout_s: float) -> R:
        until = self._store.until(timeout_s)
        while True:
            try:
                return await self._store.retry_refused(lambda: change(until), until=until)
            except ConcurrentChange:
                continue

    async def _read_for_change(
        self, chat_id: str, caller: str, target: str, until: float
    ) -> tuple[Chat, Membership, Membership | None]:
        """The rows that a change depends on. Outsiders learn nothing about the chat, not even whether it exists."""
        users = dict.fromkeys((caller, target))
        keys = {CHATS: [{"chat_id": S(chat_id)}], MEMBERSHIPS: [rows.member_key(chat_id, each) for each in users]}
        found = await self._store.get_all(keys, until=until)
        chats = [rows.chat_from(rows.CHAT.decode(item)) for item in found[CHATS]]
        members = [rows.membership_from(rows.MEMBERSHIP.decode(item)) for item in found[MEMBERSHIPS]]
        by_id = {row.user_id: row for row in members}
        if not chats or caller not in by_id:
            raise _not_a_member()
        check_group(chats[0].chat_type)
        return chats[0], by_id[caller], by_id.get(target)

    async def _write(
        self,
        chat_id: str,
        writes: Sequence[Request],
        until: float,
        *,
        joined: Sequence[str] = (),
        left: Sequence[str] = (),
    ) -> None:
        """A change of membership, with the version."""
        versioned = [*writes, self._writes.raise_members_version(chat_id, joined=joined, left=left)]
        try:
            await self._store.transact(versioned, token=self._store.token(), until=until)
        except TransactionCancelled as cancelled:
            if cancelled.reasons[-1].failed:
                raise CounterMissing(chat_id) from None
            raise ConcurrentChange from cancelled

    async def _transact(self, writes: Sequence[Request], until: float) -> None:
        token = self._store.token()
        await self._store.retry_refused(lambda: self._store.transact(writes, token=token, until=until), until=until)

    # --- reads ---

    async def chat(self, chat_id: str, *, timeout_s: float) -> Chat | None:
        return await self._chat(chat_id, self._store.until(timeout_s))

    async def _chat(self, chat_id: str, until: float) -> Chat | None:
        found = await self._store.get(CHATS, {"chat_id": S(chat_id)}, rows.CHAT, until=until)
        return None if found is None else rows.chat_from(found)

    async def membership(self, chat_id: str, user_id: str, *, timeout_s: float) -> Membership | None:
        until = self._store.until(timeout_s)
        found = await self._store.get(MEMBERSHIPS, rows.member_key(chat_id, user_id), rows.MEMBERSHIP, until=until)
        return None if found is None else rows.membership_from(found)

    async def memberships(self, chat_id: str, *, timeout_s: float) -> Sequence[Membership]:
        return await self._memberships(chat_id, self._store.until(timeout_s))

    async def memberships_of(self, user_id: str, *, timeout_s: float) -> Sequence[Membership]:
        until = self._store.until(timeout_s)
        found = await self._store.pages(MEMBERSHIPS, rows.user_chats_query(user_id), rows.MEMBERSHIP, until=until)
        return [rows.membership_from(item) for item in found]

    async def chats_of(self, user_id: str, *, timeout_s: float) -> Sequence[str]:
        return [row.chat_id for row in await self.memberships_of(user_id, timeout_s=timeout_s)]


def _new_member(chat: Chat, user_id: str, role: Role, now_ms: int) -> Membership:
    return Membership(chat_id=chat.chat_id, user_id=user_id, role=role, joined_at=iso(now_ms), added_by=chat.created_by)


def _not_a_member() -> NotAMember:
    return NotAMember("you are not a member of this chat, or it does not exist")

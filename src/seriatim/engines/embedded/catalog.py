"""`Catalog` and `Roster` in the data folder: the conditions of W5-W12, checked where rows are written.

The caller has checked the same rules before; here they are checked again, so that a race cannot slip through.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

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
from seriatim.engines.embedded.message_log import counter_row, put_counter, put_counter_row
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.storage.rows import CounterRow
from seriatim.engines.embedded.storage.snapshot import ReadSnapshot, WriteTransaction
from seriatim.engines.shared.store_rules import NEW_COUNTER
from seriatim.ports.catalog import Catalog, Change, Members, Roster, UserChats


class EmbeddedRoster(Roster):
    """Fanout's handle: it has nothing to write with."""

    def __init__(self, folder: Folder) -> None:
        self._writer = folder.writer

    async def members(self, chat_id: str, *, timeout_s: float) -> Members:
        prefix = rows.members_prefix(chat_id)

        def read(snapshot: ReadSnapshot) -> Members:
            row = rows.COUNTER.found(snapshot.get(rows.counter_key(chat_id)))
            user_ids = sorted([rows.last_text(key, prefix) for key, _ in snapshot.scan(prefix, rows.after(prefix))])
            return Members(row.counter.members_version if row else 0, tuple(user_ids))

        return await self._writer.read("members", read, timeout_s=timeout_s)


class EmbeddedUserChats(UserChats):
    """The durability plane's handle."""

    def __init__(self, folder: Folder) -> None:
        self._writer = folder.writer

    async def joined(self, since: Mapping[str, str], *, timeout_s: float) -> Mapping[str, Sequence[str]]:
        """User by user: others must run in between."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        found: dict[str, Sequence[str]] = {}
        for user_id, first in since.items():
            rows_of = partial(_memberships_of, user_id=user_id)
            memberships = await self._writer.read("joined", rows_of, timeout_s=until - loop.time())
            if chat_ids := [row.chat_id for row in memberships if row.joined_at >= first]:
                found[user_id] = chat_ids
        return found


class EmbeddedCatalog(EmbeddedRoster, Catalog):
    """A handle on the chats and memberships of a folder."""

    async def create_group(self, chat: Chat, member_ids: Sequence[str], *, now_ms: int, timeout_s: float) -> None:
        roles = {chat.created_by: Role.OWNER} | dict.fromkeys(member_ids, Role.MEMBER)
        if chat.chat_type is not ChatType.GROUP or len(roles) != 1 + len(member_ids):
            raise InternalError("create_group: not a group, or its members are not distinct")
        if len(roles) > limits.GROUP_MEMBERS_MAX:
            raise ChatFull(f"a group has at most {limits.GROUP_MEMBERS_MAX} members")

        def decide(transaction: WriteTransaction) -> None:
            _create(transaction, chat, roles, now_ms)

        await self._writer.commit("create_group", decide, timeout_s=timeout_s)

    async def create_direct(self, chat: Chat, other_id: str, *, now_ms: int, timeout_s: float) -> str:
        pair = rows.pair_row_key(pair_key(chat.created_by, other_id))
        if chat.chat_type is not ChatType.DIRECT:
            raise InternalError("create_direct: not a direct chat")

        def decide(transaction: WriteTransaction) -> str:
            first = rows.TEXT.found(transaction.get(pair))
            if first is not None:
                return first
            _create(transaction, chat, {chat.created_by: Role.MEMBER, other_id: Role.MEMBER}, now_ms)
            transaction.put(pair, rows.TEXT.encode(chat.chat_id))
            return chat.chat_id

        return await self._writer.commit("create_direct", decide, timeout_s=timeout_s)

    async def add_member(
        self, chat_id: str, user_id: str, role: Role, *, by: str, now_ms: int, timeout_s: float
    ) -> Change:
        def decide(transaction: WriteTransaction) -> Change:
            caller, chat = _group_of(transaction, chat_id, by)
            check_may_add(caller.role, role)
            present = _member(transaction, chat_id, user_id)
            if present is not None:
                raise AlreadyAMember("that user is a member already", details={"joined_at": present.joined_at})
            if chat.member_count >= limits.GROUP_MEMBERS_MAX:
                raise ChatFull(f"a group has at most {limits.GROUP_MEMBERS_MAX} members")
            added = Membership(chat_id=chat_id, user_id=user_id, role=role, joined_at=iso(now_ms), added_by=by)
            _raise_version(transaction, chat_id)
            _put_member(transaction, added)
            return Change(added, _count(transaction, chat, +1, now_ms))

        return await self._writer.commit("add_member", decide, timeout_s=timeout_s)

    async def remove_member(self, chat_id: str, user_id: str, *, by: str, now_ms: int, timeout_s: float) -> Change:
        def decide(transaction: WriteTransaction) -> Change:
            caller, chat = _group_of(transaction, chat_id, by)
            target = _member(transaction, chat_id, user_id)
            check_may_remove(by, caller.role, user_id, target.role if target else None)
            if target is None:
                raise NotFound("that user is not a member of this chat")
            return _drop(transaction, chat, target, now_ms)

        return await self._writer.commit("remove_member", decide, timeout_s=timeout_s)

    async def leave(self, chat_id: str, user_id: str, *, now_ms: int, timeout_s: float) -> Change:
        def decide(transaction: WriteTransaction) -> Change:
            leaver, chat = _group_of(transaction, chat_id, user_id)
            check_may_leave(leaver.role)
            return _drop(transaction, chat, leaver, now_ms)

        return await self._writer.commit("leave", decide, timeout_s=timeout_s)

    async def change_role(
        self, chat_id: str, user_id: str, role: Role, *, by: str, now_ms: int, timeout_s: float
    ) -> Change:
        def decide(transaction: WriteTransaction) -> Change:
            caller, chat = _group_of(transaction, chat_id, by)
            target = _member(transaction, chat_id, user_id)
            check_may_change_role(by, caller.role, user_id, target.role if target else None, role)
            if target is None:
                raise NotFound("that user is not a member of this chat")
            changed = msgspec.structs.replace(target, role=role)
            _raise_version(transaction, chat_id)
            _put_member(transaction, changed)
            return Change(changed, chat.member_count)

        return await self._writer.commit("change_role", decide, timeout_s=timeout_s)

    async def rename(self, chat_id: str, name: str | None, *, by: str, now_ms: int, timeout_s: float) -> Chat:
        def decide(transaction: WriteTransaction) -> Chat:
            caller, chat = _group_of(transaction, chat_id, by)
            check_may_rename(caller.role)
            renamed = msgspec.structs.replace(chat, name=name, updated_at=iso(now_ms))
            transaction.put(rows.chat_key(chat_id), rows.CHAT.encode(renamed))
            return renamed

        return await self._writer.commit("rename", decide, timeout_s=timeout_s)

    async def mute(self, chat_id: str, user_id: str, until: str | None, *, timeout_s: float) -> Membership:
        def decide(transaction: WriteTransaction) -> Membership:
            member = _member(transaction, chat_id, user_id)
            if member is None:
                raise NotAMember("you are not a member of this chat, or it does not exist")
            muted = msgspec.structs.replace(member, muted_until=until)
            transaction.put(rows.member_key(chat_id, user_id), rows.MEMBERSHIP.encode(muted))
            return muted

        return await self._writer.commit("mute", decide, timeout_s=timeout_s)

    async def chat(self, chat_id: str, *, timeout_s: float) -> Chat | None:
        key = rows.chat_key(chat_id)
        return await self._writer.read("chat", lambda snapshot: rows.CHAT.found(snapshot.get(key)), timeout_s=timeout_s)

    async def membership(self, chat_id: str, user_id: str, *, timeout_s: float) -> Membership | None:
        key = rows.member_key(chat_id, user_id)
        return await self._writer.read(
            "membership", lambda snapshot: rows.MEMBERSHIP.found(snapshot.get(key)), timeout_s=timeout_s
        )

    async def memberships(self, chat_id: str, *, timeout_s: float) -> Sequence[Membership]:
        prefix = rows.members_prefix(chat_id)

        def read(snapshot: ReadSnapshot) -> Sequence[Membership]:
            found = [rows.MEMBERSHIP.decode(value) for _, value in snapshot.scan(prefix, rows.after(prefix))]
            return sorted(found, key=lambda row: row.user_id)

        return await self._writer.read("memberships", read, timeout_s=timeout_s)

    async def memberships_of(self, user_id: str, *, timeout_s: float) -> Sequence[Membership]:
        read = partial(_memberships_of, user_id=user_id)
        return await self._writer.read("memberships_of", read, timeout_s=timeout_s)

    async def chats_of(self, user_id: str, *, timeout_s: float) -> Sequence[str]:
        return await self._writer.read("chats_of", lambda snapshot: _chats_of(snapshot, user_id), timeout_s=timeout_s)


def _create(transaction: WriteTransaction, chat: Chat, roles: Mapping[str, Role], now_ms: int) -> None:
    """A counter without its chat may have messages: a second counter would start at 0 and overwrite them."""
    if (
        transaction.get(rows.chat_key(chat.chat_id)) is not None
        or transaction.get(rows.counter_key(chat.chat_id)) is not None
    ):
        raise AlreadyExists("this chat id is taken")
    founded = msgspec.structs.replace(chat, member_count=len(roles))
    transaction.put(rows.chat_key(chat.chat_id), rows.CHAT.encode(founded))
    put_counter_row(transaction, chat.chat_id, None, CounterRow(counter=NEW_COUNTER))
    for user_id, role in roles.items():
        member = Membership(
            chat_id=chat.chat_id, user_id=user_id, role=role, joined_at=iso(now_ms), added_by=chat.created_by
        )
        _put_member(transaction, member)


def _group_of(transaction: WriteTransaction, chat_id: str, user_id: str) -> tuple[Membership, Chat]:
    """The caller's membership comes first: outsiders learn nothing about the chat, not even whether it exists."""
    member = _member(transaction, chat_id, user_id)
    chat = rows.CHAT.found(transaction.get(rows.chat_key(chat_id)))
    if member is None or chat is None:
        raise NotAMember("you are not a member of this chat, or it does not exist")
    check_group(chat.chat_type)
    return member, chat


def _member(transaction: WriteTransaction, chat_id: str, user_id: str) -> Membership | None:
    return rows.MEMBERSHIP.found(transaction.get(rows.member_key(chat_id, user_id)))


def _put_member(transaction: WriteTransaction, member: Membership) -> None:
    transaction.put(rows.member_key(member.chat_id, member.user_id), rows.MEMBERSHIP.encode(member))
    transaction.put(rows.user_chat_key(member.user_id, member.chat_id), b"")


def _drop(transaction: WriteTransaction, chat: Chat, member: Membership, now_ms: int) -> Change:
    _raise_version(transaction, chat.chat_id)
    transaction.delete(rows.member_key(chat.chat_id, member.user_id))
    transaction.delete(rows.user_chat_key(member.user_id, chat.chat_id))
    return Change(member, _count(transaction, chat, -1, now_ms))


def _raise_version(transaction: WriteTransaction, chat_id: str) -> None:
    """The last condition of a change: without the counter row nothing may change."""
    row = counter_row(transaction, chat_id)
    if row is None:
        raise CounterMissing(chat_id)
    version = row.counter.members_version + 1
    put_counter(transaction, chat_id, row, msgspec.structs.replace(row.counter, members_version=version))


def _count(transaction: WriteTransaction, chat: Chat, change: int, now_ms: int) -> int:
    counted = msgspec.structs.replace(chat, member_count=chat.member_count + change, updated_at=iso(now_ms))
    transaction.put(rows.chat_key(chat.chat_id), rows.CHAT.encode(counted))
    return counted.member_count


def _memberships_of(snapshot: ReadSnapshot, user_id: str) -> Sequence[Membership]:
    keys = [rows.member_key(chat_id, user_id) for chat_id in _chats_of(snapshot, user_id)]
    found = [rows.MEMBERSHIP.found(snapshot.get(key)) for key in keys]
    return [row for row in found if row is not None]


def _chats_of(snapshot: ReadSnapshot, user_id: str) -> list[str]:
    """Sorted here: in the keys, lengths go before texts."""
    prefix = rows.user_chats_prefix(user_id)
    return sorted([rows.last_text(key, prefix) for key, _ in snapshot.scan(prefix, rows.after(prefix))])

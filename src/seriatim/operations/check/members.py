"""Members, the direct chats of two, and the indexes of chats: R8-R11 and D5."""

from collections.abc import Mapping
from functools import partial

from seriatim.domain import limits
from seriatim.domain.chat import Chat, ChatType, Role, pair_key
from seriatim.operations.check.findings import Findings
from seriatim.ports.inspection import Pair, StoredRows


class MemberCheck:
    def __init__(self, store: StoredRows, findings: Findings) -> None:
        self._rows = store
        self._findings = findings

    async def run(self) -> None:
        await self._indexes()
        async for pair in self._rows.pairs():
            self._findings.row()
            await self._pair(pair)
        async for chat in self._rows.chats():
            await self._chat(chat)

    async def _indexes(self) -> None:
        """Members come and go, and an index may lag: both sides are read again before a violation is reported."""
        async for row in self._rows.user_chats():
            self._findings.row()
            self._findings.examined("D5")
            if await self._rows.membership(row.chat_id, row.user_id) is None:
                user_id, chat_id = row.user_id, row.chat_id
                recheck = partial(self._index_row_without_source, user_id, chat_id)
                await self._findings.confirm("D5", f"{user_id} {chat_id}", recheck)
        async for member in self._rows.memberships():
            self._findings.row()
            self._findings.examined("D5")
            subject = f"{member.user_id} {member.chat_id}"
            if not await self._rows.has_user_chat(member.user_id, member.chat_id):
                await self._findings.confirm(
                    "D5", subject, partial(self._missing_index_row, member.user_id, member.chat_id)
                )
            if await self._rows.chat(member.chat_id) is None:
                self._findings.violated("D5", subject, "a member of a chat that is not there")

    async def _index_row_without_source(self, user_id: str, chat_id: str) -> str | None:
        if await self._rows.membership(chat_id, user_id) or not await self._rows.has_user_chat(user_id, chat_id):
            return None
        return "the user's list names a chat that they are not a member of"

    async def _missing_index_row(self, user_id: str, chat_id: str) -> str | None:
        if await self._rows.has_user_chat(user_id, chat_id) or not await self._rows.membership(chat_id, user_id):
            return None
        return "the user's list does not name this chat of theirs"

    async def _pair(self, pair: Pair) -> None:
        self._findings.examined("R9")
        chat = await self._rows.chat(pair.chat_id)
        if chat is None or chat.chat_type is not ChatType.DIRECT:
            kind = "is not there" if chat is None else "is a group"
            self._findings.violated("R9", pair.chat_id, f"the index names it for {pair.pair_key}, and it {kind}")
        elif await self._pair_of(pair.chat_id) != pair.pair_key:
            self._findings.violated("R9", pair.chat_id, f"the index names it for {pair.pair_key}; others are in it")

    async def _chat(self, chat: Chat) -> None:
        roles = await self._roles(chat.chat_id)
        self._findings.examined("R11")
        if _miscounted(chat, roles):
            await self._findings.confirm("R11", chat.chat_id, partial(self._miscounted, chat.chat_id))
        if chat.chat_type is ChatType.GROUP:
            self._findings.examined("R10")
            owners = [user_id for user_id, role in roles.items() if role is Role.OWNER]
            if len(owners) != 1:
                self._findings.violated("R10", chat.chat_id, f"{len(owners)} owners: {', '.join(owners) or 'none'}")
        else:
            await self._direct(chat.chat_id, roles)

    async def _miscounted(self, chat_id: str) -> str | None:
        """If the chat is another after its members were read, they came or went meanwhile: then it proves nothing."""
        before = await self._rows.chat(chat_id)
        roles = await self._roles(chat_id)
        after = await self._rows.chat(chat_id)
        return None if after is None or before != after else _miscounted(after, roles)

    async def _direct(self, chat_id: str, roles: dict[str, Role]) -> None:
        self._findings.examined("R8", "R9")
        if len(roles) != 2:
            self._findings.violated("R9", chat_id, f"a direct chat of {len(roles)}")
            return
        named = await self._rows.pair(pair_key(*roles))
        if named is None:
            self._findings.violated("R9", chat_id, "the index does not name this direct chat")
        elif named != chat_id:
            self._findings.violated("R8", chat_id, f"its two members have another direct chat: {named}")

    async def _pair_of(self, chat_id: str) -> str | None:
        roles = await self._roles(chat_id)
        return pair_key(*roles) if len(roles) == 2 else None

    async def _roles(self, chat_id: str) -> dict[str, Role]:
        return {member.user_id: member.role async for member in self._rows.members(chat_id)}


def _miscounted(chat: Chat, roles: Mapping[str, Role]) -> str | None:
    if len(roles) != chat.member_count:
        return f"{len(roles)} members, and member_count says {chat.member_count}"
    if len(roles) > limits.GROUP_MEMBERS_MAX:
        return f"{len(roles)} members; {limits.GROUP_MEMBERS_MAX} are allowed"
    return None

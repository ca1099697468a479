"""Members, the direct chats of two, and the indexes of chats: R8-R11 and D5."""

from collections.abc import Mapping
from functools import partial

from seriatim.domain import limits
from seriatim.domain.chat import Chat, ChatType, Role, pair_key
from seriatim.operations.check.findings import Findings
from seriatim.ports.inspection import Pair, StoredRows


class MemberCheck:
    def __init__(self, store: StoredRows, findings: Findings) -> None:
        self._store = store
        self._findings = findings

    async def run(self) -> None:
        await self._indexes()
        async for pair in self._store.pairs():
            self._findings.row()
            await self._pair(pair)
        async for chat in self._store.chats():
            await self._chat(chat)

    async def _indexes(self) -> None:
        """Members come and go, and an index may lag behind: so both sides are read anew before anything is said."""
        async for row in self._store.user_chats():
            self._findings.row()
            self._findings.looked("D5")
            if await self._store.membership(row.chat_id, row.user_id) is None:
                user_id, chat_id = row.user_id, row.chat_id
                look = partial(self._listed_in_vain, user_id, chat_id)
                await self._findings.judge("D5", f"{user_id} {chat_id}", look)
        async for member in self._store.memberships():
            self._findings.row()
            self._findings.looked("D5")
            subject = f"{member.user_id} {member.chat_id}"
            if not await self._store.has_user_chat(member.user_id, member.chat_id):
                await self._findings.judge("D5", subject, partial(self._unlisted, member.user_id, member.chat_id))
            if await self._store.chat(member.chat_id) is None:
                self._findings.violated("D5", subject, "a member of a chat that is not there")

    async def _listed_in_vain(self, user_id: str, chat_id: str) -> str | None:
        if await self._store.membership(chat_id, user_id) or not await self._store.has_user_chat(user_id, chat_id):
            return None
        return "the user's list names a chat that they are not a member of"

    async def _unlisted(self, user_id: str, chat_id: str) -> str | None:
        if await self._store.has_user_chat(user_id, chat_id) or not await self._store.membership(chat_id, user_id):
            return None
        return "the user's list does not name this chat of theirs"

    async def _pair(self, pair: Pair) -> None:
        self._findings.looked("R9")
        chat = await self._store.chat(pair.chat_id)
        if chat is None or chat.chat_type is not ChatType.DIRECT:
            kind = "is not there" if chat is None else "is a group"
            self._findings.violated("R9", pair.chat_id, f"the index names it for {pair.pair_key}, and it {kind}")
        elif await self._pair_of(pair.chat_id) != pair.pair_key:
            self._findings.violated("R9", pair.chat_id, f"the index names it for {pair.pair_key}; others are in it")

    async def _chat(self, chat: Chat) -> None:
        roles = await self._roles(chat.chat_id)
        self._findings.looked("R11")
        if _miscounted(chat, roles):
            await self._findings.judge("R11", chat.chat_id, partial(self._miscounted, chat.chat_id))
        if chat.chat_type is ChatType.GROUP:
            self._findings.looked("R10")
            owners = [user_id for user_id, role in roles.items() if role is Role.OWNER]
            if len(owners) != 1:
                self._findings.violated("R10", chat.chat_id, f"{len(owners)} owners: {', '.join(owners) or 'nobody'}")
        else:
            await self._direct(chat.chat_id, roles)

    async def _miscounted(self, chat_id: str) -> str | None:
        """If the chat is another after its members were read, they came or went meanwhile: then it proves nothing."""
        before = await self._store.chat(chat_id)
        roles = await self._roles(chat_id)
        after = await self._store.chat(chat_id)
        return None if after is None or before != after else _miscounted(after, roles)

    async def _direct(self, chat_id: str, roles: dict[str, Role]) -> None:
        self._findings.looked("R8", "R9")
        if len(roles) != 2:
            self._findings.violated("R9", chat_id, f"a direct chat of {len(roles)}")
            return
        named = await self._store.pair(pair_key(*roles))
        if named is None:
            self._findings.violated("R9", chat_id, "the index does not name this direct chat")
        elif named != chat_id:
            self._findings.violated("R8", chat_id, f"its two members have another direct chat: {named}")

    async def _pair_of(self, chat_id: str) -> str | None:
        roles = await self._roles(chat_id)
        return pair_key(*roles) if len(roles) == 2 else None

    async def _roles(self, chat_id: str) -> dict[str, Role]:
        return {member.user_id: member.role async for member in self._store.members(chat_id)}


def _miscounted(chat: Chat, roles: Mapping[str, Role]) -> str | None:
    if len(roles) != chat.member_count:
        return f"{len(roles)} members, and member_count says {chat.member_count}"
    if len(roles) > limits.GROUP_MEMBERS_MAX:
        return f"{len(roles)} members; {limits.GROUP_MEMBERS_MAX} are allowed"
    return None

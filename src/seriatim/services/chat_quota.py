"""How many chats a user may be in. The list of a user's chats is sorted in memory, so it must stay bounded.

Soft: the index that is counted may lag, and two additions may pass at once. Nothing but the list depends on it.
"""

from collections.abc import Sequence

from seriatim.concurrency.bounded_gather import bounded_gather
from seriatim.domain import limits
from seriatim.domain.chat import ChatType
from seriatim.domain.errors import InvalidOperation
from seriatim.ports.catalog import Catalog


class ChatQuota:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def check(self, chat_id: str, user_ids: Sequence[str]) -> None:
        """Raises `InvalidOperation` if one of them has no room for this chat. A member of it needs none."""
        chats = await self._chats(user_ids)
        full = [
            user_id
            for user_id, mine in zip(user_ids, chats, strict=True)
            if len(mine) >= limits.CHATS_PER_USER_MAX and chat_id not in mine
        ]
        if full:
            raise InvalidOperation(
                f"a user is in at most {limits.CHATS_PER_USER_MAX} chats, and these users are in that many: leave some",
                details={"reason": "too_many_chats", "max_chats_per_user": limits.CHATS_PER_USER_MAX, "user_ids": full},
            )

    async def check_pair(self, chat_id: str, one: str, other: str) -> None:
        """The same for a direct chat, of which a pair has only one: if they have it, nothing new is asked for."""
        try:
            await self.check(chat_id, (one, other))
        except InvalidOperation:
            if not await self._have_direct(one, other):
                raise

    async def _have_direct(self, one: str, other: str) -> bool:
        mine, theirs = await self._chats((one, other))
        both = [chat_id for chat_id in mine if chat_id in theirs]
        found = await bounded_gather(self._is_direct, both, at_once=limits.ENRICH_IN_PROGRESS_MAX)
        return any(found)

    async def _chats(self, user_ids: Sequence[str]) -> list[dict[str, None]]:
        async def chats_of(user_id: str) -> dict[str, None]:
            return dict.fromkeys(await self._catalog.chats_of(user_id, timeout_s=limits.API_TIMEOUT_S))

        return await bounded_gather(chats_of, user_ids, at_once=limits.ENRICH_IN_PROGRESS_MAX)

    async def _is_direct(self, chat_id: str) -> bool:
        chat = await self._catalog.chat(chat_id, timeout_s=limits.API_TIMEOUT_S)
        return chat is not None and chat.chat_type is ChatType.DIRECT

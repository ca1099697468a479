"""Who may come in: the current members of a chat, asked of the authority on every call.

Whoever is refused learns whether there is such a chat, and nothing else about it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from seriatim.domain import limits
from seriatim.domain.chat import Membership
from seriatim.domain.errors import NotAMember, NotFound, Refused
from seriatim.ports.catalog import Catalog


class ChatAccess:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    @asynccontextmanager
    async def require_member(self, chat_id: str, user_id: str) -> AsyncIterator[Membership]:
        """The caller's membership as of now. A caller who loses it before the work is done is refused all the same."""
        try:
            membership = await self._catalog.membership(chat_id, user_id, timeout_s=limits.API_TIMEOUT_S)
            if membership is None:
                raise NotAMember("you are not a member of this chat")
            yield membership
        except NotAMember:
            raise await self._refusal(chat_id) from None

    async def _refusal(self, chat_id: str) -> Refused:
        """The authority does not tell outsiders apart from strangers; REST clients are told."""
        if await self._catalog.chat(chat_id, timeout_s=limits.API_TIMEOUT_S) is None:
            return NotFound("there is no such chat")
        return NotAMember("you are not a member of this chat; ask its owner or an admin to add you")

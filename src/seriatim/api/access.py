"""Which callers may use a chat: its members, read from the catalog on every request.

A caller who is refused learns whether the chat exists, and nothing else about it.
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
        """The catalog does not say whether the chat exists; REST clients get 404 or 403."""
        if await self._catalog.chat(chat_id, timeout_s=limits.API_TIMEOUT_S) is None:
            return NotFound("there is no such chat")
        return NotAMember("you are not a member of this chat; ask its owner or an admin to add you")

"""Pieces of a chat's history, both ways, for members only. Nothing here shows anything above a hole."""

import msgspec

from seriatim.domain import limits
from seriatim.domain.message import Message
from seriatim.ports.durability import Durability, History

END = limits.SEQUENCE_MAX + 1  # before this is everything


class HistorySlice(msgspec.Struct, frozen=True, kw_only=True):
    """Messages in the order asked for. `more`: there are more that way, beyond `at`."""

    messages: tuple[Message, ...]
    more: bool
    at: int


class HistoryReader:
    """Every call raises `NotAMember` for who is no member when the data was read."""

    def __init__(self, durability: Durability, history: History) -> None:
        self._durability = durability
        self._history = history

    async def before(self, user_id: str, chat_id: str, *, before: int, after: int, limit: int) -> HistorySlice:
        """The newest messages between the two, both left out, descending."""
        page = await self._history.read_back(
            user_id, chat_id, before=before, after=after, limit=limit, timeout_s=limits.API_TIMEOUT_S
        )
        at = page.messages[-1].sequence if page.messages else before
        return HistorySlice(messages=page.messages, more=page.has_more, at=at)

    async def after(self, user_id: str, chat_id: str, *, after: int, before: int, limit: int) -> HistorySlice:
        """The oldest messages between the two, both left out, ascending. `after` is known to have no hole below it."""
        found: list[Message] = []
        at, slots = after, limit + 1
        for _ in range(limits.HISTORY_READS_MAX):
            page = await self._durability.read(user_id, chat_id, after=at, limit=slots, timeout_s=limits.API_TIMEOUT_S)
            found.extend(message for message in page.messages if message.sequence < before)
            if len(found) > limit:
                kept = tuple(found[:limit])
                return HistorySlice(messages=kept, more=True, at=kept[-1].sequence)
            if not page.has_more or page.through >= before - 1:
                return HistorySlice(messages=tuple(found), more=False, at=max(at, page.through))
            at, slots = page.through, limits.SYNC_SLOTS_MAX
        return HistorySlice(messages=tuple(found), more=True, at=at)

    async def newest(self, user_id: str, chat_id: str) -> Message | None:
        found = await self.before(user_id, chat_id, before=END, after=0, limit=1)
        return found.messages[0] if found.messages else None

    async def at(self, user_id: str, chat_id: str, sequence: int) -> Message | None:
        found = await self.before(user_id, chat_id, before=sequence + 1, after=sequence - 1, limit=1)
        return found.messages[0] if found.messages else None

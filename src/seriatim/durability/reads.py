"""Sync and history for members: the stable prefix, with membership checked after the data was read (delivery.md 6)."""

from seriatim.domain.errors import NotAMember
from seriatim.domain.message import Message
from seriatim.durability.patience import Deadline
from seriatim.durability.prefix import PrefixReader
from seriatim.ports.clock import Clock
from seriatim.ports.durability import PrefixPage
from seriatim.ports.message_log import MessageLog


class MemberReads:
    def __init__(self, log: MessageLog, prefix: PrefixReader, clock: Clock) -> None:
        self._log = log
        self._prefix = prefix
        self._clock = clock

    async def read(self, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float) -> PrefixPage:
        """The stable prefix above `after`. A cursor that nobody was given, as beyond the end, is corrected downwards.

        An outsider's request changes nothing: holes are sealed only after the reader was found to be a member, and
        then membership is checked again, since what is read must be checked after it was read.
        """
        deadline = Deadline(self._clock, self._clock.monotonic() + timeout_s)
        page, sealable = await self._page(chat_id, after, limit, deadline, sealing=False)
        await self._check_member(user_id, chat_id, deadline)
        if sealable:
            page, _ = await self._page(chat_id, after, limit, deadline, sealing=True)
            await self._check_member(user_id, chat_id, deadline)
        return page

    async def _page(
        self, chat_id: str, after: int, limit: int, deadline: Deadline, *, sealing: bool
    ) -> tuple[PrefixPage, bool]:
        """Reads from the cursor's own slot on: finding it filled proves the cursor, at no extra call."""
        own = 1 if after > 0 else 0
        prefix = await self._prefix.read(
            chat_id, after=after - own, limit=limit + own, deadline=deadline, sealing=sealing
        )
        if own and not prefix.slots:
            return await self._correction(chat_id, after, deadline), False
        messages = tuple(slot for slot in prefix.slots[own:] if isinstance(slot, Message))
        return PrefixPage(messages=messages, through=prefix.through, has_more=prefix.more), prefix.sealable

    async def _correction(self, chat_id: str, after: int, deadline: Deadline) -> PrefixPage:
        """Nobody was ever given this cursor: where to go on instead. Up to the published mark there is no hole.

        Not `has_more`: the reader asked for what lies above its cursor, and of that there is nothing.
        """
        standings = await self._log.standings([chat_id], timeout_s=deadline.room())
        published = standings[chat_id].published_through if chat_id in standings else 0
        end = await self._log.newest_message(chat_id, at_most=after, timeout_s=deadline.room())
        return PrefixPage(messages=(), through=min(end, published), has_more=False)

    async def _check_member(self, user_id: str, chat_id: str, deadline: Deadline) -> None:
        if await self._log.role(chat_id, user_id, timeout_s=deadline.room()) is None:
            raise NotAMember("you are not a member of this chat, or it does not exist")

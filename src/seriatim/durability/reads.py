"""Sync and history for members: the stable prefix, with membership checked after the data was read (H6)."""

from seriatim.domain import limits
from seriatim.domain.errors import NotAMember, ServiceUnavailable
from seriatim.domain.message import Message
from seriatim.durability.deadline import Deadline
from seriatim.durability.observer import DurabilityObserver
from seriatim.durability.stable_prefix import PrefixReader
from seriatim.ports.clock import Clock
from seriatim.ports.durability import BackPage, PrefixPage
from seriatim.ports.message_log import MessageLog


class MemberReads:
    def __init__(self, log: MessageLog, prefix: PrefixReader, clock: Clock, observe: DurabilityObserver) -> None:
        self._log = log
        self._prefix = prefix
        self._clock = clock
        self._observe = observe

    async def read(self, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float) -> PrefixPage:
        """The stable prefix above `after`. A cursor that was never given out, as beyond the end, is corrected.

        An outsider's request changes nothing: holes are sealed only after the reader was found to be a member, and
        then membership is checked again, since what is read must be checked after it was read.
        """
        deadline = Deadline(self._clock, self._clock.monotonic() + timeout_s)
        page, sealable = await self._page(chat_id, after, limit, deadline, sealing=False)
        await self._check_member(user_id, chat_id, deadline)
        if sealable:
            page, _ = await self._page(chat_id, after, limit, deadline, sealing=True)
            await self._check_member(user_id, chat_id, deadline)
        if page.through < after:
            self._observe.cursor_beyond_end(chat_id, after, page.through)
        return page

    async def read_back(
        self, user_id: str, chat_id: str, *, before: int, after: int, limit: int, mark: int, timeout_s: float
    ) -> BackPage:
        """The newest messages of the stable prefix between the two. `mark`: up to where the caller knows it published.

        Membership is checked first, because this may take many reads and close holes, and again after the data.
        """
        deadline = Deadline(self._clock, self._clock.monotonic() + timeout_s)
        await self._check_member(user_id, chat_id, deadline)
        head = await self._head(chat_id, mark, before, deadline)
        newest = await self._newest(chat_id, head, max(after, 0), limit + 1, deadline)
        await self._check_member(user_id, chat_id, deadline)
        return BackPage(messages=tuple(newest[:limit]), has_more=len(newest) > limit)

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
        """This cursor was never given out: where to go on instead. Up to the published mark there is no hole.

        Not `has_more`: the reader asked for what lies above its cursor, and of that there is nothing.
        """
        counters = await self._log.counters([chat_id], timeout_s=deadline.room())
        published = counters[chat_id].published_through if chat_id in counters else 0
        end = await self._log.newest_message(chat_id, at_most=after, timeout_s=deadline.room())
        return PrefixPage(messages=(), through=min(end, published), has_more=False)

    async def _head(self, chat_id: str, mark: int, before: int, deadline: Deadline) -> int:
        """The end of the stable prefix, as far as it lies below `before`: the published mark, or what follows it.

        What follows is little, unless nothing could be published for a long time. Then an error is better than a page
        that ends below what the reader has been sent.
        """
        if mark < before - 1:
            counters = await self._log.counters([chat_id], timeout_s=deadline.room())
            mark = max(mark, counters[chat_id].published_through) if chat_id in counters else mark
        for _ in range(limits.HEAD_PAGES_MAX):
            room = before - 1 - mark
            if room <= 0:
                return before - 1
            slots = min(room, limits.SYNC_SLOTS_MAX)
            prefix = await self._prefix.read(chat_id, after=mark, limit=slots, deadline=deadline)
            mark = prefix.through
            if not prefix.more:
                return mark
        raise ServiceUnavailable(
            "much of this chat is not settled yet; retry soon", retry_after_seconds=limits.HEAD_RETRY_S
        )

    async def _newest(self, chat_id: str, head: int, after: int, enough: int, deadline: Deadline) -> list[Message]:
        """Messages from `head` down to above `after`, until there are `enough`: tombstones may take further pages."""
        found: list[Message] = []
        at, size = head, min(enough, limits.READ_SLOTS_MAX)
        while at > after and len(found) < enough:
            slots = await self._prefix.read_back(chat_id, at=at, limit=size, deadline=deadline)
            if not slots:
                # An acknowledged commit is not visible to every query yet. It must not be taken for a gap.
                await deadline.pause(limits.HOLE_POLL_S)
                continue
            messages = [slot for slot in slots if isinstance(slot, Message) and slot.sequence > after]
            found.extend(messages)
            at = slots[-1].sequence - 1
            if not messages:
                size = limits.READ_SLOTS_MAX  # a long run of tombstones, as after a repair
        return found

    async def _check_member(self, user_id: str, chat_id: str, deadline: Deadline) -> None:
        if await self._log.role(chat_id, user_id, timeout_s=deadline.room()) is None:
            raise NotAMember("you are not a member of this chat, or it does not exist")

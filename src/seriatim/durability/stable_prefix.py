"""The stable prefix: readers see only the contiguous filled slots above their cursor.

The rules are docs/spec/delivery.md#stable-prefix. Slots are allocated and filled in two steps, so 42 can be stored
before 41. A client that was shown 42 first would lose 41, since it acknowledges cumulatively. Therefore no client is
shown anything above a hole. A hole that stays open is closed with a tombstone; since slots are written once, a
tombstone is as final as a message.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from seriatim.domain import limits
from seriatim.domain.backoff import backoff_s
from seriatim.domain.errors import Conflict, ServiceUnavailable, Throttled
from seriatim.domain.message import Sealed, Slot
from seriatim.domain.times import iso, milliseconds
from seriatim.durability.deadline import Deadline, retry_refused
from seriatim.durability.observer import DurabilityObserver
from seriatim.ports.clock import Clock
from seriatim.ports.message_log import MessageLog

_ROUNDS_MAX = 3  # reads per call: sealing makes a second one necessary, racing writers a third


class Prefix(msgspec.Struct, frozen=True, kw_only=True):
    """Contiguous slots above a cursor. `more`: the prefix goes on. `sealable`: it ends at a hole that may be closed."""

    slots: tuple[Slot, ...]
    through: int
    more: bool
    sealable: bool = False


class PrefixReader:
    """Reads and seals on behalf of one process."""

    def __init__(self, log: MessageLog, clock: Clock, observe: DurabilityObserver) -> None:
        self._log = log
        self._clock = clock
        self._observe = observe

    async def read(self, chat_id: str, *, after: int, limit: int, deadline: Deadline, sealing: bool = True) -> Prefix:
        """The stable prefix above `after`, at most `limit` slots, closing old holes on the way if `sealing`.

        A hole that cannot be closed now ends the prefix; it is no reason to refuse the read.
        """
        for attempt in range(_ROUNDS_MAX):
            page = await retry_refused(
                lambda room: self._log.read(chat_id, after=after, limit=limit + 1, timeout_s=room),
                deadline=deadline,
                clock=self._clock,
                observe=self._observe,
                reads=True,
            )
            run = contiguous(page.slots, after)
            if len(run) > limit:
                return Prefix(slots=run[:limit], through=run[limit - 1].sequence, more=True)
            prefix = Prefix(slots=run, through=run[-1].sequence if run else after, more=False)
            if len(run) == len(page.slots):
                return msgspec.structs.replace(prefix, more=page.more and bool(run))
            above = page.slots[len(run)]
            if not self._old(above):
                return prefix
            end = min(above.sequence, prefix.through + 1 + limits.SEALS_PER_READ_MAX)
            hole = range(prefix.through + 1, end)
            if not sealing or attempt == _ROUNDS_MAX - 1 or not await self._close(chat_id, hole, attempt, deadline):
                return msgspec.structs.replace(prefix, sealable=True)
        raise AssertionError("unreachable: the last round returns")

    async def read_back(self, chat_id: str, *, at: int, limit: int, deadline: Deadline) -> Sequence[Slot]:
        """Slots from `at` downwards without a hole, at most `limit`. `at` lies in the stable prefix, so there is none;
        but a commit may be seen in part for a moment.
        """
        page = await retry_refused(
            lambda room: self._log.read_back(chat_id, before=at + 1, limit=limit, timeout_s=room),
            deadline=deadline,
            clock=self._clock,
            observe=self._observe,
            reads=True,
        )
        return descending(page.slots, at)

    async def seal(self, chat_id: str, sequence: int, *, deadline: Deadline) -> Slot:
        """Closes a slot for good. Returns what it holds now: our tombstone, or whatever came first."""
        created_at = iso(self._clock.now_ms())
        holder = await self._log.seal(chat_id, sequence, created_at=created_at, timeout_s=deadline.room())
        if isinstance(holder, Sealed):
            self._observe.sealed(chat_id, sequence)
        return holder

    async def _close(self, chat_id: str, hole: range, attempt: int, deadline: Deadline) -> bool:
        """Tries to seal the slots of a hole. Whatever came of it, they are read again; False: no time is left for that.

        A conflict, for one, means that the slot's writer commits it at this moment.
        """
        pause = 0.0
        try:
            for sequence in hole:
                if not deadline.allows(0.0):
                    return False
                await self.seal(chat_id, sequence, deadline=deadline)
        except ServiceUnavailable as refusal:
            pause = self._pause_s(refusal, attempt)
        if not deadline.allows(pause):
            return False
        await asyncio.sleep(pause)
        return True

    def _pause_s(self, refusal: ServiceUnavailable, attempt: int) -> float:
        """ADR-009's pause for this refusal, with jitter."""
        if isinstance(refusal, Throttled):
            self._observe.refused_by_store("throttled")
            first_s, max_s = limits.THROTTLE_BACKOFF_S, limits.THROTTLE_BACKOFF_MAX_S
        else:
            if isinstance(refusal, Conflict):
                self._observe.refused_by_store("conflict")
            first_s, max_s = limits.CONFLICT_BACKOFF_S, limits.CONFLICT_BACKOFF_MAX_S
        return backoff_s(attempt, first_s=first_s, max_s=max_s, random=self._clock.random)

    def _old(self, slot: Slot) -> bool:
        return self._clock.now_ms() - milliseconds(slot.created_at) >= limits.SEAL_AFTER_S * 1000


def contiguous(slots: Sequence[Slot], after: int) -> tuple[Slot, ...]:
    """The slots that follow `after` without a hole."""
    for position, slot in enumerate(slots):
        if slot.sequence != after + 1 + position:
            return tuple(slots[:position])
    return tuple(slots)


def descending(slots: Sequence[Slot], at: int) -> Sequence[Slot]:
    """The slots from `at` downwards without a hole."""
    for position, slot in enumerate(slots):
        if slot.sequence != at - position:
            return slots[:position]
    return slots

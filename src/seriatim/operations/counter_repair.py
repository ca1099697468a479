"""Repair of a lost chat counter (docs/spec/delivery.md#counter-loss): a wrong value would hide messages.

The counter is rebuilt above every number that was ever visible: filled slots, published events, the watermarks of
members and former members. The slots between are sealed, so that readers skip them. Slots are write-once, so even a
wrong value cannot overwrite a message.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import msgspec

from seriatim.domain import events, limits
from seriatim.domain.errors import SeriatimError
from seriatim.domain.events import BadEvent, MessagePersisted
from seriatim.domain.message import Sealed
from seriatim.domain.sharding import partition as partition_of
from seriatim.domain.times import iso
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import MESSAGES, Partition
from seriatim.ports.event_trail import EventTrail
from seriatim.ports.message_log import CounterRepair, MessageLog


class RepairRefused(SeriatimError):
    """The repair would not be safe now; the message says what to wait for."""


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """What was found and done: `allocated` is the new counter, `sealed` the slots closed below it."""

    chat_id: str
    newest_slot: int
    published: int
    watermark: int
    allocated: int
    sealed: tuple[int, ...]


class RepairableLog(MessageLog, CounterRepair, Protocol):
    """A message log opened with the right to repair counters."""


class CounterRepairer:
    """`highest_published(chat_id)` answers from the event log: the highest sequence found there, 0 if none."""

    def __init__(self, log: RepairableLog, clock: Clock, *, highest_published: Callable[[str], int]) -> None:
        self._log = log
        self._clock = clock
        self._highest_published = highest_published

    async def repair(self, chat_id: str, *, margin: int = 0) -> Repair:
        """Refuses while the counter exists or slots still fill. The next message gets the highest number plus 1."""
        found = await self.examine(chat_id, margin=margin)
        sealed = await self._seal(chat_id, found.newest_slot + 1, found.allocated)
        created = await self._log.recover_counter(
            chat_id,
            allocated=found.allocated,
            published_through=found.published,
            published_message=found.published,  # the highest event is itself a message, the last at or below it
            members_version=self._clock.now_ms(),  # above every version counted up from 0, or from an earlier repair
            now_ms=self._clock.now_ms(),
            timeout_s=limits.STORE_TIMEOUT_S,
        )
        if not created:
            raise RepairRefused(f"the counter of {chat_id} came back meanwhile; it was left as it is")
        return msgspec.structs.replace(found, sealed=sealed)

    async def examine(self, chat_id: str, *, margin: int = 0) -> Repair:
        """What a repair would do, without a change: `sealed` stays empty."""
        newest = await self._quiet_newest(chat_id)
        published = self._highest_published(chat_id)
        watermark = await self._highest_watermark(chat_id)
        allocated = max(newest, published, watermark) + margin
        if allocated - newest > limits.REPAIR_SEALS_MAX:
            raise RepairRefused(
                f"{chat_id} would skip from slot {newest} to {allocated} (published {published}, watermark "
                f"{watermark}): one of these is wrong; correct it first"
            )
        return Repair(
            chat_id=chat_id,
            newest_slot=newest,
            published=published,
            watermark=watermark,
            allocated=allocated,
            sealed=(),
        )

    async def _quiet_newest(self, chat_id: str) -> int:
        """The newest slot, once nothing was filled for `RECOVERY_QUIET_S`: late transactions have landed by then."""
        if await self._log.counters([chat_id], timeout_s=limits.STORE_TIMEOUT_S):
            raise RepairRefused(f"the counter of {chat_id} exists; nothing to repair")
        before = await self._log.newest_slot(chat_id, timeout_s=limits.STORE_TIMEOUT_S)
        await asyncio.sleep(limits.RECOVERY_QUIET_S)
        newest = await self._log.newest_slot(chat_id, timeout_s=limits.STORE_TIMEOUT_S)
        if newest != before:
            raise RepairRefused(f"{chat_id} is still being written ({before} became {newest}); stop the writers first")
        return newest

    async def _highest_watermark(self, chat_id: str) -> int:
        """Of former members, too: one may come back, and its devices keep the messages with these numbers."""
        return await self._log.highest_watermark(chat_id, timeout_s=limits.WATERMARKS_SCAN_S)

    async def _seal(self, chat_id: str, first: int, last: int) -> tuple[int, ...]:
        """The skipped range is closed before the counter exists: readers never stop at a hole there."""
        sealed: list[int] = []
        for sequence in range(first, last + 1):
            holder = await self._log.seal(
                chat_id, sequence, created_at=iso(self._clock.now_ms()), timeout_s=limits.STORE_TIMEOUT_S
            )
            if isinstance(holder, Sealed):
                sealed.append(sequence)
        return tuple(sealed)


async def highest_published(trail: EventTrail, chat_id: str) -> int:
    """The highest sequence of this chat that the event log still has, 0 if none."""
    highest = 0
    place = Partition(MESSAGES, partition_of(chat_id, await trail.partitions(MESSAGES)))
    async for record in trail.events(place, since_ms=0):
        if record.key != chat_id.encode():
            continue
        with suppress(BadEvent):  # an unreadable event was shown to no client
            event = events.decode(record.key, record.value)
            if isinstance(event, MessagePersisted):
                highest = max(highest, event.message.sequence)
    return highest

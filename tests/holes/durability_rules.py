"""Rules of the durability plane whose loss only a story shows: the simulator has no mutant for them."""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown
from seriatim.domain.message import Draft, Receipt, Sealed, Slot
from seriatim.durability import atomic_commit, dedup, slots
from seriatim.durability.deadline import Deadline, retry_refused
from seriatim.durability.observer import DurabilityObserver
from seriatim.durability.reads import MemberReads
from seriatim.durability.slots import Job, Lease, SlotWriter
from seriatim.durability.stable_prefix import Prefix, PrefixReader
from seriatim.engines.embedded.atomic_store import EmbeddedAtomicStore, EmbeddedAtomicTransaction
from seriatim.engines.embedded.storage.writer import Writer
from seriatim.ports.clock import Clock
from seriatim.ports.durability import PrefixPage
from seriatim.ports.message_log import Cancelled, Entry, KeyTaken, SenderGone, SlotTaken
from seriatim.simulation.mutants.mutant import Patch
from seriatim.simulation.stores.message_log import MemoryMessageLog
from seriatim.simulation.stores.tables import TokenUse
from tests.holes.removed_rule import removes

T = TypeVar("T")


@removes("a hole is waited for or closed with a tombstone, however old it is", hole="H1")
def old_holes_are_skipped() -> Sequence[Patch]:
    """Waiting and then skipping, without a tombstone: what other event stores shipped."""

    async def skip(self: PrefixReader, chat_id: str, sequence: int, *, deadline: Deadline) -> Slot:
        return Sealed(chat_id=chat_id, sequence=sequence, created_at="2026-01-30T14:30:00.000Z")

    async def read(
        self: PrefixReader, chat_id: str, *, after: int, limit: int, deadline: Deadline, sealing: bool = True
    ) -> Prefix:
        page = await self._log.read(chat_id, after=after, limit=limit, timeout_s=deadline.room())
        shown: list[Slot] = []
        through = after
        for slot in page.slots:
            if slot.sequence != through + 1 and not self._old(slot):
                break
            shown.append(slot)
            through = slot.sequence
        return Prefix(slots=tuple(shown), through=through, more=False)

    return [(PrefixReader, "seal", skip), (PrefixReader, "read", read)]


@removes("an expired key is absent for a lookup", hole="H20")
def lookups_ignore_expiry() -> Sequence[Patch]:
    return [(dedup, "expired", lambda key, now_s: False), (atomic_commit, "expired", lambda key, now_s: False)]


@removes("an expired key is absent for the condition of a commit", hole="H20")
def the_commit_ignores_expiry() -> Sequence[Patch]:
    causes = MemoryMessageLog._causes

    def at_the_beginning_of_time(
        self: MemoryMessageLog, chat_id: str, commit: TokenUse, now_s: int
    ) -> list[KeyTaken | SlotTaken | SenderGone]:
        return causes(self, chat_id, commit, 0)

    return [(MemoryMessageLog, "_causes", at_the_beginning_of_time)]


@removes("the cause of a cancelled transaction is read from its reasons", hole="H21")
def every_cancellation_is_a_duplicate() -> Sequence[Patch]:
    def judge(
        cancelled: Cancelled, entries: Sequence[Entry], drafts: Sequence[tuple[Draft, str]]
    ) -> dedup.CancellationOutcome:
        settled: Mapping[int, dedup.Hit | dedup.Refusal] = {
            index: dedup.Hit(
                Receipt(
                    message_id=entry.message.message_id,
                    sequence=entry.message.sequence,
                    created_at=entry.message.created_at,
                    deduplicated=True,
                )
            )
            for index, entry in enumerate(entries)
        }
        return dedup.CancellationOutcome(dict(settled), (), ())

    return [(slots, "judge_cancelled", judge)]


@removes("an allocation whose outcome is unknown is not repeated", hole="H22")
def ambiguous_adds_are_repeated() -> Sequence[Patch]:
    async def stubbornly(
        call: Callable[[float], Awaitable[T]],
        *,
        deadline: Deadline,
        clock: Clock,
        observe: DurabilityObserver,
    ) -> T:
        while True:
            try:
                return await retry_refused(call, deadline=deadline, clock=clock, observe=observe)
            except OutcomeUnknown:
                continue

    return [(slots, "retry_refused", stubbornly)]


@removes("one deadline bounds all calls of a send", hole="H23")
def every_call_has_its_own_timeout() -> Sequence[Patch]:
    return [(Deadline, "room", lambda self, most_s=limits.STORE_TIMEOUT_S: 30.0)]


@removes("a page says how far it was read, tombstones included", hole="H24")
def the_cursor_is_the_last_message() -> Sequence[Patch]:
    page_of = MemberReads._page

    async def page(
        self: MemberReads, chat_id: str, after: int, limit: int, deadline: Deadline, *, sealing: bool
    ) -> tuple[PrefixPage, bool]:
        page, sealable = await page_of(self, chat_id, after, limit, deadline, sealing=sealing)
        through = page.messages[-1].sequence if page.messages else after
        return msgspec.structs.replace(page, through=through), sealable

    return [(MemberReads, "_page", page)]


@removes("a page says whether there is more", hole="H24")
def more_is_guessed_from_the_count() -> Sequence[Patch]:
    page_of = MemberReads._page

    async def page(
        self: MemberReads, chat_id: str, after: int, limit: int, deadline: Deadline, *, sealing: bool
    ) -> tuple[PrefixPage, bool]:
        page, sealable = await page_of(self, chat_id, after, limit, deadline, sealing=sealing)
        return msgspec.structs.replace(page, has_more=len(page.messages) == limit), sealable

    return [(MemberReads, "_page", page)]


@removes("drafts get ascending slots in the order in which they came", hole="H25")
def later_drafts_get_lower_slots() -> Sequence[Patch]:
    entries_of = SlotWriter._entries

    def entries(self: SlotWriter, group: Sequence[Job], lease: Lease) -> list[Entry]:
        backwards = deque(reversed([lease.free[index] for index in range(len(group))]))
        return entries_of(self, group, Lease(backwards, lease.members_version, lease.ends))

    return [(SlotWriter, "_entries", entries)]


@removes("an atomic commit reads no counter that lies below the slots of its chat", hole="H4")
def atomic_commit_trusts_any_counter() -> Sequence[Patch]:
    return [(EmbeddedAtomicStore, "verified", lambda self, chat_id, row: True)]


@removes("membership is a condition of the atomic commit", hole="H19")
def atomic_commit_checks_no_membership() -> Sequence[Patch]:
    return [(EmbeddedAtomicTransaction, "is_member", lambda self, chat_id, user_id: True)]


@removes("a deadline that passes during a sync ends the wait", hole="H23")
def a_sync_is_waited_for_beyond_the_deadline() -> Sequence[Patch]:
    return [(Writer, "_watch", lambda self, loop, deadline: None)]


@removes("an atomic commit begins only with enough time left", hole="H23")
def atomic_commit_begins_however_late() -> Sequence[Patch]:
    return [(limits, "ATTEMPT_ROOM_S", 0.0)]

"""The rules of docs/spec/delivery.md, each as the patch that takes it out of the durability plane or the store."""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
import pytest

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown
from seriatim.domain.message import Draft, Receipt, Sealed, Slot
from seriatim.durability import atomic_commit, dedup, slots
from seriatim.durability.deadline import Deadline, retry_refused
from seriatim.durability.observer import DurabilityObserver
from seriatim.durability.pipeline import ChatPipeline, Pending
from seriatim.durability.publish import ChatPublisher, PublishItem
from seriatim.durability.reads import MemberReads
from seriatim.durability.reconcile import Reconciler
from seriatim.durability.slots import Job, Lease, SlotWriter
from seriatim.durability.stable_prefix import Prefix, PrefixReader
from seriatim.durability.watermarks import Watermarks
from seriatim.operations.counter_repair import CounterRepairer
from seriatim.ports.clock import Clock
from seriatim.ports.durability import PrefixPage
from seriatim.ports.message_log import Cancelled, Entry, Key, KeyTaken, SenderGone, SlotTaken
from seriatim.simulation.stores.message_log import MemoryMessageLog
from seriatim.simulation.stores.tables import TokenUse

T = TypeVar("T")


# --- H1: late commit -----------------------------------------------------------------------------------------------


def readers_ignore_holes(patch: pytest.MonkeyPatch) -> None:
    async def read(
        self: PrefixReader, chat_id: str, *, after: int, limit: int, deadline: Deadline, sealing: bool = True
    ) -> Prefix:
        page = await self._log.read(chat_id, after=after, limit=limit, timeout_s=deadline.room())
        return Prefix(slots=page.slots, through=page.slots[-1].sequence if page.slots else after, more=False)

    patch.setattr(PrefixReader, "read", read)


def old_holes_are_skipped(patch: pytest.MonkeyPatch) -> None:
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

    patch.setattr(PrefixReader, "seal", skip)
    patch.setattr(PrefixReader, "read", read)


# --- H3: publish order ---------------------------------------------------------------------------------------------


def each_publishes_only_its_own(patch: pytest.MonkeyPatch) -> None:
    def next_own(self: ChatPublisher) -> list[PublishItem]:
        return [self._own[sequence] for sequence in sorted(self._own)]

    patch.setattr(ChatPublisher, "_next_own", next_own)


# --- H4: overwrite -------------------------------------------------------------------------------------------------


def slots_are_put_unconditionally(patch: pytest.MonkeyPatch) -> None:
    _without(patch, SlotTaken)


# --- H5: counter restored below the watermarks ---------------------------------------------------------------------


def repair_ignores_watermarks(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: CounterRepairer, chat_id: str) -> int:
        return 0

    patch.setattr(CounterRepairer, "_highest_watermark", nothing)


# --- H6: unauthorised reads and acks -------------------------------------------------------------------------------


def membership_is_checked_before_the_read(patch: pytest.MonkeyPatch) -> None:
    async def read(
        self: MemberReads, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float
    ) -> PrefixPage:
        deadline = Deadline(self._clock, self._clock.monotonic() + timeout_s)
        await self._check_member(user_id, chat_id, deadline)
        return (await self._page(chat_id, after, limit, deadline, sealing=True))[0]

    patch.setattr(MemberReads, "read", read)


def membership_of_readers_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    async def anyone(self: MemberReads, user_id: str, chat_id: str, deadline: Deadline) -> None:
        return

    patch.setattr(MemberReads, "_check_member", anyone)


# --- H7: a hit acknowledged, never published -----------------------------------------------------------------------


def hits_pass_the_ack_gate(patch: pytest.MonkeyPatch) -> None:
    gate = ChatPipeline._answer_published

    async def answer(
        self: ChatPipeline, batch: Sequence[Pending], receipts: dict[int, Receipt], deadline: Deadline
    ) -> None:
        for index, receipt in receipts.items():
            if receipt.deduplicated:
                batch[index].answer(receipt)
        new = {index: receipt for index, receipt in receipts.items() if not receipt.deduplicated}
        if new:
            await gate(self, batch, new, deadline)

    patch.setattr(ChatPipeline, "_answer_published", answer)


# --- H8: the sender is gone after storing --------------------------------------------------------------------------


def nobody_reconciles(patch: pytest.MonkeyPatch) -> None:
    async def sweep(self: Reconciler) -> None:
        return

    patch.setattr(Reconciler, "sweep", sweep)


# --- H14: a key not bound to its sender ----------------------------------------------------------------------------


def keys_belong_to_nobody(patch: pytest.MonkeyPatch) -> None:
    judge_key = dedup.judge_key

    def of_anyone(draft: Draft, digest: str, key: Key, *, member: bool) -> dedup.Hit | dedup.Refusal:
        return judge_key(msgspec.structs.replace(draft, sender_id=key.sender_id), digest, key, member=member)

    patch.setattr(dedup, "judge_key", of_anyone)
    patch.setattr(atomic_commit, "judge_key", of_anyone)


# --- H15: ack beyond the end ---------------------------------------------------------------------------------------


def acks_are_unbounded(patch: pytest.MonkeyPatch) -> None:
    async def bound(self: Watermarks, chat_id: str, sequence: int, deadline: Deadline) -> int:
        return sequence

    patch.setattr(Watermarks, "bound", bound)


# --- H19: removed between check and commit -------------------------------------------------------------------------


def the_commit_checks_no_membership(patch: pytest.MonkeyPatch) -> None:
    _without(patch, SenderGone)


# --- H20: lazy expiry ----------------------------------------------------------------------------------------------


def lookups_ignore_expiry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dedup, "expired", lambda key, now_s: False)
    patch.setattr(atomic_commit, "expired", lambda key, now_s: False)


def the_commit_ignores_expiry(patch: pytest.MonkeyPatch) -> None:
    causes = MemoryMessageLog._causes

    def at_the_beginning_of_time(
        self: MemoryMessageLog, chat_id: str, commit: TokenUse, now_s: int
    ) -> list[KeyTaken | SlotTaken | SenderGone]:
        return causes(self, chat_id, commit, 0)

    patch.setattr(MemoryMessageLog, "_causes", at_the_beginning_of_time)


# --- H21: the wrong branch -----------------------------------------------------------------------------------------


def every_cancellation_is_a_duplicate(patch: pytest.MonkeyPatch) -> None:
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

    patch.setattr(slots, "judge_cancelled", judge)


# --- H22: hidden retry of ADD --------------------------------------------------------------------------------------


def ambiguous_adds_are_repeated(patch: pytest.MonkeyPatch) -> None:
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

    patch.setattr(slots, "retry_refused", stubbornly)


# --- H23: nested timeouts ------------------------------------------------------------------------------------------


def every_call_has_its_own_timeout(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Deadline, "room", lambda self, most_s=limits.STORE_TIMEOUT_S: 30.0)


# --- H24: paging ---------------------------------------------------------------------------------------------------


def the_cursor_is_the_last_message(patch: pytest.MonkeyPatch) -> None:
    page_of = MemberReads._page

    async def page(
        self: MemberReads, chat_id: str, after: int, limit: int, deadline: Deadline, *, sealing: bool
    ) -> tuple[PrefixPage, bool]:
        page, sealable = await page_of(self, chat_id, after, limit, deadline, sealing=sealing)
        through = page.messages[-1].sequence if page.messages else after
        return msgspec.structs.replace(page, through=through), sealable

    patch.setattr(MemberReads, "_page", page)


def more_is_guessed_from_the_count(patch: pytest.MonkeyPatch) -> None:
    page_of = MemberReads._page

    async def page(
        self: MemberReads, chat_id: str, after: int, limit: int, deadline: Deadline, *, sealing: bool
    ) -> tuple[PrefixPage, bool]:
        page, sealable = await page_of(self, chat_id, after, limit, deadline, sealing=sealing)
        return msgspec.structs.replace(page, has_more=len(page.messages) == limit), sealable

    patch.setattr(MemberReads, "_page", page)


# --- H25: one sender's order ---------------------------------------------------------------------------------------


def the_queue_is_a_stack(patch: pytest.MonkeyPatch) -> None:
    take = ChatPipeline._take

    def from_the_other_end(self: ChatPipeline) -> list[Pending]:
        self._queue.reverse()
        return take(self)

    patch.setattr(ChatPipeline, "_take", from_the_other_end)


def later_drafts_get_lower_slots(patch: pytest.MonkeyPatch) -> None:
    entries_of = SlotWriter._entries

    def entries(self: SlotWriter, group: Sequence[Job], lease: Lease) -> list[Entry]:
        backwards = deque(reversed([lease.free[index] for index in range(len(group))]))
        return entries_of(self, group, Lease(backwards, lease.members_version, lease.ends))

    patch.setattr(SlotWriter, "_entries", entries)


def _without(patch: pytest.MonkeyPatch, condition: type[KeyTaken] | type[SlotTaken] | type[SenderGone]) -> None:
    """The store's transaction without one of its conditions."""
    causes = MemoryMessageLog._causes

    def weaker(
        self: MemoryMessageLog, chat_id: str, commit: TokenUse, now_s: int
    ) -> list[KeyTaken | SlotTaken | SenderGone]:
        return [cause for cause in causes(self, chat_id, commit, now_s) if not isinstance(cause, condition)]

    patch.setattr(MemoryMessageLog, "_causes", weaker)

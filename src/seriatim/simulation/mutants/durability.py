"""Mutants of the pipeline: how drafts are stored, published, read and refused."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from seriatim.domain import limits
from seriatim.domain.message import Draft, Receipt, Slot
from seriatim.durability import atomic_commit, dedup, slots, stable_prefix
from seriatim.durability.deadline import Deadline
from seriatim.durability.ingest import Ingest
from seriatim.durability.pipeline import ChatPipeline, Pending
from seriatim.durability.publish import ChatPublisher, PublishItem
from seriatim.durability.reads import MemberReads
from seriatim.durability.reconcile import Reconciler
from seriatim.durability.slots import Lease, SlotWriter
from seriatim.durability.stable_prefix import PrefixReader
from seriatim.operations.counter_repair import CounterRepairer
from seriatim.ports.durability import PrefixPage
from seriatim.ports.message_log import ChatCounter, Entry, Key, KeyTaken, SenderGone, SlotTaken
from seriatim.simulation.mutants.mutant import Patch, removes
from seriatim.simulation.stores.message_log import MemoryMessageLog


@removes("readers stop at the first missing slot", hole="H1", profile="store")
def reader_ignores_holes() -> Sequence[Patch]:
    def contiguous(slots: Sequence[Slot], after: int) -> tuple[Slot, ...]:
        return tuple(slots)

    return [(stable_prefix, "contiguous", contiguous)]


@removes("a hole that stays open is closed with a tombstone", hole="H1", profile="store")
def no_sealing() -> Sequence[Patch]:
    async def close_hole(self: ChatPublisher, deadline: Deadline) -> list[PublishItem]:
        return []

    return [(PrefixReader, "_old", lambda self, slot: False), (ChatPublisher, "_close_hole", close_hole)]


@removes("a hole that cannot be closed now is read again, and ends a page at most", hole="H1", profile="store")
def refused_seal_fails_its_reader() -> Sequence[Patch]:
    async def close(self: PrefixReader, chat_id: str, hole: range, attempt: int, deadline: Deadline) -> bool:
        for sequence in hole:
            await self.seal(chat_id, sequence, deadline=deadline)
        return True

    async def close_hole(self: ChatPublisher, deadline: Deadline) -> list[PublishItem]:
        return await self._foreign([await self._prefix.seal(self.chat_id, self.mark + 1, deadline=deadline)], deadline)

    return [(PrefixReader, "_close", close), (ChatPublisher, "_close_hole", close_hole)]


def _ignoring(*kinds: type) -> Sequence[Patch]:
    original = MemoryMessageLog._causes

    def causes(self: MemoryMessageLog, *args: Any) -> list[KeyTaken | SlotTaken | SenderGone]:
        return [cause for cause in original(self, *args) if not isinstance(cause, kinds)]

    return [(MemoryMessageLog, "_causes", causes)]


@removes("a slot is written only if it is empty", hole="H4", profile="store")
def unconditional_put() -> Sequence[Patch]:
    return _ignoring(SlotTaken)


@removes("a key that is there means the message is there", hole="H7", profile="network")
def no_idempotency_key() -> Sequence[Patch]:
    return [*_ignoring(KeyTaken), (dedup, "expired", lambda key, now_s: True)]


@removes("a key answers only the sender who made it", hole="H14", profile="calm")
def key_not_bound_to_sender() -> Sequence[Patch]:
    original = dedup.judge_key

    def judge_key(draft: Draft, digest: str, key: Key, *, member: bool) -> dedup.Hit | dedup.Refusal:
        return original(draft, digest, msgspec.structs.replace(key, sender_id=draft.sender_id), member=member)

    return [(dedup, "judge_key", judge_key), (atomic_commit, "judge_key", judge_key)]


@removes("membership is a condition of the transaction, not of an earlier read", hole="H19", profile="members")
def membership_checked_early() -> Sequence[Patch]:
    return _ignoring(SenderGone)


@removes("a key lives for the whole of its time, in both ways to commit", hole="H20", profile="embedded", seeds=200)
def key_ends_early() -> Sequence[Patch]:
    def floored(created_ms: int) -> int:
        return created_ms // 1000 + limits.KEY_LIFETIME_S

    return [(atomic_commit, "key_expires_at_s", floored), (slots, "key_expires_at_s", floored)]


@removes("after an ambiguous commit the slot itself is read", hole="H1", profile="store")
def resolve_assumes_committed() -> Sequence[Patch]:
    async def resolve(self: SlotWriter, first: Entry, lease: Lease, deadline: Deadline) -> bool:
        return True

    return [(SlotWriter, "_resolve", resolve)]


@removes("drafts keep the order in which they came", hole="H25", profile="calm")
def batch_reversed() -> Sequence[Patch]:
    original = ChatPipeline._take

    def take(self: ChatPipeline) -> list[Pending]:
        return original(self)[::-1]

    return [(ChatPipeline, "_take", take)]


@removes("a retry is acked only once its message is published", hole="H7", profile="events")
def hit_acked_without_publish() -> Sequence[Patch]:
    original = ChatPipeline._answer_published

    async def answer(
        self: ChatPipeline, batch: Sequence[Pending], receipts: dict[int, Receipt], deadline: Deadline
    ) -> None:
        for index, receipt in receipts.items():
            if receipt.deduplicated:
                batch[index].answer(receipt)
        fresh = {index: receipt for index, receipt in receipts.items() if not receipt.deduplicated}
        if fresh:
            await original(self, batch, fresh, deadline)

    return [(ChatPipeline, "_answer_published", answer)]


@removes("no ack above the published mark", hole="H7", profile="events")
def ack_before_publish() -> Sequence[Patch]:
    original = ChatPipeline._answer_published

    async def answer(
        self: ChatPipeline, batch: Sequence[Pending], receipts: dict[int, Receipt], deadline: Deadline
    ) -> None:
        for index, receipt in receipts.items():
            batch[index].answer(receipt)
        await original(self, batch, receipts, deadline)

    return [(ChatPipeline, "_answer_published", answer)]


@removes("everything below n is published before n", hole="H3", profile="store")
def publish_only_own() -> Sequence[Patch]:
    def next_own(self: ChatPublisher) -> list[PublishItem]:
        return [self._own[sequence] for sequence in sorted(self._own)][:1]

    return [(ChatPublisher, "_next_own", next_own)]


@removes(
    "after adopting another owner's mark, the last own message is not the predecessor", hole="H2", profile="network"
)
def stale_prev_sequence() -> Sequence[Patch]:
    def adopt(self: ChatPublisher, mark: int, last_message: int | None) -> None:
        if mark > self.mark:
            self.mark = mark
            self.last_message = last_message if self.last_message is None else self.last_message
            self._own = {sequence: out for sequence, out in self._own.items() if sequence > mark}

    return [(ChatPublisher, "adopt", adopt)]


@removes("chats left unpublished are settled without a retry by a client", hole="H8", profile="crashes")
def no_reconciler() -> Sequence[Patch]:
    async def sweep(self: Reconciler) -> None:
        return

    return [(Reconciler, "sweep", sweep)]


@removes("a chat is clean only once everything in it is published", hole="H8", profile="crashes")
def reconciler_flushes_unpublished() -> Sequence[Patch]:
    async def settle(self: Reconciler, chat_id: str, deadline: Deadline) -> bool:
        counter = (await self._log.counters([chat_id], timeout_s=deadline.room())).get(chat_id)
        return counter is not None and await self._log.flush(
            chat_id, published_through=counter.allocated, published_message=None, timeout_s=deadline.room()
        )

    return [(Reconciler, "settle", settle)]


@removes("one deadline rules every wait", hole="H23", profile="events")
def deadline_ignored() -> Sequence[Patch]:
    def room(self: Deadline, most_s: float = limits.STORE_TIMEOUT_S) -> float:
        return most_s

    return [(Deadline, "room", room)]


@removes("a lost counter is rebuilt above every number that was ever seen", hole="H5", profile="counter")
def repair_from_slots_alone() -> Sequence[Patch]:
    """A counter rebuilt below what members have seen: the messages that come then are invisible to them."""
    original = CounterRepairer.__init__

    def begin(self: CounterRepairer, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **{**kwargs, "highest_published": lambda chat_id: 0})

    async def highest_watermark(self: CounterRepairer, chat_id: str) -> int:
        return 0

    return [(CounterRepairer, "__init__", begin), (CounterRepairer, "_highest_watermark", highest_watermark)]


@removes("only members read", hole="H6", profile="members")
def reads_unauthorised() -> Sequence[Patch]:
    async def check(self: MemberReads, user_id: str, chat_id: str, deadline: Deadline) -> None:
        return

    return [(MemberReads, "_check_member", check)]


@removes("membership is checked after the data was read", hole="H6", profile="churn")
def reads_checked_before() -> Sequence[Patch]:
    async def read(
        self: MemberReads, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float
    ) -> PrefixPage:
        deadline = Deadline(self._clock, self._clock.monotonic() + timeout_s)
        await self._check_member(user_id, chat_id, deadline)
        page, _ = await self._page(chat_id, after, limit, deadline, sealing=True)
        return page

    return [(MemberReads, "read", read)]


@removes("a row that cannot be read hides the head of its own chat only", hole="H9")
def heads_share_damage() -> Sequence[Patch]:
    async def counters(self: Ingest, chat_ids: Sequence[str], deadline: Deadline) -> Mapping[str, ChatCounter]:
        return await self._log.counters(chat_ids, timeout_s=deadline.room())

    return [(Ingest, "_counters", counters)]

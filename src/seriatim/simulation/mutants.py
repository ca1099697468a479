"""The system with one rule taken out, once per rule. A check that notices none of them would prove nothing.

Each mutant patches named functions of the real code for the length of a schedule. It must be caught within `budget`
seeds of its profile; `seriatim simulate --mutant all` shows by which invariant.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from seriatim.connection.chat_cursor import ChatCursor, Held, Phase
from seriatim.connection.outbound import Outbound
from seriatim.connection.probe import Probe
from seriatim.connection.registration import Registrations
from seriatim.domain.message import Draft, Receipt, Slot
from seriatim.durability import prefix, verdicts
from seriatim.durability.patience import Deadline
from seriatim.durability.pipeline import ChatPipeline, Pending
from seriatim.durability.prefix import PrefixReader
from seriatim.durability.publish import ChatPublisher, Outgoing
from seriatim.durability.receipts import Receipts
from seriatim.durability.reconcile import Reconciler
from seriatim.engines.memory.message_log import MemoryMessageLog
from seriatim.fanout import recipients
from seriatim.fanout.worker import PartitionWorker
from seriatim.ports.event_log import Record
from seriatim.ports.message_log import Key, KeyTaken, SenderGone, SlotTaken
from seriatim.protocol.timeline import Timeline
from seriatim.simulation.tight import BUFFER_FRAMES

Patch = tuple[object, str, object]


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """`hole`: the story of delivery.md section 1 that it retells."""

    name: str
    removes: str
    hole: str
    patches: Callable[[], Sequence[Patch]]
    profile: str = "mixed"
    budget: int = 2000

    @contextmanager
    def apply(self) -> Iterator[None]:
        before: list[Patch] = []
        try:
            for owner, name, replacement in self.patches():
                before.append((owner, name, getattr(owner, name)))
                setattr(owner, name, replacement)
            yield
        finally:
            for owner, name, original in reversed(before):
                setattr(owner, name, original)


# --- reading --------------------------------------------------------------------------------------------------------


def reader_ignores_holes() -> Sequence[Patch]:
    def contiguous(slots: Sequence[Slot], after: int) -> tuple[Slot, ...]:
        return tuple(slots)

    return [(prefix, "contiguous", contiguous)]


def no_sealing() -> Sequence[Patch]:
    async def close_hole(self: ChatPublisher, deadline: Deadline) -> list[Outgoing]:
        return []

    return [(PrefixReader, "_old", lambda self, slot: False), (ChatPublisher, "_close_hole", close_hole)]


# --- storing --------------------------------------------------------------------------------------------------------


def _ignoring(*kinds: type) -> Sequence[Patch]:
    original = MemoryMessageLog._causes

    def causes(self: MemoryMessageLog, *args: Any) -> list[KeyTaken | SlotTaken | SenderGone]:
        return [cause for cause in original(self, *args) if not isinstance(cause, kinds)]

    return [(MemoryMessageLog, "_causes", causes)]


def unconditional_put() -> Sequence[Patch]:
    return _ignoring(SlotTaken)


def no_idempotency_key() -> Sequence[Patch]:
    return [*_ignoring(KeyTaken), (verdicts, "expired", lambda key, now_s: True)]


def membership_checked_early() -> Sequence[Patch]:
    return _ignoring(SenderGone)


def key_not_bound_to_sender() -> Sequence[Patch]:
    original = verdicts.judge_key

    def judge_key(draft: Draft, digest: str, key: Key, *, member: bool) -> verdicts.Hit | verdicts.Refusal:
        return original(draft, digest, msgspec.structs.replace(key, sender_id=draft.sender_id), member=member)

    return [(verdicts, "judge_key", judge_key)]


# --- publishing -----------------------------------------------------------------------------------------------------


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


def ack_before_publish() -> Sequence[Patch]:
    original = ChatPipeline._answer_published

    async def answer(
        self: ChatPipeline, batch: Sequence[Pending], receipts: dict[int, Receipt], deadline: Deadline
    ) -> None:
        for index, receipt in receipts.items():
            batch[index].answer(receipt)
        await original(self, batch, receipts, deadline)

    return [(ChatPipeline, "_answer_published", answer)]


def publish_only_own() -> Sequence[Patch]:
    def next_own(self: ChatPublisher) -> list[Outgoing]:
        return [self._own[sequence] for sequence in sorted(self._own)][:1]

    return [(ChatPublisher, "_next_own", next_own)]


def stale_prev_sequence() -> Sequence[Patch]:
    def adopt(self: ChatPublisher, mark: int, last_message: int | None) -> None:
        if mark > self.mark:
            self.mark = mark
            self.last_message = last_message if self.last_message is None else self.last_message
            self._own = {sequence: out for sequence, out in self._own.items() if sequence > mark}

    return [(ChatPublisher, "adopt", adopt)]


def no_reconciler() -> Sequence[Patch]:
    async def sweep(self: Reconciler) -> None:
        return

    return [(Reconciler, "sweep", sweep)]


# --- delivering -----------------------------------------------------------------------------------------------------


def naive_gateway() -> Sequence[Patch]:
    return [(ChatCursor, "fits", lambda self, prev_sequence: True)]


def no_tail_probe() -> Sequence[Patch]:
    async def look(self: Probe) -> None:
        return

    return [(Probe, "look", look)]


def live_overtakes_sync() -> Sequence[Patch]:
    def pushed(self: ChatCursor, sequence: int, prev_sequence: int | None, frame: bytes) -> None:
        self.delivered = sequence - 1
        self.phase = Phase.LIVE
        self._held[sequence] = Held(self.delivered, frame)

    return [(ChatCursor, "pushed_while_syncing", pushed)]


def own_ack_advances() -> Sequence[Patch]:
    def own(self: ChatCursor, sequence: int, prev_sequence: int | None) -> None:
        self.delivered = max(self.delivered, sequence)
        self.highest = max(self.highest, sequence)

    def place_own(self: Timeline, message: Any) -> list[Any]:
        return self._extend([message], message.sequence) if message.sequence > self.cursor else []

    return [(ChatCursor, "own", own), (Timeline, "place_own", place_own)]


def ack_unclamped() -> Sequence[Patch]:
    async def bound(self: Receipts, chat_id: str, sequence: int, deadline: Deadline) -> int:
        return sequence

    return [(ChatCursor, "clamp", lambda self, sequence: sequence), (Receipts, "bound", bound)]


def full_buffer_drops() -> Sequence[Patch]:
    original = Outbound.push

    def push(self: Outbound, frame: bytes, chat_id: str, floor: int) -> bool:
        original(self, frame, chat_id, floor)
        self.lagging = False
        return True

    def bounded(self: Outbound, frame: bytes, chat_id: str, floor: int) -> bool:
        return push(self, frame, chat_id, floor) if len(self._pushes) < BUFFER_FRAMES else True

    return [(Outbound, "push", bounded)]


def unbounded_buffer() -> Sequence[Patch]:
    original = Outbound.push

    def push(self: Outbound, frame: bytes, chat_id: str, floor: int) -> bool:
        queued = original(self, frame, chat_id, floor)
        self.lagging = False
        return queued

    return [(Outbound, "push", push)]


def expire_only_heartbeat() -> Sequence[Patch]:
    original = Registrations.renew

    async def renew(self: Registrations) -> None:
        """EXPIRE does nothing for a key that is gone."""
        everything = self._ours
        users = list(dict.fromkeys(each.user_id for each in everything.values()))
        try:
            found = await self._directory.connections(users, timeout_s=1.0) if users else {}
        except Exception:
            return
        alive = [each.connection_id for registrations in found.values() for each in registrations]
        self._ours = {name: each for name, each in everything.items() if name in alive}
        try:
            await original(self)
        finally:
            self._ours = everything

    return [(Registrations, "renew", renew)]


# --- fanning out ----------------------------------------------------------------------------------------------------


def cache_without_version() -> Sequence[Patch]:
    return [(recipients, "usable", lambda cached, event_version: bool(cached.user_ids))]


def skip_senders_devices() -> Sequence[Patch]:
    return [(recipients, "excluded", lambda registration, event: registration.user_id == event.message.sender_id)]


def commit_before_processing() -> Sequence[Patch]:
    async def process(self: PartitionWorker, record: Record) -> bool:
        self._next_offset = record.offset + 1
        await self.commit()
        if not await self.settle(record):
            return False
        self.advance(record)
        return True

    return [(PartitionWorker, "process", process)]


def poison_skipped() -> Sequence[Patch]:
    async def recover(self: PartitionWorker, record: Record, error: Exception, attempts: int) -> bool:
        return True

    return [(PartitionWorker, "recover", recover)]


_ALL = (
    Mutant(
        name="reader-ignores-holes",
        removes="readers stop at the first missing slot",
        hole="H1",
        patches=reader_ignores_holes,
        profile="store",
    ),
    Mutant(
        name="no-sealing",
        removes="a hole that stays open is closed with a tombstone",
        hole="H1",
        patches=no_sealing,
        profile="store",
    ),
    Mutant(
        name="unconditional-put",
        removes="a slot is written only if it is empty",
        hole="H4",
        patches=unconditional_put,
        profile="store",
    ),
    Mutant(
        name="no-idempotency-key",
        removes="a key that is there means the message is there",
        hole="H7",
        patches=no_idempotency_key,
        profile="network",
    ),
    Mutant(
        name="key-not-bound-to-sender",
        removes="a key answers only the sender who made it",
        hole="H14",
        patches=key_not_bound_to_sender,
        profile="calm",
    ),
    Mutant(
        name="membership-checked-early",
        removes="membership is a condition of the transaction, not of an earlier read",
        hole="H19",
        patches=membership_checked_early,
        profile="members",
    ),
    Mutant(
        name="hit-acked-without-publish",
        removes="a retry is acked only once its message is published",
        hole="H7",
        patches=hit_acked_without_publish,
        profile="events",
    ),
    Mutant(
        name="ack-before-publish",
        removes="no ack above the published mark",
        hole="H7",
        patches=ack_before_publish,
        profile="events",
    ),
    Mutant(
        name="publish-only-own",
        removes="everything below n is published before n",
        hole="H3",
        patches=publish_only_own,
        profile="store",
    ),
    Mutant(
        name="stale-prev-sequence",
        removes="after adopting another owner's mark, our own last message is not the predecessor",
        hole="H2",
        patches=stale_prev_sequence,
        profile="network",
    ),
    Mutant(
        name="no-reconciler",
        removes="chats left unpublished are settled without anyone's retry",
        hole="H8",
        patches=no_reconciler,
        profile="crashes",
    ),
    Mutant(
        name="naive-gateway",
        removes="a push goes out only if the one before it did",
        hole="H2",
        patches=naive_gateway,
        profile="redis",
    ),
    Mutant(
        name="no-tail-probe",
        removes="gateways look for lost last pushes",
        hole="H9",
        patches=no_tail_probe,
        profile="redis",
    ),
    Mutant(
        name="live-overtakes-sync",
        removes="live messages wait until the sync is through",
        hole="H16",
        patches=live_overtakes_sync,
        profile="network",
    ),
    Mutant(
        name="own-ack-advances",
        removes="an own ack does not count as having received what lies below it",
        hole="H18",
        patches=own_ack_advances,
        profile="network",
    ),
    Mutant(
        name="ack-unclamped",
        removes="a watermark is bounded by what was sent and by what is stored",
        hole="H15",
        patches=ack_unclamped,
    ),
    Mutant(
        name="full-buffer-drops",
        removes="a push without room is read back later",
        hole="H17",
        patches=full_buffer_drops,
        profile="slow",
    ),
    Mutant(
        name="unbounded-buffer",
        removes="a full buffer takes nothing more",
        hole="H17",
        patches=unbounded_buffer,
        profile="slow",
    ),
    Mutant(
        name="expire-only-heartbeat",
        removes="every heartbeat registers anew",
        hole="H9",
        patches=expire_only_heartbeat,
        profile="redis",
    ),
    Mutant(
        name="cache-without-version",
        removes="a member list older than the event is not used",
        hole="H11",
        patches=cache_without_version,
        profile="members",
    ),
    Mutant(
        name="skip-senders-devices",
        removes="the sender's other devices get the message too",
        hole="H18",
        patches=skip_senders_devices,
    ),
    Mutant(
        name="commit-before-processing",
        removes="an offset is committed after its record was handled",
        hole="H12",
        patches=commit_before_processing,
        profile="crashes",
    ),
    Mutant(
        name="poison-skipped",
        removes="a record that cannot be read is buried before it is passed",
        hole="H13",
        patches=poison_skipped,
    ),
)

MUTANTS: Mapping[str, Mutant] = {mutant.name: mutant for mutant in _ALL}

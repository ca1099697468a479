"""The rules of the system, each taken out by replacing a few named functions of the real code. See `mutants`."""

from collections.abc import Sequence
from typing import Any

import msgspec

from seriatim.client.timeline import Timeline
from seriatim.connection.head_probe import HeadProbe
from seriatim.connection.registrations import Registrations
from seriatim.connection.session.chat_cursor import ChatCursor, CursorPhase, HeldMessage
from seriatim.connection.session.outbound import OutboundBuffer
from seriatim.domain.events import MessagePersisted
from seriatim.domain.message import Draft, Receipt, Slot
from seriatim.durability import dedup, stable_prefix
from seriatim.durability.deadline import Deadline
from seriatim.durability.pipeline import ChatPipeline, Pending
from seriatim.durability.publish import ChatPublisher, Outgoing
from seriatim.durability.reconcile import Reconciler
from seriatim.durability.stable_prefix import PrefixReader
from seriatim.durability.watermarks import Receipts
from seriatim.engines.shared.consumer_group import Orders
from seriatim.fanout import recipients
from seriatim.fanout.partition_worker import PartitionWorker
from seriatim.ports.directory import Registration
from seriatim.ports.event_log import Partition, RebalanceListener, Record
from seriatim.ports.message_log import Key, KeyTaken, SenderGone, SlotTaken
from seriatim.simulation.stores.event_reader import MemoryEventReader
from seriatim.simulation.stores.message_log import MemoryMessageLog
from seriatim.simulation.tight_limits import buffer_limit

Patch = tuple[object, str, object]

# --- reading --------------------------------------------------------------------------------------------------------


def reader_ignores_holes() -> Sequence[Patch]:
    def contiguous(slots: Sequence[Slot], after: int) -> tuple[Slot, ...]:
        return tuple(slots)

    return [(stable_prefix, "contiguous", contiguous)]


def no_sealing() -> Sequence[Patch]:
    async def close_hole(self: ChatPublisher, deadline: Deadline) -> list[Outgoing]:
        return []

    return [(PrefixReader, "_old", lambda self, slot: False), (ChatPublisher, "_close_hole", close_hole)]


def refused_seal_fails_its_reader() -> Sequence[Patch]:
    async def close(self: PrefixReader, chat_id: str, hole: range, attempt: int, deadline: Deadline) -> bool:
        for sequence in hole:
            await self.seal(chat_id, sequence, deadline=deadline)
        return True

    async def close_hole(self: ChatPublisher, deadline: Deadline) -> list[Outgoing]:
        return await self._foreign([await self._prefix.seal(self.chat_id, self.mark + 1, deadline=deadline)], deadline)

    return [(PrefixReader, "_close", close), (ChatPublisher, "_close_hole", close_hole)]


# --- storing --------------------------------------------------------------------------------------------------------


def _ignoring(*kinds: type) -> Sequence[Patch]:
    original = MemoryMessageLog._causes

    def causes(self: MemoryMessageLog, *args: Any) -> list[KeyTaken | SlotTaken | SenderGone]:
        return [cause for cause in original(self, *args) if not isinstance(cause, kinds)]

    return [(MemoryMessageLog, "_causes", causes)]


def unconditional_put() -> Sequence[Patch]:
    return _ignoring(SlotTaken)


def no_idempotency_key() -> Sequence[Patch]:
    return [*_ignoring(KeyTaken), (dedup, "expired", lambda key, now_s: True)]


def membership_checked_early() -> Sequence[Patch]:
    return _ignoring(SenderGone)


def key_not_bound_to_sender() -> Sequence[Patch]:
    original = dedup.judge_key

    def judge_key(draft: Draft, digest: str, key: Key, *, member: bool) -> dedup.Hit | dedup.Refusal:
        return original(draft, digest, msgspec.structs.replace(key, sender_id=draft.sender_id), member=member)

    return [(dedup, "judge_key", judge_key)]


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
    async def look(self: HeadProbe) -> None:
        return

    return [(HeadProbe, "look", look)]


def live_overtakes_sync() -> Sequence[Patch]:
    def pushed(self: ChatCursor, sequence: int, prev_sequence: int | None, frame: bytes) -> None:
        self.delivered = sequence - 1
        self.phase = CursorPhase.LIVE
        self.held[sequence] = HeldMessage(self.delivered, frame)

    return [(ChatCursor, "pushed_while_syncing", pushed)]


def own_ack_advances() -> Sequence[Patch]:
    def own(self: ChatCursor, sequence: int, prev_sequence: int | None) -> bool:
        self.delivered = max(self.delivered, sequence)
        self.highest = max(self.highest, sequence)
        return False

    def place_own(self: Timeline, message: Any) -> list[Any]:
        return self._extend([message], message.sequence) if message.sequence > self.cursor else []

    return [(ChatCursor, "own", own), (Timeline, "place_own", place_own)]


def own_passes_holes() -> Sequence[Patch]:
    def pass_own(self: ChatCursor, sequence: int) -> None:
        while self.phase is CursorPhase.LIVE and self.held and (lowest := self.held.lowest()) < sequence:
            if self.held[lowest].frame is not None:
                break
            del self.held[lowest]
            self.delivered = max(self.delivered, lowest)

    return [(ChatCursor, "pass_own", pass_own)]


def ack_unclamped() -> Sequence[Patch]:
    async def bound(self: Receipts, chat_id: str, sequence: int, deadline: Deadline) -> int:
        return sequence

    identity = lambda self, sequence: sequence  # noqa: E731
    return [(ChatCursor, "known", identity), (ChatCursor, "clamp", identity), (Receipts, "bound", bound)]


def full_buffer_drops() -> Sequence[Patch]:
    original = OutboundBuffer.push

    def push(self: OutboundBuffer, frame: bytes, chat_id: str, floor: int) -> bool:
        original(self, frame, chat_id, floor)
        self.lagging = False
        return True

    def bounded(self: OutboundBuffer, frame: bytes, chat_id: str, floor: int) -> bool:
        return push(self, frame, chat_id, floor) if len(self.pushes) < buffer_limit() else True

    return [(OutboundBuffer, "push", bounded)]


def unbounded_buffer() -> Sequence[Patch]:
    original = OutboundBuffer.push

    def push(self: OutboundBuffer, frame: bytes, chat_id: str, floor: int) -> bool:
        queued = original(self, frame, chat_id, floor)
        self.lagging = False
        return queued

    return [(OutboundBuffer, "push", push)]


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
    def reached(event: MessagePersisted, online: Sequence[Registration], everyone: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([each.connection_id for each in online if each.user_id != event.message.sender_id])

    return [(recipients, "reached", reached)]


def commit_before_processing() -> Sequence[Patch]:
    async def process(self: PartitionWorker, run: Sequence[Record]) -> None:
        self._next_offset = run[-1].offset + 1
        await self.commit()
        if await self.settle(run):
            self.advance(run)

    return [(PartitionWorker, "process", process)]


def pause_outlives_assignment() -> Sequence[Patch]:
    """As librdkafka does by itself: what was paused when it left us is paused when it is given to us again."""
    obey, lose = MemoryEventReader._obey, MemoryEventReader._lose
    paused: dict[MemoryEventReader, set[Partition]] = {}

    def note(self: MemoryEventReader) -> set[Partition]:
        kept = paused.setdefault(self, set())
        kept.update([partition for partition, assigned in self._assigned.items() if assigned.paused])
        return kept

    async def obey_and_keep(self: MemoryEventReader, orders: Orders, listener: RebalanceListener) -> None:
        kept, before = note(self), dict(self._assigned)
        await obey(self, orders, listener)
        for partition, assigned in self._assigned.items():
            if before.get(partition) is not assigned:
                assigned.paused = partition in kept

    def lose_and_keep(self: MemoryEventReader, listener: RebalanceListener) -> None:
        note(self)
        lose(self, listener)

    return [(MemoryEventReader, "_obey", obey_and_keep), (MemoryEventReader, "_lose", lose_and_keep)]


def poison_skipped() -> Sequence[Patch]:
    async def recover(self: PartitionWorker, record: Record, error: Exception, attempts: int) -> bool:
        return True

    return [(PartitionWorker, "recover", recover)]

"""Allocate, then persist: how drafts get their slots, and what happens when either fails (W1, W2).

Slots are ours from the allocation until the lease ends; each is filled once or closed. Drafts keep their order: who
came first never gets a higher slot than who came later, whatever had to be repeated.
"""

from collections import deque
from collections.abc import Sequence

import msgspec

from seriatim.domain import limits
from seriatim.domain.backoff import backoff_s
from seriatim.domain.errors import (
    Conflict,
    CounterMissing,
    OutcomeUnknown,
    SeriatimError,
    ServiceUnavailable,
    Throttled,
)
from seriatim.domain.ids import MESSAGE, new_ulid
from seriatim.domain.message import Draft, Message, Receipt, Sealed, Slot
from seriatim.domain.times import iso
from seriatim.durability.deadline import Deadline, retry_refused
from seriatim.durability.dedup import Hit, judge_cancelled
from seriatim.durability.guards import StoreGuard
from seriatim.durability.observer import DurabilityObserver
from seriatim.durability.publish import ChatPublisher, PublishItem
from seriatim.durability.records import key_expires_at_s, new_entry, new_receipt
from seriatim.durability.stable_prefix import PrefixReader
from seriatim.ports.clock import Clock
from seriatim.ports.message_log import Allocation, Entry, MessageLog, PublishedAhead

Outcome = Receipt | SeriatimError

_NO_SLOT = "no slot could be filled in time; retry with the same id"


class Lease(msgspec.Struct):
    """Slots we may still fill, in ascending order, until `ends`."""

    free: deque[int]
    members_version: int
    ends: float


class Job:
    """A draft looking for a slot."""

    __slots__ = ("digest", "draft", "message_id", "outcome")

    def __init__(self, draft: Draft, digest: str, message_id: str) -> None:
        self.draft = draft
        self.digest = digest
        self.message_id = message_id
        self.outcome: Outcome | None = None


class SlotWriter:
    """Stores drafts of one chat. What it fills, it hands to the chat's publisher."""

    def __init__(
        self,
        chat_id: str,
        *,
        log: MessageLog,
        prefix: PrefixReader,
        publisher: ChatPublisher,
        guard: StoreGuard,
        clock: Clock,
        observe: DurabilityObserver,
    ) -> None:
        self._chat_id = chat_id
        self._log = log
        self._prefix = prefix
        self._publisher = publisher
        self._guard = guard
        self._clock = clock
        self._observe = observe
        self._created_ms = 0

    async def store(self, drafts: Sequence[tuple[Draft, str]], deadline: Deadline) -> list[Outcome]:
        """A receipt for each draft that is stored (not yet published), an error for each that is not."""
        jobs = [Job(draft, digest, MESSAGE + self._ulid()) for draft, digest in drafts]
        waiting = deque(jobs)
        failure: SeriatimError | None = None
        try:
            for _ in range(limits.ALLOCATIONS_MAX):
                if not waiting:
                    break
                lease = await self._allocate(len(waiting), deadline)
                try:
                    await self._fill(lease, waiting, deadline)
                finally:
                    await self._close(lease, deadline)
        except CounterMissing as error:
            self._observe.counter_missing(self._chat_id)
            failure = error
        except SeriatimError as error:
            self._observe.store_failed("persist", self._chat_id, error)
            failure = error
        return [job.outcome or failure or ServiceUnavailable(_NO_SLOT) for job in jobs]

    async def _allocate(self, count: int, deadline: Deadline) -> Lease:
        """Slots above another owner's mark, if there is one. An ambiguous ADD is never repeated: it may have worked."""
        while True:
            began = self._clock.monotonic()
            answer = await self._guard.write(
                self._chat_id,
                retry_refused(
                    lambda room: self._log.allocate(
                        self._chat_id,
                        count,
                        published_through=self._publisher.mark,
                        published_message=self._publisher.last_message,
                        now_ms=self._clock.now_ms(),
                        timeout_s=room,
                    ),
                    deadline=deadline,
                    clock=self._clock,
                    observe=self._observe,
                ),
            )
            match answer:
                case PublishedAhead():
                    self._publisher.adopt(answer.published_through, answer.published_message)
                case Allocation():
                    self._observe.allocated(count, self._clock.monotonic() - began)
                    free = deque(range(answer.first, answer.last + 1))
                    return Lease(free, answer.members_version, began + limits.SLOT_LEASE_S)

    async def _fill(self, lease: Lease, waiting: deque[Job], deadline: Deadline) -> None:
        """Persists the waiting jobs in order into the free slots, until either runs out or the lease ends."""
        size = len(waiting)
        refusals = 0
        while waiting and lease.free and self._clock.monotonic() < lease.ends:
            group = [waiting[index] for index in range(min(size, len(waiting), len(lease.free)))]
            entries = self._entries(group, lease)
            try:
                done = await self._persist(group, entries, lease, deadline)
            except (Conflict, Throttled) as error:
                self._observe.refused_by_store("conflict" if isinstance(error, Conflict) else "throttled")
                refusals += 1
                if refusals == limits.THROTTLE_RETRIES_MAX:
                    raise
                size = max(1, size // 2)
                first_s, max_s = limits.CONFLICT_BACKOFF_S, limits.CONFLICT_BACKOFF_MAX_S
                await deadline.pause(backoff_s(refusals, first_s=first_s, max_s=max_s, random=self._clock.random))
                continue
            if done:
                self._keep(group, entries, lease)
            unsettled = [job for job in waiting if job.outcome is None]
            waiting.clear()
            waiting.extend(unsettled)

    async def _persist(self, group: Sequence[Job], entries: Sequence[Entry], lease: Lease, deadline: Deadline) -> bool:
        """One transaction. True when all entries are stored; otherwise settles jobs and removes lost slots."""
        senders = list(dict.fromkeys(job.draft.sender_id for job in group))
        room = deadline.room()
        try:
            cancelled = await self._guard.write(
                self._chat_id,
                self._log.persist(
                    self._chat_id,
                    entries,
                    senders,
                    token=self._ulid(),
                    now_s=self._clock.now_ms() // 1000,
                    timeout_s=room,
                ),
                room_s=room,
            )
        except OutcomeUnknown:
            return await self._resolve(entries[0], lease, deadline)
        if cancelled is None:
            self._guard.wrote()
            return True
        outcome = judge_cancelled(cancelled, entries, [(job.draft, job.digest) for job in group])
        for index, verdict in outcome.settled.items():
            group[index].outcome = verdict.receipt if isinstance(verdict, Hit) else verdict.error
        for collision in outcome.collisions:
            self._observe.duplicate_sequence(self._chat_id, collision.sequence)
        for sequence in outcome.lost_slots:
            lease.free.remove(sequence)
        return False

    async def _resolve(self, first: Entry, lease: Lease, deadline: Deadline) -> bool:
        """Did an ambiguous transaction commit? Sealing its first slot shows it, and makes the answer final.

        Ours is in it: all of it is stored. A tombstone is in it: none of it ever will be, and its other slots are free.
        """
        sequence = first.message.sequence
        holder: Slot | None = None
        while holder is None:
            try:
                holder = await self._prefix.seal(self._chat_id, sequence, deadline=deadline)
            except (OutcomeUnknown, Conflict, Throttled):
                await deadline.pause(limits.CONFLICT_BACKOFF_S)
        if isinstance(holder, Message) and holder.message_id == first.message.message_id:
            return True
        if isinstance(holder, Message):
            self._observe.duplicate_sequence(self._chat_id, sequence)
        lease.free.remove(sequence)
        if isinstance(holder, Sealed):
            self._publisher.filled(PublishItem(slot=holder, members_version=lease.members_version))
        return False

    def _keep(self, group: Sequence[Job], entries: Sequence[Entry], lease: Lease) -> None:
        self._observe.persisted({self._chat_id: len(entries)})
        for job, entry in zip(group, entries, strict=True):
            message = entry.message
            lease.free.popleft()
            job.outcome = new_receipt(message)
            if self._observe.traces:
                self._observe.traced("allocated", self._chat_id, message.sequence, message.message_id)
                self._observe.traced("persisted", self._chat_id, message.sequence, message.message_id)
            self._publisher.filled(
                PublishItem(
                    slot=message,
                    members_version=lease.members_version,
                    origin_connection_id=job.draft.origin_connection_id or "",
                    trace_id=job.draft.trace_id,
                )
            )

    async def _close(self, lease: Lease, deadline: Deadline) -> None:
        """Seals unused slots, so that no reader has to wait for them. If that fails, readers seal them later."""
        try:
            for sequence in lease.free:
                holder = await self._prefix.seal(self._chat_id, sequence, deadline=deadline)
                if isinstance(holder, Sealed):
                    self._publisher.filled(PublishItem(slot=holder, members_version=lease.members_version))
        except SeriatimError:
            return

    def _entries(self, group: Sequence[Job], lease: Lease) -> list[Entry]:
        """Messages at the next free slots. Their time is taken now, after the allocation, and never runs backwards."""
        self._created_ms = max(self._created_ms, self._clock.now_ms())
        created_at = iso(self._created_ms)
        expires_at_s = key_expires_at_s(self._created_ms)
        return [
            new_entry(job.draft, job.digest, job.message_id, lease.free[index], created_at, expires_at_s)
            for index, job in enumerate(group)
        ]

    def _ulid(self) -> str:
        return new_ulid(self._clock.now_ms(), self._clock.random_bits)

"""One chat's way to durability: group commit without timers (docs/spec/delivery.md#write-path).

While one batch is being committed the next one gathers. One batch at a time per chat also means: drafts keep their
order of arrival, and a retry never races its first attempt in this process, since they land in different batches.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from seriatim.domain import limits
from seriatim.domain.errors import (
    BreakerOpen,
    CounterMissing,
    InternalError,
    RowUnreadable,
    SeriatimError,
    ServerBusy,
    ServiceUnavailable,
)
from seriatim.domain.message import Draft, Receipt, content_digest
from seriatim.durability.deadline import Deadline, retry_refused
from seriatim.durability.dedup import Fresh, Hit, Refusal, Verdict, judge
from seriatim.durability.guards import StoreGuard
from seriatim.durability.observer import DurabilityObserver
from seriatim.durability.publish import ChatPublisher
from seriatim.durability.records import with_predecessor
from seriatim.durability.slots import SlotWriter
from seriatim.ports.clock import Clock
from seriatim.ports.durability import Answer
from seriatim.ports.message_log import MessageLog


class Pending:
    """A draft whose sender waits. It is answered exactly once."""

    __slots__ = ("_answer", "admitted_at", "deadline", "digest", "draft")

    def __init__(self, draft: Draft, *, deadline: float, admitted_at: float, answer: Answer) -> None:
        self.draft = draft
        self.digest = content_digest(draft.content)
        self.deadline = deadline
        self.admitted_at = admitted_at
        self._answer: Answer | None = answer

    @property
    def answered(self) -> bool:
        return self._answer is None

    def answer(self, outcome: Receipt | SeriatimError) -> bool:
        """False: it was answered before."""
        answer, self._answer = self._answer, None
        if answer is None:
            return False
        answer(outcome)
        return True

    def expired(self, now: float) -> bool:
        return self.deadline - now < limits.ATTEMPT_ROOM_S

    def give_up(self) -> None:
        """It waited for others until its time was up: they were many, and nothing has failed."""
        busy = ServerBusy("this chat is very busy; retry in a second with the same id", retry_after_seconds=1)
        self.answer(busy)


class ChatPipeline:
    """Takes drafts of one chat, commits them in batches, answers each. Ends by itself when nothing comes any more."""

    def __init__(
        self,
        chat_id: str,
        *,
        log: MessageLog,
        publisher: ChatPublisher,
        slots: SlotWriter,
        guard: StoreGuard,
        clock: Clock,
        observe: DurabilityObserver,
        on_end: Callable[[], None],
    ) -> None:
        self.publisher = publisher
        self._chat_id = chat_id
        self._log = log
        self._slots = slots
        self._guard = guard
        self._clock = clock
        self._observe = observe
        self._on_end = on_end
        self._queue: deque[Pending] = deque()
        self._arrival: asyncio.Future[None] | None = None
        self._latest_deadline = 0.0
        self._ending = False

    def put(self, pending: Pending) -> None:
        """Queues a draft in order of arrival. Raises `ServerBusy` when the queue is full."""
        if len(self._queue) >= limits.CHAT_QUEUE_DRAFTS_MAX:
            raise ServerBusy("this chat is very busy; retry in a second", retry_after_seconds=1)
        self._queue.append(pending)
        if pending.deadline < self._latest_deadline:
            # A batch before it may rightly take longer than this one can wait, so it needs a timer of its own.
            asyncio.get_running_loop().call_at(pending.deadline, self._expire)
        else:
            self._latest_deadline = pending.deadline
        self._wake()

    def finish(self) -> None:
        """Nothing more will come: end as soon as the queue is empty."""
        self._ending = True
        self._wake()

    async def run(self) -> None:
        """Commits batches until the chat is idle, then leaves its published mark in the store and ends."""
        try:
            while self._queue or await self._idle():
                batch = self._take()
                if batch:
                    await self._commit(batch)
        finally:
            self._on_end()
            for pending in self._queue:
                pending.answer(ServiceUnavailable("this process is shutting down; retry with the same id"))

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def _take(self) -> list[Pending]:
        """The next drafts in order that fit one transaction and whose time is not up, no two with the same key."""
        now, items_max = self._clock.monotonic(), self._log.transaction_items_max
        batch: list[Pending] = []
        keys: dict[str, None] = {}
        senders: dict[str, None] = {}
        while self._queue:
            pending = self._queue[0]
            if pending.expired(now):
                self._queue.popleft().give_up()
                continue
            draft = pending.draft
            items = 2 * (len(batch) + 1) + len(senders) + (draft.sender_id not in senders)
            if draft.client_message_id in keys or items > items_max:
                break
            keys[draft.client_message_id] = None
            senders[draft.sender_id] = None
            batch.append(self._queue.popleft())
        return batch

    def _expire(self) -> None:
        now = self._clock.monotonic()
        for pending in [each for each in self._queue if each.expired(now)]:
            self._queue.remove(pending)
            pending.give_up()

    async def _commit(self, batch: Sequence[Pending]) -> None:
        """Whatever happens, every draft of the batch is answered, by the batch's earliest deadline."""
        failure: SeriatimError | None = None
        try:
            await self._store_and_publish(batch, Deadline(self._clock, min(pending.deadline for pending in batch)))
        except SeriatimError as error:
            if isinstance(error, RowUnreadable):
                self._observe.row_unreadable(self._chat_id, error)
            elif not isinstance(error, BreakerOpen):  # whose opening was reported
                self._observe.store_failed("send", self._chat_id, error)
            failure = error
        except Exception as error:
            self._observe.failed("pipeline", error)
            failure = InternalError("something unexpected happened; retry with the same id")
        finally:
            for pending in batch:
                if not pending.answered:
                    pending.answer(
                        failure or ServiceUnavailable("this process is shutting down; retry with the same id")
                    )

    async def _store_and_publish(self, batch: Sequence[Pending], deadline: Deadline) -> None:
        verdicts = await self._judge(batch, deadline)
        receipts: dict[int, Receipt] = {}
        fresh: list[int] = []
        for index, verdict in enumerate(verdicts):
            match verdict:
                case Refusal(error):
                    batch[index].answer(error)
                case Hit(receipt):
                    self._observe.hit()
                    receipts[index] = receipt
                case Fresh():
                    fresh.append(index)
        if fresh:
            drafts = [(batch[index].draft, batch[index].digest) for index in fresh]
            for index, outcome in zip(fresh, await self._slots.store(drafts, deadline), strict=True):
                if isinstance(outcome, Receipt):
                    receipts[index] = outcome
                else:
                    batch[index].answer(outcome)
        if receipts:
            await self._answer_published(batch, receipts, deadline)

    async def _judge(self, batch: Sequence[Pending], deadline: Deadline) -> list[Verdict]:
        """One consistent read decides: keys, roles, and how far the chat is published. It is repeated once."""
        keys = [pending.draft.client_message_id for pending in batch]
        senders = list(dict.fromkeys(pending.draft.sender_id for pending in batch))
        found = await self._guard.read(
            self._chat_id,
            lambda: retry_refused(
                lambda room: self._log.lookup(self._chat_id, keys, senders, timeout_s=room),
                deadline=deadline,
                clock=self._clock,
                observe=self._observe,
                reads=True,
            ),
        )
        now_s = self._clock.now_ms() // 1000
        verdicts = [judge(pending.draft, pending.digest, found, now_s) for pending in batch]
        if found.counter is None:
            return self._halted(verdicts)
        self.publisher.adopt(found.counter.published_through, found.counter.published_message)
        return verdicts

    def _halted(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """Without its counter nothing goes on in this chat. A draft that is refused anyway keeps its own refusal."""
        if not all(isinstance(verdict, Refusal) for verdict in verdicts):
            self._observe.counter_missing(self._chat_id)
        halt = Refusal(CounterMissing(self._chat_id))
        return [verdict if isinstance(verdict, Refusal) else halt for verdict in verdicts]

    async def _answer_published(
        self, batch: Sequence[Pending], receipts: dict[int, Receipt], deadline: Deadline
    ) -> None:
        """The ack gate: nothing is answered above the published mark, be it new or stored long ago."""
        target = max(receipt.sequence for receipt in receipts.values())
        predecessors = await self.publisher.advance(target, deadline=deadline)
        for index, receipt in receipts.items():
            if not receipt.deduplicated:
                self._observe.answered((self._clock.monotonic() - batch[index].admitted_at,))
            batch[index].answer(with_predecessor(receipt, predecessors.get(receipt.sequence)))

    async def _idle(self) -> bool:
        """Waits for a draft. After a quiet time flushes the published mark; False if still nothing came."""
        if not self._ending:
            loop = asyncio.get_running_loop()
            self._arrival = loop.create_future()
            # The same as `wait_for`, at a third of its price: in a quiet chat every send passes here.
            timer = loop.call_later(limits.PIPELINE_IDLE_S, self._wake)
            try:
                await self._arrival
            finally:
                timer.cancel()
                self._arrival = None
        if not self._queue:
            await self._flush()
        return bool(self._queue)

    async def _flush(self) -> None:
        try:
            await self._log.flush(
                self._chat_id,
                published_through=self.publisher.mark,
                published_message=self.publisher.last_message,
                timeout_s=limits.STORE_TIMEOUT_S,
            )
        except SeriatimError as error:
            # The chat stays dirty, and the reconciler settles it.
            self._observe.store_failed("flush", self._chat_id, error)

"""Atomic commit: drafts of all chats are judged, numbered, stored and published in one transaction of the store.

For stores that can (`ports.atomic_store`). From `submit` to the answer, in the order of this file:

1. `submit` adds a draft to the open batch. The first draft of a batch asks the store to say when it is ready.
2. `_commit`, when the store is ready: a `_BatchWriter` judges each draft by the rows of a transaction and adds what is
   to be stored; then the transaction is committed. Drafts that come meanwhile are in the next batch.
3. `_settle`, when the transaction is on the disk: every draft is answered.

So a chat is always published to its end and never has a hole. A chat that has a hole, or has no counter, or whose rows
cannot be read, takes the pipeline: its drafts are handed over in their order, and so are all that follow as long as
that pipeline lives. The pipeline gives a read error to that chat's drafts; the other chats of the batch are stored.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from itertools import repeat

from seriatim.domain import limits
from seriatim.domain.circuit_breaker import CircuitBreaker
from seriatim.domain.errors import (
    BreakerOpen,
    InternalError,
    NotAMember,
    OutcomeUnknown,
    RowUnreadable,
    SeriatimError,
    ServerBusy,
    ServiceUnavailable,
)
from seriatim.domain.ids import MESSAGE, RandomBits, new_ulids
from seriatim.domain.message import Draft, Receipt
from seriatim.domain.times import iso
from seriatim.durability.dedup import Hit, expired, judge_key
from seriatim.durability.observer import DurabilityObserver
from seriatim.durability.pipeline import Pending
from seriatim.durability.records import key_expires_at_s, new_entry, new_event, new_receipt
from seriatim.ports.atomic_store import AtomicStore, AtomicTransaction
from seriatim.ports.clock import Clock
from seriatim.ports.message_log import ChatCounter

Outcome = Receipt | SeriatimError


class AtomicCommitter:
    """`to_pipeline` takes a draft that cannot be committed atomically, and answers it."""

    def __init__(
        self,
        store: AtomicStore,
        *,
        clock: Clock,
        breaker: CircuitBreaker,
        observe: DurabilityObserver,
        producer_id: str,
        to_pipeline: Callable[[Pending], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._breaker = breaker
        self._observe = observe
        self._producer_id = producer_id
        self._to_pipeline = to_pipeline
        self._open_batch: _CommitBatch | None = None
        self._unsettled = 0  # batches
        self._all_settled: asyncio.Future[None] | None = None
        self._created_ms = 0

    def submit(self, pending: Pending) -> None:
        """In order of arrival. Raises `ServerBusy` when too many wait, or what the breaker says."""
        batch = self._open_batch
        if batch is None:
            batch = self._new_batch(pending)
        elif len(batch.drafts) >= limits.COMMIT_BATCH_DRAFTS_MAX:
            raise ServerBusy("this server is very busy; retry in a second", retry_after_seconds=1)
        batch.drafts.append(pending)
        if pending.deadline < batch.deadline:
            # The batch may rightly take longer than this draft can wait, so it needs a timer of its own.
            asyncio.get_running_loop().call_at(pending.deadline, _expire, pending)

    async def finish(self) -> None:
        """Returns when every batch is settled."""
        while self._unsettled:
            if self._all_settled is None or self._all_settled.done():
                self._all_settled = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._all_settled)

    def _new_batch(self, first: Pending) -> "_CommitBatch":
        if first.expired(first.admitted_at):
            raise ServiceUnavailable("no time was left to store this; retry with the same id")
        wait = self._breaker.admit(first.admitted_at)
        if wait is not None:
            raise BreakerOpen("the store is failing; retry later with the same id", retry_after_seconds=wait)
        self._open_batch = batch = _CommitBatch(first.deadline)
        self._unsettled += 1
        self._store.when_ready(lambda transaction: self._commit(batch, transaction), deadline=first.deadline)
        return batch

    def _commit(self, batch: "_CommitBatch", transaction: AtomicTransaction | SeriatimError) -> None:
        """Judges every draft by the rows as the drafts before it left them, and commits. Answers no draft from within.

        If it fails, nothing was changed and the batch is as it was: all its drafts get the error.
        """
        self._open_batch = None
        if isinstance(transaction, SeriatimError):
            self._settle(batch, transaction)
            return
        batch.begun = True
        batch.begun_at = now = self._clock.monotonic()
        now_ms = self._clock.now_ms()
        self._created_ms = max(self._created_ms, now_ms)  # the time of a message never runs backwards
        decided: list[Pending] = []
        outcomes: list[Outcome] = []
        too_late: list[Pending] = []
        leaving: list[Pending] = []
        soonest = now + limits.ATTEMPT_ROOM_S
        try:
            writer = _BatchWriter(
                transaction, now_ms // 1000, self._created_ms, self._clock.random_bits, self._producer_id
            )
            transaction.expect([(each.draft.chat_id, each.draft.client_message_id) for each in batch.drafts])
            for pending in batch.drafts:
                if pending.deadline < soonest:
                    too_late.append(pending)
                elif (outcome := writer.decide(pending.draft, pending.digest)) is None:
                    leaving.append(pending)
                else:
                    decided.append(pending)
                    outcomes.append(outcome)
            writer.finish()
            transaction.commit(lambda error: self._settle(batch, error))
        except Exception as failure:
            asyncio.get_running_loop().call_soon(self._settle, batch, _as_error(failure))
            return
        batch.drafts, batch.outcomes, batch.stored = decided, outcomes, writer.stored
        for chat_id, error in writer.unreadable.items():
            self._observe.row_unreadable(chat_id, error)
        for pending in too_late:
            asyncio.get_running_loop().call_soon(pending.give_up)
        for pending in leaving:
            self._to_pipeline(pending)

    def _settle(self, batch: "_CommitBatch", error: SeriatimError | None) -> None:
        now = self._clock.monotonic()
        self._report(batch, error, now)
        outcomes: Iterable[Outcome] = batch.outcomes if error is None else repeat(error)
        took_s: list[float] = []
        for pending, outcome in zip(batch.drafts, outcomes, strict=False):
            try:
                answered = pending.answer(outcome)
            except Exception as failure:  # a bug of that caller: the other drafts are answered all the same
                self._observe.failed("atomic_commit", failure)
                continue
            if answered and isinstance(outcome, Receipt):
                if outcome.deduplicated:
                    self._observe.hit()
                else:
                    took_s.append(now - pending.admitted_at)
        self._observe.answered(took_s)
        self._unsettled -= 1
        if self._all_settled is not None and not self._all_settled.done() and not self._unsettled:
            self._all_settled.set_result(None)

    def _report(self, batch: "_CommitBatch", error: SeriatimError | None, now: float) -> None:
        """To the breaker, which admitted this batch, and to the operators. Only a write proves that the store can
        write, or cannot: a read that fails may be about one chat's rows.

        A store that refuses before it tries knows of its failure, and knows sooner than a breaker when it is over.
        """
        if error is None and batch.stored:
            self._breaker.succeeded(now)
            count = sum(batch.stored.values())
            self._observe.allocated(count, 0.0)
            self._observe.persisted(batch.stored)
            if self._observe.traces:
                self._trace(batch)
            self._observe.published(count, now - batch.begun_at)
        elif error is not None and error.trips_breaker and (batch.stored or _never_begun(batch, error)):
            self._breaker.failed(now, reason=error.log_reason)
        else:
            self._breaker.withdrawn()
        if isinstance(error, InternalError):
            self._observe.failed("atomic_commit", error.__cause__ or error)
        elif error is not None:
            self._observe.store_failed("commit", "", error)

    def _trace(self, batch: "_CommitBatch") -> None:
        """One transaction takes all three steps."""
        for pending, outcome in zip(batch.drafts, batch.outcomes, strict=True):
            if isinstance(outcome, Receipt) and not outcome.deduplicated:
                for step in ("allocated", "persisted", "published"):
                    self._observe.traced(step, pending.draft.chat_id, outcome.sequence, outcome.message_id)


def _never_begun(batch: "_CommitBatch", error: SeriatimError) -> bool:
    """The store gave no answer at all."""
    return not batch.begun and isinstance(error, OutcomeUnknown)


def _expire(pending: Pending) -> None:
    pending.answer(OutcomeUnknown("the store did not answer in time; retry with the same id"))


def _as_error(failure: Exception) -> SeriatimError:
    if isinstance(failure, SeriatimError):
        return failure
    error = InternalError("something unexpected happened; retry with the same id")
    error.__cause__ = failure
    return error


class _CommitBatch:
    """Drafts that are committed together: at first all that came, then those that were decided, with their outcomes."""

    __slots__ = ("begun", "begun_at", "deadline", "drafts", "outcomes", "stored")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.begun = False  # its transaction
        self.begun_at = 0.0
        self.drafts: list[Pending] = []
        self.outcomes: list[Outcome] = []
        self.stored: Mapping[str, int] = {}  # so many messages of these chats


class _BatchWriter:
    """Judges drafts and adds what is to be stored to one transaction, chat by chat."""

    def __init__(
        self, transaction: AtomicTransaction, now_s: int, created_ms: int, random_bits: RandomBits, producer_id: str
    ) -> None:
        self.stored: dict[str, int] = {}
        self.unreadable: dict[str, RowUnreadable] = {}
        self._transaction = transaction
        self._created_at = iso(created_ms)
        self._now_s = now_s
        self._key_expires_at_s = key_expires_at_s(created_ms)
        self._ulids = new_ulids(created_ms, random_bits)
        self._producer_id = producer_id
        self._chats: dict[str, _Chat | None] = {}

    def decide(self, draft: Draft, digest: str) -> Outcome | None:
        """None: this chat takes the pipeline, from this draft on."""
        chat_id = draft.chat_id
        try:
            chat = self._chats.get(chat_id) or self._chat(chat_id)
            if chat is None:
                return None
            key = self._transaction.key(chat_id, draft.client_message_id)
            member = self._transaction.is_member(chat_id, draft.sender_id)
        except RowUnreadable as error:
            self._leave(chat_id, error)
            return None
        if key is not None and not expired(key, self._now_s):
            verdict = judge_key(draft, digest, key, member=member)
            return verdict.receipt if isinstance(verdict, Hit) else verdict.error
        if not member:
            return NotAMember("you are not a member of this chat, or it does not exist")
        return self._add(draft, digest, chat)

    def finish(self) -> None:
        for chat_id, chat in self._chats.items():
            self._put_counter(chat_id, chat)

    def _chat(self, chat_id: str) -> "_Chat | None":
        if chat_id not in self._chats:
            self._chats[chat_id] = _chat(self._transaction.counter(chat_id))
        return self._chats[chat_id]

    def _leave(self, chat_id: str, error: RowUnreadable) -> None:
        """What this transaction has of the chat stays; later drafts take the pipeline, so that the order holds."""
        self._put_counter(chat_id, self._chats.get(chat_id))
        self._chats[chat_id] = None
        self.unreadable[chat_id] = error

    def _put_counter(self, chat_id: str, chat: "_Chat | None") -> None:
        if chat is not None and (added := chat.last - chat.before.allocated):
            self._transaction.put_counter(chat_id, chat.counter())
            self.stored[chat_id] = added

    def _add(self, draft: Draft, digest: str, chat: "_Chat") -> Receipt:
        previous = chat.last_message
        chat.last = chat.last_message = sequence = chat.last + 1
        created_at = self._created_at
        entry = new_entry(draft, digest, MESSAGE + next(self._ulids), sequence, created_at, self._key_expires_at_s)
        event = new_event(
            entry.message,
            previous,
            chat.before.members_version,
            draft.origin_connection_id or "",
            self._producer_id,
            draft.trace_id,
            created_at,
        )
        self._transaction.add(entry, event)
        return new_receipt(entry.message, previous)


class _Chat:
    """A chat's counter as it is stored, and where it will be with what was added."""

    __slots__ = ("before", "last", "last_message")

    def __init__(self, before: ChatCounter) -> None:
        self.before = before
        self.last = before.allocated
        self.last_message = before.published_message

    def counter(self) -> ChatCounter:
        return ChatCounter(
            allocated=self.last,
            published_through=self.last,
            published_message=self.last_message,
            members_version=self.before.members_version,
            dirty_at_ms=None,
        )


def _chat(counter: ChatCounter | None) -> _Chat | None:
    """None for a chat without a counter, or of which something is not published."""
    if counter is None or counter.published_through < counter.allocated:
        return None
    return _Chat(counter)

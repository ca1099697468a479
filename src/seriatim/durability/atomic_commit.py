"""The short way to durability, for stores that take whole sends in one step (`ports.atomic_store`).

All drafts that come while the store is busy are judged, numbered, stored and published together. So a chat is always
published to its end and never has a hole. One that is not, or has no counter, goes the long way: its drafts are handed
to its pipeline, in their order, and so is all that follows as long as that pipeline lives. So does a chat whose rows
cannot be read: its pipeline gives the error to its own drafts, and the other chats of the step are stored.
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
from seriatim.domain.events import MessagePersisted, encode_message, headers, message_persisted
from seriatim.domain.ids import MESSAGE, ulids
from seriatim.domain.message import Draft, Message, Receipt
from seriatim.domain.times import iso
from seriatim.durability.dedup import Hit, expired, expires_at_s, judge_key
from seriatim.durability.observer import DurabilityObserver
from seriatim.durability.pipeline import Pending
from seriatim.ports.atomic_store import AtomicStore, AtomicTransaction
from seriatim.ports.clock import Clock
from seriatim.ports.event_log import Event
from seriatim.ports.message_log import ChatCounter, Entry

Outcome = Receipt | SeriatimError


class AtomicCommitter:
    """`long_way` takes a draft that cannot go this way, and answers it."""

    def __init__(
        self,
        store: AtomicStore,
        *,
        clock: Clock,
        breaker: CircuitBreaker,
        observe: DurabilityObserver,
        producer_id: str,
        long_way: Callable[[Pending], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._breaker = breaker
        self._observe = observe
        self._producer_id = producer_id
        self._long_way = long_way
        self._gathering: _CommitBatch | None = None
        self._under_way = 0
        self._arrival: asyncio.Future[None] | None = None
        self._created_ms = 0

    def put(self, pending: Pending) -> None:
        """In order of arrival. Raises `ServerBusy` when too many wait, or what the breaker says."""
        company = self._gathering
        if company is None:
            company = self._gather(pending)
        elif len(company.drafts) >= limits.COMMIT_BATCH_DRAFTS_MAX:
            raise ServerBusy("this server is very busy; retry in a second", retry_after_seconds=1)
        company.drafts.append(pending)
        if pending.deadline < company.deadline:
            # The others may rightly wait longer than this one can, so it needs a timer of its own.
            asyncio.get_running_loop().call_at(pending.deadline, _expire, pending)

    async def finish(self) -> None:
        """Returns when nothing is under way."""
        while self._under_way:
            if self._arrival is None or self._arrival.done():
                self._arrival = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._arrival)

    def _gather(self, first: Pending) -> "_CommitBatch":
        if first.expired(first.admitted_at):
            raise ServiceUnavailable("no time was left to store this; retry with the same id")
        wait = self._breaker.admit(first.admitted_at)
        if wait is not None:
            raise BreakerOpen("the store is failing; retry later with the same id", retry_after_seconds=wait)
        self._gathering = company = _CommitBatch(first.deadline)
        self._under_way += 1
        self._store.ask(
            lambda step: self._decide(company, step),
            lambda error: self._settle(company, error),
            deadline=first.deadline,
        )
        return company

    def _decide(self, company: "_CommitBatch", step: AtomicTransaction) -> None:
        """Every draft is judged by the rows as those before it left them. Nobody is answered from within.

        If this raises, nothing has happened yet: the company is as it was, and every draft of it is answered.
        """
        self._gathering = None
        company.taken = True
        company.decided_at = now = self._clock.monotonic()
        now_ms = self._clock.now_ms()
        self._created_ms = max(self._created_ms, now_ms)  # the time of a message never runs backwards
        batch = _Batch(step, now_ms // 1000, self._created_ms, self._clock.random_bits(80), self._producer_id)
        step.expect([(each.draft.chat_id, each.draft.client_message_id) for each in company.drafts])
        decided: list[Pending] = []
        outcomes: list[Outcome] = []
        expired: list[Pending] = []
        leaving: list[Pending] = []
        soonest = now + limits.ATTEMPT_ROOM_S
        for pending in company.drafts:
            if pending.deadline < soonest:
                expired.append(pending)
            elif (outcome := batch.decide(pending.draft, pending.digest)) is None:
                leaving.append(pending)
            else:
                decided.append(pending)
                outcomes.append(outcome)
        batch.finish()
        company.drafts, company.outcomes, company.stored = decided, outcomes, batch.stored
        for chat_id, error in batch.unreadable.items():
            self._observe.row_unreadable(chat_id, error)
        for pending in expired:
            asyncio.get_running_loop().call_soon(pending.give_up)
        for pending in leaving:
            self._long_way(pending)

    def _settle(self, company: "_CommitBatch", error: SeriatimError | None) -> None:
        if self._gathering is company:
            self._gathering = None
        now = self._clock.monotonic()
        self._report(company, error, now)
        outcomes: Iterable[Outcome] = company.outcomes if error is None else repeat(error)
        took_s: list[float] = []
        for pending, outcome in zip(company.drafts, outcomes, strict=False):
            try:
                answered = pending.answer(outcome)
            except Exception as failure:  # of who asked: the others are answered all the same
                self._observe.failed("express", failure)
                continue
            if answered and isinstance(outcome, Receipt):
                if outcome.deduplicated:
                    self._observe.hit()
                else:
                    took_s.append(now - pending.admitted_at)
        self._observe.answered(took_s)
        self._under_way -= 1
        if self._arrival is not None and not self._arrival.done() and not self._under_way:
            self._arrival.set_result(None)

    def _report(self, company: "_CommitBatch", error: SeriatimError | None, now: float) -> None:
        """To the breaker, that let us through, and to the operators. Only a write proves that the store can write, or
        cannot: a read that fails may be about one chat's rows.

        A store that refuses before it tries knows of its trouble, and will know when it is over: sooner than a breaker.
        """
        if error is None and company.stored:
            self._breaker.succeeded(now)
            count = sum(company.stored.values())
            self._observe.allocated(count, 0.0)
            self._observe.persisted(company.stored)
            self._observe.published(count, now - company.decided_at)
        elif error is not None and error.trips_breaker and (company.stored or _never_taken(company, error)):
            self._breaker.failed(now)
        else:
            self._breaker.withdrawn()
        if isinstance(error, InternalError):
            self._observe.failed("express", error.__cause__ or error)


def _never_taken(company: "_CommitBatch", error: SeriatimError) -> bool:
    """The store gave no answer at all."""
    return not company.taken and isinstance(error, OutcomeUnknown)


def _expire(pending: Pending) -> None:
    pending.answer(OutcomeUnknown("the store did not answer in time; retry with the same id"))


class _CommitBatch:
    """Drafts that travel together: first those that gather, then those that were decided, with what they came to."""

    __slots__ = ("deadline", "decided_at", "drafts", "outcomes", "stored", "taken")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.decided_at = 0.0
        self.drafts: list[Pending] = []
        self.outcomes: list[Outcome] = []
        self.stored: Mapping[str, int] = {}  # so many messages of these chats
        self.taken = False


class _Batch:
    """One step, chat by chat."""

    def __init__(self, step: AtomicTransaction, now_s: int, created_ms: int, chance: int, producer_id: str) -> None:
        self.stored: dict[str, int] = {}
        self.unreadable: dict[str, RowUnreadable] = {}
        self._step = step
        self._created_at = iso(created_ms)
        self._now_s = now_s
        self._expires_at_s = expires_at_s(created_ms)
        self._ulids = ulids(created_ms, chance)
        self._producer_id = producer_id
        self._chats: dict[str, _Chat | None] = {}

    def decide(self, draft: Draft, digest: str) -> Outcome | None:
        """None: this chat goes the long way, from this draft on."""
        chat_id = draft.chat_id
        try:
            chat = self._chats.get(chat_id) or self._begun(chat_id)
            if chat is None:
                return None
            key = self._step.key(chat_id, draft.client_message_id)
            member = self._step.is_member(chat_id, draft.sender_id)
        except RowUnreadable as error:
            self._leave(chat_id, error)
            return None
        if key is not None and not expired(key, self._now_s):
            verdict = judge_key(draft, digest, key, member=member)
            return verdict.receipt if isinstance(verdict, Hit) else verdict.error
        if not member:
            return NotAMember("you are not a member of this chat, or it does not exist")
        return self._store(draft, digest, chat)

    def _begun(self, chat_id: str) -> "_Chat | None":
        if chat_id not in self._chats:
            self._chats[chat_id] = _chat(self._step.counter(chat_id))
        return self._chats[chat_id]

    def _leave(self, chat_id: str, error: RowUnreadable) -> None:
        """What this step has stored of the chat stays; what follows goes the long way, so that the order holds."""
        self._put_counter(chat_id, self._chats.get(chat_id))
        self._chats[chat_id] = None
        self.unreadable[chat_id] = error

    def finish(self) -> None:
        for chat_id, chat in self._chats.items():
            self._put_counter(chat_id, chat)

    def _put_counter(self, chat_id: str, chat: "_Chat | None") -> None:
        if chat is not None and (added := chat.last - chat.before.allocated):
            self._step.put_counter(chat_id, chat.counter())
            self.stored[chat_id] = added

    def _store(self, draft: Draft, digest: str, chat: "_Chat") -> Receipt:
        previous = chat.last_message
        chat.last = chat.last_message = sequence = chat.last + 1
        chat_id, created_at = draft.chat_id, self._created_at
        message = Message(
            message_id=MESSAGE + next(self._ulids),
            chat_id=chat_id,
            sequence=sequence,
            sender_id=draft.sender_id,
            client_message_id=draft.client_message_id,
            content=draft.content,
            content_type=draft.content_type,
            created_at=created_at,
        )
        decoded = message_persisted(
            message,
            prev_sequence=previous,
            members_version=chat.before.members_version,
            origin_connection_id=draft.origin_connection_id or "",
            producer_id=self._producer_id,
            trace_id=draft.trace_id,
            event_time=created_at,
        )
        self._step.add(
            Entry(message=message, content_sha256=digest, expires_at_s=self._expires_at_s),
            Event(
                key=chat_id,
                value=encode_message(decoded),
                headers=headers(MessagePersisted, draft.trace_id),
                decoded=decoded,
            ),
        )
        return Receipt(message_id=message.message_id, sequence=sequence, created_at=created_at, prev_sequence=previous)


class _Chat:
    """Where a chat stands: at first as it is stored, then with what was added."""

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

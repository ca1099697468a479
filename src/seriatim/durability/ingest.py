"""The entry of the durability plane: admits drafts, keeps one pipeline per active chat, answers reads and receipts.

Implements `ports.durability.Durability` and `History` within one process.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from seriatim.domain import limits
from seriatim.domain.circuit_breaker import BreakerState, CircuitBreaker
from seriatim.domain.errors import Draining, RowUnreadable, SeriatimError, ServerBusy
from seriatim.domain.message import Draft
from seriatim.durability.atomic_commit import AtomicCommitter
from seriatim.durability.deadline import Deadline
from seriatim.durability.guards import GuardedWriter, StoreGuard, events_refused, store_refused
from seriatim.durability.observer import DurabilityObserver
from seriatim.durability.pipeline import ChatPipeline, Pending
from seriatim.durability.publish import ChatPublisher
from seriatim.durability.reads import MemberReads
from seriatim.durability.reconcile import Reconciler
from seriatim.durability.slots import SlotWriter
from seriatim.durability.stable_prefix import PrefixReader
from seriatim.durability.watermarks import Watermarks
from seriatim.ports.atomic_store import AtomicStore
from seriatim.ports.catalog import UserChats
from seriatim.ports.clock import Clock
from seriatim.ports.durability import Answer, BackPage, PrefixPage
from seriatim.ports.event_log import EventWriter
from seriatim.ports.message_log import ChatCounter, MessageLog

T = TypeVar("T")


class Ingest:
    """One process's share of the durability plane. `run` keeps the reconciler going; `drain` ends it politely.

    `atomic_store`: a second handle on the same store, if that can commit whole sends atomically.
    `user_chats`: for gateways that search for chats which no push has shown; without it `joined` finds none.
    """

    def __init__(
        self,
        *,
        log: MessageLog,
        events: EventWriter,
        clock: Clock,
        producer_id: str,
        atomic_store: AtomicStore | None = None,
        user_chats: UserChats | None = None,
        observe: DurabilityObserver | None = None,
    ) -> None:
        self._log = log
        self._user_chats = user_chats
        self._clock = clock
        self._producer_id = producer_id
        self._observe = observe or DurabilityObserver()
        # Of the event log; where one engine holds both, of that engine.
        self._breaker = CircuitBreaker(partial(self._observe.breaker_changed, "events"))
        self._store_breaker = CircuitBreaker(partial(self._observe.breaker_changed, "store"))
        self._events = GuardedWriter(events, self._breaker, clock)
        self._guard = StoreGuard(self._store_breaker if atomic_store is None else None, clock)
        self._prefix = PrefixReader(log, clock, self._observe)
        self._reads = MemberReads(log, self._prefix, clock, self._observe)
        self._watermarks = Watermarks(log, clock)
        self._pipelines: dict[str, ChatPipeline] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._draining = False
        self._committer = None if atomic_store is None else self._atomic_committer(atomic_store)
        self.reconciler = Reconciler(
            log=log,
            publisher_of=self._publisher,
            busy=self._pipelines.__contains__,
            breaker=self._breaker,
            clock=clock,
            observe=self._observe,
        )

    def submit(self, draft: Draft, *, deadline: float, answer: Answer) -> None:
        """Admits a draft to its chat's queue, or answers at once (but never from within) why not.

        It was checked where it came into this process: by the gateway's codec, or by the gRPC server.
        """
        now = self._clock.monotonic()
        try:
            if self._draining or not self._breaker.closed or not self._store_breaker.closed:
                self._check_open(now)
            pending = Pending(draft, deadline=deadline, admitted_at=now, answer=answer)
            committer = self._committer
            if committer is None or draft.chat_id in self._pipelines:
                self._pipeline(draft.chat_id).put(pending)
            else:
                committer.submit(pending)
        except SeriatimError as error:
            asyncio.get_running_loop().call_soon(answer, error)

    async def read(self, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float) -> PrefixPage:
        reading = self._reads.read(user_id, chat_id, after=after, limit=limit, timeout_s=timeout_s)
        return await self._reported("read", chat_id, reading)

    async def read_back(
        self, user_id: str, chat_id: str, *, before: int, after: int, limit: int, timeout_s: float
    ) -> BackPage:
        """For a chat active here the pipeline's mark covers all that it has acknowledged."""
        pipeline = self._pipelines.get(chat_id)
        mark = pipeline.publisher.mark if pipeline else 0
        reading = self._reads.read_back(
            user_id, chat_id, before=before, after=after, limit=limit, mark=mark, timeout_s=timeout_s
        )
        return await self._reported("read_back", chat_id, reading)

    async def acknowledge(self, user_id: str, chat_id: str, *, sequence: int, timeout_s: float) -> None:
        raising = self._watermarks.acknowledge(user_id, chat_id, sequence=sequence, timeout_s=timeout_s)
        await self._reported("acknowledge", chat_id, raising)

    async def heads(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, int]:
        """The stored marks; for chats active here the pipeline knows better. What cannot be read is left out."""
        deadline = Deadline(self._clock, self._clock.monotonic() + timeout_s)
        counters = await self._counters(chat_ids, deadline)
        heads = {chat_id: counter.published_through for chat_id, counter in counters.items()}
        for chat_id in chat_ids:
            if chat_id in self._pipelines and chat_id in heads:
                heads[chat_id] = max(heads[chat_id], self._pipelines[chat_id].publisher.mark)
        return heads

    async def joined(self, since: Mapping[str, str], *, timeout_s: float) -> Mapping[str, Sequence[str]]:
        return {} if self._user_chats is None else await self._user_chats.joined(since, timeout_s=timeout_s)

    async def _reported(self, operation: str, chat_id: str, call: Awaitable[T]) -> T:
        try:
            return await call
        except SeriatimError as error:
            if error.http_status >= 500:
                self._observe.store_failed(operation, chat_id, error)
            raise

    async def _counters(self, chat_ids: Sequence[str], deadline: Deadline) -> Mapping[str, ChatCounter]:
        """Of all chats at once; halved when a row among them cannot be read, until that chat is alone."""
        try:
            return await self._log.counters(chat_ids, timeout_s=deadline.room(limits.PERSIST_DEADLINE_S))
        except RowUnreadable as error:
            if len(chat_ids) == 1:
                self._observe.row_unreadable(chat_ids[0], error)
                return {}
        middle = len(chat_ids) // 2
        return {
            **await self._counters(chat_ids[:middle], deadline),
            **await self._counters(chat_ids[middle:], deadline),
        }

    @property
    def active_chats(self) -> Sequence[str]:
        """Chats with a pipeline at this moment."""
        return list(self._pipelines)

    @property
    def breaker(self) -> BreakerState:
        """Towards the event log. While it is open nothing is admitted."""
        return self._breaker.state(self._clock.monotonic())

    @property
    def store_breaker(self) -> BreakerState:
        """Towards the store, where that is an engine of its own. While it is open nothing is admitted."""
        return self._store_breaker.state(self._clock.monotonic())

    async def run(self) -> None:
        """Settles what other processes left unpublished, until cancelled."""
        await self.reconciler.run()

    async def drain(self) -> None:
        """Takes nothing new, finishes what was admitted, flushes, returns when every pipeline has ended."""
        self._draining = True
        for pipeline in self._pipelines.values():
            pipeline.finish()
        if self._committer is not None:
            await self._committer.finish()  # first: it may still hand drafts to pipelines
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    def _check_open(self, now: float) -> None:
        if self._draining:
            raise Draining("this process is shutting down; retry with the same id")
        if self._breaker.state(now) is BreakerState.OPEN:
            raise events_refused(self._breaker.admit(now))
        if self._store_breaker.state(now) is BreakerState.OPEN:
            raise store_refused(self._store_breaker.admit(now))

    def _pipeline(self, chat_id: str) -> ChatPipeline:
        pipeline = self._pipelines.get(chat_id)
        if pipeline is None:
            if len(self._pipelines) >= limits.PIPELINES_MAX:
                raise ServerBusy("too many active chats on this process; retry in a second", retry_after_seconds=1)
            publisher = self._publisher(chat_id)
            slots = SlotWriter(
                chat_id,
                log=self._log,
                prefix=self._prefix,
                publisher=publisher,
                guard=self._guard,
                clock=self._clock,
                observe=self._observe,
            )
            pipeline = ChatPipeline(
                chat_id,
                log=self._log,
                publisher=publisher,
                slots=slots,
                guard=self._guard,
                clock=self._clock,
                observe=self._observe,
                on_end=lambda: self._ended(chat_id),
            )
            self._pipelines[chat_id] = pipeline
            self._tasks[chat_id] = asyncio.get_running_loop().create_task(pipeline.run())
        return pipeline

    def _atomic_committer(self, store: AtomicStore) -> AtomicCommitter:
        return AtomicCommitter(
            store,
            clock=self._clock,
            breaker=self._breaker,
            observe=self._observe,
            producer_id=self._producer_id,
            to_pipeline=self._submit_to_pipeline,
        )

    def _submit_to_pipeline(self, pending: Pending) -> None:
        try:
            pipeline = self._pipeline(pending.draft.chat_id)
            pipeline.put(pending)
            if self._draining:
                pipeline.finish()
        except SeriatimError as error:
            # Deferred: the callback may call submit() again.
            asyncio.get_running_loop().call_soon(pending.answer, error)

    def _ended(self, chat_id: str) -> None:
        del self._pipelines[chat_id], self._tasks[chat_id]

    def _publisher(self, chat_id: str) -> ChatPublisher:
        return ChatPublisher(
            chat_id,
            log=self._log,
            prefix=self._prefix,
            events=self._events,
            clock=self._clock,
            observe=self._observe,
            producer_id=self._producer_id,
        )

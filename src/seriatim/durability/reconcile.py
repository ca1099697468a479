"""Settles chats whose owner left something unpublished: no retry is needed for a message to be published (H8)."""

import asyncio
from collections.abc import Callable

from seriatim.domain import limits
from seriatim.domain.circuit_breaker import BreakerState, CircuitBreaker
from seriatim.domain.errors import RowUnreadable, SeriatimError
from seriatim.durability.deadline import Deadline
from seriatim.durability.observer import DurabilityObserver
from seriatim.durability.publish import ChatPublisher
from seriatim.ports.clock import Clock
from seriatim.ports.message_log import MessageLog


class Reconciler:
    """Sweeps the index of dirty chats. Several processes may do so at once: it costs duplicates, nothing else."""

    def __init__(
        self,
        *,
        log: MessageLog,
        publisher_of: Callable[[str], ChatPublisher],
        busy: Callable[[str], bool],
        breaker: CircuitBreaker,
        clock: Clock,
        observe: DurabilityObserver,
    ) -> None:
        self._log = log
        self._publisher_of = publisher_of
        self._busy = busy
        self._breaker = breaker
        self._clock = clock
        self._observe = observe
        self._unfinished: dict[str, ChatPublisher] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(limits.RECONCILE_EVERY_S * (0.5 + self._clock.random()))
            await self.sweep()

    async def sweep(self) -> None:
        """Settles every chat dirty for longer than `RECONCILE_AFTER_S` without a pipeline in this process."""
        before_ms = self._clock.now_ms() - int(limits.RECONCILE_AFTER_S * 1000)
        try:
            dirty = await self._log.dirty(
                before_ms=before_ms, limit=limits.RECONCILE_CHATS_MAX, timeout_s=limits.STORE_TIMEOUT_S
            )
        except SeriatimError as error:
            self._observe.store_failed("dirty", "", error)  # the next sweep asks again
            return
        if self._breaker.state(self._clock.monotonic()) is BreakerState.OPEN:
            return  # nothing could be published now
        async with asyncio.TaskGroup() as group:
            for chat in dirty:
                if not self._busy(chat.chat_id):
                    group.create_task(self._try_to_settle(chat.chat_id))

    async def _try_to_settle(self, chat_id: str) -> None:
        try:
            await self.settle(chat_id, Deadline(self._clock, self._clock.monotonic() + limits.SETTLE_DEADLINE_S))
        except RowUnreadable as error:
            self._observe.row_unreadable(chat_id, error)  # still dirty, and so it stays until the row is mended
        except SeriatimError as error:
            self._observe.store_failed("settle", chat_id, error)  # still dirty; the next sweep tries again
        except Exception as error:
            self._observe.failed("reconciler", error)

    async def settle(self, chat_id: str, deadline: Deadline) -> bool:
        """Every allocated slot is filled or sealed, every message published, and the chat marked clean."""
        counters = await self._log.counters([chat_id], timeout_s=deadline.room())
        counter = counters.get(chat_id)
        if counter is None:
            self._observe.counter_missing(chat_id)
            return False
        publisher = self._unfinished.pop(chat_id, None) or self._publisher_of(chat_id)
        publisher.adopt(counter.published_through, counter.published_message)
        try:
            await publisher.advance(counter.allocated, deadline=deadline)
        except SeriatimError:
            if len(self._unfinished) < limits.RECONCILE_CHATS_MAX:
                self._unfinished[chat_id] = publisher  # the next sweep goes on from its mark
            raise
        clean = await self._log.flush(
            chat_id,
            published_through=publisher.mark,
            published_message=publisher.last_message,
            timeout_s=deadline.room(),
        )
        if clean:
            self._observe.reconciled(chat_id)
        return clean

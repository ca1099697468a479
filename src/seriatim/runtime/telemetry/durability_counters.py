"""What the durability plane reports, as numbers, and as log lines where an operator may have to act."""

import logging
from collections.abc import Mapping, Sequence

from seriatim.domain.circuit_breaker import BreakerState
from seriatim.domain.errors import SeriatimError
from seriatim.durability.observer import DurabilityObserver
from seriatim.runtime.telemetry.counters import LOG_INTERVAL_S, LatencyHistogram
from seriatim.runtime.telemetry.failures import EVENTS_STEP, STORE_STEP
from seriatim.runtime.telemetry.hot_chats import HotChats
from seriatim.runtime.telemetry.logs import ThrottledLogger, described, log_event

_log = logging.getLogger("seriatim")


class DurabilityCounters(DurabilityObserver):
    def __init__(self) -> None:
        self.allocation = LatencyHistogram()
        self.persist = LatencyHistogram()
        self.produce = LatencyHistogram()
        self.slots_allocated = self.allocation_errors = 0
        self.transactions = self.messages_persisted = 0
        self.hits = self.conflicts = self.throttles = 0
        self.events_republished = self.slots_sealed = self.chats_reconciled = 0
        self.duplicate_sequences = self.counters_missing = self.rows_unreadable = self.failures = 0
        self.store_failures = self.publish_failures = 0
        self.overtaken = self.behind = self.cursors_beyond_end = 0
        self.hot = HotChats()
        self._throttled = ThrottledLogger(_log, every_s=LOG_INTERVAL_S)

    def allocated(self, count: int, seconds: float) -> None:
        self.slots_allocated += count
        self.allocation.add(seconds)

    def persisted(self, stored: Mapping[str, int]) -> None:
        self.hot.note(stored)
        self.transactions += len(stored)
        self.messages_persisted += sum(stored.values())

    def answered(self, seconds: Sequence[float]) -> None:
        self.persist.add_all(seconds)

    def hit(self) -> None:
        self.hits += 1

    def refused_by_store(self, kind: str) -> None:
        if kind == "conflict":
            self.conflicts += 1
        else:
            self.throttles += 1

    def published(self, count: int, seconds: float) -> None:
        self.produce.add(seconds)

    def republished(self, count: int) -> None:
        self.events_republished += count

    def sealed(self, chat_id: str, sequence: int) -> None:
        self.slots_sealed += 1
        self._throttled.log(logging.INFO, "slot_sealed", chat_id=chat_id, sequence=sequence)

    def duplicate_sequence(self, chat_id: str, sequence: int) -> None:
        self.duplicate_sequences += 1
        self._throttled.log(
            logging.CRITICAL,
            "duplicate_sequence",
            severity="SEV-1",
            chat_id=chat_id,
            sequence=sequence,
            next_step="nothing was overwritten; find out who allocated below the counter, such as a restored backup",
        )

    def counter_missing(self, chat_id: str) -> None:
        self.counters_missing += 1
        self._throttled.log(
            logging.CRITICAL,
            "counter_missing",
            severity="SEV-1",
            chat_id=chat_id,
            next_step="this chat is halted, all others go on; repair its counter",
        )

    def row_unreadable(self, chat_id: str, error: SeriatimError) -> None:
        self.rows_unreadable += 1
        self._throttled.log(
            logging.CRITICAL,
            "row_unreadable",
            severity="SEV-2",
            chat_id=chat_id,
            reason=error.log_reason,
            next_step="this chat waits, all others go on; take a backup, then run `seriatim check`",
        )

    def cursor_beyond_end(self, chat_id: str, cursor: int, end: int) -> None:
        self.cursors_beyond_end += 1
        self._throttled.log(
            logging.WARNING,
            "cursor_beyond_end",
            chat_id=chat_id,
            cursor=cursor,
            end=end,
            next_step="many of these mean that an old copy of the data was restored: devices do not show new messages "
            "under numbers that they have; see Backup in docs/operating.md",
        )

    def traced(self, step: str, chat_id: str, sequence: int, message_id: str) -> None:
        log_event(_log, logging.DEBUG, f"message_{step}", chat_id=chat_id, sequence=sequence, message_id=message_id)

    def store_failed(self, operation: str, chat_id: str, error: SeriatimError) -> None:
        self.store_failures += 1
        self._throttled.log(
            logging.ERROR if error.trips_breaker else logging.WARNING,
            "store_failed",
            operation=operation,
            chat_id=chat_id or None,
            reason=error.log_reason,
            next_step=STORE_STEP,
        )

    def publish_failed(self, chat_id: str, sequence: int, message_id: str, error: SeriatimError) -> None:
        self.publish_failures += 1
        self._throttled.log(
            logging.ERROR,
            "publish_failed",
            chat_id=chat_id,
            sequence=sequence,
            message_id=message_id,
            reason=error.log_reason,
            next_step=EVENTS_STEP,
        )

    def breaker_changed(self, part: str, state: str, reason: str) -> None:
        level, step = _BREAKER_LINES[BreakerState(state)]
        log_event(_log, level, f"breaker_{BreakerState(state).value}", part=part, reason=reason, next_step=step)

    def reconciled(self, chat_id: str) -> None:
        self.chats_reconciled += 1

    def failed(self, where: str, error: BaseException) -> None:
        self.failures += 1
        self._throttled.log(logging.ERROR, "bug_in_durability", where=where, **described(error))


_BREAKER_LINES = {
    BreakerState.OPEN: (logging.ERROR, "sends are refused for a while; the reason says what to mend"),
    BreakerState.HALF_OPEN: (logging.WARNING, "nothing: the outcome of one call decides"),
    BreakerState.CLOSED: (logging.INFO, "nothing: sends are taken again"),
}

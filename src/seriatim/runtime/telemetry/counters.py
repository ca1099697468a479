"""What the planes report is counted here, as plain numbers: an observer on the path of a send may cost no time.

`metrics` turns the numbers into text at a scrape. What needs an operator is logged here as well, at once.
"""

import logging
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import accumulate

from seriatim.api.core.observer import ApiObserver
from seriatim.connection.observer import GatewayObserver, ListenerObserver
from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError
from seriatim.fanout.observer import FanoutObserver, SkipReason
from seriatim.ports.event_log import DeadLetter, Partition
from seriatim.protocol.frames import CloseReason
from seriatim.runtime.telemetry.failures import DIRECTORY_STEP, EVENTS_STEP, STORE_STEP, reason_of
from seriatim.runtime.telemetry.logs import ThrottledLogger, described, log_event
from seriatim.services.membership import MembershipObserver

_log = logging.getLogger("seriatim")
LOG_INTERVAL_S = 10.0  # a line that repeats a thousand times a second helps no operator
ATTACK_LOG_INTERVAL_S = 60.0  # strangers cause these lines: they must not fill a disk

# From a send in a healthy embedded store (a millisecond) to the deadline of 5 s, dense where the objectives lie.
LATENCY_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class LatencyHistogram:
    """A histogram without locks: everything that observes runs on one event loop."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def cumulative(self) -> list[tuple[str, int]]:
        """How many lie at or below each bound, as Prometheus wants them."""
        return list(zip((*map(str, LATENCY_BOUNDS_S), "+Inf"), accumulate(self.counts), strict=True))

    def add_all(self, seconds: Sequence[float]) -> None:
        counts = self.counts
        for each in seconds:
            counts[bisect_left(LATENCY_BOUNDS_S, each)] += 1
        self.sum_s += sum(seconds)


class WindowedRatio:
    """Part of a whole over the last while, from two totals that only grow. `note` it every few seconds."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._notes: deque[tuple[float, int, int]] = deque()

    def note(self, now: float, part: int, whole: int) -> None:
        self._notes.append((now, part, whole))
        # The youngest note outside of the window stays: it says where the window began.
        while len(self._notes) > 2 and self._notes[1][0] <= now - self._window_s:
            self._notes.popleft()

    def value(self) -> float:
        if not self._notes:
            return 0.0
        (_, part, whole), (_, part_now, whole_now) = self._notes[0], self._notes[-1]
        return (part_now - part) / (whole_now - whole) if whole_now > whole else 0.0


_FORCED_TO_SYNC = (CloseReason.SLOW_CONSUMER, CloseReason.LOAD_SHEDDING, CloseReason.UPSTREAM_FAILURE)


class GatewayCounters(GatewayObserver):
    def __init__(self) -> None:
        self.opened = self.slow_disconnects = self.timeouts = self.forced_resyncs = 0
        self.slow_warnings = self.buffers_high = self.unknown_frames = self.unknown_connections = 0
        self.fills_failed = self.messages_filled = self.pushes_repeated = self.directory_errors = 0
        self.rejections: Counter[str] = Counter()
        self.closings: Counter[str] = Counter()
        self.subscribed = False
        self._throttled = ThrottledLogger(_log, every_s=LOG_INTERVAL_S)

    def connection_opened(self) -> None:
        self.opened += 1

    def connection_closed(self, reason: CloseReason | None) -> None:
        self.closings["client" if reason is None else reason.value] += 1
        self.slow_disconnects += reason is CloseReason.SLOW_CONSUMER
        self.timeouts += reason is CloseReason.IDLE_TIMEOUT
        self.forced_resyncs += reason in _FORCED_TO_SYNC
        log_event(_log, logging.DEBUG, "connection_closed", reason="client" if reason is None else reason.value)

    def rejected(self, code: str) -> None:
        self.rejections[code] += 1

    def unknown_frame(self, frame_type: str) -> None:
        self.unknown_frames += 1

    def unknown_connection(self, messages: int) -> None:
        self.unknown_connections += messages

    def buffer_high(self, frames: int) -> None:
        self.buffers_high += 1
        self._throttled.log(
            logging.WARNING,
            "outbound_buffer_high",
            frames=frames,
            next_step="a device reads more slowly than its chats write; if there are many, check network and CPU here",
        )

    def slow_consumer(self) -> None:
        self.slow_warnings += 1
        self._throttled.log(
            logging.WARNING,
            "slow_consumer_warned",
            next_step="its device reads too slowly and was told so; if there are many, check network and CPU here",
        )

    def directory_failed(self, operation: str, error: SeriatimError) -> None:
        self.directory_errors += 1
        self._throttled.log(
            logging.WARNING,
            "directory_failed",
            operation=operation,
            reason=error.log_reason,
            next_step=DIRECTORY_STEP,
        )

    def fill_failed(self, error: SeriatimError) -> None:
        self.fills_failed += 1
        self._throttled.log(
            logging.WARNING,
            "fill_failed",
            error_code=error.code,
            reason=error.log_reason,
            next_step="it is tried again; if it goes on, see store_failed of the ingest processes",
        )

    def filled(self, messages: int) -> None:
        self.messages_filled += messages

    def repeated(self) -> None:
        self.pushes_repeated += 1

    def subscription(self, active: bool) -> None:
        self.subscribed = active


class ListenerCounters(ListenerObserver):
    """Around the connections: what never became one, and HTTP that no application saw."""

    def __init__(self) -> None:
        self.handshakes_refused: Counter[str] = Counter()
        self.http_refusals: Counter[str] = Counter()
        self.timeouts: Counter[str] = Counter()
        self.sockets_refused: Counter[str] = Counter()
        self.idle_evictions = 0
        self.handshakes_under_way = 0
        self.revocations_unknown = 0
        self._throttled = ThrottledLogger(_log, every_s=LOG_INTERVAL_S)
        self._throttled_minute = ThrottledLogger(_log, every_s=ATTACK_LOG_INTERVAL_S)

    def handshake_refused(self, code: str) -> None:
        self.handshakes_refused[code] += 1

    def http_refused(self, status: int) -> None:
        self.http_refusals[str(status)] += 1

    def http_failed(self, failure: Exception) -> None:
        self._throttled.log(logging.ERROR, "bug_in_http", **described(failure))

    def timed_out(self, what: str) -> None:
        self.timeouts[what] += 1

    def socket_refused(self, reason: str) -> None:
        self.sockets_refused[reason] += 1
        if reason == "places":
            self._throttled_minute.log(logging.WARNING, "http_places_full", places=limits.HTTP_CONNECTIONS_MAX)
        else:
            self._throttled_minute.log(
                logging.WARNING, "address_share_full", next_step="docs/operating.md: sockets of strangers"
            )

    def idle_evicted(self) -> None:
        self.idle_evictions += 1

    def accept_failed(self, error: OSError) -> None:
        self.sockets_refused["descriptors"] += 1
        self._throttled_minute.log(
            logging.ERROR, "accept_failed", error=error.strerror or str(error), next_step="see ulimit -n"
        )

    def tls_handshakes(self, under_way: int) -> None:
        self.handshakes_under_way = under_way

    def revocation_unknown(self, error: SeriatimError) -> None:
        self.revocations_unknown += 1
        self._throttled.log(
            logging.WARNING,
            "revocation_unknown",
            reason=error.log_reason,
            next_step="the session stays open until the next check; check Redis and the network to it",
        )


class FanoutCounters(FanoutObserver):
    def __init__(self) -> None:
        self.envelopes_delivered = self.messages_delivered = 0
        self.skips: Counter[str] = Counter()
        self.retries = self.caches_failed = self.dead_letters = self.dead_letters_failed = 0
        self.commits_failed = self.restarts = self.rebalances = 0
        self._throttled = ThrottledLogger(_log, every_s=LOG_INTERVAL_S)

    def delivered(self, envelopes: int, connections: int) -> None:
        self.envelopes_delivered += envelopes
        self.messages_delivered += connections

    def skipped(self, reason: SkipReason, error: Exception | None = None) -> None:
        self.skips[reason.value] += 1
        if error is not None:
            self._throttled.log(
                logging.WARNING, "push_failed", part=reason.value, reason=reason_of(error), next_step=DIRECTORY_STEP
            )

    def traced(self, step: str, chat_id: str, sequence: int, message_id: str, connections: int) -> None:
        log_event(
            _log,
            logging.DEBUG,
            f"message_{step}",
            chat_id=chat_id,
            sequence=sequence,
            message_id=message_id,
            connections=connections,
        )

    def retried(self) -> None:
        self.retries += 1

    def cache_failed(self) -> None:
        self.caches_failed += 1

    def unknown_version(self, event_version: int) -> None:
        self._throttled.log(logging.WARNING, "unknown_event_version", event_version=event_version)

    def dead_letter_written(self, dead_letter: DeadLetter) -> None:
        self.dead_letters += 1
        record = dead_letter.record
        self._throttled.log(
            logging.ERROR,
            "dead_letter_written",
            topic=record.partition.topic,
            partition=record.partition.number,
            offset=record.offset,
            reason=dead_letter.reason.partition(":")[0],  # what follows may quote the record
            attempts=dead_letter.attempts,
            next_step="its push is lost and the message is not: clients sync it; read it in the topic dead_letters",
        )

    def dead_letter_failed(self, partition: Partition, error: Exception) -> None:
        self.dead_letters_failed += 1
        self._throttled.log(
            logging.CRITICAL,
            "dead_letter_failed",
            severity="SEV-2",
            topic=partition.topic,
            partition=partition.number,
            reason=reason_of(error),
            next_step="this partition waits until the event log can be written again",
        )

    def commit_failed(self, partition: Partition, error: Exception) -> None:
        self.commits_failed += 1
        self._throttled.log(
            logging.WARNING,
            "offset_commit_failed",
            topic=partition.topic,
            partition=partition.number,
            reason=reason_of(error),
            next_step="the next commit covers it; if it goes on, check the event log",
        )

    def restarted(self, error: Exception) -> None:
        self.restarts += 1
        self._throttled.log(logging.WARNING, "fanout_restarted", reason=reason_of(error), next_step=EVENTS_STEP)

    def rebalanced(self) -> None:
        self.rebalances += 1


class MembershipCounters(MembershipObserver):
    def __init__(self) -> None:
        self.publish_failures = 0
        self._throttled = ThrottledLogger(_log, every_s=LOG_INTERVAL_S)

    def event_not_published(self, chat_id: str, error: SeriatimError) -> None:
        self.publish_failures += 1
        self._throttled.log(
            logging.CRITICAL,
            "membership_event_not_published",
            severity="SEV-2",
            chat_id=chat_id,
            reason=error.log_reason,
            next_step="the change is committed and routing stays right; other readers of the event log miss it",
        )


class ApiCounters(ApiObserver):
    """Requests by method and status: routes are few, but statuses by route would be many series."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.latency = LatencyHistogram()
        self.audits: Counter[str] = Counter()
        self._throttled = ThrottledLogger(_log, every_s=LOG_INTERVAL_S)

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        self.requests[method, status] += 1
        self.latency.add(seconds)
        if status >= 500:
            self._throttled.log(logging.WARNING, "request_failed", route=route, method=method, status=status)
        log_event(
            _log,
            logging.DEBUG,
            "request",
            route=route,
            method=method,
            status=status,
            milliseconds=round(seconds * 1000, 1),
        )

    def unavailable(self, request_id: str, route: str, error: SeriatimError) -> None:
        self._throttled.log(
            logging.WARNING,
            "request_unavailable",
            route=route,
            request_id=request_id,
            reason=error.log_reason,
            next_step=STORE_STEP,
        )

    def failed(self, request_id: str, error: BaseException) -> None:
        log_event(_log, logging.ERROR, "bug_in_api", request_id=request_id, **described(error))

    def audit(self, event: str, fields: Mapping[str, object]) -> None:
        self.audits[event] += 1
        log_event(_log, logging.INFO, event, **fields)

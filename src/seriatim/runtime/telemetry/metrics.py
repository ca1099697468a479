"""The counts as Prometheus reads them: names of docs/spec/data.md#metrics, one label `instance`, never an id.

Where the table names a store by its product, the engine that takes its place here is meant.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from seriatim.ports.event_log import Partition
from seriatim.runtime.config.roles import ALL_ROLES, ProcessRole
from seriatim.runtime.telemetry.counters import (
    LATENCY_BOUNDS_S,
    ApiCounters,
    DurabilityCounters,
    FanoutCounters,
    GatewayCounters,
    LatencyHistogram,
    ListenerCounters,
    MembershipCounters,
    WindowedRatio,
)
from seriatim.runtime.telemetry.grpc_counters import GrpcCounters
from seriatim.runtime.telemetry.logs import ThrottledLogger

CONTENT_TYPE = CONTENT_TYPE_LATEST
SHORT_WINDOW_S = 300.0
GAP_WINDOW_S = 900.0  # docs/spec/data.md#metrics


class LiveState(msgspec.Struct, frozen=True, kw_only=True):
    """What is so at this moment, looked up when somebody asks."""

    ready: bool
    store_available: bool
    events_available: bool
    breaker_open: bool
    connections: int
    outbound_frames_max: int
    active_chats: int
    lag_records: Mapping[Partition, int]
    lag_s: float | None  # None: nobody can tell
    dead_letters: int | None
    under_replicated: int | None = None
    stalled: int = 0  # partitions of this process that do not move while their end does


class EngineCounter(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine counted by itself: `counts` by the values of `labels`."""

    name: str
    text: str
    labels: tuple[str, ...] = ()
    counts: Mapping[tuple[str, ...], int]


class Metrics(Collector):
    """`tick` it every few seconds, so that shares over a window know where it began."""

    def __init__(self, instance: str, roles: Sequence[ProcessRole] = ALL_ROLES) -> None:
        self.durability = DurabilityCounters()
        self.gateway = GatewayCounters()
        self.listener = ListenerCounters()
        self.fanout = FanoutCounters()
        self.memberships = MembershipCounters()
        self.api = ApiCounters()
        self.grpc = GrpcCounters()
        self.engine_counters: list[Callable[[], Iterable[EngineCounter]]] = []  # asked at every scrape
        self._instance = instance
        self._roles = roles
        self._conflicts = WindowedRatio(SHORT_WINDOW_S)
        self._hits = WindowedRatio(SHORT_WINDOW_S)
        self._skips = WindowedRatio(SHORT_WINDOW_S)
        self._gaps = WindowedRatio(GAP_WINDOW_S)
        self._live: LiveState | None = None
        self._throttled = ThrottledLogger(logging.getLogger("seriatim"), every_s=60.0)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def tick(self, now: float) -> None:
        durability, fanout = self.durability, self.fanout
        skipped = fanout.skips.total()
        self._conflicts.note(now, durability.conflicts, durability.conflicts + durability.transactions)
        self._hits.note(now, durability.hits, durability.hits + durability.messages_persisted)
        self._skips.note(now, skipped, skipped + fanout.envelopes_delivered)
        lost = durability.slots_allocated - durability.messages_persisted
        self._gaps.note(now, lost, durability.slots_allocated)
        durability.hot.tick(now)

    def key_reload_failed(self, error: Exception) -> None:
        self._throttled.log(
            logging.ERROR, "keys_not_reread", error=str(error), next_step="tokens still work with the keys of before"
        )

    def text(self, live: LiveState, now: float) -> bytes:
        self.tick(now)
        self._live = live
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        live = self._live
        if live is None:
            return
        # Only what is here: a gauge of a part that runs elsewhere would say that it is down.
        if ProcessRole.INGEST in self._roles:
            yield from self._of_durability(live)
        if ProcessRole.GATEWAY in self._roles:
            yield from self._of_gateway(live)
        if ProcessRole.FANOUT in self._roles:
            yield from self._of_fanout(live)
        if ProcessRole.API in self._roles:
            yield from self._of_api()
        yield from self._of_processes()
        yield from self._of_engines()

    # --- the table, plane by plane ------------------------------------------------------------------------------------

    def _of_durability(self, live: LiveState) -> Iterator[Metric]:
        counts = self.durability
        missing = "SEV-1: a chat's counter row is gone, and the chat is halted"
        yield self._counter("durability_counter_corruption", missing, counts.counters_missing)
        yield self._counter("counter_missing_errors", missing, counts.counters_missing)
        yield self._counter(
            "durability_duplicate_sequence",
            "SEV-1: an allocated slot already held a message; nothing was overwritten",
            counts.duplicate_sequences,
        )
        yield self._counter(
            "durability_rows_unreadable",
            "SEV-2: a row of a chat could not be read; that chat waits, all others go on",
            counts.rows_unreadable,
        )
        yield self._counter(
            "durability_cursors_beyond_end",
            "Syncs of devices that have more of a chat than the store; many after a restore",
            counts.cursors_beyond_end,
        )
        yield self._gauge("durability_dynamodb_available", "1 while the store answers", live.store_available)
        yield self._gauge("durability_kafka_available", "1 while the event log takes events", live.events_available)
        yield self._timings("durability_persist_latency", "From admission of a send to its ack", counts.persist)
        yield self._timings("sequence_allocation_latency", "One allocation of slots", counts.allocation)
        yield self._timings("durability_kafka_produce_latency", "One append to the event log", counts.produce)
        yield self._counter("sequence_allocation_errors", "Allocations that failed", counts.allocation_errors)
        yield self._gauge(
            "durability_transaction_conflict_rate", "Share of transactions refused, 5 min", self._conflicts.value()
        )
        for name in ("idempotency_hit_rate", "durability_idempotency_hit_rate"):
            yield self._gauge(name, "Share of sends that were retries, 5 min", self._hits.value())
        yield self._gauge("sequence_gap_rate", "Share of allocated slots left without a message, 15 min", self._gap())
        yield self._counter("durability_dynamodb_throttle_count", "Refusals for lack of capacity", counts.throttles)
        yield self._counter("durability_messages_persisted_rate", "Messages stored", counts.messages_persisted)
        yield self._counter("durability_events_republished", "Events published again", counts.events_republished)
        yield self._counter("durability_slots_sealed", "Slots closed with a tombstone", counts.slots_sealed)
        yield self._counter("durability_chats_reconciled", "Chats settled for their owner", counts.chats_reconciled)
        yield self._counter(
            "durability_persist_out_of_order",
            "Slots found empty below a filled one: their writer was overtaken, or gave up",
            counts.overtaken,
        )
        yield self._counter(
            "durability_allocations_behind",
            "Allocations that met another process ahead in their chat: sends that went to the wrong one",
            counts.behind,
        )
        yield self._gauge("durability_chats_active", "Chats with a pipeline", live.active_chats)

    def _of_gateway(self, live: LiveState) -> Iterator[Metric]:
        counts = self.gateway
        yield self._gauge("gateway_circuit_breaker_open", "1 while sends are refused", live.breaker_open)
        yield self._counter("gateway_slow_consumer_disconnects", "Slow readers closed", counts.slow_disconnects)
        timeouts = counts.timeouts + self.listener.timeouts.total()
        yield self._counter("gateway_connection_timeout", "Peers that stopped answering", timeouts)
        yield self._counter("gateway_redis_connection_errors", "Failures of the directory", counts.directory_errors)
        yield self._gauge("gateway_redis_available", "1 while pushes can arrive", counts.subscribed)
        yield self._gauge("gateway_instances_healthy", "Gateways that take newcomers, as seen here", live.ready)
        yield self._gauge("gateway_connections_active", "Open WebSocket connections", live.connections)
        yield self._gauge(
            "gateway_outbound_frames_max", "Pushes that wait for the slowest reader", live.outbound_frames_max
        )
        yield self._counter("gateway_connections_rate", "WebSocket connections opened", counts.opened)
        yield self._counter("client_resync_forced_rate", "Closings that force a client to sync", counts.forced_resyncs)
        yield self._counter("gateway_messages_filled", "Messages read back for a push", counts.messages_filled)
        yield self._counter("gateway_pushes_repeated", "Pushes of what was there already", counts.pushes_repeated)
        yield self._by("gateway_errors_sent", "Error frames", "code", counts.rejections)
        yield self._by("gateway_connections_closed", "Connections closed", "reason", counts.closings)
        yield self._by("gateway_handshakes_refused", "WebSocket refused", "reason", self.listener.handshakes_refused)
        yield self._by("gateway_http_refused", "HTTP refused unread", "status", self.listener.http_refusals)

    def _of_fanout(self, live: LiveState) -> Iterator[Metric]:
        counts = self.fanout
        lag = GaugeMetricFamily(
            "fanout_kafka_consumer_lag", "Events not yet handled", labels=("instance", "topic", "partition")
        )
        for partition, records in live.lag_records.items():
            lag.add_metric((self._instance, partition.topic, str(partition.number)), records)
        yield lag
        if live.lag_s is not None:
            age = "Age of the oldest event not yet handled"
            yield self._gauge("fanout_kafka_consumer_lag_seconds", age, live.lag_s)
        yield self._gauge("fanout_delivery_skip_rate", "Share of deliveries skipped, 5 min", self._skips.value())
        yield self._counter("fanout_dlq_rate", "Dead letters written", counts.dead_letters)
        if live.dead_letters is not None:
            yield self._gauge("fanout_dlq_depth", "Dead letters kept", live.dead_letters)
        if live.under_replicated is not None:
            yield self._gauge("under_replicated_partitions", "Partitions that lack a copy", live.under_replicated)
        stalled = "Partitions of this process that stand still while events arrive"
        yield self._gauge("fanout_partitions_stalled", stalled, live.stalled)
        yield self._counter("fanout_rebalances", "Assignments of partitions", counts.rebalances)
        yield self._counter("fanout_retry_count", "Repeated calls of fanout", counts.retries)
        yield self._counter("fanout_consumer_restarts", "Joins and polls that failed", counts.restarts)
        yield self._counter("fanout_messages_delivered_rate", "Messages pushed", counts.messages_delivered)
        yield self._by("fanout_deliveries_skipped", "Deliveries skipped", "reason", counts.skips)

    def _of_api(self) -> Iterator[Metric]:
        yield self._counter(
            "kafka_lifecycle_publish_failures",
            "SEV-2: committed changes of membership that no event tells of",
            self.memberships.publish_failures,
        )
        yield self._timings("rest_request_latency", "One REST request", self.api.latency)
        requests = CounterMetricFamily("rest_requests", "REST requests", labels=("instance", "method", "status"))
        for (method, status), count in self.api.requests.items():
            requests.add_metric((self._instance, method, str(status)), count)
        yield requests
        yield self._by("audit_events", "Events of the audit log", "event", self.api.audits)

    def _of_processes(self) -> Iterator[Metric]:
        counts = self.grpc
        if counts.dials:
            yield self._gauge("rpc_ingest_processes", "Ingest processes that take drafts from here", len(counts.peers))
            yield self._counter("rpc_streams_ended", "Streams to ingest processes that ended", counts.lost)
            yield self._counter("rpc_sends_unknown", "Sends that were under way on them", counts.unknown)
            yield self._counter("rpc_dials_failed", "Dials that reached nobody", counts.unreachable_count)
        if counts.listens:
            yield self._counter("rpc_batches_late", "Batches of drafts that were late", counts.late_batches)
            yield self._counter("rpc_failures", "Bugs met while answering", counts.failures)

    def _of_engines(self) -> Iterator[Metric]:
        for tally in [each for ask in self.engine_counters for each in ask()]:
            family = CounterMetricFamily(tally.name, tally.text, labels=("instance", *tally.labels))
            for values, count in tally.counts.items():
                family.add_metric((self._instance, *values), count)
            yield family

    # --- families -----------------------------------------------------------------------------------------------------

    def _gap(self) -> float:
        # A slot allocated a moment ago is no gap yet, nor is one that was stored after the window began.
        return min(1.0, max(0.0, self._gaps.value()))

    def _counter(self, name: str, text: str, value: int) -> Metric:
        family = CounterMetricFamily(name, text, labels=("instance",))
        family.add_metric((self._instance,), value)
        return family

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, text, labels=("instance",))
        family.add_metric((self._instance,), value)
        return family

    def _timings(self, name: str, text: str, timings: LatencyHistogram) -> Metric:
        family = HistogramMetricFamily(f"{name}_seconds", text, labels=("instance",))
        total = 0
        buckets = []
        for bound, count in zip((*map(str, LATENCY_BOUNDS_S), "+Inf"), timings.counts, strict=True):
            total += count
            buckets.append((bound, total))
        family.add_metric((self._instance,), buckets, timings.sum_s)
        return family

    def _by(self, name: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
        family = CounterMetricFamily(name, text, labels=("instance", label))
        for value, count in counts.items():
            family.add_metric((self._instance, value), count)
        return family

"""Every metric of the server, one line each: name, kind, labels, help text, and where its value is read.

`/metrics` and docs/metrics.md are written from this table. A new metric is an attribute in `counters`, and a line here.
Names are those of docs/spec/data.md#metrics. Where a name says DynamoDB, Kafka or Redis, the engine in its place is
meant. Every metric also has the label `instance`; none has an id as a label.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from seriatim.runtime.config.roles import ProcessRole

if TYPE_CHECKING:
    from seriatim.runtime.telemetry.counters import LatencyHistogram
    from seriatim.runtime.telemetry.metrics import LiveState, Metrics

    Numbers = Mapping[str, int] | Mapping[tuple[str, str], int]
    Value = float | Numbers | LatencyHistogram | None


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricSpec(msgspec.Struct, frozen=True):
    """`name` lacks what Prometheus adds: `_total` for a counter. `source` gives a number, numbers by label, a
    histogram, or None while this process does not know. Engines that count by themselves have no `source`.
    """

    name: str
    kind: MetricKind
    help: str
    source: "Callable[[Metrics, LiveState], Value] | None" = None
    labels: tuple[str, ...] = ()

    @property
    def shown_name(self) -> str:
        return f"{self.name}_total" if self.kind is MetricKind.COUNTER else self.name


COUNTER, GAUGE, HISTOGRAM = MetricKind
_COUNTER_MISSING = "SEV-1: a chat's counter row is gone, and the chat is halted"
_HITS = "Share of sends that were retries, 5 min"

# By role: a gauge of a part that runs in another process would say that it is down.
DURABILITY = (
    MetricSpec("durability_counter_corruption", COUNTER, _COUNTER_MISSING, lambda m, _: m.durability.counters_missing),
    MetricSpec("counter_missing_errors", COUNTER, _COUNTER_MISSING, lambda m, _: m.durability.counters_missing),
    MetricSpec(
        "durability_duplicate_sequence",
        COUNTER,
        "SEV-1: an allocated slot already held a message; nothing was overwritten",
        lambda m, _: m.durability.duplicate_sequences,
    ),
    MetricSpec(
        "durability_rows_unreadable",
        COUNTER,
        "SEV-2: a row of a chat could not be read; that chat waits, all others go on",
        lambda m, _: m.durability.rows_unreadable,
    ),
    MetricSpec(
        "durability_cursors_beyond_end",
        COUNTER,
        "Syncs of devices that have more of a chat than the store; many after a restore",
        lambda m, _: m.durability.cursors_beyond_end,
    ),
    MetricSpec(
        "durability_dynamodb_available", GAUGE, "1 while the store answers", lambda _, live: live.store_available
    ),
    MetricSpec(
        "durability_kafka_available", GAUGE, "1 while the event log takes events", lambda _, live: live.events_available
    ),
    MetricSpec(
        "durability_persist_latency_seconds",
        HISTOGRAM,
        "From admission of a send to its ack",
        lambda m, _: m.durability.persist,
    ),
    MetricSpec(
        "sequence_allocation_latency_seconds",
        HISTOGRAM,
        "One allocation of slots",
        lambda m, _: m.durability.allocation,
    ),
    MetricSpec(
        "durability_kafka_produce_latency_seconds",
        HISTOGRAM,
        "One append to the event log",
        lambda m, _: m.durability.produce,
    ),
    MetricSpec(
        "sequence_allocation_errors", COUNTER, "Allocations that failed", lambda m, _: m.durability.allocation_errors
    ),
    MetricSpec(
        "durability_transaction_conflict_rate",
        GAUGE,
        "Share of transactions refused, 5 min",
        lambda m, _: m.conflict_ratio.value(),
    ),
    MetricSpec("idempotency_hit_rate", GAUGE, _HITS, lambda m, _: m.hit_ratio.value()),
    MetricSpec("durability_idempotency_hit_rate", GAUGE, _HITS, lambda m, _: m.hit_ratio.value()),
    MetricSpec(
        "sequence_gap_rate",
        GAUGE,
        "Share of allocated slots left without a message, 15 min",
        # A slot allocated a moment ago is no gap yet, nor is one that was stored after the window began.
        lambda m, _: min(1.0, max(0.0, m.gap_ratio.value())),
    ),
    MetricSpec(
        "durability_dynamodb_throttle_count",
        COUNTER,
        "Refusals for lack of capacity",
        lambda m, _: m.durability.throttles,
    ),
    MetricSpec(
        "durability_messages_persisted_rate", COUNTER, "Messages stored", lambda m, _: m.durability.messages_persisted
    ),
    MetricSpec(
        "durability_store_failures",
        COUNTER,
        "Operations of the store that it refused or did not answer",
        lambda m, _: m.durability.store_failures,
    ),
    MetricSpec(
        "durability_publish_failures",
        COUNTER,
        "Appends of stored messages to the event log that failed",
        lambda m, _: m.durability.publish_failures,
    ),
    MetricSpec(
        "durability_events_republished",
        COUNTER,
        "Events published again",
        lambda m, _: m.durability.events_republished,
    ),
    MetricSpec(
        "durability_slots_sealed", COUNTER, "Slots closed with a tombstone", lambda m, _: m.durability.slots_sealed
    ),
    MetricSpec(
        "durability_chats_reconciled",
        COUNTER,
        "Chats settled for their owner",
        lambda m, _: m.durability.chats_reconciled,
    ),
    MetricSpec(
        "durability_persist_out_of_order",
        COUNTER,
        "Slots found empty below a filled one: their writer was overtaken, or gave up",
        lambda m, _: m.durability.overtaken,
    ),
    MetricSpec(
        "durability_allocations_behind",
        COUNTER,
        "Allocations that met another process ahead in their chat: sends that went to the wrong one",
        lambda m, _: m.durability.behind,
    ),
    MetricSpec("durability_chats_active", GAUGE, "Chats with a pipeline", lambda _, live: live.active_chats),
)

GATEWAY = (
    MetricSpec("gateway_circuit_breaker_open", GAUGE, "1 while sends are refused", lambda _, live: live.breaker_open),
    MetricSpec(
        "gateway_slow_consumer_disconnects", COUNTER, "Slow readers closed", lambda m, _: m.gateway.slow_disconnects
    ),
    MetricSpec(
        "gateway_connection_timeout",
        COUNTER,
        "Peers that stopped answering",
        lambda m, _: m.gateway.timeouts + m.listener.timeouts.total(),
    ),
    MetricSpec(
        "gateway_redis_connection_errors",
        COUNTER,
        "Failures of the directory",
        lambda m, _: m.gateway.directory_errors,
    ),
    MetricSpec(
        "gateway_redis_available",
        GAUGE,
        "1 while Redis answers and pushes can arrive",
        lambda m, live: m.gateway.subscribed and live.directory_available,
    ),
    MetricSpec(
        "gateway_instances_healthy", GAUGE, "Gateways that take newcomers, as seen here", lambda _, live: live.ready
    ),
    MetricSpec("gateway_connections_active", GAUGE, "Open WebSocket connections", lambda _, live: live.connections),
    MetricSpec(
        "gateway_outbound_frames_max",
        GAUGE,
        "Pushes that wait for the slowest reader",
        lambda _, live: live.outbound_frames_max,
    ),
    MetricSpec(
        "gateway_buffers_high",
        COUNTER,
        "Outbound buffers that passed 80 % of their size",
        lambda m, _: m.gateway.buffers_high,
    ),
    MetricSpec(
        "gateway_slow_consumer_warnings",
        COUNTER,
        "Devices that were warned that they read too slowly",
        lambda m, _: m.gateway.slow_warnings,
    ),
    MetricSpec("gateway_connections_rate", COUNTER, "WebSocket connections opened", lambda m, _: m.gateway.opened),
    MetricSpec(
        "client_resync_forced_rate",
        COUNTER,
        "Closings that force a client to sync",
        lambda m, _: m.gateway.forced_resyncs,
    ),
    MetricSpec(
        "gateway_messages_filled", COUNTER, "Messages read back for a push", lambda m, _: m.gateway.messages_filled
    ),
    MetricSpec(
        "gateway_pushes_repeated", COUNTER, "Pushes of what was there already", lambda m, _: m.gateway.pushes_repeated
    ),
    MetricSpec("gateway_errors_sent", COUNTER, "Error frames", lambda m, _: m.gateway.rejections, ("code",)),
    MetricSpec(
        "gateway_connections_closed", COUNTER, "Connections closed", lambda m, _: m.gateway.closings, ("reason",)
    ),
    MetricSpec(
        "gateway_handshakes_refused",
        COUNTER,
        "WebSocket refused",
        lambda m, _: m.listener.handshakes_refused,
        ("reason",),
    ),
    MetricSpec(
        "gateway_http_refused", COUNTER, "HTTP refused unread", lambda m, _: m.listener.http_refusals, ("status",)
    ),
)

# Of a process with a public port, be it a gateway's or that of REST.
LISTENER = (
    MetricSpec(
        "listener_sockets_refused",
        COUNTER,
        "New sockets without a place: all taken, or those of the address, or no file descriptor",
        lambda m, _: m.listener.sockets_refused,
        ("reason",),
    ),
    MetricSpec(
        "listener_idle_evicted", COUNTER, "Idle sockets closed for new ones", lambda m, _: m.listener.idle_evictions
    ),
    MetricSpec(
        "listener_tls_handshakes", GAUGE, "TLS handshakes under way", lambda m, _: m.listener.handshakes_under_way
    ),
)

FANOUT = (
    MetricSpec(
        "fanout_kafka_consumer_lag",
        GAUGE,
        "Events not yet handled",
        lambda _, live: {(each.topic, str(each.number)): lag for each, lag in live.lag_records.items()},
        ("topic", "partition"),
    ),
    MetricSpec(
        "fanout_kafka_consumer_lag_seconds",
        GAUGE,
        "Age of the oldest event not yet handled",
        lambda _, live: live.lag_s,
    ),
    MetricSpec(
        "fanout_delivery_skip_rate",
        GAUGE,
        "Share of deliveries skipped, 5 min",
        lambda m, _: m.skip_ratio.value(),
    ),
    MetricSpec("fanout_dlq_rate", COUNTER, "Dead letters written", lambda m, _: m.fanout.dead_letters),
    MetricSpec("fanout_dlq_depth", GAUGE, "Dead letters kept", lambda _, live: live.dead_letters),
    MetricSpec(
        "under_replicated_partitions", GAUGE, "Partitions that lack a copy", lambda _, live: live.under_replicated
    ),
    MetricSpec(
        "fanout_partitions_stalled",
        GAUGE,
        "Partitions of this process that stand still while events arrive",
        lambda _, live: live.stalled,
    ),
    MetricSpec("fanout_rebalances", COUNTER, "Assignments of partitions", lambda m, _: m.fanout.rebalances),
    MetricSpec("fanout_retry_count", COUNTER, "Repeated calls of fanout", lambda m, _: m.fanout.retries),
    MetricSpec("fanout_consumer_restarts", COUNTER, "Joins and polls that failed", lambda m, _: m.fanout.restarts),
    MetricSpec("fanout_messages_delivered_rate", COUNTER, "Messages pushed", lambda m, _: m.fanout.messages_delivered),
    MetricSpec("fanout_deliveries_skipped", COUNTER, "Deliveries skipped", lambda m, _: m.fanout.skips, ("reason",)),
)

API = (
    MetricSpec(
        "kafka_lifecycle_publish_failures",
        COUNTER,
        "SEV-2: committed changes of membership whose event was not published",
        lambda m, _: m.memberships.publish_failures,
    ),
    MetricSpec("rest_request_latency_seconds", HISTOGRAM, "One REST request", lambda m, _: m.api.latency),
    MetricSpec(
        "rest_requests",
        COUNTER,
        "REST requests",
        lambda m, _: {(method, str(status)): count for (method, status), count in m.api.requests.items()},
        ("method", "status"),
    ),
    MetricSpec("audit_events", COUNTER, "Events of the audit log", lambda m, _: m.api.audits, ("event",)),
)

BY_ROLE: Mapping[ProcessRole, tuple[MetricSpec, ...]] = {
    ProcessRole.INGEST: DURABILITY,
    ProcessRole.GATEWAY: GATEWAY,
    ProcessRole.FANOUT: FANOUT,
    ProcessRole.API: API,
}

# Of a process that calls ingest processes, and of one that is called.
GRPC_CLIENT = (
    MetricSpec(
        "rpc_ingest_processes",
        GAUGE,
        "Ingest processes that take drafts from here",
        lambda m, _: len(m.grpc.peers),
    ),
    MetricSpec("rpc_streams_ended", COUNTER, "Streams to ingest processes that ended", lambda m, _: m.grpc.lost),
    MetricSpec("rpc_sends_unknown", COUNTER, "Sends that were under way on them", lambda m, _: m.grpc.unknown),
    MetricSpec("rpc_dials_failed", COUNTER, "Dials that failed", lambda m, _: m.grpc.unreachable_count),
)
GRPC_SERVER = (
    MetricSpec("rpc_batches_late", COUNTER, "Batches of drafts that were late", lambda m, _: m.grpc.late_batches),
    MetricSpec("rpc_failures", COUNTER, "Bugs met while answering", lambda m, _: m.grpc.failures),
)

# Counted by the engines themselves: `engine_counters` reads them.
ENGINES = (
    MetricSpec("dynamodb_calls", COUNTER, "Calls to DynamoDB", labels=("operation",)),
    MetricSpec(
        "dynamodb_refusals",
        COUNTER,
        "Calls that it did not do: by its own word, or because it was not there",
        labels=("operation", "reason"),
    ),
    MetricSpec("dynamodb_retries", COUNTER, "Calls repeated after a pause, other than those of sends"),
    MetricSpec("redis_connections", COUNTER, "Connections made to Redis: a few at the start, then one for each loss"),
    MetricSpec("redis_dials_failed", COUNTER, "Dials that reached no Redis"),
    MetricSpec("redis_calls_failed", COUNTER, "Calls to Redis without an answer that helps"),
    MetricSpec(
        "kafka_records_passed_over",
        COUNTER,
        "Old events that fanout did not push because the group had no committed offset",
    ),
    MetricSpec("redis_parcels_malformed", COUNTER, "Pushes that could not be read"),
)


def documentation() -> str:
    """All metrics as a page of Markdown: docs/metrics.md is this text."""
    sections = {
        "Ingest": DURABILITY,
        "Gateway": GATEWAY,
        "Fanout": FANOUT,
        "REST": API,
        "The public port, of a gateway or of REST": LISTENER,
        "Between processes": (*GRPC_CLIENT, *GRPC_SERVER),
        "Engines beyond one machine": ENGINES,
    }
    lines = [
        "# Metrics",
        "",
        "Written by `make spec` from the table in the code. Each process shows the metrics of its own roles at",
        "`/metrics` of the internal address, each with the label `instance`. Where a name says DynamoDB, Kafka or",
        "Redis, the engine in its place is meant. [operating.md](operating.md#metrics-and-alerts) says what to do.",
    ]
    for title, specs in sections.items():
        lines += ["", f"## {title}", "", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
        lines += [
            f"| `{each.shown_name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)} | {each.help} |"
            for each in specs
        ]
    return "\n".join(lines) + "\n"

"""What the planes tell becomes the metrics of the table, and what needs a person is logged at once."""

import io
import json
import logging
import re
from collections.abc import Callable

import msgspec
import pytest

from seriatim.domain.errors import CounterMissing, RowUnreadable, ServiceUnavailable
from seriatim.engines.embedded.message_log import EmbeddedMessageLog
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.fanout.observer import SkipReason
from seriatim.ports.event_log import MESSAGES, DeadLetter, Partition, Record
from seriatim.protocol.frames import CloseReason
from seriatim.runtime.config.roles import ALL_ROLES
from seriatim.runtime.telemetry.counted_message_log import CountedMessageLog
from seriatim.runtime.telemetry.counters import LatencyHistogram, WindowedRatio
from seriatim.runtime.telemetry.durability_counters import DurabilityCounters
from seriatim.runtime.telemetry.metric_table import ENGINES, documentation
from seriatim.runtime.telemetry.metrics import GAP_WINDOW_S, LiveState, Metrics
from tests.support.metric_names import ABSENT, DISTRIBUTED, PRESENT

_FAILURE = ServiceUnavailable("retry", log_reason="10.0.0.7 refused the connection")
_DEAD_LETTER = DeadLetter(
    record=Record(partition=Partition(MESSAGES, 3), offset=42, key=None, value=b"{}", headers=(), timestamp_ms=0),
    reason="BadEvent: it quotes a secret",
    attempts=3,
    consumer_group="fanout-workers",
    consumer_id="fanout-1",
    failed_at_ms=0,
)
LIVE = LiveState(
    ready=True,
    store_available=True,
    events_available=True,
    directory_available=True,
    breaker_open=False,
    connections=3,
    outbound_frames_max=9,
    active_chats=2,
    lag_records={Partition(MESSAGES, 7): 5},
    lag_s=1.5,
    dead_letters=4,
)


def _values(metrics: Metrics, live: LiveState = LIVE, now: float = 0.0) -> dict[str, float]:
    text = metrics.text(live, now).decode()
    pairs = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {
        name.replace('instance="here"', "").replace("{,", "{").replace(",}", "}").replace("{}", ""): float(v)
        for name, v in pairs
    }


def _names(text: bytes) -> set[str]:
    return {line.split("{")[0].split(" ")[0] for line in text.decode().splitlines() if not line.startswith("#")}


def test_every_metric_of_the_table_is_there_from_the_start_except_those_with_a_reason() -> None:
    names = _names(Metrics("here").text(LIVE, 0.0))
    assert [name for name in PRESENT if name not in names] == []
    assert [name for name in (*ABSENT, *DISTRIBUTED) if name in names] == []


def test_every_metric_of_the_page_is_shown_by_a_process_with_all_roles_and_engines() -> None:
    metrics = Metrics("here")
    metrics.grpc.dials = metrics.grpc.listens = True
    metrics.engine_counters.append(lambda: {spec.name: 0 for spec in ENGINES})
    text = metrics.text(msgspec.structs.replace(LIVE, under_replicated=0), 0.0).decode()
    shown = {line.split(" ")[2].removesuffix("_total") for line in text.splitlines() if line.startswith("# TYPE")}
    listed = re.findall(r"^\| `(\w+)`", documentation(), flags=re.MULTILINE)
    assert {name for name in shown if not name.startswith("process_")} == {
        name.removesuffix("_total") for name in listed
    }


def test_every_metric_of_the_table_is_shown_by_exactly_one_role_of_a_distributed_deployment() -> None:
    live = msgspec.structs.replace(LIVE, under_replicated=0)
    shown = [_names(Metrics("here", (role,)).text(live, 0.0)) for role in ALL_ROLES]
    assert {name: sum(name in names for names in shown) for name in (*PRESENT, *DISTRIBUTED)} == dict.fromkeys(
        (*PRESENT, *DISTRIBUTED), 1
    )


def test_what_engines_count_by_themselves_is_asked_for_at_every_scrape() -> None:
    metrics = Metrics("here")
    counts = {"GetItem": 1}
    metrics.engine_counters.append(lambda: {"dynamodb_calls": counts})
    assert _values(metrics)['dynamodb_calls_total{operation="GetItem"}'] == 1
    counts["GetItem"] += 1
    assert _values(metrics)['dynamodb_calls_total{operation="GetItem"}'] == 2


def test_every_sample_of_a_seriatim_metric_names_the_instance_and_no_sample_an_id() -> None:
    metrics = Metrics("here")
    metrics.durability.counter_missing("chat_secret")
    metrics.gateway.rejected("RATE_LIMITED")
    metrics.api.request("/chats/{chat_id}", "GET", 200, 0.01)
    for line in metrics.text(LIVE, 0.0).decode().splitlines():
        if not line.startswith(("#", "process_")):
            assert 'instance="here"' in line
            assert "chat_secret" not in line


Report = Callable[[Metrics], object]


@pytest.mark.parametrize(
    ("report", "name", "value"),
    [
        (lambda m: m.durability.counter_missing("c"), "durability_counter_corruption_total", 1),
        (lambda m: m.durability.counter_missing("c"), "counter_missing_errors_total", 1),
        (lambda m: m.durability.row_unreadable("c", RowUnreadable("x")), "durability_rows_unreadable_total", 1),
        (lambda m: m.durability.cursor_beyond_end("c", 9, 4), "durability_cursors_beyond_end_total", 1),
        (lambda m: m.durability.duplicate_sequence("c", 1), "durability_duplicate_sequence_total", 1),
        (lambda m: m.durability.refused_by_store("throttled"), "durability_dynamodb_throttle_count_total", 1),
        (lambda m: m.durability.persisted({"chat_1": 7}), "durability_messages_persisted_rate_total", 7),
        (lambda m: m.durability.republished(2), "durability_events_republished_total", 2),
        (lambda m: m.durability.answered([0.3]), 'durability_persist_latency_seconds_bucket{le="0.5"}', 1),
        (lambda m: m.durability.allocated(1, 9.0), 'sequence_allocation_latency_seconds_bucket{le="+Inf"}', 1),
        (lambda m: m.durability.published(5, 0.02), "durability_kafka_produce_latency_seconds_sum", 0.02),
        (lambda m: m.gateway.connection_opened(), "gateway_connections_rate_total", 1),
        (lambda m: m.gateway.repeated(), "gateway_pushes_repeated_total", 1),
        (lambda m: m.gateway.connection_closed(CloseReason.SLOW_CONSUMER), "client_resync_forced_rate_total", 1),
        (
            lambda m: m.gateway.connection_closed(CloseReason.SLOW_CONSUMER),
            "gateway_slow_consumer_disconnects_total",
            1,
        ),
        (lambda m: m.gateway.connection_closed(CloseReason.IDLE_TIMEOUT), "gateway_connection_timeout_total", 1),
        (lambda m: m.gateway.connection_closed(None), 'gateway_connections_closed_total{reason="client"}', 1),
        (lambda m: m.listener.timed_out("head"), "gateway_connection_timeout_total", 1),
        (lambda m: m.listener.handshake_refused("x"), 'gateway_handshakes_refused_total{reason="x"}', 1),
        (lambda m: m.gateway.directory_failed("register", _FAILURE), "gateway_redis_connection_errors_total", 1),
        (lambda m: m.listener.socket_refused("address"), 'listener_sockets_refused_total{reason="address"}', 1),
        (lambda m: m.listener.accept_failed(OSError()), 'listener_sockets_refused_total{reason="descriptors"}', 1),
        (lambda m: m.listener.idle_evicted(), "listener_idle_evicted_total", 1),
        (lambda m: m.listener.tls_handshakes(7), "listener_tls_handshakes", 7),
        (lambda m: m.gateway.subscription(True), "gateway_redis_available", 1),
        (lambda m: m.fanout.delivered(1, 9), "fanout_messages_delivered_rate_total", 9),
        (lambda m: m.fanout.retried(), "fanout_retry_count_total", 1),
        (lambda m: m.fanout.restarted(_FAILURE), "fanout_consumer_restarts_total", 1),
        (lambda m: m.fanout.rebalanced(), "fanout_rebalances_total", 1),
        (lambda m: m.fanout.dead_letter_written(_DEAD_LETTER), "fanout_dlq_rate_total", 1),
        (lambda m: m.memberships.event_not_published("c", _FAILURE), "kafka_lifecycle_publish_failures_total", 1),
        (lambda m: m.api.request("r", "GET", 200, 0.01), 'rest_requests_total{method="GET",status="200"}', 1),
        (lambda m: None, 'fanout_kafka_consumer_lag{partition="7",topic="messages.persisted"}', 5),
        (lambda m: None, "fanout_kafka_consumer_lag_seconds", 1.5),
        (lambda m: None, "fanout_dlq_depth", 4),
        (lambda m: None, "gateway_connections_active", 3),
        (lambda m: None, "gateway_outbound_frames_max", 9),
        (lambda m: None, "durability_dynamodb_available", 1),
        (lambda m: None, "gateway_circuit_breaker_open", 0),
    ],
)
def test_what_is_reported_shows_under_its_name(report: Report, name: str, value: float) -> None:
    metrics = Metrics("here")
    report(metrics)
    assert _values(metrics)[name] == value


@pytest.mark.parametrize(
    ("report", "event"),
    [
        (lambda m: m.listener.socket_refused("places"), "http_places_full"),
        (lambda m: m.listener.socket_refused("address"), "address_share_full"),
        (lambda m: m.listener.accept_failed(OSError(24, "Too many open files")), "accept_failed"),
    ],
)
def test_security_h1_a_refused_socket_is_logged_once_a_minute_and_not_for_each(
    report: Report, event: str, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics("here")
    with caplog.at_level(logging.WARNING, logger="seriatim"):
        for _ in range(1000):
            report(metrics)
    assert caplog.messages == [event]


def test_what_is_so_at_the_moment_is_looked_up_at_every_scrape() -> None:
    metrics = Metrics("here")
    assert _values(metrics)["durability_kafka_available"] == 1
    broken = msgspec.structs.replace(
        LIVE, events_available=False, store_available=False, breaker_open=True, ready=False
    )
    values = _values(metrics, broken)
    assert (values["durability_kafka_available"], values["durability_dynamodb_available"]) == (0, 0)
    assert (values["gateway_circuit_breaker_open"], values["gateway_instances_healthy"]) == (1, 0)


def test_shares_are_of_the_window_and_not_of_all_time() -> None:
    metrics = Metrics("here")
    metrics.tick(0.0)
    for _ in range(3):
        metrics.durability.hit()
    metrics.durability.persisted({"chat_1": 1})
    metrics.durability.refused_by_store("conflict")
    metrics.fanout.skipped(SkipReason.PUSH)
    metrics.durability.allocated(4, 0.001)
    values = _values(metrics, now=10.0)
    assert values["idempotency_hit_rate"] == 0.75
    assert values["durability_transaction_conflict_rate"] == 0.5
    assert values["fanout_delivery_skip_rate"] == 1.0
    assert values["sequence_gap_rate"] == 0.75
    metrics.tick(10.0 + GAP_WINDOW_S)
    values = _values(metrics, now=20.0 + GAP_WINDOW_S)
    assert values["idempotency_hit_rate"] == values["sequence_gap_rate"] == values["fanout_delivery_skip_rate"] == 0.0


def test_a_share_keeps_no_more_notes_than_its_window_needs() -> None:
    share = WindowedRatio(window_s=10.0)
    for second in range(1000):
        share.note(float(second), second, 2 * second)
    assert share.value() == 0.5
    assert len(share._notes) <= 12


def test_a_time_falls_into_the_first_bucket_that_holds_it() -> None:
    timings = LatencyHistogram()
    for seconds in (0.0, 0.001, 0.0011, 100.0):
        timings.add(seconds)
    assert (timings.counts[0], timings.counts[1], timings.counts[-1]) == (2, 1, 1)
    together = LatencyHistogram()
    together.add_all([0.0, 0.001, 0.0011, 100.0])
    assert (together.counts, together.sum_s) == (timings.counts, timings.sum_s)


async def test_an_allocation_that_fails_is_counted_and_raised(folder: Folder) -> None:
    counts = DurabilityCounters()
    log = CountedMessageLog(EmbeddedMessageLog(folder), counts)
    with pytest.raises(CounterMissing):
        await log.allocate("chat_1", 1, published_through=0, published_message=None, now_ms=0, timeout_s=1.0)
    assert counts.allocation_errors == 1


@pytest.mark.parametrize(
    ("report", "event"),
    [
        (lambda m: m.durability.counter_missing("chat_1"), "counter_missing"),
        (lambda m: m.durability.row_unreadable("chat_1", RowUnreadable("damaged")), "row_unreadable"),
        (lambda m: m.durability.duplicate_sequence("chat_1", 4), "duplicate_sequence"),
        (lambda m: m.fanout.dead_letter_failed(Partition(MESSAGES, 3), _FAILURE), "dead_letter_failed"),
        (lambda m: m.memberships.event_not_published("chat_1", _FAILURE), "membership_event_not_published"),
    ],
)
def test_what_pages_is_logged_as_critical_with_what_to_do(log: io.StringIO, report: Report, event: str) -> None:
    report(Metrics("here"))
    [line] = [json.loads(line) for line in log.getvalue().splitlines()]
    assert (line["level"], line["event"]) == ("critical", event)
    assert line["severity"].startswith("SEV-")
    assert line["next_step"]


def test_an_audit_event_is_counted_and_logged_without_what_it_must_not_say(log: io.StringIO) -> None:
    metrics = Metrics("here")
    metrics.api.audit("auth.refresh_token_reuse", {"user_id": "user_1", "phone": "+4915112345678", "event": "x"})
    [line] = [json.loads(line) for line in log.getvalue().splitlines()]
    assert (line["event"], line["user_id"], line["phone"]) == (
        "auth.refresh_token_reuse",
        "user_1",
        "+49*********78",
    )
    assert _values(metrics)['audit_events_total{event="auth.refresh_token_reuse"}'] == 1

"""What fails is logged with its reason and what to do next; what a client is told has neither path nor address."""

import ast
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import KafkaError

from seriatim.api.core.errors import error_body
from seriatim.domain import errors, limits
from seriatim.domain.circuit_breaker import BreakerState, CircuitBreaker
from seriatim.domain.errors import InternalError, OutcomeUnknown, SeriatimError, ServiceUnavailable
from seriatim.engines.dynamodb.transport.errors import error_of_response
from seriatim.engines.grpc.wire import encode, from_wire_error, to_wire_error
from seriatim.engines.kafka.errors import outcome_unknown, unavailable
from seriatim.ports.event_log import MESSAGES, DeadLetter, Partition, Record
from seriatim.protocol.codec import encode as encode_frame
from seriatim.protocol.codec import error_frame
from seriatim.runtime.telemetry.metrics import Metrics

SECRET = "10.0.0.7:9092 /var/lib/data refused"
FAILURE = OutcomeUnknown("the store is failing; retry with the same id", log_reason=SECRET)
DEAD = DeadLetter(
    record=Record(partition=Partition(MESSAGES, 3), offset=42, key=None, value=b"", headers=(), timestamp_ms=0),
    reason="BadEvent: no content",
    attempts=1,
    consumer_group="g",
    consumer_id="c",
    failed_at_ms=0,
)
LINES: list[tuple[str, Callable[[Metrics], None], dict[str, object]]] = [
    ("store_failed", lambda m: m.durability.store_failed("persist", "chat_1", FAILURE), {"operation": "persist"}),
    (
        "publish_failed",
        lambda m: m.durability.publish_failed("chat_1", 7, "msg_1", FAILURE),
        {"chat_id": "chat_1", "sequence": 7, "message_id": "msg_1"},
    ),
    ("breaker_open", lambda m: m.durability.breaker_changed("store", "open", SECRET), {"part": "store"}),
    (
        "dead_letter_written",
        lambda m: m.fanout.dead_letter_written(DEAD),
        {"topic": MESSAGES, "partition": 3, "offset": 42, "reason": "BadEvent"},
    ),
    ("dead_letter_failed", lambda m: m.fanout.dead_letter_failed(Partition(MESSAGES, 3), FAILURE), {"reason": SECRET}),
    ("offset_commit_failed", lambda m: m.fanout.commit_failed(Partition(MESSAGES, 3), FAILURE), {"reason": SECRET}),
    ("fanout_restarted", lambda m: m.fanout.restarted(FAILURE), {"reason": SECRET}),
    ("directory_failed", lambda m: m.gateway.directory_failed("register", FAILURE), {"reason": SECRET}),
    ("fill_failed", lambda m: m.gateway.fill_failed(FAILURE), {"reason": SECRET}),
    ("revocation_unknown", lambda m: m.listener.revocation_unknown(FAILURE), {"reason": SECRET}),
    ("request_unavailable", lambda m: m.api.unavailable("r", "/chats", FAILURE), {"reason": SECRET}),
    ("outbound_buffer_high", lambda m: m.gateway.buffer_high(800), {"frames": 800}),
    ("slow_consumer_warned", lambda m: m.gateway.slow_consumer(), {}),
]


@pytest.mark.parametrize(("event", "happens", "fields"), LINES, ids=[event for event, _, _ in LINES])
def test_what_fails_is_logged_with_its_reason_and_the_next_step(
    event: str,
    happens: Callable[[Metrics], None],
    fields: dict[str, object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    happens(Metrics("here"))
    lines = [record for record in caplog.records if record.getMessage() == event]
    assert len(lines) == 1
    assert lines[0].levelno >= logging.WARNING
    found = lines[0].fields  # type: ignore[attr-defined]
    assert found["next_step"]
    assert {name: found[name] for name in fields} == fields


@pytest.mark.parametrize(
    "error",
    [
        error_of_response("Query", 500, b'{"__type": "x#InternalServerError", "message": "host 10.0.0.7"}'),
        error_of_response("Query", 400, b'{"__type": "x#AccessDeniedException", "message": "arn:aws:iam::1"}'),
        error_of_response("Query", 400, b'{"__type": "x#ResourceNotFoundException", "message": "table t"}'),
        unavailable("append", KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)),
        unavailable("append", KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)),
        outcome_unknown("append", KafkaError(KafkaError._TRANSPORT)),
        ServiceUnavailable("the routing store is unreachable; try again soon", log_reason=SECRET),
        InternalError(SECRET),
    ],
)
def test_neither_frame_nor_body_nor_grpc_answer_says_why_an_engine_failed(error: Exception) -> None:
    assert isinstance(error, SeriatimError)
    sent = [
        encode_frame(error_frame(error)),
        msgspec.json.encode(error_body(error, "request")),
        encode(to_wire_error(error)),
        from_wire_error(to_wire_error(error)).log_reason.encode(),
    ]
    assert error.log_reason not in (error.message, "")
    for text in sent:
        for internal in (error.log_reason, "10.0.0.7", "arn:", "Kafka", "_TRANSPORT", "NOT_LEADER", "tables create"):
            assert internal.encode() not in text


def test_what_engines_tell_a_client_is_made_of_constant_words() -> None:
    """The first argument of an error that a failing engine raises; only that of `InternalError` is for the log."""
    built = []
    for path in sorted(Path(errors.__file__).parents[1].joinpath("engines").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id=name), args=[ast.Constant() | ast.Name(), *_]) if name in FAILURES:
                    continue
                case ast.Call(func=ast.Name(id=name), args=[_, *_]) if name in FAILURES:
                    built.append(f"{path.name}:{node.lineno}")
    assert built == []


FAILURES = ("ServiceUnavailable", "OutcomeUnknown", "Throttled", "Conflict", "RowUnreadable", "NotAuthorized")


def test_a_breaker_tells_when_it_opens_tries_and_closes_and_why() -> None:
    changes: list[tuple[BreakerState, str]] = []
    breaker = CircuitBreaker(lambda state, reason: changes.append((state, reason)))
    for second in range(limits.BREAKER_FAILURES_MAX):
        breaker.failed(float(second), reason=SECRET)
    later = limits.BREAKER_FAILURES_MAX + limits.BREAKER_OPEN_S
    assert breaker.admit(later) is None
    breaker.succeeded(later)
    assert [state for state, _ in changes] == [BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED]
    assert changes[0][1] == SECRET


def test_the_way_of_a_message_is_logged_at_debug_level_by_ids(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "seriatim")
    metrics = Metrics("here")
    assert (metrics.durability.traces, metrics.fanout.traces) == (False, False)
    metrics.trace_messages(True)
    assert (metrics.durability.traces, metrics.fanout.traces) == (True, True)
    metrics.durability.traced("persisted", "chat_1", 7, "msg_1")
    metrics.fanout.traced("pushed", "chat_1", 7, "msg_1", 3)
    assert [each.getMessage() for each in caplog.records] == ["message_persisted", "message_pushed"]

"""Limits that only work together: each test states why one must lie below another."""

import re
from pathlib import Path

from seriatim.domain import limits


def test_the_normative_values_are_those_of_adr_009() -> None:
    normative = {
        "OUTBOUND_FRAMES_MAX": 1000,
        "OUTBOUND_WARN_RATIO": 0.80,
        "OUTBOUND_CRITICAL_RATIO": 0.95,
        "INBOUND_REQUESTS_MAX": 100,
        "SEND_RATE_PER_S": 10,
        "SEND_BURST_MAX": 20,
        "CONTENT_BYTES_MAX": 4096,
        "PERSIST_DEADLINE_S": 5,
        "BREAKER_FAILURES_MAX": 5,
        "BREAKER_WINDOW_S": 30,
        "BREAKER_OPEN_S": 30,
        "SLOW_CONSUMER_GRACE_S": 5,
        "PING_INTERVAL_S": 30,
        "PONG_TIMEOUT_S": 10,
        "DRAIN_S": 30,
        "BUCKETS": 4096,
    }
    assert {name: getattr(limits, name) for name in normative} == normative


def test_a_writer_gives_a_slot_up_before_anyone_seals_it() -> None:
    assert limits.SLOT_LEASE_S < limits.SEAL_AFTER_S


def test_a_store_call_ends_within_the_lease_of_its_slot() -> None:
    assert limits.STORE_TIMEOUT_S < limits.SLOT_LEASE_S


def test_the_deadline_of_a_send_is_longer_than_what_the_send_waits_for() -> None:
    assert limits.PUBLISH_TIMEOUT_S < limits.PERSIST_DEADLINE_S < limits.BREAKER_PROBE_S
    assert limits.SEAL_AFTER_S < limits.PERSIST_DEADLINE_S


def test_the_reconciler_leaves_chats_alone_that_are_still_being_written() -> None:
    assert limits.RECONCILE_AFTER_S >= limits.PERSIST_DEADLINE_S > limits.PIPELINE_IDLE_S


def test_a_registration_survives_one_lost_heartbeat() -> None:
    assert limits.REGISTRATION_TTL_S >= 2 * limits.PING_INTERVAL_S > limits.PING_INTERVAL_S + limits.PONG_TIMEOUT_S


def test_one_message_fits_a_transaction_and_the_largest_text_fits_a_frame() -> None:
    assert limits.TRANSACTION_ITEMS_MAX >= 3
    escaped_six_fold = 6 * limits.CONTENT_BYTES_MAX
    assert escaped_six_fold + 1024 <= limits.FRAME_BYTES_MAX <= limits.BATCH_BYTES_MAX


def test_a_dead_letter_fits_its_topic_after_base64() -> None:
    assert limits.DEAD_LETTER_VALUE_BYTES_MAX * 4 / 3 + 65_536 < 2 * 1024 * 1024


def test_buckets_divide_evenly_over_every_partition_count_in_use() -> None:
    assert all(limits.BUCKETS % count == 0 for count in (8, 16, 64, 128))


def test_events_that_are_passed_over_were_found_by_probes_and_are_in_no_cached_list() -> None:
    assert limits.KAFKA_UNCOMMITTED_S > 5 * limits.PROBE_INTERVAL_MAX_S
    assert limits.KAFKA_UNCOMMITTED_S > limits.MEMBER_CACHE_TTL_S


def test_every_back_off_has_room_to_grow() -> None:
    pairs = [(name, name.removesuffix("_S") + "_MAX_S") for name in vars(limits) if name.endswith("_S")]
    growing = [(name, top) for name, top in pairs if hasattr(limits, top)]
    assert len(growing) >= 6
    assert all(getattr(limits, name) < getattr(limits, top) for name, top in growing)


def test_every_limit_is_a_positive_number_with_its_unit_last_in_the_name() -> None:
    named = _names()
    assert len(named) > 50
    unit = re.compile(r"_(S|MS|MAX|RATIO|DEFAULT|[A-Z]+S)$|^BUCKETS$")
    assert [name for name in named if not unit.search(name)] == []
    for name in named:
        value = getattr(limits, name)
        assert all(each > 0 for each in (value if isinstance(value, tuple) else (value,))), name


def test_no_limit_is_set_twice() -> None:
    names = _names()
    assert sorted(names) == sorted(set(names))


def _names() -> list[str]:
    """As written in the module; looking at its variables would hide a second assignment."""
    return re.findall(r"^([A-Z0-9_]+) = ", Path(limits.__file__).read_text(), re.MULTILINE)


def test_new_chats_are_looked_for_within_the_bound_of_the_probe() -> None:
    longest_s = limits.NEW_CHATS_EVERY_S + limits.NEW_CHATS_SPREAD_S + limits.NEW_CHATS_TICK_S
    assert longest_s + limits.PERSIST_DEADLINE_S < limits.PROBE_INTERVAL_MAX_S

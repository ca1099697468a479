"""Every invariant, and what shows that it holds: the check of stored data, or the tests that are named here.

I1-I40 are those of the decision records, R those of the REST edge (docs/spec/rest.md#what-must-hold) that rows can
show, D our own, on which delivery rests. `make spec` writes them into docs/spec/data.md#invariants.
"""

from collections.abc import Mapping

import msgspec


class Invariant(msgspec.Struct, frozen=True, kw_only=True):
    """`shown_by`: tests as path::name, below `tests/`. Empty: stored data shows it, and `check` looks."""

    id: str
    name: str
    source: str
    statement: str
    advice: str = ""
    shown_by: tuple[str, ...] = ()


_KEEP = "Before anything else take a copy of the data folder, or a backup of the tables: it is the evidence."
_RESTORE = f"An acknowledged message may be lost: restore the rows from a backup. {_KEEP}"
_REPORT = f"Only a bug writes this: report it with this line. {_KEEP}"
_SIGN_IN = "The next sign-in of this user mends it; to do it now, revoke the surplus session."

_SCENARIOS = "scenarios/test_durability_scenarios.py"
_DELIVERY = "scenarios/test_delivery_scenarios.py"
_FANOUT = "scenarios/test_fanout_scenarios.py"
_HOLES = "holes/test_durability_holes.py"
_COUNTERS = "contract/counters_suite.py"
_SLOTS = "contract/slots_suite.py"
_KILL = "unit/engines/test_embedded_kill.py::test_everything_acknowledged_before_a_kill_is_there_afterwards"
_SIMULATION = "simulation/test_schedules.py::test_no_promise_is_broken_in_any_mixture_of_faults"


def _checked(id: str, name: str, source: str, statement: str, advice: str) -> Invariant:
    return Invariant(id=id, name=name, source=source, statement=statement, advice=advice)


def _tested(id: str, name: str, source: str, statement: str, *shown_by: str) -> Invariant:
    return Invariant(id=id, name=name, source=source, statement=statement, shown_by=shown_by)


_ALL = (
    _tested(
        "I1",
        "sequence_monotonic",
        "ADR-001",
        "what is committed earlier has the smaller sequence, as far as anyone can see",
        f"{_SCENARIOS}::test_s39_no_reader_sees_a_higher_sequence_before_a_delayed_lower_one",
        f"{_HOLES}::test_h25_what_one_socket_sent_first_comes_first",
    ),
    _checked(
        "I2",
        "idempotency_guarantee",
        "ADR-001",
        "a message of the last 7 days is the one that its key names: no second one has the same id",
        _REPORT,
    ),
    _tested(
        "I3",
        "sync_completeness",
        "ADR-001",
        "after a sync from N a client holds every message above N",
        f"{_SCENARIOS}::test_s17_a_long_absence_is_synced_in_pages_in_order",
        f"{_DELIVERY}::test_s19_under_concurrent_load_everyone_sees_the_same_order",
        _SIMULATION,
    ),
    _checked(
        "I4",
        "delivery_state_consistency",
        "ADR-001",
        "no watermark lies above the end of its chat",
        "New messages up to this number would count as read. Restore the lost messages, or repair the counter.",
    ),
    _checked(
        "I5",
        "counter_must_exist",
        "ADR-004",
        "every chat has a counter, and every counter and every message a chat",
        "This chat accepts no message until its counter is repaired; others go on.",
    ),
    _checked(
        "I6",
        "sequence_uniqueness",
        "ADR-004",
        "a slot holds the message that was published for it: nothing was overwritten",
        _RESTORE,
    ),
    _tested(
        "I7",
        "allocation_monotonicity",
        "ADR-004",
        "a later allocation gets larger numbers",
        f"{_COUNTERS}::a_later_allocation_lies_above_all_earlier_ones",
    ),
    _tested(
        "I8",
        "counter_is_last_allocated",
        "ADR-004",
        "the counter is the highest number ever allocated",
        f"{_COUNTERS}::a_later_allocation_lies_above_all_earlier_ones",
        f"{_COUNTERS}::counters_are_as_of_now",
    ),
    _checked(
        "I9",
        "sequence_monotonicity",
        "ADR-004",
        "no filled slot lies above the counter",
        "Raise the counter to the highest slot before anyone sends to this chat.",
    ),
    _checked(
        "I10",
        "counter_lower_bound",
        "ADR-004",
        "a chat has no more messages than its counter says",
        "Raise the counter to the highest slot before anyone sends to this chat.",
    ),
    _checked(
        "I11",
        "idempotency_sequence_consistency",
        "ADR-004",
        "a key and its message agree about id, sequence, sender and content",
        _REPORT,
    ),
    _tested(
        "I12",
        "ack_implies_persistence",
        "ADR-004",
        "whatever was acknowledged is stored",
        f"{_SLOTS}::persisted_entries_survive_a_crash",
        _KILL,
        _SIMULATION,
    ),
    _checked("I13", "no_zero_sequence", "ADR-004", "sequences begin at 1, and a slot lies where it says", _REPORT),
    _checked(
        "I14",
        "gap_is_allocation_without_persistence",
        "ADR-004",
        "a hole was allocated and lost: below the published mark every slot is filled or sealed",
        _RESTORE,
    ),
    _tested(
        "I15",
        "add_operation_atomicity",
        "ADR-004",
        "concurrent allocations get distinct numbers",
        f"{_COUNTERS}::concurrent_allocations_get_distinct_slots",
        f"{_SCENARIOS}::test_s8_writers_on_many_processes_never_share_a_sequence",
    ),
    _tested(
        "I16",
        "dynamodb_is_authoritative",
        "ADR-003",
        "each entity is owned by one store",
        "contract/catalog_suite.py::a_roster_cannot_write",
        f"{_COUNTERS}::who_may_only_look_cannot_write",
    ),
    _checked(
        "I17",
        "kafka_reflects_dynamodb",
        "ADR-003",
        "every event in the log can be read, and its message is stored as it says",
        _RESTORE,
    ),
    _tested(
        "I18",
        "redis_is_ephemeral",
        "ADR-003",
        "losing the directory loses nothing durable",
        f"{_DELIVERY}::test_s43_after_a_flush_of_redis_everyone_is_reachable_within_a_heartbeat_on_the_same_socket",
        _SIMULATION,
    ),
    _tested(
        "I19",
        "write_order_preserved",
        "ADR-003",
        "an event is published after its commit",
        f"{_SCENARIOS}::test_s9_killed_after_the_commit_the_retry_gets_the_cached_answer_and_the_event_exists",
    ),
    _tested(
        "I20",
        "downstream_never_writes_upstream",
        "ADR-003",
        "fanout cannot write the store, a gateway cannot write the event log",
        "contract/catalog_suite.py::a_roster_cannot_write",
        "contract/sessions_suite.py::a_gateways_handle_cannot_write",
    ),
    _tested(
        "I21",
        "sync_reads_authority",
        "ADR-003",
        "a sync reads the authority, consistently",
        f"{_SLOTS}::a_read_ascends_and_leaves_holes_out",
        "unit/connection/test_requests.py::test_s28_the_breaker_stops_sends_and_not_syncs",
    ),
    _tested(
        "I22",
        "membership_check_uses_authority",
        "ADR-003",
        "membership is checked at the authority, consistently",
        f"{_SLOTS}::a_role_is_as_of_now",
        f"{_HOLES}::test_h19_nothing_of_a_removed_member_commits_after_the_removal",
    ),
    _tested(
        "I23",
        "cache_populated_from_authority",
        "ADR-003",
        "the cache of members is filled from the authority only",
        "unit/fanout/test_delivery.py::test_a_refill_caches_the_list_with_its_version_and_the_next_message_uses_it",
    ),
    _tested(
        "I24",
        "delivery_watermark_monotonic",
        "ADR-003",
        "a watermark never falls",
        f"{_COUNTERS}::a_stale_ack_never_lowers_the_watermark",
        f"{_COUNTERS}::concurrent_acks_end_at_the_highest",
    ),
    _tested(
        "I25",
        "conflict_resolution",
        "ADR-003",
        "where stores disagree the authority wins",
        "unit/fanout/test_delivery.py::test_h11_a_cache_older_than_the_event_is_not_believed",
    ),
    _tested(
        "I26",
        "no_silent_message_loss",
        "ADR-009",
        "every send is answered with an ack or an error",
        "scenarios/test_backpressure_scenarios.py::test_s27_a_frame_that_cannot_be_obeyed_is_answered",
        "unit/durability/test_pipeline.py::test_everyone_is_answered_by_the_deadline_wherever_the_store_hangs",
    ),
    _tested(
        "I27",
        "bounded_buffer",
        "ADR-009",
        "at most 1000 frames wait for a client, at most 100 of its requests for us",
        "unit/connection/test_outbound.py::test_h17_the_buffer_never_exceeds_1000_pushes",
        "unit/connection/test_inbound.py::test_s30_the_101st_request_finds_no_place",
    ),
    _tested(
        "I28",
        "backpressure_signaled",
        "ADR-009",
        "a slow client is warned at least 5 s before it is closed",
        "scenarios/test_backpressure_scenarios.py::test_s26_a_buffer_that_fills_is_noted_then_announced_then_closed",
    ),
    _tested(
        "I29",
        "failfast_persistence",
        "ADR-009",
        "a commit precedes its ack",
        f"{_HOLES}::test_h7_a_retry_that_hits_its_key_is_answered_only_once_the_message_is_out",
        _KILL,
    ),
    _tested(
        "I30",
        "graceful_fanout",
        "ADR-009",
        "at most 3 attempts for one delivery",
        "unit/fanout/test_delivery.py::test_s36_a_roster_that_fails_three_times_is_not_asked_again",
    ),
    _tested(
        "I31",
        "reconnect_heals",
        "ADR-009",
        "after reconnect and sync a client has what the store has",
        f"{_DELIVERY}::test_s31_after_its_gateway_was_killed_a_client_reconnects_syncs_and_sends_what_it_owes",
        _SIMULATION,
    ),
    _tested(
        "I32",
        "isolation_holds",
        "ADR-009",
        "a failure in one plane does not spread to another",
        "unit/durability/test_pipeline.py::test_a_missing_counter_halts_only_its_own_chat",
        "unit/fanout/test_consumer.py::test_a_stuck_partition_does_not_hold_up_another",
    ),
    _tested(
        "I33",
        "partition_determinism",
        "ADR-011",
        "the same key has the same partition",
        "unit/domain/test_sharding.py::test_every_key_has_a_bucket_and_the_cache_repeats_it",
    ),
    _checked(
        "I34",
        "partition_portability",
        "ADR-011",
        "every record lies in the partition of its key",
        "Some other program wrote to the log, with another partitioner: find it and stop it.",
    ),
    _tested(
        "I35",
        "bucket_stability",
        "ADR-011",
        "a bucket does not depend on the number of partitions",
        "unit/domain/test_sharding.py::test_s33_all_chats_of_a_bucket_share_a_partition_whatever_the_count",
    ),
    _checked(
        "I36",
        "ordering_preserved",
        "ADR-011",
        "in the log the messages of a chat first occur in their order, none left out",
        f"Members who were online may have missed it until their next sync. {_REPORT}",
    ),
    _tested(
        "I37",
        "commit_after_process",
        "ADR-011",
        "nothing below a committed offset is unhandled",
        f"{_FANOUT}::test_s34_after_a_rebalance_in_the_middle_of_a_batch_the_offset_is_the_first_unhandled",
        f"{_FANOUT}::test_s34_after_a_crash_in_the_middle_of_a_batch_some_may_come_twice_and_none_is_missing",
    ),
    _tested(
        "I38",
        "poison_pill_bounded",
        "ADR-011",
        "a record that cannot be handled is a dead letter within 3 attempts",
        f"{_FANOUT}::test_s35_a_record_that_meets_a_bug_every_time_becomes_a_dead_letter_after_3_attempts",
    ),
    _tested(
        "I39",
        "transient_not_dlq",
        "ADR-011",
        "trouble downstream makes no dead letter",
        f"{_FANOUT}::test_s36_trouble_downstream_is_skipped_and_never_a_dead_letter",
    ),
    _tested(
        "I40",
        "schema_compatibility",
        "ADR-011",
        "old and new readers both work",
        "unit/domain/test_event_schemas.py::test_s37_schema_and_reader_agree_on_what_may_be_missing",
        "unit/domain/test_events.py::test_s37_unknown_fields_are_ignored",
    ),
    _checked("R8", "one_direct_chat_per_pair", "REST", "two people have at most one direct chat", _REPORT),
    _checked(
        "R9", "direct_chat_is_a_pair", "REST", "a direct chat has its two members, and the index names it", _REPORT
    ),
    _checked("R10", "one_owner", "REST", "a group has exactly one owner", _REPORT),
    _checked("R11", "member_count", "REST", "member_count is the number of members, at most 100", _REPORT),
    _checked("R15", "sessions_bounded", "REST", "a user has at most 5 living sessions, one per device", _SIGN_IN),
    _checked("R16", "one_user_per_phone", "REST", "a phone number belongs to exactly one user", _REPORT),
    _checked(
        "R18",
        "no_secret_at_rest",
        "REST",
        "of a code or a refresh token only a digest is stored",
        f"Treat it as leaked: revoke the session. {_REPORT}",
    ),
    _checked(
        "R21",
        "events_after_commit",
        "REST",
        "whatever chat an event tells of is stored",
        _RESTORE,
    ),
    _checked(
        "D1",
        "published_within_counter",
        "delivery",
        "nothing is marked as published that was never allocated",
        "Raise the counter to the mark before anyone sends to this chat.",
    ),
    _checked(
        "D2",
        "published_is_in_the_log",
        "delivery",
        "every message up to the published mark is in the event log, until retention removes it",
        f"Members who were online may have missed it until their next sync. {_REPORT}",
    ),
    _checked(
        "D3",
        "unpublished_is_marked",
        "delivery",
        "a chat with unpublished slots is marked, so that the reconciler finds it",
        "The next message to this chat publishes what is left.",
    ),
    _checked(
        "D4",
        "predecessors_are_right",
        "delivery",
        "an event names the message right before its own, or none if it does not know",
        f"Members who were online may have missed it until their next sync. {_REPORT}",
    ),
    _checked("D5", "indexes_match", "delivery", "indexes of chats and sessions name exactly what there is", _REPORT),
)

INVARIANTS: Mapping[str, Invariant] = {each.id: each for each in _ALL}

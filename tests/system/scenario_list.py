"""Which test shows which of S16-S41: in the simulated world, and on real engines (docs/spec/data.md#scenarios).

`make faults` writes this list into docs/faults.md, and a test sees to it that each of these tests is there.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec


class Scenario(msgspec.Struct, frozen=True):
    """Tests as `file::name` below tests/. `note` says why a column is empty, or what else shows it."""

    what: str
    simulated: Sequence[str] = ()
    real: Sequence[str] = ()
    note: str = ""

    def tests(self) -> Iterator[str]:
        yield from self.simulated
        yield from self.real


_DURABILITY = "scenarios/test_durability_scenarios.py::test_"
_DELIVERY = "scenarios/test_delivery_scenarios.py::test_"
_PRESSURE = "scenarios/test_backpressure_scenarios.py::test_"
_FANOUT = "scenarios/test_fanout_scenarios.py::test_"
_ENGINES = "system/faults/test_engine_faults.py::test_"
_ROLES = "system/faults/test_role_faults.py::test_"
_NETWORK = "system/faults/test_network_faults.py::test_"
_LETTERS = "system/roles/test_roles.py::test_"
_KILLED_ENGINE = _ENGINES + "an_engine_that_is_killed_and_started_again_costs_time_and_no_message"
_KILLED_ROLE = _ROLES + "a_process_that_is_killed_loses_nothing_and_is_started_again"
_STILL_ENGINE = _ENGINES + "an_engine_that_stands_still_for_longer_than_all_timeouts_costs_time_and_no_message"
_RETRY = _ENGINES + "s41_a_message_refused_while_kafka_stood_still_is_published_once_by_its_repetition"
_CONTRACT = "the plane is the same; what it asks of a store is in the contract suite"
_NO_ENGINE = "no engine takes part: the same code runs in every process"

SCENARIOS: Mapping[int, Scenario] = {
    16: Scenario(
        "server dies after storing, before the ack",
        [_DURABILITY + "s16_another_instance_answers_for_one_that_crashed_after_storing"],
        [_KILLED_ROLE],
    ),
    17: Scenario(
        "long absence, then a sync",
        [_DURABILITY + "s17_a_long_absence_is_synced_in_pages_in_order"],
        ["contract/test_message_log.py::test_the_message_log_keeps_its_promise"],
        _CONTRACT,
    ),
    18: Scenario(
        "same id, other text",
        [_DURABILITY + "s18_the_same_id_with_another_text_keeps_the_original"],
        ["contract/test_message_log.py::test_the_message_log_keeps_its_promise"],
        _CONTRACT,
    ),
    19: Scenario(
        "reconnects, retries, a gateway killed in mid-fanout",
        [_DELIVERY + "s19_a_gateway_killed_in_the_middle_of_fanout_costs_no_client_a_message"],
        [_KILLED_ROLE, _NETWORK + "a_line_that_is_cut_and_mended_costs_time_and_no_message"],
    ),
    20: Scenario(
        "write then read, publish after commit, Redis wiped",
        [_DELIVERY + "s43_after_a_flush_of_redis_everyone_is_reachable_within_a_heartbeat_on_the_same_socket"],
        [_KILLED_ENGINE, "contract/test_message_log.py::test_the_message_log_keeps_its_promise"],
    ),
    21: Scenario(
        "Kafka killed in the middle of a publication",
        [_DURABILITY + "s31_a_dead_event_log_is_an_error_and_not_a_hang"],
        [_KILLED_ENGINE, _RETRY],
    ),
    22: Scenario(
        "Redis wiped; DynamoDB throttled",
        [_DELIVERY + "s43_after_a_flush_of_redis_everyone_is_reachable_within_a_heartbeat_on_the_same_socket"],
        [_ENGINES + "s43_everybody_is_found_again_within_a_heartbeat_after_redis_forgot_everything"],
        "DynamoDB Local throttles no request; a server of the tests does, in unit/engines/test_dynamodb_faults.py",
    ),
    23: Scenario(
        "fanout tries to write DynamoDB, a gateway Kafka",
        [],
        [
            "unit/deploy/test_permissions.py::test_fanout_and_the_checker_are_allowed_to_read_and_nothing_else",
            "unit/deploy/test_permissions.py::test_a_gateway_is_denied_everything",
        ],
        "DynamoDB Local knows no rights: requests are held against the policies",
    ),
    24: Scenario(
        "drills: Redis lost, replay, divergence",
        [_DURABILITY + "s41_a_hit_after_a_failed_publish_publishes"],
        [_KILLED_ENGINE, "unit/operations/test_check_shared.py"],
        "missing events are published by the reconciler; orphans are found by `seriatim check`",
    ),
    25: Scenario(
        "each access pattern without a scan",
        [],
        [
            "contract/test_message_log.py::test_the_message_log_keeps_its_promise",
            "contract/test_catalog.py::test_the_catalog_keeps_its_promise",
        ],
        "the client of these tests refuses a scan",
    ),
    26: Scenario(
        "slow consumer",
        [_PRESSURE + "s26_a_buffer_that_fills_is_noted_then_announced_then_closed"],
        [
            "system/test_slow_consumer.py::test_a_client_that_stops_reading_is_warned_given_five_seconds_notified_and_closed"
        ],
        "on the embedded server: " + _NO_ENGINE,
    ),
    27: Scenario(
        "every rejection is an error frame",
        [_PRESSURE + "s27_a_frame_that_cannot_be_obeyed_is_answered"],
        [_KILLED_ENGINE],
        "the errors that users get while an engine is away; the others need none",
    ),
    28: Scenario(
        "five failures open the breaker",
        [_PRESSURE + "s28_five_failures_open_the_breaker_and_one_probe_decides_after_30_seconds"],
        [_KILLED_ENGINE],
    ),
    29: Scenario(
        "more than 10 a second",
        [_PRESSURE + "s29_more_than_20_at_once_and_more_than_10_a_second_are_refused_and_take_no_sequence"],
        note=_NO_ENGINE,
    ),
    30: Scenario(
        "more than 100 requests in progress",
        [_PRESSURE + "s30_the_101st_unanswered_request_is_refused_and_the_others_are_answered"],
        note=_NO_ENGINE,
    ),
    31: Scenario(
        "DynamoDB, Kafka, a gateway killed",
        [_DELIVERY + "s31_with_the_store_killed_sends_and_syncs_fail_within_5_seconds"],
        [_KILLED_ENGINE, _STILL_ENGINE, _KILLED_ROLE],
        "each of them also sees that no refusal came later than 5 s",
    ),
    32: Scenario("a run against the service levels", note="`make bench`; alerts are in operating.md"),
    33: Scenario(
        "one partitioner",
        [_FANOUT + "s33_records_lie_where_the_vectors_say"],
        ["contract/test_event_log.py::test_the_event_log_keeps"],
        "and `seriatim check` after each fault (I34)",
    ),
    34: Scenario(
        "rebalance in mid-batch",
        [_FANOUT + "s34_after_a_rebalance_in_the_middle_of_a_batch_the_offset_is_the_first_unhandled"],
        ["contract/test_event_reader.py::test_the_event_log_keeps", _KILLED_ROLE],
    ),
    35: Scenario(
        "poison record",
        [_FANOUT + "s35_a_record_that_cannot_be_read_becomes_a_dead_letter_at_once_and_the_partition_flows"],
        [_LETTERS + "s35_a_record_that_cannot_be_read_becomes_a_dead_letter_in_kafka_and_its_partition_flows"],
    ),
    36: Scenario(
        "Redis or a gateway fails for a while",
        [_FANOUT + "s36_trouble_downstream_is_skipped_and_never_a_dead_letter"],
        [_KILLED_ENGINE, _KILLED_ROLE],
        "each fault also sees that no dead letter was written",
    ),
    37: Scenario(
        "schema changes",
        [_FANOUT + "s37_an_event_of_an_unknown_version_is_read_as_version_1_with_a_warning"],
        note="`make check` compares schemas; " + _NO_ENGINE,
    ),
    38: Scenario(
        "lag and dead letters are seen; topics are as specified",
        [],
        [
            "unit/engines/test_kafka_lag.py",
            "unit/operations/test_topics.py::test_topics_are_made_verified_mended_and_made_again_without_effect",
        ],
        "thresholds are those of operating.md",
    ),
    39: Scenario(
        "two ingests, the lower number comes late",
        [_DURABILITY + "s39_no_reader_sees_a_higher_sequence_before_a_delayed_lower_one"],
        ["system/roles/test_misrouted.py::test_everyone_saw_every_message_in_the_order_of_the_history"],
    ),
    40: Scenario(
        "an outsider uses a known id",
        [_DURABILITY + "s40_a_known_id_in_other_hands_discloses_nothing"],
        ["contract/test_message_log.py::test_the_message_log_keeps_its_promise"],
        _CONTRACT,
    ),
    41: Scenario(
        "Kafka down at the first try, a hit at the second",
        [_DURABILITY + "s41_a_hit_after_a_failed_publish_publishes"],
        [_RETRY],
    ),
}

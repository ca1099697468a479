"""The arithmetic behind the bench of the distributed system: what is read, what is added up, what is taken off."""

import pytest

from bench.counts import Counts, by_label, commands_of, counts_of, per_message, total
from bench.distributed_figures import Found, core_carries

METRICS = """\
# HELP dynamodb_calls_total Calls to DynamoDB
# TYPE dynamodb_calls_total counter
dynamodb_calls_total{instance="ingest-1",operation="BatchGetItem"} 12.0
dynamodb_calls_total{instance="ingest-1",operation="Query"} 80.0
durability_messages_persisted_rate_total{instance="ingest-1"} 10.0
# TYPE durability_kafka_produce_latency_seconds histogram
durability_kafka_produce_latency_seconds_bucket{instance="ingest-1",le="+Inf"} 9.0
durability_kafka_produce_latency_seconds_count{instance="ingest-1"} 9.0
# HELP dynamodb_calls_total Calls to DynamoDB
# TYPE dynamodb_calls_total counter
dynamodb_calls_total{instance="ingest-2",operation="BatchGetItem"} 7.0
durability_messages_persisted_rate_total{instance="ingest-2"} 5.0
dynamodb_calls_total{instance="fanout-1",operation="Query"} 3.0
gateway_messages_filled_total{instance="gateway-1"} 4.0
"""


def test_numbers_of_several_processes_are_added_up() -> None:
    assert total(METRICS, "durability_messages_persisted_rate_total") == 15
    assert by_label(METRICS, "dynamodb_calls_total", ("operation",)) == {("BatchGetItem",): 19, ("Query",): 83}


def test_a_metric_that_is_not_there_counts_nothing() -> None:
    assert total(METRICS, "no_such_metric") == 0


def test_calls_of_ingest_are_kept_apart_from_those_of_other_roles_and_from_our_own_looks() -> None:
    found = counts_of(METRICS, looks=2, records=15, commands={})
    assert found.calls == {"BatchGetItem": 17, "Query": 80}
    assert found.others_calls == 3
    assert (found.messages, found.appends, found.read_back) == (15, 9, 4)


def test_what_redis_says_of_its_commands_is_read_without_those_of_the_bench() -> None:
    text = (
        "# Commandstats\r\ncmdstat_get:calls=21,usec=175,usec_per_call=8.33\r\n"
        "cmdstat_client|setname:calls=2,usec=3\r\ncmdstat_info:calls=9,usec=1\r\n\r\n"
    )
    assert commands_of(text) == {"get": 21, "client|setname": 2}


def counts(messages: float, *, reads: float, sweeps: float, transactions: float, commands: float = 0) -> Counts:
    return Counts(
        messages=messages,
        calls={"BatchGetItem": reads, "Query": sweeps, "TransactWriteItems": transactions},
        others_calls=0,
        records=messages,
        appends=transactions,
        commands={"get": commands},
        read_back=0,
    )


def test_a_message_is_charged_its_share_of_calls_but_not_of_the_sweep_for_chats_left_behind() -> None:
    before = counts(100, reads=40, sweeps=1000, transactions=50)
    after = counts(124, reads=42, sweeps=1032, transactions=52, commands=48)
    found = per_message(before, after, used_s={}, seconds=4.0, resting={})
    assert found["calls"] == pytest.approx(4 / 24)
    assert found["calls.TransactWriteItems"] == pytest.approx(2 / 24)
    assert found["sweep_calls_per_s"] == 8
    assert (found["batch"], found["kafka_records"], found["redis_commands"]) == (12, 1, 2)


def test_cpu_that_is_used_at_rest_is_no_message_s() -> None:
    before, after = (counts(each, reads=0, sweeps=0, transactions=0) for each in (0, 1000))
    found = per_message(before, after, used_s={"gateway": 0.5, "api": 0.1}, seconds=10.0, resting={"gateway": 0.03})
    assert found["cpu_us.gateway"] == pytest.approx(200)
    assert found["cpu_us.api"] == pytest.approx(100)
    assert found["resting_ms_per_s.gateway"] == 30


def test_a_role_that_was_busier_at_rest_costs_nothing_rather_than_less() -> None:
    before, after = (counts(each, reads=0, sweeps=0, transactions=0) for each in (0, 1000))
    found = per_message(before, after, used_s={"api": 0.01}, seconds=10.0, resting={"api": 0.005})
    assert found["cpu_us.api"] == 0


def test_a_figure_is_the_median_of_its_rounds_and_what_a_round_did_not_see_is_nothing() -> None:
    rounds = [{"calls": 1.0}, {"calls": 9.0, "calls.GetItem": 4.0}, {"calls": 2.0}]
    assert Found(name="a crowd", goal=3, rounds=[*rounds]).values() == {"calls": 2, "calls.GetItem": 0}


@pytest.mark.parametrize(("calls", "is_met"), [(2.9, True), (3.004, True), (3.01, False)])
def test_a_goal_is_judged_to_a_hundredth_of_a_call(calls: float, is_met: bool) -> None:
    assert Found(name="a crowd", goal=3, rounds=[{"calls": calls}]).is_met is is_met


def test_a_core_carries_as_many_messages_as_fit_into_a_second() -> None:
    assert core_carries(250) == 4000
    assert core_carries(6) is None  # a role that had nothing to do, and the noise of the clock

"""What the parts of a deployment have counted and used at a moment, and what one message of a run cost."""

from collections.abc import Mapping, Sequence

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from seriatim.runtime.config.roles import ProcessRole

Numbers = Mapping[str, float]

SWEEP = "Query"  # of ingest: the look for chats left behind, so many a second whatever is sent
LOOK = "BatchGetItem"  # what an ingest asks its store when it is asked for metrics: whether it answers
OUR_OWN_COMMANDS = ("info", "ping")  # to Redis: those of the bench, and of links that have nothing to say


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """`calls` of ingest to DynamoDB by operation, `commands` that Redis served by name, `records` in Kafka.
    `read_back`: messages that a gateway had to ask for, since a push was late.
    """

    messages: float
    calls: Numbers
    others_calls: float
    records: float
    appends: float
    commands: Numbers
    read_back: float


def counts_of(metrics: str, *, looks: int, records: float, commands: Numbers) -> Counts:
    """`metrics`: the texts of all processes, one after another; their numbers are added up.

    `looks`: how often an ingest was asked for its metrics so far. That costs a call, which is no message's.
    """
    calls = by_label(metrics, "dynamodb_calls_total", ("instance", "operation"))
    of_ingest: dict[str, float] = {LOOK: -looks}
    for (instance, operation), count in calls.items():
        if instance.startswith(ProcessRole.INGEST):
            of_ingest[operation] = of_ingest.get(operation, 0) + count
    return Counts(
        messages=total(metrics, "durability_messages_persisted_rate_total"),
        calls=of_ingest,
        others_calls=sum(
            count for (instance, _), count in calls.items() if not instance.startswith(ProcessRole.INGEST)
        ),
        records=records,
        appends=total(metrics, "durability_kafka_produce_latency_seconds_count"),
        commands=commands,
        read_back=total(metrics, "gateway_messages_filled_total"),
    )


def total(text: str, name: str) -> float:
    return sum(value for _, value in _samples(text, name))


def by_label(text: str, name: str, labels: Sequence[str]) -> Mapping[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for there, value in _samples(text, name):
        values = tuple(there[label] for label in labels)
        found[values] = found.get(values, 0) + value
    return found


def _samples(text: str, name: str) -> Sequence[tuple[Mapping[str, str], float]]:
    return [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    ]


def commands_of(text: str) -> Numbers:
    """`INFO commandstats` of Redis: `cmdstat_get:calls=21,usec=175,...`. What a script calls counts on its own."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        name, colon, rest = line.strip().partition(":")
        if colon and name.startswith("cmdstat_") and rest.startswith("calls="):
            found[name.removeprefix("cmdstat_")] = float(rest.removeprefix("calls=").partition(",")[0])
    return {name: count for name, count in found.items() if name not in OUR_OWN_COMMANDS}


# --- of a run ---------------------------------------------------------------------------------------------------------


def per_message(
    before: Counts, after: Counts, *, used_s: Numbers, seconds: float, resting: Numbers
) -> dict[str, float]:
    """`used_s`: CPU of each role and engine in these seconds. What it uses in a second at rest is taken off."""
    messages = after.messages - before.messages
    calls, commands = less(after.calls, before.calls), less(after.commands, before.commands)
    sending = {name: count for name, count in calls.items() if name != SWEEP}
    cpu_s = {name: max(0.0, used - seconds * resting.get(name, 0)) for name, used in used_s.items()}
    return {
        "messages": messages,
        "calls": sum(sending.values()) / messages,
        **{f"calls.{name}": count / messages for name, count in sending.items()},
        "sweep_calls_per_s": calls.get(SWEEP, 0) / seconds,
        "others_calls": (after.others_calls - before.others_calls) / messages,
        "batch": messages / max(calls.get("TransactWriteItems", 0), 1),
        "kafka_records": (after.records - before.records) / messages,
        "kafka_appends": (after.appends - before.appends) / messages,
        "redis_commands": sum(commands.values()) / messages,
        **{f"redis.{name}": count / messages for name, count in commands.items()},
        "read_back": (after.read_back - before.read_back) / messages,
        **{f"cpu_us.{name}": 1e6 * used / messages for name, used in cpu_s.items()},
        **{f"resting_ms_per_s.{name}": 1000 * used for name, used in resting.items()},
    }


def less(later: Numbers, earlier: Numbers) -> dict[str, float]:
    """What was added."""
    return {name: value - earlier.get(name, 0) for name, value in later.items()}

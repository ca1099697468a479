"""The topics are those of the specification; what differs is said, mended where it may be, never by moving chats."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import pytest
from click.testing import CliRunner, Result

from seriatim.cli import topics
from seriatim.cli.main import main
from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown
from seriatim.engines.kafka.cluster import Cluster
from seriatim.engines.kafka.event_writer import KafkaDeadLetterWriter
from seriatim.engines.kafka.producer import Producer
from seriatim.engines.kafka.topic_control import KafkaTopicControl
from seriatim.operations.topics import (
    PARTITIONS,
    PROFILES,
    compare,
    compare_defaults,
    defaults,
    definitions,
    weaknesses,
)
from seriatim.ports.event_log import DEAD_LETTERS, MESSAGES, DeadLetter, Partition, Record
from seriatim.ports.topics import Topic
from tests.support.real_kafka import PATIENCE_S, RawKafka, real_kafka


def test_the_topics_are_those_of_the_specification() -> None:
    found = {topic.name: (topic.partitions, topic.replicas, topic.settings) for topic in definitions(CLUSTER)}
    assert {
        name: (each[0], each[1], each[2]["retention.ms"], each[2]["retention.bytes"]) for name, each in found.items()
    } == {
        "messages.persisted": (64, 3, "604800000", "107374182400"),
        "memberships.changed": (16, 3, "604800000", "10737418240"),
        "chats.created": (16, 3, "604800000", "10737418240"),
        "dead_letters": (8, 3, "2592000000", "53687091200"),
    }
    for _, _, settings in found.values():
        assert (settings["cleanup.policy"], settings["min.insync.replicas"]) == ("delete", "2")
        assert (settings["message.timestamp.type"], settings["compression.type"]) == ("CreateTime", "producer")
    assert found[DEAD_LETTERS][2]["max.message.bytes"] == "2097152"
    assert dict(defaults(CLUSTER)) == {
        "auto.create.topics.enable": "false",
        "unclean.leader.election.enable": "false",
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
    }


def test_one_broker_alone_has_one_copy_of_everything() -> None:
    assert {(topic.replicas, topic.settings["min.insync.replicas"]) for topic in definitions(SINGLE)} == {(1, "1")}


CLUSTER, SINGLE = PROFILES["cluster"], PROFILES["single"]


def changed(topic: Topic, **settings: str) -> Topic:
    return msgspec.structs.replace(topic, settings={**topic.settings, **_dotted(settings)})


def _dotted(settings: Mapping[str, str]) -> Mapping[str, str]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def test_every_difference_is_named_with_what_is_expected_and_what_is_there() -> None:
    wanted = definitions(CLUSTER)[0]
    assert compare(wanted, wanted) == []
    assert [each.what for each in compare(wanted, None)] == ["topic"]
    (partitions,) = compare(wanted, msgspec.structs.replace(wanted, partitions=128))
    assert (partitions.expected, partitions.found) == ("64", "128")
    assert "never changed in place" in partitions.advice
    assert [each.what for each in compare(wanted, msgspec.structs.replace(wanted, replicas=1))] == ["replicas"]
    for name in wanted.settings:
        other = msgspec.structs.replace(wanted, settings={**wanted.settings, name: "else"})
        assert [(each.what, each.found) for each in compare(wanted, other)] == [(name, "else")]


def test_further_settings_of_a_topic_are_not_compared() -> None:
    wanted = definitions(CLUSTER)[0]
    assert compare(wanted, changed(wanted, segment_ms="3600000")) == []


def test_brokers_that_make_topics_by_themselves_are_a_difference() -> None:
    assert compare_defaults(CLUSTER, defaults(CLUSTER)) == []
    found = compare_defaults(CLUSTER, {**defaults(CLUSTER), "auto.create.topics.enable": "true"})
    assert [each.what for each in found] == ["auto.create.topics.enable"]


class Control:
    """Topics as a test says they are."""

    def __init__(self, *topics: Topic) -> None:
        self._topics = {topic.name: topic for topic in topics}

    async def describe(self, names: Sequence[str], *, timeout_s: float) -> Mapping[str, Topic]:
        return {name: self._topics[name] for name in names if name in self._topics}

    async def defaults(self, *, timeout_s: float) -> Mapping[str, str]:
        return {}

    async def create(self, topic: Topic, *, timeout_s: float) -> None: ...

    async def adjust(self, topic: Topic, *, timeout_s: float) -> None: ...


async def test_three_copies_of_which_two_are_in_sync_survive_the_loss_of_a_broker_and_more_do_as_well() -> None:
    topics = definitions(CLUSTER, "p.")
    assert await weaknesses(Control(*topics), prefix="p.") == []
    more = [msgspec.structs.replace(changed(topic, min_insync_replicas="3"), replicas=5) for topic in topics]
    assert await weaknesses(Control(*more), prefix="p.") == []


@pytest.mark.parametrize(
    ("weak", "what"),
    [
        (lambda topic: msgspec.structs.replace(topic, replicas=2), "replicas"),
        (lambda topic: changed(topic, min_insync_replicas="1"), "min.insync.replicas"),
        (lambda topic: changed(topic, unclean_leader_election_enable="true"), "unclean.leader.election.enable"),
    ],
)
async def test_each_weakness_of_each_topic_is_named(weak: Callable[[Topic], Topic], what: str) -> None:
    topics = definitions(CLUSTER)
    for topic in topics:
        others = [each for each in topics if each is not topic]
        (found,) = await weaknesses(Control(weak(topic), *others))
        assert (found.topic, found.what) == (topic.name, what)


async def test_the_offsets_of_groups_need_a_second_copy_once_there_are_any() -> None:
    offsets = Topic(name="__consumer_offsets", partitions=50, replicas=1, settings={"min.insync.replicas": "1"})
    (found,) = await weaknesses(Control(*definitions(CLUSTER), offsets))
    assert (found.topic, found.what, found.expected) == ("__consumer_offsets", "replicas", "2 or more")
    twice = msgspec.structs.replace(offsets, replicas=2)
    assert await weaknesses(Control(*definitions(CLUSTER), twice)) == []


# --- on a real broker ------------------------------------------------------------------------------------------------


@pytest.fixture
def raw() -> Iterator[RawKafka]:
    """A prefix without topics."""
    raw = RawKafka(real_kafka(), PARTITIONS)
    yield raw
    asyncio.run(raw.close())


def run(raw: RawKafka, command: str, *arguments: str) -> Result:
    url = f"kafka://{raw.kafka.bootstrap}?prefix={raw.cluster.prefix}"
    return CliRunner().invoke(main, ["topics", command, "--url", url, "--profile", "single", *arguments])


def test_topics_are_made_verified_mended_and_made_again_without_effect(raw: RawKafka) -> None:
    missing = run(raw, "verify", "--json")
    assert missing.exit_code == 1
    assert [each["found"] for each in json.loads(missing.stdout)["differences"]] == ["missing"] * 4
    made = run(raw, "create", "--json")
    assert (made.exit_code, len(json.loads(made.stdout)["made"])) == (0, 4)
    again = run(raw, "create")
    assert (again.exit_code, again.stdout) == (0, "0 topics made: all as they should be.\n")
    assert run(raw, "verify").exit_code == 0

    _set(raw, MESSAGES, "retention.ms", "1000")
    wrong = run(raw, "verify")
    assert wrong.exit_code == 1
    for word in ("retention.ms", "604800000", "1000", raw.cluster.prefixed(MESSAGES)):
        assert word in wrong.stdout
    assert run(raw, "create").exit_code == 0
    assert run(raw, "verify").exit_code == 0


def test_a_topic_of_another_size_is_reported_and_left_as_it_is() -> None:
    raw = RawKafka(real_kafka(), {MESSAGES: 4})
    asyncio.run(raw.create_topics())
    for command in ("create", "create", "verify"):
        result = run(raw, command, "--json")
        assert result.exit_code == 1
        differences = json.loads(result.stdout)["differences"]
        assert [each["what"] for each in differences if each["found"] == "4"] == ["partitions"]
    raw.partitions = PARTITIONS
    asyncio.run(raw.close())


async def test_the_largest_dead_letter_fits() -> None:
    raw = RawKafka(real_kafka(), {DEAD_LETTERS: 8})
    (topic,) = [each for each in definitions(SINGLE, raw.cluster.prefix) if each.name.endswith(DEAD_LETTERS)]
    await KafkaTopicControl(raw.cluster).create(topic, timeout_s=PATIENCE_S)
    partition = Partition(MESSAGES, 0)
    content = bytes(limits.DEAD_LETTER_VALUE_BYTES_MAX)
    record = Record(partition=partition, offset=0, key=b"chat_1", value=content, headers=(), timestamp_ms=0)
    dead_letter = DeadLetter(
        record=record, reason="x", attempts=1, consumer_group="g", consumer_id="c", failed_at_ms=1_769_783_401_234
    )
    producer = Producer(raw.cluster, {DEAD_LETTERS: 8}, "fanout-0")
    try:
        await KafkaDeadLetterWriter(producer).write(dead_letter, timeout_s=PATIENCE_S)
    finally:
        await producer.close()
        await raw.close()


def test_f4_a_broker_that_is_away_for_a_moment_is_reported_and_asked_again(
    raw: RawKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every first call of each kind arrives, and its answer is lost."""
    monkeypatch.setattr(limits, "PREPARE_BACKOFF_S", 0.001)
    monkeypatch.setattr(topics, "KafkaTopicControl", _Forgetful)
    made = run(raw, "create")
    assert made.exit_code == 0, made.output
    assert made.stdout == "4 topics made: all as they should be.\n"
    assert made.stderr.count("the answer was lost; trying again in 0.001 s\n") == 3
    again = run(raw, "create")
    assert (again.exit_code, again.stdout) == (0, "0 topics made: all as they should be.\n")


class _Forgetful(KafkaTopicControl):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._done: set[str] = set()

    async def describe(self, names: Sequence[str], *, timeout_s: float) -> Mapping[str, Topic]:
        found = await super().describe(names, timeout_s=timeout_s)
        self._forget("describe")
        return found

    async def defaults(self, *, timeout_s: float) -> Mapping[str, str]:
        found = await super().defaults(timeout_s=timeout_s)
        self._forget("defaults")
        return found

    async def create(self, topic: Topic, *, timeout_s: float) -> None:
        await super().create(topic, timeout_s=timeout_s)
        self._forget("create")

    def _forget(self, operation: str) -> None:
        if operation not in self._done:
            self._done.add(operation)
            raise OutcomeUnknown("the answer was lost")


@pytest.mark.parametrize(
    ("url", "says"), [("kafka://127.0.0.1:1", "repeat it after a pause"), ("localhost:9092", "no address of Kafka")]
)
def test_where_kafka_cannot_be_asked_the_exit_code_is_2_and_one_line_says_why(
    url: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seriatim.domain.limits.KAFKA_ADMIN_S", 0.5)
    result = CliRunner().invoke(main, ["topics", "verify", "--url", url])
    assert result.exit_code == 2
    assert says in result.stderr
    assert "Traceback" not in result.output


def _set(raw: RawKafka, topic: str, name: str, value: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, raw.cluster.prefixed(topic), incremental_configs=[entry])
    for changed_ in raw.admin.incremental_alter_configs([resource]).values():
        changed_.result(PATIENCE_S)

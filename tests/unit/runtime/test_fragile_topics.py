"""In prod a process does not start on topics that one lost broker could empty; elsewhere one broker is enough."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
from confluent_kafka import KafkaError

from seriatim.engines.inprocess.clock import SystemClock
from seriatim.engines.kafka.errors import NotAuthorized, unavailable
from seriatim.engines.kafka.topic_control import KafkaTopicControl
from seriatim.operations.topics import PARTITIONS, PROFILES, FragileTopics, create
from seriatim.ports.event_log import MESSAGES
from seriatim.runtime.config.roles import ProcessRole
from seriatim.runtime.config.settings import Settings
from seriatim.runtime.telemetry.metrics import Metrics
from seriatim.runtime.wiring import kafka_events
from seriatim.runtime.wiring.kafka_events import KafkaEvents
from tests.support.real_kafka import RawKafka, real_kafka

NOWHERE = "127.0.0.1:1"  # no process listens on this port


@pytest.fixture
async def raw() -> AsyncIterator[RawKafka]:
    """The topics of a deployment on one broker."""
    raw = RawKafka(await asyncio.to_thread(real_kafka), PARTITIONS)
    await create(KafkaTopicControl(raw.cluster), PROFILES["single"], prefix=raw.cluster.prefix)
    yield raw
    await raw.close()


@asynccontextmanager
async def events_of(raw: RawKafka, env: Literal["dev", "prod"], **given: Any) -> AsyncIterator[KafkaEvents]:
    """The event log of an ingest process."""
    settings = Settings(
        env=env,
        roles=(ProcessRole.INGEST,),
        store=f"dynamodb://?endpoint=http://{NOWHERE}",
        events=f"kafka://{raw.cluster.bootstrap}?prefix={raw.cluster.prefix}",
        **given,
    )
    events = KafkaEvents(settings, Metrics("here", (ProcessRole.INGEST,)), SystemClock(), "run")
    try:
        yield events
    finally:
        await events.close()


async def test_in_prod_topics_with_one_copy_are_refused_with_what_to_do(
    raw: RawKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with events_of(raw, "prod") as events:
        with pytest.raises(FragileTopics) as refused:
            await events.check_reachable()
    text = refused.value.log_reason
    assert f"{raw.cluster.prefixed(MESSAGES)}: replicas is 1, not 3 or more" in text
    assert f"{raw.cluster.prefixed(MESSAGES)}: min.insync.replicas is 1, not 2 or more" in text
    assert "kafka-reassign-partitions" in text
    assert "events_fragile_in_prod" in text


async def test_in_prod_they_can_be_accepted_on_purpose_and_are_logged(
    raw: RawKafka, monkeypatch: pytest.MonkeyPatch, log: io.StringIO
) -> None:
    async with events_of(raw, "prod", events_fragile_in_prod=True) as events:
        await events.check_reachable()
    assert [json.loads(line)["event"] for line in log.getvalue().splitlines()] == ["topics_fragile"]


async def test_in_dev_one_broker_is_enough(raw: RawKafka, monkeypatch: pytest.MonkeyPatch, log: io.StringIO) -> None:
    async with events_of(raw, "dev") as events:
        await events.check_reachable()
    assert log.getvalue() == ""


async def test_a_process_that_may_not_read_the_settings_of_topics_says_so_and_starts(
    raw: RawKafka, monkeypatch: pytest.MonkeyPatch, log: io.StringIO
) -> None:
    async def refused(*_: object, prefix: str) -> Sequence[object]:
        raise unavailable("describe", KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    monkeypatch.setattr(kafka_events, "weaknesses", refused)
    async with events_of(raw, "prod") as events:
        await events.check_reachable()
    assert [json.loads(line)["event"] for line in log.getvalue().splitlines()] == ["topics_not_checked"]


def test_only_a_missing_right_is_taken_for_one() -> None:
    assert isinstance(unavailable("x", KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED)), NotAuthorized)
    assert not isinstance(unavailable("x", KafkaError(KafkaError._TRANSPORT)), NotAuthorized)

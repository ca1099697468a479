"""Tables and topics of `seriatim cluster`, over a proxy to DynamoDB that breaks and a Kafka that is not there yet."""

from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from seriatim.domain import limits
from seriatim.domain.errors import InternalError, ServiceUnavailable
from seriatim.engines.dynamodb.table_control import DynamoTableControl
from seriatim.engines.inprocess.clock import SystemClock
from seriatim.operations import tables
from seriatim.operations.topics import PROFILES, definitions
from seriatim.ports.topics import Topic, TopicControl
from seriatim.runtime.config.settings import Settings
from seriatim.runtime.server.lifecycle import StartupError
from seriatim.runtime.wiring import prepare as module
from seriatim.runtime.wiring.prepare import prepare
from tests.support.real_dynamodb import PATIENCE_S, CarefulClient, real_dynamodb
from tests.support.tcp_proxy import TcpProxy

PREFIX = "prepared_"


@pytest.fixture
async def proxy() -> AsyncIterator[TcpProxy]:
    """To DynamoDB. What was made there is removed."""
    real = real_dynamodb()
    async with TcpProxy(int(real.url.rpartition(":")[2])) as proxy:
        yield proxy
    careful = CarefulClient(real.url)
    for table in tables.definitions(PREFIX):
        for operation, request in (
            ("UpdateTable", {"TableName": table.name, "DeletionProtectionEnabled": False}),
            ("DeleteTable", {"TableName": table.name}),
        ):
            try:
                await careful.plain.call(operation, request, until=careful.until(PATIENCE_S))
            except InternalError:
                continue  # there is none
    await careful.close()


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> "_Kafka":
    kafka = _Kafka()
    monkeypatch.setattr(module, "KafkaTopicControl", lambda cluster: kafka)
    return kafka


async def test_f4_lost_connections_cost_time_and_nothing_else(proxy: TcpProxy, kafka: "_Kafka") -> None:
    reported: list[str] = []
    proxy.cut()

    def report(text: str) -> None:
        reported.append(text)
        if "trying again" in text:
            proxy.restore()
        elif text.endswith(("_messages: made", "_sessions: ready")):
            proxy.cut()

    await prepare(_settings(proxy), "single", SystemClock(), report)
    careful = CarefulClient(real_dynamodb().url)
    try:
        assert list(await tables.verify(DynamoTableControl(careful.plain), prefix=PREFIX)) == []
    finally:
        await careful.close()
    again = [text for text in reported if "trying again" in text]
    assert len(again) == 3 + 1
    assert again[0].startswith("prepared_users: the connection to the store was lost")
    assert again[0].endswith(f"trying again in {limits.PREPARE_BACKOFF_S:g} s")
    assert again[-1].startswith("topics: describe: Kafka answered _TRANSPORT")
    assert sorted(kafka.topics) == sorted(topic.name for topic in definitions(PROFILES["single"]))


async def test_f4_a_store_that_stays_away_is_given_up_and_the_reason_is_the_last_one(
    proxy: TcpProxy, kafka: "_Kafka", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PREPARE_BACKOFF_S", 0.001)
    reported: list[str] = []
    proxy.cut()
    with pytest.raises(StartupError, match="the connection to the store was lost"):
        await prepare(_settings(proxy), "single", SystemClock(), reported.append)
    assert len(reported) == limits.PREPARE_TRIES_MAX - 1
    assert proxy.attempts == limits.PREPARE_TRIES_MAX


class _Kafka(TopicControl):
    """Answers from the second question on."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self._asked = False

    async def describe(self, names: Sequence[str], *, timeout_s: float) -> Mapping[str, Topic]:
        asked, self._asked = self._asked, True
        if not asked:
            raise ServiceUnavailable("describe: Kafka answered _TRANSPORT; repeat it after a pause")
        return {name: topic for name, topic in self.topics.items() if name in names}

    async def defaults(self, *, timeout_s: float) -> Mapping[str, str]:
        return {}

    async def create(self, topic: Topic, *, timeout_s: float) -> None:
        self.topics[topic.name] = topic

    async def adjust(self, topic: Topic, *, timeout_s: float) -> None:
        self.topics[topic.name] = topic


def _settings(proxy: TcpProxy) -> Settings:
    return Settings(
        store=f"dynamodb://?endpoint=http://127.0.0.1:{proxy.port}&region=us-east-1&prefix={PREFIX}",
        events="kafka://127.0.0.1:1",
        directory="redis://127.0.0.1:1",
    )

"""Real Kafka as a child process: it answers, keeps the rules of our broker, and keeps its records."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.real_engines import real_engines
from tests.unit.tools.kafka_wire import create_topic, fetch, produce, topic_error
from tools.engines import kafka as kafkas
from tools.engines.kafka import Kafka, brokers_alive
from tools.engines.ports import spare_port

NO_SUCH_TOPIC = 3


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    folder: Path = tmp_path_factory.mktemp("kafka")
    with real_engines():
        Kafka(folder).require()
    with Kafka.started(folder) as engine:
        yield engine


def test_a_started_kafka_counts_one_living_broker(kafka: Kafka) -> None:
    assert kafka.bootstrap == f"127.0.0.1:{kafka.port}"
    assert brokers_alive(kafka.port) == 1


def test_kafka_listens_on_the_loopback_address_only(kafka: Kafka) -> None:
    for port in kafka.ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), 1)


def test_kafka_creates_no_topic_on_first_use(kafka: Kafka) -> None:
    assert topic_error(kafka.port, "nobody-made-me") == NO_SUCH_TOPIC


def test_a_cluster_id_that_begins_with_a_dash_is_not_taken_for_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Kafka(tmp_path)
    with real_engines():
        engine.require()
    engine.ports = (spare_port(), spare_port())
    monkeypatch.setattr(kafkas, "_cluster_id", lambda: "-AAAAAAAAAAAAAAAAAAAAA")  # one random id in 64 is like this
    engine.prepare()
    assert "cluster.id=-AAAAAAAAAAAAAAAAAAAAA" in (tmp_path / "data" / "meta.properties").read_text().splitlines()


def test_kafka_keeps_its_records_and_its_port_through_a_stop_and_a_kill(kafka: Kafka) -> None:
    port = kafka.port
    assert create_topic(port, "kept") == 0
    assert produce(port, "kept", b"before the stop") == 0
    kafka.stop()
    assert not kafka.is_running
    kafka.start()
    assert produce(port, "kept", b"before the kill") == 0
    kafka.kill()
    kafka.start()
    assert kafka.port == port
    assert produce(port, "kept", b"after the kill") == 0
    records = fetch(port, "kept")
    assert b"before the stop" in records
    assert b"before the kill" in records

"""Apache Kafka as one node that is broker and controller (KRaft), with the settings of the single-broker profile."""

import base64
import secrets
import socket
import struct
import subprocess
from pathlib import Path
from typing import ClassVar

from tools.engines.engine import Engine, require_program
from tools.engines.errors import EngineFailed
from tools.engines.install import KAFKA, installed
from tools.engines.java import java, require_java
from tools.engines.ports import HOST

PROBE_S_MAX = 2.0
METADATA, METADATA_VERSION = 3, 4
_QUIET = {"org.slf4j.simpleLogger.defaultLogLevel": "warn"}


class Kafka(Engine):
    name: ClassVar[str] = "Kafka"
    ports_needed: ClassVar[int] = 2  # one for clients, one for the controller

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def require(self) -> None:
        require_program(self.name, "setpriv", "util-linux")
        require_java(self.name)
        installed(KAFKA)

    def prepare(self) -> None:
        settings = {**SETTINGS, **self._addresses(), "log.dirs": str(self.folder / "data")}
        lines = [f"{name}={value}" for name, value in settings.items()]
        self._settings_file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        # With `=`: one random id in 64 begins with a dash, and as a word of its own it would be read as an option.
        arguments = [f"--cluster-id={_cluster_id()}", f"--config={self._settings_file}"]
        command = [*self._java(), "kafka.tools.StorageTool", "format", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise EngineFailed(f"Kafka could not format its storage:\n{done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        return [*self._java(), "kafka.Kafka", str(self._settings_file)]

    def answers(self) -> bool:
        """Whether the broker counts itself among the living. It listens a little earlier, and leads nothing then."""
        return brokers_alive(self.port) > 0

    @property
    def _settings_file(self) -> Path:
        return self.folder / "server.properties"

    def _addresses(self) -> dict[str, str]:
        clients, controller = self.ports
        return {
            "listeners": f"PLAINTEXT://{HOST}:{clients},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{clients}",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
        }

    def _java(self) -> list[str]:
        return java(installed(KAFKA) / "lib" / "*", properties=_QUIET)


SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # As in production, but for one broker.
    "auto.create.topics.enable": "false",
    "unclean.leader.election.enable": "false",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Only to save seconds: 50 partitions each, and three seconds for more consumers to come.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    # After a kill, the broker may not return before its former self counts as dead: by default after nine seconds.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


def brokers_alive(port: int) -> int:
    """How many brokers the broker at this port would send a client to."""
    no_topics = struct.pack(">i?", 0, False)
    answer = request(port, METADATA, METADATA_VERSION, no_topics)
    _throttle_ms, brokers = struct.unpack_from(">ii", answer)
    return int(brokers)


def request(port: int, api: int, version: int, body: bytes) -> bytes:
    """One request in Kafka's own protocol, of the versions before the compact encodings; its answer's body."""
    client = b"engines"
    header = struct.pack(">hhih", api, version, 1, len(client)) + client
    with socket.create_connection((HOST, port), PROBE_S_MAX) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        size = answers.read(4)
        if len(size) < 4:
            raise ConnectionError("Kafka hung up")
        (length,) = struct.unpack(">i", size)
        answer = answers.read(length)
    if len(answer) < length:
        raise ConnectionError("Kafka hung up in the middle of its answer")
    return answer[4:]  # after the number of the request


def _cluster_id() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")

"""Just enough of Kafka's protocol to make a topic, write one record and read it back, without a client library."""

import struct
import time

from tools.engines.kafka import request

PRODUCE, FETCH, CREATE_TOPICS, METADATA = 0, 1, 19, 3
WAIT_MS = 5_000
LEADER_S_MAX = 20.0
NO_LEADER_YET = (3, 5, 6)
"""The topic or its leader is not known yet, or the broker does not know yet that it leads."""


def create_topic(port: int, topic: str) -> int:
    """The error code: 0 is success."""
    named = _string(topic)
    wanted = named + struct.pack(">ihii", 1, 1, 0, 0)  # one partition, one replica, nothing assigned, no settings
    answer = request(port, CREATE_TOPICS, 2, struct.pack(">i", 1) + wanted + struct.pack(">i?", WAIT_MS, False))
    return _short(answer, 4 + 4 + len(named))  # after the throttle time, the count and the name


def topic_error(port: int, topic: str) -> int:
    """The error code of asking about a topic, with leave to create it: 3 is "there is no such topic"."""
    answer = request(port, METADATA, 4, struct.pack(">i", 1) + _string(topic) + struct.pack(">?", True))
    return _short(answer, answer.index(_string(topic)) - 2)


def produce(port: int, topic: str, value: bytes) -> int:
    """The error code, once all replicas have the record. Asks again while the partition has no leader yet."""
    deadline_s = time.monotonic() + LEADER_S_MAX
    while (error := _produce(port, topic, value)) in NO_LEADER_YET and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return error


def fetch(port: int, topic: str) -> bytes:
    """Everything in partition 0, in Kafka's own format: the bytes of a value are in it as they were sent."""
    head = struct.pack(">iiiib", -1, 100, 1, 1 << 20, 0)
    wanted = struct.pack(">i", 1) + _string(topic) + struct.pack(">iiqi", 1, 0, 0, 1 << 20)
    return request(port, FETCH, 4, head + wanted)


def _produce(port: int, topic: str, value: bytes) -> int:
    batch = _batch(value)
    named = _string(topic)
    data = struct.pack(">i", 1) + named + struct.pack(">iii", 1, 0, len(batch)) + batch
    answer = request(port, PRODUCE, 7, struct.pack(">hhi", -1, -1, WAIT_MS) + data)
    return _short(answer, 4 + len(named) + 4 + 4)  # after the counts, the name and the partition's number


def _batch(value: bytes) -> bytes:
    record = b"\x00" + _varint(0) + _varint(0) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    records = _varint(len(record)) + record
    now_ms = int(time.time() * 1000)
    body = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + records
    after_length = struct.pack(">ibI", -1, 2, _crc32c(body)) + body
    return struct.pack(">qi", 0, len(after_length)) + after_length


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _short(answer: bytes, at: int) -> int:
    return int(struct.unpack_from(">h", answer, at)[0])


def _varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF

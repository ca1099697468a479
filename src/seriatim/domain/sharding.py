"""Where a chat lives: its bucket for ever, the log partition and the ingest process that follow from it.

The hash is Kafka's murmur2, so that any Kafka client can find a chat's partition (docs/spec/data.md#partitioner).
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache

from seriatim.domain import limits
from seriatim.domain.errors import ServiceUnavailable


def bucket(key: str) -> int:
    """0..4095. Frozen: it depends on nothing but the key."""
    return _bucket(key)


def partition(key: str, count: int) -> int:
    """The partition of a topic with `count` partitions; 4096 being a multiple, a doubled count splits each in two."""
    return _bucket(key) % count


def owner(key_bucket: int, processes: Sequence[str]) -> str:
    """The process with the highest weight for this bucket, however the list is ordered.

    When a process goes, only its buckets move; when one comes, only those that it takes.
    """
    return _owner(key_bucket, tuple(processes))


def murmur2(data: bytes) -> int:
    """Kafka's hash, unsigned. Java shows the same 32 bits as a signed number."""
    length = len(data)
    tail = length & ~3
    value = (_SEED ^ length) & _WORD
    for start in range(0, tail, 4):
        value = (value * _M & _WORD) ^ _mixed(int.from_bytes(data[start : start + 4], "little"))
    if tail < length:
        value = (value ^ int.from_bytes(data[tail:], "little")) * _M & _WORD
    value = (value ^ value >> 13) * _M & _WORD
    return value ^ value >> 15


_SEED, _M, _R = 0x9747B28C, 0x5BD1E995, 24
_WORD = 0xFFFFFFFF


def _mixed(word: int) -> int:
    word = word * _M & _WORD
    return (word ^ word >> _R) * _M & _WORD


@lru_cache(maxsize=limits.BUCKET_CACHE_CHATS_MAX)
def _bucket(key: str) -> int:
    return (murmur2(key.encode()) & 0x7FFFFFFF) % limits.BUCKETS


@lru_cache(maxsize=limits.OWNER_CACHE_ENTRIES_MAX)
def _owner(key_bucket: int, processes: tuple[str, ...]) -> str:
    if not processes:
        raise ServiceUnavailable("no process is there to take this chat")
    # The name decides a tie, so that every caller decides it alike.
    return max(processes, key=lambda process: (_weight(key_bucket, process), process))


def _weight(key_bucket: int, process: str) -> bytes:
    return hashlib.blake2b(f"{key_bucket}/{process}".encode(), digest_size=8).digest()

"""Buckets, partitions and owners: the vectors of docs/spec/data.md#partitioner, and what moves when."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.domain import limits
from seriatim.domain.errors import ServiceUnavailable
from seriatim.domain.sharding import bucket, murmur2, owner, partition

KAFKA = [
    ("21", -973932308),
    ("foobar", -790332482),
    ("a-little-bit-long-string", -985981536),
    ("a-little-bit-longer-string", -1486304829),
    ("abc", 479470107),
]

# chat_id, murmur2, bucket, % 64, % 128, % 16, % 8
OURS = [
    ("chat_abc123", 0x5333E856, 2134, 22, 86, 6, 6),
    ("chat_xyz789", 0xA2A1A1EA, 490, 42, 106, 10, 2),
    ("chat_000001", 0x1B4AE8ED, 2285, 45, 109, 13, 5),
    ("chat_测试", 0x8EB3561F, 1567, 31, 31, 15, 7),
    ("", 0x106E08D9, 2265, 25, 89, 9, 1),
    ("a", 0xA2D0B27C, 636, 60, 124, 12, 4),
    ("chat_" + 1000 * "x", 0xEBA4F520, 1312, 32, 32, 0, 0),
    ("chat_🎉🎊", 0x6F8D412D, 301, 45, 45, 13, 5),
]

PROCESSES = ["ingest-0", "ingest-1", "ingest-2", "ingest-3", "ingest-4"]


@pytest.mark.parametrize(("key", "signed"), KAFKA)
def test_s33_the_hash_is_kafkas_own(key: str, signed: int) -> None:
    assert murmur2(key.encode()) == signed % 2**32


@pytest.mark.parametrize(("key", "hashed", "in_bucket", "of_64", "of_128", "of_16", "of_8"), OURS)
def test_s33_the_vectors_hold(
    key: str, hashed: int, in_bucket: int, of_64: int, of_128: int, of_16: int, of_8: int
) -> None:
    assert murmur2(key.encode()) == hashed
    assert bucket(key) == in_bucket
    assert [partition(key, count) for count in (64, 128, 16, 8)] == [of_64, of_128, of_16, of_8]


@given(st.binary(max_size=64))
def test_the_hash_is_an_unsigned_32_bit_number(data: bytes) -> None:
    assert 0 <= murmur2(data) < 2**32


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_key_has_a_bucket_and_the_cache_repeats_it(key: str) -> None:
    assert bucket(key) == bucket(key) == (murmur2(key.encode()) & 0x7FFFFFFF) % limits.BUCKETS


def test_s33_doubling_the_partitions_keeps_every_bucket_and_moves_half_of_them_to_the_new_partitions() -> None:
    keys = _a_key_of_every_bucket()
    moved = [key for key in keys if partition(key, 64) != partition(key, 128)]
    assert len(moved) == limits.BUCKETS // 2
    assert all(partition(key, 128) == partition(key, 64) + 64 for key in moved)


def test_s33_all_chats_of_a_bucket_share_a_partition_whatever_the_count() -> None:
    first: dict[int, str] = {}
    for number in range(10_000):
        twin = first.setdefault(bucket(f"chat_{number}"), f"chat_{number}")
        assert all(partition(f"chat_{number}", count) == partition(twin, count) for count in (1, 8, 16, 64, 128))


def test_removing_a_process_moves_only_its_own_buckets() -> None:
    without = [name for name in PROCESSES if name != "ingest-2"]
    before = [owner(each, PROCESSES) for each in range(limits.BUCKETS)]
    after = [owner(each, without) for each in range(limits.BUCKETS)]
    assert "ingest-2" in before
    assert all(now == then for then, now in zip(before, after, strict=True) if then != "ingest-2")


def test_a_new_process_takes_buckets_and_gives_none_away() -> None:
    before = [owner(each, PROCESSES) for each in range(limits.BUCKETS)]
    after = [owner(each, [*PROCESSES, "ingest-5"]) for each in range(limits.BUCKETS)]
    moved = [now for then, now in zip(before, after, strict=True) if then != now]
    assert moved
    assert all(now == "ingest-5" for now in moved)


def test_processes_share_the_buckets_evenly() -> None:
    owners = [owner(each, PROCESSES) for each in range(limits.BUCKETS)]
    fair = limits.BUCKETS / len(PROCESSES)
    assert all(0.85 * fair < owners.count(name) < 1.15 * fair for name in PROCESSES)


@given(st.permutations(PROCESSES), st.integers(0, limits.BUCKETS - 1))
def test_the_owner_does_not_depend_on_the_order_of_the_list(names: list[str], key_bucket: int) -> None:
    assert owner(key_bucket, names) == owner(key_bucket, PROCESSES)


def test_the_owner_is_the_same_on_every_machine_and_in_every_release() -> None:
    assert [owner(each, PROCESSES) for each in range(6)] == [
        "ingest-3",
        "ingest-2",
        "ingest-1",
        "ingest-4",
        "ingest-0",
        "ingest-0",
    ]


def test_neither_bucket_nor_owner_depends_on_the_seed_of_pythons_own_hash() -> None:
    program = (
        "from seriatim.domain.sharding import bucket, owner;"
        f"print([owner(b, {PROCESSES!r}) for b in range(50)], [bucket(f'chat_{{n}}') for n in range(50)])"
    )
    answers = [_run(program, seed) for seed in ("0", "1")]
    assert answers[0] == answers[1] != ""


def test_a_chat_without_any_process_is_refused_for_now() -> None:
    with pytest.raises(ServiceUnavailable):
        owner(0, [])


def _a_key_of_every_bucket() -> list[str]:
    found: dict[int, str] = {}
    number = 0
    while len(found) < limits.BUCKETS:
        key = f"chat_{number}"
        found.setdefault(bucket(key), key)
        number += 1
    return list(found.values())


def _run(program: str, hash_seed: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True
    )
    return run.stdout

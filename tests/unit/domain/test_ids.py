"""Identifiers: what we mint and what we accept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.domain.ids import event_id, is_id, is_uuid4, new_ulid, new_ulids, new_uuid4, ulid, ulid_ms, uuid4

MS = st.integers(0, 2**48 - 1)
CHANCE = st.integers(0, 2**80 - 1)


def test_a_ulid_is_the_known_one_for_a_known_time() -> None:
    # The example of the ULID specification: 1469918176385 ms is 01ARYZ6S41.
    assert ulid(1469918176385, 0) == "01ARYZ6S41" + "0" * 16
    assert ulid(2**48 - 1, 2**80 - 1) == "7" + "Z" * 25


@given(MS, CHANCE, MS, CHANCE)
def test_ulids_sort_by_time_and_then_by_chance(ms: int, chance: int, other_ms: int, other_chance: int) -> None:
    assert (ulid(ms, chance) < ulid(other_ms, other_chance)) == ((ms, chance) < (other_ms, other_chance))


@given(MS, CHANCE)
def test_a_ulid_has_26_characters_and_is_an_id(ms: int, chance: int) -> None:
    text = ulid(ms, chance)
    assert len(text) == 26
    assert is_id(text)


@given(MS, CHANCE)
def test_a_ulid_tells_its_time(ms: int, chance: int) -> None:
    assert ulid_ms(ulid(ms, chance)) == ms


@pytest.mark.parametrize(
    "text", ["", "01ARYZ6S41", "8" + "Z" * 25, "0" * 27, "0" * 25 + "U", "0" * 25 + "z", "0" * 26 + "\n"]
)
def test_what_is_no_ulid_tells_no_time(text: str) -> None:
    assert ulid_ms(text) is None


def test_too_much_chance_never_spoils_the_time() -> None:
    for ms in (4, 5):  # the last bit of the time is 0, and 1
        assert ulid(ms, 2**80) == ulid(ms, 0)


@pytest.mark.parametrize("text", ["a", "chat_01HQX", "ABC-def_9", "x" * 64])
def test_ids_of_other_systems_are_welcome(text: str) -> None:
    assert is_id(text)


@pytest.mark.parametrize("text", ["", "x" * 65, "a b", "a#b", "a.b", "ä", "a\n", "\n", None, 7, b"a"])
def test_what_does_not_fit_into_a_key_or_a_url_is_no_id(text: object) -> None:
    assert not is_id(text)


@pytest.mark.parametrize("text", ["550e8400-e29b-41d4-a716-446655440000", "550E8400-E29B-41D4-B716-446655440000"])
def test_a_uuid4_is_accepted_in_either_case(text: str) -> None:
    assert is_uuid4(text)


@pytest.mark.parametrize(
    "text",
    [
        "550e8400-e29b-11d4-a716-446655440000",  # version 1
        "550e8400-e29b-41d4-c716-446655440000",  # variant of Microsoft
        "550e8400e29b41d4a716446655440000",
        "{550e8400-e29b-41d4-a716-446655440000}",
        "550e8400-e29b-41d4-a716-446655440000\n",
        "",
        None,
    ],
)
def test_other_uuids_are_not(text: object) -> None:
    assert not is_uuid4(text)


def test_an_event_id_is_the_messages_ulid_under_another_prefix() -> None:
    assert event_id("msg_01HQX") == "evt_01HQX"
    assert event_id("foreign") == "evt_foreign"


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        (0, "00000000-0000-4000-8000-000000000000"),
        (2**128 - 1, "ffffffff-ffff-4fff-bfff-ffffffffffff"),
        (0x0123456789ABCDEF0123456789ABCDEF, "01234567-89ab-4def-8123-456789abcdef"),
    ],
)
def test_a_random_uuid_keeps_all_bits_but_version_and_variant(bits: int, text: str) -> None:
    assert uuid4(bits) == text
    assert is_uuid4(text)


class Chance:
    """Random bits that are all 1. `asked`: how many were, each time."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def bits(self, bits: int) -> int:
        self.asked.append(bits)
        return (1 << bits) - 1


def test_a_new_ulid_has_80_random_bits() -> None:
    chance = Chance()
    assert new_ulid(5, chance.bits) == ulid(5, 2**80 - 1)
    assert chance.asked == [80]


def test_new_ulids_of_one_moment_share_60_random_bits_and_count_in_the_last_20() -> None:
    given = list(new_ulids(5, Chance().bits))
    assert len(given) == 2**20
    assert (given[0], given[33], given[-1]) == tuple(ulid(5, 2**80 - 2**20 + count) for count in (0, 33, 2**20 - 1))


def test_a_new_uuid_has_128_random_bits() -> None:
    chance = Chance()
    assert new_uuid4(chance.bits) == uuid4(2**128 - 1)
    assert chance.asked == [128]

"""Times on the wire."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.domain.times import iso, milliseconds

LAST = 253_402_300_799_999  # the end of the year 9999


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_769_783_400_000, "2026-01-30T14:30:00.000Z"),
        (1_769_783_400_007, "2026-01-30T14:30:00.007Z"),
        (1_769_783_400_999, "2026-01-30T14:30:00.999Z"),
        (LAST, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_a_time_has_exactly_three_decimals_and_a_z(ms: int, text: str) -> None:
    assert iso(ms) == text


@given(st.integers(0, LAST))
def test_no_millisecond_is_lost_on_the_way(ms: int) -> None:
    assert milliseconds(iso(ms)) == ms


@given(st.integers(0, LAST), st.integers(0, LAST))
def test_times_sort_as_text(one: int, other: int) -> None:
    assert (iso(one) < iso(other)) == (one < other)


@pytest.mark.parametrize(
    "text", ["2026-01-30T15:30:00.000+01:00", "2026-01-30T14:30:00Z", "2026-01-30T14:30:00.000999Z"]
)
def test_any_time_with_an_offset_is_understood(text: str) -> None:
    assert milliseconds(text) == 1_769_783_400_000


def test_a_time_without_an_offset_is_not_guessed() -> None:
    with pytest.raises(TypeError):
        milliseconds("2026-01-30T14:30:00")

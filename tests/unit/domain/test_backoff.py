"""Pauses double up to their limit, and are spread so that callers do not retry together."""

import pytest

from seriatim.domain.backoff import backoff_s, client_backoff_s, doubled_s


@pytest.mark.parametrize(("doublings", "pause_s"), [(0, 0.5), (1, 1.0), (3, 4.0), (4, 5.0), (10_000, 5.0)])
def test_a_pause_doubles_up_to_its_limit(doublings: int, pause_s: float) -> None:
    assert doubled_s(doublings, first_s=0.5, max_s=5.0) == pause_s


def test_a_pause_is_spread_over_its_upper_half() -> None:
    assert backoff_s(1, first_s=0.5, max_s=5.0, random=lambda: 0.0) == 0.5
    assert backoff_s(1, first_s=0.5, max_s=5.0, random=lambda: 0.5) == 0.75


def test_a_client_waits_about_1_to_16_seconds_or_as_long_as_the_server_asks() -> None:
    assert [client_backoff_s(attempts, 0, lambda: 0.5) for attempts in range(7)] == [1, 2, 4, 8, 16, 16, 16]
    assert client_backoff_s(0, 0, lambda: 0.0) == pytest.approx(0.8)
    assert client_backoff_s(0, 30.0, lambda: 0.5) == 30.0

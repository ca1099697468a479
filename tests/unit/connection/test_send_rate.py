"""S29: 10 sends a second sustained, bursts of 20; more is refused, and a flood ends the connection."""

from seriatim.connection.session.sends import SendRate


def test_s29_a_burst_of_20_passes_and_the_21st_is_limited() -> None:
    rate = SendRate(now=0.0)
    assert [rate.take(0.0) for _ in range(20)] == [None] * 20
    limited = rate.take(0.0)
    assert limited is not None
    assert limited.code == "RATE_LIMITED"


def test_s29_ten_tokens_come_back_per_second() -> None:
    rate = SendRate(now=0.0)
    for _ in range(20):
        rate.take(0.0)
    passed = [rate.take(1.0) is None for _ in range(12)]
    assert passed.count(True) == 10


def test_an_idle_connection_saves_up_no_more_than_one_burst() -> None:
    rate = SendRate(now=0.0)
    passed = [rate.take(3600.0) is None for _ in range(30)]
    assert passed.count(True) == 20


def test_a_limited_client_is_asked_to_wait_at_least_a_second() -> None:
    rate = SendRate(now=0.0)
    limited = [rate.take(0.0) for _ in range(21)][-1]
    assert limited is not None
    assert limited.retry_after_seconds is not None
    assert limited.retry_after_seconds >= 1


def test_only_more_than_200_rejections_in_a_minute_are_a_flood() -> None:
    rate = SendRate(now=0.0)
    assert [rate.flooding(30.0) for _ in range(201)] == [False] * 200 + [True]


def test_rejections_spread_over_more_than_a_minute_are_no_flood() -> None:
    rate = SendRate(now=0.0)
    assert not any(rate.flooding(second * 0.31) for second in range(1000))

"""How late a batch is, though no two clocks agree."""

import pytest

from seriatim.domain import limits
from seriatim.engines.grpc.queue_delay import Lateness

APART_S = 1000.0  # the clocks of the two processes


def _late(lateness: Lateness, sent_at: float, took: float) -> float:
    return lateness.of(sent_at, sent_at + APART_S + took)


def test_the_first_batch_is_on_time_whatever_the_clocks_say() -> None:
    assert _late(Lateness(), 5.0, 0.1) == 0


def test_what_took_longer_than_the_fastest_is_late_by_the_difference() -> None:
    lateness = Lateness()
    _late(lateness, 0.0, 0.010)
    _late(lateness, 1.0, 0.001)
    assert _late(lateness, 2.0, 0.001) == pytest.approx(0, abs=1e-3)
    assert _late(lateness, 3.0, 4.001) == pytest.approx(4.0, abs=0.01)


def test_drafts_that_waited_for_a_process_that_stood_still_are_late_by_that_time() -> None:
    lateness = Lateness()
    _late(lateness, 0.0, 0.001)
    # Sent within seconds, read together five minutes later.
    for sent_at in (1.0, 2.0, 6.0):
        assert _late(lateness, sent_at, 300 - sent_at) == pytest.approx(300 - sent_at, abs=0.01)


def test_a_clock_that_runs_a_little_faster_makes_nothing_late() -> None:
    lateness = Lateness()
    drift = 0.0002
    assert max(_late(lateness, float(at), 0.001 + drift * at) for at in range(0, 86_400, 60)) == 0


def test_a_clock_that_was_moved_is_believed_after_a_while() -> None:
    lateness = Lateness()
    _late(lateness, 0.0, 0.001)
    seconds = range(1, int(limits.RPC_LATE_RESET_S) + 3)
    late = [_late(lateness, float(at), 3600.0) for at in seconds]
    assert late[0] == pytest.approx(3600, abs=0.1)
    assert late[-1] == pytest.approx(0, abs=0.1)


def test_one_batch_on_time_proves_that_the_others_were_late() -> None:
    lateness = Lateness()
    _late(lateness, 0.0, 0.001)
    for at in range(1, int(limits.RPC_LATE_RESET_S)):
        _late(lateness, float(at), 3.0)
    _late(lateness, limits.RPC_LATE_RESET_S, 0.001)
    assert _late(lateness, limits.RPC_LATE_RESET_S + 5, 3.0) == pytest.approx(3.0, abs=0.1)

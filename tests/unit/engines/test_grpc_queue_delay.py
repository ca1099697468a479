"""How much a batch is delayed, although no two clocks agree."""

import pytest

from seriatim.domain import limits
from seriatim.engines.grpc.queue_delay import QueueDelay

APART_S = 1000.0  # the clocks of the two processes


def _delay(queue_delay: QueueDelay, sent_at: float, took: float) -> float:
    return queue_delay.measure(sent_at, sent_at + APART_S + took)


def test_the_first_batch_is_on_time_whatever_the_clocks_say() -> None:
    assert _delay(QueueDelay(), 5.0, 0.1) == 0


def test_what_took_longer_than_the_fastest_is_late_by_the_difference() -> None:
    queue_delay = QueueDelay()
    _delay(queue_delay, 0.0, 0.010)
    _delay(queue_delay, 1.0, 0.001)
    assert _delay(queue_delay, 2.0, 0.001) == pytest.approx(0, abs=1e-3)
    assert _delay(queue_delay, 3.0, 4.001) == pytest.approx(4.0, abs=0.01)


def test_drafts_that_waited_for_a_process_that_stood_still_are_late_by_that_time() -> None:
    queue_delay = QueueDelay()
    _delay(queue_delay, 0.0, 0.001)
    # Sent within seconds, read together five minutes later.
    for sent_at in (1.0, 2.0, 6.0):
        assert _delay(queue_delay, sent_at, 300 - sent_at) == pytest.approx(300 - sent_at, abs=0.01)


def test_a_clock_that_runs_a_little_faster_makes_nothing_late() -> None:
    queue_delay = QueueDelay()
    drift = 0.0002
    assert max(_delay(queue_delay, float(at), 0.001 + drift * at) for at in range(0, 86_400, 60)) == 0


def test_a_clock_that_was_moved_is_believed_after_a_while() -> None:
    queue_delay = QueueDelay()
    _delay(queue_delay, 0.0, 0.001)
    seconds = range(1, int(limits.GRPC_LATE_RESET_S) + 3)
    late = [_delay(queue_delay, float(at), 3600.0) for at in seconds]
    assert late[0] == pytest.approx(3600, abs=0.1)
    assert late[-1] == pytest.approx(0, abs=0.1)


def test_one_batch_on_time_proves_that_the_others_were_late() -> None:
    queue_delay = QueueDelay()
    _delay(queue_delay, 0.0, 0.001)
    for at in range(1, int(limits.GRPC_LATE_RESET_S)):
        _delay(queue_delay, float(at), 3.0)
    _delay(queue_delay, limits.GRPC_LATE_RESET_S, 0.001)
    assert _delay(queue_delay, limits.GRPC_LATE_RESET_S + 5, 3.0) == pytest.approx(3.0, abs=0.1)

"""S30: at most 100 requests of a connection are in progress; a queue that stays full ends the connection."""

from seriatim.connection.session.inbound import InboundQueue


def full(now: float = 0.0) -> InboundQueue:
    inbound = InboundQueue()
    assert all(inbound.admit(now) for _ in range(100))
    return inbound


def test_s30_the_101st_request_finds_no_place() -> None:
    assert not full().admit(0.0)


def test_a_released_place_can_be_taken_again() -> None:
    inbound = full()
    inbound.release()
    assert inbound.admit(1.0)


def test_a_queue_full_for_30_seconds_is_shed() -> None:
    assert full(now=5.0).shed_at() == 35.0


def test_a_queue_that_was_not_full_for_a_moment_starts_its_30_seconds_again() -> None:
    inbound = full(now=5.0)
    inbound.release()
    assert inbound.shed_at() is None
    inbound.admit(9.0)
    assert inbound.shed_at() == 39.0
